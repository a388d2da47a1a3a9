"""Whether a processor is idle, which a second thread of the doctor may take."""

from __future__ import annotations

import os
from collections.abc import Callable

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel

_LOOKS = 8
_SHARED = 0.5
"""Of a processor: so much others may want at the same time."""


def idle_processor(kernel: Kernel, processors: int | None = None) -> Callable[[], bool]:
    """A question to be asked now and then: whether one was idle, on average of the times when it was asked.

    What counts is what wants to run at that instant, on the whole host; a load average is of the minute before. Where a
    vLLM keeps one of two processors busy, the answer is no; so it is where nothing tells.
    """
    there = processors or _processors()
    looks = running = 0

    def is_idle() -> bool:
        nonlocal looks, running
        text = kernel.text("proc/loadavg")
        if isinstance(text, Reason):
            return False
        looks += 1
        running += int(text.split()[3].partition("/")[0])  # "0.20 0.18 0.12 1/80 11206": with who asks
        return looks >= _LOOKS and running / looks + 1 <= there + _SHARED

    return is_idle


def _processors() -> int:
    """On which the doctor may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
