"""The real command in a real terminal, tmux: what it draws, its keys, another size, and how it leaves the terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.tui.tmux import Tmux, terminal
from tests.tui.watching import Pages
from vllm_doctor.recording import demo

LOG = "vllm.log.gz"
FOUND = "Requests queue"
"""What is found in it."""


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """80×24, with a log beside it."""
    (tmp_path / LOG).write_bytes((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes())
    with terminal(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The demo's server."""
    assert Pages("preemption").asked == 0
    with demo.serving(demo.find("preemption"), again=True) as served:
        yield served


def test_start_keys_another_size_and_the_end(tmux: Tmux, url: str, tmp_path: Path) -> None:
    tmux.type(f"doctor {url}; echo code=$?", "Enter")
    first = tmux.until("CRITICAL")
    assert "fix" in first
    tmux.type("Enter")
    tmux.until("thresholds: ")
    tmux.type("Escape")
    tmux.until("findings: ")
    tmux.resize(140, 40)
    wide = tmux.until("│")
    assert max(map(len, wide.splitlines())) > 100
    tmux.resize(50, 10)
    tmux.until("Too small")
    tmux.resize(80, 24)
    tmux.until("c copy fix")
    tmux.type("c")
    tmux.until("copied")
    assert (
        tmp_path / "state/vllm-doctor/cure.sh"
    ).read_text() == "# remove --num-gpu-blocks-override from the command\n"
    tmux.type("q")
    tmux.until("code=2")  # the last verdict was critical
    tmux.is_restored()


def test_a_change_of_size_that_nobody_told_of_is_seen(tmux: Tmux, url: str, tmp_path: Path) -> None:
    deaf = tmp_path / "deaf.py"
    deaf.write_text(
        "import signal, sys\nheard = signal.signal\n"
        "signal.signal = lambda number, handler: None if number == signal.SIGWINCH else heard(number, handler)\n"
        "from vllm_doctor.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    tmux.type(f"PYTHONPATH={ROOT} {sys.executable} deaf.py {url}; echo code=$?", "Enter")
    tmux.until("CRITICAL")
    tmux.resize(140, 40)
    tmux.until("│")
    tmux.type("q")
    tmux.until("code=2")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_the_terminal_well(name: str, tmux: Tmux, tmp_path: Path) -> None:
    tmux.type(f"sh -c 'echo $$ > pid; exec doctor {LOG}'; echo code=$?", "Enter")
    tmux.until(FOUND)
    os.kill(int((tmp_path / "pid").read_text()), getattr(signal, name))
    assert f"vllm-doctor: ended by {name}" in tmux.until("code=3")
    tmux.is_restored()


def test_a_crash_leaves_the_terminal_well_and_one_line(tmux: Tmux, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\nfrom vllm_doctor.tui.rules import RulesPage\n"
        "def fail(self, view):\n    raise ZeroDivisionError('broken on purpose')\n"
        "RulesPage.draw_rows = fail\nfrom vllm_doctor.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    tmux.type(f"PYTHONPATH={ROOT} {sys.executable} broken.py {LOG}; echo code=$?", "Enter")
    tmux.until(FOUND)
    tmux.type("5")
    seen = tmux.until("code=3")
    assert "internal error: ZeroDivisionError: broken on purpose" in seen.replace("\n", "")
    assert "Traceback" not in seen
    tmux.is_restored()


def test_what_cannot_be_watched_is_one_line(tmux: Tmux) -> None:
    tmux.type("doctor no-such-file; echo code=$?", "Enter")
    seen = tmux.until("code=3")
    assert "'no-such-file' is neither a file nor a folder, nor a URL" in seen
    tmux.is_restored()


def test_a_terminal_that_cannot_be_drawn_on_gets_text_and_a_line_why(tmux: Tmux) -> None:
    tmux.type(f"TERM=dumb doctor {LOG} | head -3; TERM=dumb doctor {LOG}; echo code=$?", "Enter")
    tmux.until("code=1")
    everything = tmux("capture-pane", "-p", "-S", "-200")
    assert "text, as this terminal cannot be drawn on: TERM is dumb" in everything
    assert "WARNING  Requests queue behind" in everything
