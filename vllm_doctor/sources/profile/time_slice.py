"""A short time slice for the sampler, so that it looks when it means to.

Since Linux 6.6 a thread that runs ends its slice (about 3 ms) before one that wakes gets its CPU. Where no CPU is free
a sampler then looks just after somebody went to sleep, and threads that compute are seen less than they run. One whose
own slice is shorter does not wait (since 6.12, for whoever asks): sched_setattr(2), sched_runtime of SCHED_OTHER.
"""

from __future__ import annotations

import os
import struct
import sys

_SHORTEST = 100_000
"""Nanoseconds: the least that the kernel takes."""
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = "=IIQiIQQQ"
"""Of struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period."""


def shorten() -> bool:
    """For this thread, and for what it starts from now on; whether the kernel took it. Its niceness stays."""
    import ctypes  # late: few look into processes

    number = _SCHED_SETATTR.get(os.uname().machine) if sys.maxsize > 1 << 32 else None
    if number is None:
        return False
    size = struct.calcsize(_ATTRIBUTES)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = struct.pack(_ATTRIBUTES, size, os.SCHED_OTHER, 0, nice, 0, _SHORTEST, 0, 0)
    return not ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(attributes, size), 0)
