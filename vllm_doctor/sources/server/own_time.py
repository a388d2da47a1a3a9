"""What the doctor itself got of the CPU. One that gets none is late, and its server need not be.

The kernel counts for each thread how long it ran, and how long it was ready to run and waited for a CPU (schedstat).
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import NamedTuple

_TASKS = "/proc/self/task"
_NANO = 1e-9
_STARVED, _LEAST = 3.0, 0.1
"""How many times as long as alone is too long, once so many seconds were waited (heuristic)."""
_A_START = 1.0
"""Seconds of a CPU: the doctor starts in a third of them."""
_BEFORE_OTHERS = -10


class OwnTime(NamedTuple):
    """Seconds that threads ran, and waited for a CPU."""

    ran: float
    waited: float

    @property
    def slowdown(self) -> float:
        """How many times as long it takes as it would alone; 1 where that is not known."""
        return (self.ran + self.waited) / self.ran if self.ran > 0 else 1.0


NOTHING = OwnTime(0.0, 0.0)


def of_all() -> OwnTime:
    """Of all threads of this process that there are now, since they began; zeros where the kernel does not tell."""
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return NOTHING
    times = [_of(thread) for thread in threads]
    return OwnTime(sum(time.ran for time in times), sum(time.waited for time in times))


def of_main() -> OwnTime:
    """Of the first thread: what a program that has no other one yet did since it began."""
    return _of(str(os.getpid()))


def of_this() -> OwnTime:
    """Of the thread that asks."""
    return _of(str(threading.get_native_id()))


def of_start() -> OwnTime:
    """What this program took to start; nothing where it runs for longer already: then another one called the doctor."""
    own = of_main()
    return own if own.ran < _A_START else NOTHING


def hurry() -> None:
    """Where it is starved, and may (root), this thread goes before others, and the threads that it starts: it takes
    half a second of a CPU, and is too late without it. A priority that the user gave it stays."""
    with contextlib.suppress(OSError):
        own = of_start()
        if own.slowdown > _STARVED and own.waited > _LEAST and os.getpriority(os.PRIO_PROCESS, 0) == 0:
            os.setpriority(os.PRIO_PROCESS, 0, _BEFORE_OTHERS)


def take_turns() -> None:
    """This thread goes before nobody any more: what it does may take long."""
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) == _BEFORE_OTHERS:
            os.setpriority(os.PRIO_PROCESS, 0, 0)


def _of(thread: str) -> OwnTime:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            ran, waited = file.read(100).split()[:2]
        return OwnTime(int(ran) * _NANO, int(waited) * _NANO)
    except (OSError, ValueError):  # the thread has ended, no Linux, or a kernel that does not count
        return NOTHING
