"""A real terminal: tmux, with a shell in it that has the doctor as `doctor`.

Needs tmux (tests/programs.py).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT
from tests.programs import needed

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

    def resize(self, columns: int, lines: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(lines))

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


@contextlib.contextmanager
def terminal(folder: Path) -> Iterator[Tmux]:
    """80×24, in this folder, which the doctor also keeps its files in."""
    command = folder / "doctor"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m vllm_doctor "$@"\n'
    )
    command.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")}
    environment |= {"PS1": "$ ", "PATH": f"{folder}:{environment['PATH']}", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    environment |= {"XDG_STATE_HOME": str(folder / "state"), "ENV": ""}
    with tempfile.TemporaryDirectory(prefix="d") as short:  # a socket's path must be short
        made = Tmux(f"{short}/t")
        start = ["-S", made.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"]
        subprocess.run([needed("tmux"), *start], check=True, env=environment, cwd=folder, timeout=60)
        try:
            yield made
        finally:
            with contextlib.suppress(AssertionError, subprocess.SubprocessError):
                made("kill-server")
