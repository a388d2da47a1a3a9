"""The real command in a real terminal, tmux: what it draws, its keys, another size, and how it leaves the terminal.

Needs tmux (apt-get install tmux; .ci/run installs it).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tui.watching import Pages
from vllm_doctor import demo

ROOT = Path(__file__).parents[2]
LOG = "vllm.log.gz"
FOUND = "Requests queue"
"""What is found in it."""
PATIENCE = 60.0


@dataclass
class Tmux:
    """A terminal of its own, with a shell in it."""

    socket: str

    def __call__(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    def until(self, text: str, shown: Callable[[], str] | None = None) -> str:
        """The screen, as soon as this stands on it."""
        until = time.monotonic() + PATIENCE
        while text not in (seen := (shown or self.screen)()):
            assert time.monotonic() < until, f"{text!r} is not on the screen:\n{seen}"
            time.sleep(0.05)
        return seen

    def is_restored(self) -> None:
        """The shell is back on the ordinary screen, its cursor is there, and typed letters are echoed."""
        state = self("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split()
        assert state == ["0", "1", "0"]
        self.type("echo is-it-ech''oed", "Enter")
        assert "echo is-it-ech''oed" in self.until("is-it-echoed\n")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """80×24, with the doctor as `doctor` on the path."""
    command = tmp_path / "doctor"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m vllm_doctor "$@"\n'
    )
    command.chmod(0o755)
    (tmp_path / LOG).write_bytes((ROOT / "fixtures/logs/max-num-seqs-cap.log.gz").read_bytes())
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")}
    environment |= {"PS1": "$ ", "PATH": f"{tmp_path}:{environment['PATH']}", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "ENV": ""}
    with tempfile.TemporaryDirectory(prefix="d") as folder:  # a socket's path must be short
        made = Tmux(f"{folder}/t")
        start = ["tmux", "-S", made.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"]
        subprocess.run(start, check=True, env=environment, cwd=tmp_path, timeout=60)
        try:
            yield made
        finally:
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):
                made("kill-server")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The demo's server."""
    assert Pages("preemption").asked == 0
    with demo.serving(demo.find("preemption"), again=True) as served:
        yield served


def test_start_keys_another_size_and_the_end(tmux: Tmux, url: str, tmp_path: Path) -> None:
    tmux.type(f"doctor {url}; echo code=$?", "Enter")
    first = tmux.until("CRITICAL")
    assert "cure" in first
    tmux.type("Enter")
    tmux.until("thresholds: ")
    tmux.type("Escape")
    tmux.until("findings: ")
    tmux("resize-window", "-x", "140", "-y", "40")
    wide = tmux.until("│")
    assert max(map(len, wide.splitlines())) > 100
    tmux("resize-window", "-x", "50", "-y", "10")
    tmux.until("Too small")
    tmux("resize-window", "-x", "80", "-y", "24")
    tmux.until("c copy cure")
    tmux.type("c")
    tmux.until("copied")
    assert (tmp_path / "state/vllm-doctor/cure.sh").read_text() == "--num-gpu-blocks-override\n"
    tmux.type("q")
    tmux.until("code=2")  # the last verdict was critical
    tmux.is_restored()


def test_sigterm_leaves_the_terminal_well(tmux: Tmux, tmp_path: Path) -> None:
    tmux.type(f"sh -c 'echo $$ > pid; exec doctor {LOG}'; echo code=$?", "Enter")
    tmux.until(FOUND)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    tmux.until("code=143")
    tmux.is_restored()


def test_a_crash_leaves_the_terminal_well_and_one_line(tmux: Tmux, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import sys\nfrom vllm_doctor.tui.rules import RulesPage\n"
        "def fail(self, view):\n    raise ZeroDivisionError('broken on purpose')\n"
        "RulesPage.draw_rows = fail\nfrom vllm_doctor.cli import main\nsys.exit(main(sys.argv[1:]))\n"
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
    assert "'no-such-file' is neither a file, nor a URL" in seen
    tmux.is_restored()


def test_a_terminal_that_cannot_be_drawn_on_gets_text_and_a_line_why(tmux: Tmux) -> None:
    tmux.type(f"TERM=dumb doctor {LOG} | head -3; TERM=dumb doctor {LOG}; echo code=$?", "Enter")
    tmux.until("code=1")
    everything = tmux("capture-pane", "-p", "-S", "-200")
    assert "text, as this terminal cannot be drawn on: TERM is dumb" in everything
    assert "WARNING  Requests queue behind" in everything
