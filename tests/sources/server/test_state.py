"""The last scrapes, kept from one run of a hook to the next."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.window import Sample
from vllm_doctor.sources.server import state as state_module
from vllm_doctor.sources.server.exposition import Page
from vllm_doctor.sources.server.scrapes import Scrape
from vllm_doctor.sources.server.state import STALE, Look, State

TARGET = "http://127.0.0.1:8000"


def scrape(at: float, tokens: float = 0.0, started: float = 50.0) -> Scrape:
    sample = Sample("vllm:generation_tokens_total", (("engine", "0"), ("model_name", "m")), tokens)
    return Scrape(at, Page((sample,), True, True, 0), started, None)


class Time:
    """A clock that does not step, and the time of day."""

    def __init__(self) -> None:
        self.clock, self.wall = 1000.0, 1_800_000_000.0

    def passes(self, seconds: float) -> None:
        self.clock += seconds
        self.wall += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def state(tmp_path: Path, time: Time) -> Callable[[], State]:
    """As each run of a hook opens it."""
    return lambda: State(tmp_path / "state", lambda: time.clock, lambda: time.wall)


def test_the_next_run_has_what_this_one_saw(state: Callable[[], State], time: Time) -> None:
    assert state().recall(TARGET, scrape(time.clock)).scrapes == ()
    assert state().keep(TARGET, scrape(time.clock, 5.0)) == ""
    time.passes(60)
    now = scrape(time.clock, 65.0)
    (before,) = state().recall(TARGET, now).scrapes
    assert before == scrape(1000.0, 5.0)


def test_another_servers_scrapes_are_not_its(state: Callable[[], State], time: Time) -> None:
    state().keep("http://other:8000", scrape(time.clock))
    time.passes(60)
    told = state().recall(TARGET, scrape(time.clock))
    assert (told.scrapes, "the first sample" in told.note) == ((), True)


def test_servers_share_a_file(state: Callable[[], State], time: Time) -> None:
    state().keep("http://other:8000", scrape(time.clock, 1.0))
    state().keep(TARGET, scrape(time.clock, 2.0))
    time.passes(60)
    assert state().recall("http://other:8000", scrape(time.clock, 9.0)).scrapes[0].page.samples[0].value == 1.0


@pytest.mark.parametrize("now", [scrape(1060.0, 9.0, started=70.0), scrape(1060.0, 4.0, started=0.0)])
def test_a_server_that_was_started_anew_is_another(state: Callable[[], State], time: Time, now: Scrape) -> None:
    state().keep(TARGET, scrape(time.clock, 5.0, started=50.0 if now.started else 0.0))
    time.passes(60)
    told = state().recall(TARGET, now)
    assert (told.scrapes, told.reason) == ((), Reason.STALE)
    assert "restarted" in told.note


def test_the_starts_of_processes_that_have_ended_are_kept(state: Callable[[], State], time: Time) -> None:
    for started in (50.0, 1010.0, 1070.0):
        state().keep(TARGET, scrape(time.clock, started=started))
        time.passes(60)
    told = state().recall(TARGET, scrape(time.clock, started=1130.0))
    assert [one.started for one in told.kept] == [50.0, 1010.0, 1070.0]


def test_too_old_is_stale(state: Callable[[], State], time: Time) -> None:
    state().keep(TARGET, scrape(time.clock))
    time.passes(STALE + 1)
    told = state().recall(TARGET, scrape(time.clock))
    assert (told.scrapes, told.reason) == ((), Reason.STALE)
    assert "the last sample is 15 min old (stale)" in told.note


def test_two_hooks_of_one_moment_look_back_to_the_one_before(state: Callable[[], State], time: Time) -> None:
    state().keep(TARGET, scrape(time.clock))
    time.passes(60)
    state().keep(TARGET, scrape(time.clock, 6.0))
    time.passes(0.3)
    (before,) = state().recall(TARGET, scrape(time.clock, 6.1)).scrapes
    assert before.at == 1000.0


def test_after_a_restart_of_the_host_the_time_of_day_counts(
    state: Callable[[], State], time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_boot", lambda: "one")
    state().keep(TARGET, scrape(time.clock))
    monkeypatch.setattr(state_module, "_boot", lambda: "another")
    time.clock, time.wall = 20.0, time.wall + 120.0
    (before,) = state().recall(TARGET, scrape(time.clock)).scrapes
    assert time.clock - before.at == pytest.approx(120.0)


def test_a_clock_that_was_set_changes_no_rate(
    state: Callable[[], State], time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_boot", lambda: "one")
    state().keep(TARGET, scrape(time.clock))
    time.passes(60)
    time.wall += 600.0
    (before,) = state().recall(TARGET, scrape(time.clock)).scrapes
    assert time.clock - before.at == 60.0


def test_it_is_bounded(state: Callable[[], State], time: Time, tmp_path: Path) -> None:
    for _ in range(50):
        state().keep(TARGET, scrape(time.clock))
        time.passes(60)
    assert len(json.loads((tmp_path / "state").read_text().partition("\n")[2])["servers"][TARGET]) == 4
    for number in range(100):
        state().keep(f"http://h:{number}", scrape(time.clock))
    kept = json.loads((tmp_path / "state").read_text().partition("\n")[2])["servers"]
    assert len(kept) == 64
    assert "http://h:99" in kept


def test_what_is_too_much_is_not_kept(
    state: Callable[[], State], time: Time, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state_module, "_MOST_BYTES", 50)
    assert "would have to be kept" in state().keep(TARGET, scrape(time.clock))
    assert not (tmp_path / "state").exists()


def test_it_is_its_owners_alone_and_written_whole(state: Callable[[], State], time: Time, tmp_path: Path) -> None:
    state().keep(TARGET, scrape(time.clock))
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_hooks_at_the_same_time_lose_nothing(state: Callable[[], State], time: Time, tmp_path: Path) -> None:
    targets = [f"http://h:{number}" for number in range(12)]
    threads = [threading.Thread(target=lambda t=t: state().keep(t, scrape(time.clock))) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(json.loads((tmp_path / "state").read_text().partition("\n")[2])["servers"]) == set(targets)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"INFO 11-20 10:15:00 a log\n", "no state of vllm-doctor, so it is not overwritten"),
        (b"vllm-doctor/state/v2\n{}", "written by a newer vllm-doctor"),
        (b"\x00\xff", "no state of vllm-doctor"),
    ],
)
def test_another_file_is_not_overwritten(state: Callable[[], State], tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(UsageError, match=why):
        state().check()
    assert (tmp_path / "state").read_bytes() == content


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", '{"servers": []}', '{"servers": {"x": 1}}', "[" * 100_000, '{"servers": {"TARGET": [{}]}}',
     '{"servers": {"TARGET": [{"at": "x", "boot": 1, "clock": NaN, "started": 0, "samples": [[1]]}]}}',
     '{"servers": {"TARGET": [7, null]}}'],
)  # fmt: skip
def test_a_torn_one_is_begun_anew(state: Callable[[], State], time: Time, tmp_path: Path, body: str) -> None:
    (tmp_path / "state").write_text("vllm-doctor/state/v1\n" + body.replace("TARGET", TARGET))
    state().check()
    told = state().recall(TARGET, scrape(time.clock))
    assert (told.scrapes, "started over" in told.note or "first sample" in told.note) == ((), True)
    assert state().keep(TARGET, scrape(time.clock, 1.0)) == ""
    time.passes(60)
    assert state().recall(TARGET, scrape(time.clock, 2.0)).scrapes[-1].page.samples[0].value == 1.0


def test_an_empty_file_is_a_state(state: Callable[[], State], tmp_path: Path, time: Time) -> None:
    (tmp_path / "state").touch()
    state().check()
    assert state().keep(TARGET, scrape(time.clock)) == ""


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "link", tmp_path / "pipe", tmp_path, tmp_path / "no" / "where"):
        with pytest.raises(UsageError, match="--state "):
            State(path).check()


def test_a_folder_that_another_program_locks_does_not_stop_the_hook(
    state: Callable[[], State], time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_LOCK_SECONDS", 0.0)
    with state()._locked():
        assert "another program holds the lock" in state().keep(TARGET, scrape(time.clock))


def test_a_broken_state_is_told_and_replaced(state: Callable[[], State], time: Time, tmp_path: Path) -> None:
    state().keep(TARGET, scrape(time.clock))
    path = state().path
    text = path.read_text("utf-8")
    path.write_text(text.replace('"at":', f'"at":{"9" * 400},"was":', 1), "utf-8")
    time.passes(60)
    told = state().recall(TARGET, scrape(time.clock, 6.0))
    assert (told.scrapes, "torn" in told.note) == ((), True)
    assert state().keep(TARGET, scrape(time.clock, 6.0)) == ""
    time.passes(60)
    assert len(state().recall(TARGET, scrape(time.clock, 7.0)).scrapes) == 1


# Looks at other sources


def test_a_look_is_kept_for_the_next_run(state: Callable[[], State], time: Time) -> None:
    assert state().look("host x") is None
    assert state().keep_look("host x", Look(time.clock, [1, "a"])) == ""
    assert state().look("host x") is None, "a moment ago"
    time.passes(60)
    assert state().look("host x") == Look(1000.0, [1, "a"])
    assert state().look("host y") is None


def test_of_two_hooks_at_once_each_has_a_look_before(state: Callable[[], State], time: Time) -> None:
    state().keep_look("host x", Look(time.clock, "first"))
    time.passes(60)
    state().keep_look("host x", Look(time.clock, "second"))
    time.passes(0.1)
    assert state().look("host x") == Look(1000.0, "first")
    for _ in range(5):
        state().keep_look("host x", Look(time.clock, "again"))
    assert len(json.loads(state().path.read_text().partition("\n")[2])["looks"]["host x"]) == 2


def test_a_look_that_is_stale_or_of_another_boot_is_none(
    state: Callable[[], State], time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    state().keep_look("host x", Look(time.clock, 1))
    time.passes(STALE + 1)
    assert state().look("host x") is None
    state().keep_look("host x", Look(time.clock, 1))
    time.passes(60)
    for boot in ("another", None):
        monkeypatch.setattr(state_module, "_boot", lambda boot=boot: boot)
        assert state().look("host x") is None


def test_looks_and_scrapes_do_not_disturb_each_other(state: Callable[[], State], time: Time) -> None:
    state().keep(TARGET, scrape(time.clock, 5.0))
    state().keep_look("host x", Look(time.clock, 1))
    time.passes(60)
    state().keep(TARGET, scrape(time.clock, 6.0))
    assert state().look("host x") is not None
    assert len(state().recall(TARGET, scrape(time.clock, 7.0)).scrapes) == 1


@pytest.mark.parametrize(
    "looks", ['{"host x":[{"clock":"a"}]}', '{"host x":[7]}', '{"host x":[{}]}', '{"host x":[[]]}']
)
def test_a_look_that_is_torn_is_none(state: Callable[[], State], time: Time, looks: str) -> None:
    state().path.write_text(f'vllm-doctor/state/v1\n{{"servers":{{}},"looks":{looks}}}\n')
    assert state().look("host x") is None
