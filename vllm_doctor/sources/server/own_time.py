"""What the doctor itself got of the CPU. One that gets none is late, and its server need not be.

The kernel counts for each thread how long it ran, and how long it was ready to run and waited for a CPU (schedstat).
"""

from __future__ import annotations

import os
from typing import NamedTuple

_TASKS = "/proc/self/task"
_NANO = 1e-9


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


def _of(thread: str) -> OwnTime:
    try:
        with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
            ran, waited = file.read(100).split()[:2]
        return OwnTime(int(ran) * _NANO, int(waited) * _NANO)
    except (OSError, ValueError):  # the thread has ended, no Linux, or a kernel that does not count
        return NOTHING
