"""The goals of speed as one table, each beside a reference run. usage: goals.py [--before TREE] [WORD ...]

With --before, the program of another checkout (TREE/.venv) takes turns with this one's. A WORD limits the rows to those
that hold it. Prints a table; never fails: a goal missed on a busy machine is for a person to read, who reads the ratio.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.benchmarks import log
from tests.benchmarks.run import served_elsewhere
from tests.benchmarks.tui import Terminal
from tests.paths import FIXTURES, ROOT
from vllm_doctor.rules import folders, log_lines

PYTHON = [sys.executable, "-c", "import httpx"]
"""What a program of Python that asks a server cannot do without."""
TEXTUAL = """
from textual.app import App
from textual.widgets import Static
class Clock(App):
    def compose(self): yield Static("0")
    def on_mount(self): self.n = 0; self.set_interval(1, self.tick)
    def tick(self): self.n += 1; self.query_one(Static).update(str(self.n))
Clock().run()
"""
SERVER = """
import sys, time
sys.path.insert(0, sys.argv[-1])
from vllm_doctor.recording import demo
with demo.serving(demo.find("preemption")) as url:
    print(url, file=sys.stderr, flush=True)
    while True:
        print(time.strftime("INFO %m-%d %H:%M:%S [loggers.py:236] Engine 000: Avg prompt throughput: 99.9 tokens/s, "
            "Avg generation throughput: 2500.0 tokens/s, Running: 18 reqs, Waiting: 6 reqs, GPU KV cache usage: 99.9%, "
            "Prefix cache hit rate: 0.0%"), flush=True)
        time.sleep(1)
"""
"""The demo's server as `python -m vllm.entrypoints.openai.api_server`, with a log."""


@dataclass(frozen=True)
class Goal:
    """One row. `of`: the figure of a run; seconds, except `share`: CPU seconds in each second that it runs."""

    name: str
    arguments: tuple[str, ...]
    reference: Sequence[str]
    at_most: float
    of: Literal["cpu", "wall", "share"] = "wall"
    rounds: int = 7
    bytes: int = 0
    pause: float = 0.0
    """Seconds before each run: a hook that runs twice at once has nothing to compare with."""


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The URL and the pid of a server with a log, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "vllm", "entrypoints", "openai")
        package.mkdir(parents=True)
        (package / "api_server.py").write_text(SERVER)
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny", str(ROOT)]
        environment = os.environ | {"PYTHONPATH": folder}
        with Path(folder, "vllm.log").open("wb") as output:
            server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        try:
            yield server.stderr.readline().strip(), server.pid
        finally:
            server.kill()
            server.communicate()


def share(command: Sequence[str], seconds: float = 20.0) -> float:
    """CPU seconds in each second, at a terminal, from its sixth second on."""
    terminal = Terminal(command)
    terminal.drain(6.0)
    before, began = terminal.cpu(), time.perf_counter()
    terminal.drain(seconds)
    used = (terminal.cpu() - before) / (time.perf_counter() - began)
    terminal.close()
    return used


def measured(goal: Goal, command: Sequence[str]) -> tuple[float, float]:
    """The figure of one run, and its peak MB."""
    if goal.of == "share":
        return share(command), 0.0
    time.sleep(goal.pause)
    with tempfile.TemporaryFile() as output:  # not /dev/null: grep would stop at its first line
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    return (usage.ru_utime + usage.ru_stime if goal.of == "cpu" else wall), usage.ru_maxrss / 1024


def goals(elsewhere: str, url: str, pid: int, logs: dict[int, Path], patterns: Path) -> Iterator[Goal]:
    once = ("--json", "--window", "0")
    yield Goal("URL --json --window 0, CPU", (elsewhere, *once), PYTHON, 0.25, "cpu", 15)
    yield Goal("the same with host, log, GPUs, CPU", (url, *once), PYTHON, 0.35, "cpu", 15)
    state = str(logs[20].with_name("state")) + "-{}"  # one of each program: an older one knows less
    yield Goal(
        "a hook: URL --format nagios --state", (url, "--format", "nagios", "--state", state), PYTHON, 0.5, pause=2.5
    )
    both = (str(FIXTURES / "preemption"), str(FIXTURES / "healthy-busy"))
    yield Goal("compare of two recordings", ("compare", *both, "--text"), PYTHON, 0.4)
    rg = ["rg", "-F", "-f", str(patterns)] if shutil.which("rg") else ["grep", "-F", "-f", str(patterns)]
    for megabytes, path in logs.items():
        at_most = {20: 0.35, 500: 1.0, 2000: 2000 / 1200}[megabytes]
        reference, rounds = [*rg, str(path)], 7 if megabytes < 1000 else 3
        size = path.stat().st_size
        yield Goal(
            f"a log of {megabytes:,} MB, --json", (str(path), "--json"), reference, at_most, "wall", rounds, size
        )
    yield Goal("the terminal, with host and log, CPU", (str(pid),), [sys.executable, "-c", TEXTUAL], 0.02, "share", 1)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--before", type=Path)
    options.add_argument("words", nargs="*")
    given = options.parse_args()
    trees = [*([given.before.absolute()] if given.before else []), ROOT]
    programs = [str(tree / ".venv" / "bin" / "vllm-doctor") for tree in trees]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as where it is installed
    with ExitStack() as opened:
        elsewhere = opened.enter_context(served_elsewhere())
        url, pid = opened.enter_context(served())
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        patterns = folder / "patterns"
        texts = log_lines.load(folders.shipped()).finds
        patterns.write_bytes(b"\n".join(texts[:: len(texts) // 16][:16]) + b"\n")
        logs = {megabytes: folder / f"{megabytes}.log" for megabytes in (20, 500, 2000)}
        for megabytes, path in logs.items():
            if not given.words or any(word in f"a log of {megabytes:,} MB" for word in given.words):
                log.write(path, megabytes)
            else:
                path.touch()
        head = "".join(f"{name:>12}" for name in (["before"] if given.before else []) + ["now", "goal", "reference"])
        print(f"{'medians':<38}{head}   now/reference   now/before   peak MB")
        for goal in goals(elsewhere, url, pid, logs, patterns):
            if given.words and not any(word in goal.name for word in given.words):
                continue
            commands = [
                goal.reference,
                *([name, *(word.replace("{}", str(n)) for word in goal.arguments)] for n, name in enumerate(programs)),
            ]
            runs: list[list[tuple[float, float]]] = [[] for _ in commands]
            for _ in range(goal.rounds):
                for command, kept in zip(commands, runs, strict=True):
                    kept.append(measured(goal, command))
            reference, *doctors = [median(figure for figure, _ in kept) for kept in runs]
            now, unit = doctors[-1], "" if goal.of == "share" else " s"
            figures = "".join(f"{figure:>10.3f}{unit:<2}" for figure in [*doctors, goal.at_most, reference])
            speed = f"   {goal.bytes / now / 1e9:.2f} GB/s" if goal.bytes else ""
            before = f"{now / doctors[0]:>9.2f} x" if given.before else f"{'':>11}"
            peak = max(peak for _, peak in runs[-1])
            missed = "" if now <= goal.at_most else "   MISSED"
            print(
                f"{goal.name:<38}{figures}{now / reference:>12.2f} x  {before}{peak:>10.0f}{speed}{missed}", flush=True
            )
    print(
        f"\n{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; reference: {Path(PYTHON[0]).name} -c 'import httpx';"
    )
    print("of logs, rg -F -f with 16 of the texts (or grep); of the terminal, a Textual app that shows one number")


if __name__ == "__main__":
    main()
