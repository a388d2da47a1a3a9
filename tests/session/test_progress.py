from __future__ import annotations

import io
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session import progress
from vllm_doctor.session.source import Source


class Terminal(io.StringIO):
    """`told` is set with the first thing that is written."""

    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self.told = threading.Event()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        self.told.set()
        return written


def watcher(bytes_read: Callable[[], int] | None, share: float | None = None) -> Source:
    seen = Observation(SourceKind.LOG, "vllm.log")
    return Source(SourceKind.LOG, "vllm.log", "vllm.log", lambda: seen, bytes_read, lambda: share)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return on(monkeypatch, Terminal())


def on(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Terminal:
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=terminal))  # pytest has its own sys.stderr
    return terminal


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.001)
    monkeypatch.setattr(progress, "_STEP", 0.001)


@pytest.mark.usefixtures("impatient")
def test_how_much_was_read_of_all_logs(terminal: Terminal) -> None:
    with progress.shown([watcher(lambda: 1_200_000_000), watcher(lambda: 34_000_000), watcher(None)]):
        assert terminal.told.wait(30)
    assert terminal.getvalue().startswith("\rreading the log: 1,234 MB so far")


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([0.4], "reading the log: 40 %, about 6 s left"),
        ([0.4, 0.8], "reading the log: 40 %, about 6 s left"),
        ([0.01], "reading the log: 1 %"),  # too little to tell
        ([0.999], "reading the log: 100 %, about 1 s left"),
        ([1.0], "judging the log: 500 MB were read"),
        ([None], "reading the log: 500 MB so far"),
        ([0.02], "reading the log: 2 %, about 3 min left"),
        ([0.4, None], "reading the log: 1,000 MB so far"),
        ([], "reading the log: 0 MB so far"),
    ],
)
def test_how_far_files_are_read_after_four_seconds(shares: list[float | None], says: str) -> None:
    assert progress.how_far([watcher(lambda: 500_000_000, share) for share in shares], 4.0).says == says


@pytest.mark.usefixtures("impatient")
def test_how_far_a_long_window_is(terminal: Terminal) -> None:
    seen = Observation(SourceKind.SERVER, "http://host:8000")
    live = Source(SourceKind.SERVER, "http://host:8000", "http://host:8000", lambda: seen)
    with progress.shown([live], 5.0), progress.shown([live], 30.0, is_quiet=True):
        pass
    assert terminal.getvalue() == ""
    with progress.shown([live], 30.0):
        assert terminal.told.wait(30)
    assert terminal.getvalue().startswith("\rwatched 0 of 30 s")


@pytest.mark.usefixtures("impatient")
def test_nothing_of_it_is_left_on_the_terminal(terminal: Terminal) -> None:
    with progress.shown([watcher(lambda: 1)]):
        assert terminal.told.wait(30)
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_says_nothing(terminal: Terminal) -> None:
    with progress.shown([watcher(lambda: 1)]):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_reads_no_log_or_has_no_terminal_gets_nothing(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = on(monkeypatch, Terminal(is_terminal))
    before = threading.active_count()
    with progress.shown([watcher(None if is_terminal else lambda: 1)]):
        assert threading.active_count() == before  # nobody is there who could
    assert made.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_it_ends_where_the_examination_fails(terminal: Terminal) -> None:
    def failing() -> None:
        with progress.shown([watcher(lambda: 1)]):
            assert terminal.told.wait(30)
            raise ValueError("failed")

    before = threading.active_count()
    with pytest.raises(ValueError, match="failed"):
        failing()
    assert threading.active_count() == before
    assert terminal.getvalue().endswith("\r\x1b[K")
