"""What the terminal shows of a real vLLM: well, preempting, and killed under the doctor's eyes.

usage: python -m tests.lab.screens > FILE

Each screen at 80×24 and at 140×40. Needs tmux and tests/lab/install.sh.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.lab.server import loaded, must_be_installed, vllm
from tests.tui.tmux import Tmux, terminal
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.kernel import Kernel

LIMITS = ("--max-model-len", "2048", "--max-num-seqs", "64")
WELL = {"clients": 16, "prompt": 128, "out": 200, "vary": True}
HEAVY = {"clients": 24, "prompt": 256, "out": 700}
WATCHED_SECONDS = 35
SIZES = ((80, 24), (140, 40))
DRAWN_SECONDS = 3


def show(name: str, tmux: Tmux, text: str) -> None:
    """Print the screen in both sizes, once this text stands on it."""
    tmux.until(text)
    for columns, lines in SIZES:
        tmux.resize(columns, lines)
        time.sleep(DRAWN_SECONDS)  # the next view model
        print(f"── {name}, {columns}×{lines} ".ljust(columns, "─"))
        print(tmux.until(text), flush=True)
    tmux.resize(*SIZES[0])


@contextlib.contextmanager
def watching(url: str) -> Iterator[Tmux]:
    """A terminal in which the doctor has watched this server for a while."""
    with tempfile.TemporaryDirectory() as folder, terminal(Path(folder)) as tmux:
        tmux.type(f"doctor {url}", "Enter")
        tmux.until("live")
        time.sleep(WATCHED_SECONDS)
        yield tmux


def main() -> None:
    must_be_installed()
    with vllm(LIMITS, "screens-well") as url, loaded(url, WELL), watching(url) as tmux:
        show("well", tmux, "OK")
    sick = (*LIMITS, "--num-gpu-blocks-override", "80")
    with vllm(sick, "screens-sick") as url, loaded(url, HEAVY), watching(url) as tmux:
        show("preempting", tmux, "preemption")
        tmux.type("Enter")
        show("preempting, the finding opened", tmux, "thresholds: ")
        tmux.type("3")
        show("preempting, the host", tmux, "processes")
        tmux.type("1")
        server = process.listening_on(Kernel(), urlsplit(url).port or 0)
        assert isinstance(server, process.ServerProcess)
        os.kill(server.root, signal.SIGKILL)
        show("dead", tmux, "lost")


if __name__ == "__main__":
    main()
