"""All harnesses, each in a process of its own, for their shares of the time.

    python -m tests.fuzz.run --seconds 60 --jobs 2
    python -m tests.fuzz.run --seconds 3600 --jobs 2      # an hour: more than ten million inputs
    python -m tests.fuzz.run --seconds 60 condition log   # these harnesses only

Prints a table, and ends with 1 where a promise was broken: the input is then among the seeds (seeds/HARNESS/), which
tests/fuzz/test_seeds.py plays again, with its traceback beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import mmap
import multiprocessing
import os
import pickle
import sys
import time
from multiprocessing.process import BaseProcess
from typing import Any

from tests.fuzz import engine, harnesses
from tests.fuzz.engine import Outcome
from tests.fuzz.harness import HARNESSES

_PATIENCE = 60.0
"""Seconds that a process may take longer than its share: to start, and to make a finding small."""
_ROOM = 4 + 2 * 1024 * 1024


class _Worker:
    """One harness in a process of its own."""

    def __init__(self, name: str, seconds: float, seed: int) -> None:
        self.name, self.seconds = name, seconds
        self._current = mmap.mmap(-1, _ROOM)  # shared with the child: what it tries, should it die of it
        self._receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
        self._process: BaseProcess = multiprocessing.get_context("fork").Process(
            target=self._run, args=(seed, sender), daemon=True
        )
        self._process.start()
        sender.close()
        self._until = time.monotonic() + seconds + _PATIENCE
        self.outcome: Outcome | None = None

    def _run(self, seed: int, sender: Any) -> None:
        outcome = Outcome()
        with open(os.devnull, "w") as nowhere:  # also what libraries write there by themselves
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        engine.fuzz(HARNESSES[self.name], self.seconds, seed, self._note, outcome)
        sender.send_bytes(pickle.dumps(outcome))
        sender.close()

    def _note(self, data: bytes) -> None:
        self._current[: 4 + len(data)] = len(data).to_bytes(4, "little") + data

    def is_done(self) -> bool:
        if self.outcome is None and self._receiver.poll(0):
            with contextlib.suppress(EOFError):
                self.outcome = pickle.loads(self._receiver.recv_bytes())
            self._process.join(5)
            self.outcome = self.outcome or self._died(f"ended with {self._process.exitcode}")
        if self.outcome is None and time.monotonic() > self._until:
            self.outcome = self._died("did not end")
        if self.outcome is not None and self._process.is_alive():
            self._process.kill()
        return self.outcome is not None

    def _died(self, how: str) -> Outcome:
        """What killed it, or holds it where no signal reaches: the input that it was last given."""
        size = int.from_bytes(self._current[:4], "little")
        told = f"the process of the harness {how}; this was its last input"
        return Outcome(found={told: (self._current[4 : 4 + size], told + "\n")})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=60.0, help="in all, without starting (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=None, help="the same inputs again")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    names = harnesses.names_of(options.harness)
    harnesses.warm()
    weights = sum(HARNESSES[name].weight for name in names)
    share = options.seconds * options.jobs / weights
    started = time.monotonic()
    print(f"seed {seed}, {len(names)} harnesses", flush=True)
    waiting = sorted(names, key=lambda name: -HARNESSES[name].weight)
    running: list[_Worker] = []
    done: list[_Worker] = []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            running.append(_Worker(name, HARNESSES[name].weight * share, seed))
        time.sleep(0.05)
        done += [worker for worker in running if worker.is_done()]
        running = [worker for worker in running if worker.outcome is None]
    return _told(done, time.monotonic() - started)


def _told(done: list[_Worker], seconds: float) -> int:
    """The table, and each finding; the exit code."""
    out = io.StringIO()
    total = findings = 0
    cpu = 0.0
    print(f"{'harness':<20}{'inputs':>12}{'per CPU s':>11}{'signs':>8}{'slowest':>9}{'found':>7}", file=out)
    for worker in sorted(done, key=lambda worker: worker.name):
        told = worker.outcome or Outcome()
        total, findings, cpu = total + told.inputs, findings + len(told.found), cpu + told.cpu
        rate = told.inputs / max(told.cpu, 0.01)
        row = f"{told.inputs:>12,}{rate:>11,.0f}{told.signs:>8,}{told.slowest:>7.2f} s{len(told.found):>7}"
        print(f"{worker.name:<20}{row}", file=out)
    print(f"{'all':<20}{total:>12,}{total / max(cpu, 0.01):>11,.0f}{'':>17}{findings:>7}", file=out)
    print(f"{total / seconds:,.0f} a second, in {seconds:.0f} s", file=out)
    for worker in done:
        for key, (data, traceback) in (worker.outcome or Outcome()).found.items():
            path = engine.keep(worker.name, data)
            path.with_suffix(".traceback").write_text(traceback, "utf-8", "replace")
            print(f"\n{worker.name}: {key}\n{path}: {data[:200]!r}\n{traceback[-1500:]}", file=out)
    print(out.getvalue(), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
