"""A short slice is of the thread that asks and of its children, and nothing of the server's changes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.sources.profile import time_slice

SLICE = re.compile(r"^se\.slice\s*:\s*(\d+)$", re.MULTILINE)


def own() -> int:
    """Nanoseconds, as the kernel tells this thread."""
    found = SLICE.search(Path("/proc/thread-self/sched").read_text())
    if found is None or tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 12):
        pytest.skip("this kernel has no slices of one's own, or does not tell them")
    return int(found[1])


def in_a_thread(does: Callable[[], object]) -> None:
    thread = threading.Thread(target=does)
    thread.start()
    thread.join()


def test_what_the_thread_starts_has_it_and_nobody_else() -> None:
    seen: list[object] = []
    before = own()

    def ask() -> None:
        seen.append(time_slice.shorten())
        in_a_thread(lambda: seen.append(own()))

    in_a_thread(ask)
    assert seen == [True, 100_000]
    assert own() == before != 100_000


def test_niceness_stays() -> None:
    seen: list[int] = []

    def ask() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
        time_slice.shorten()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    in_a_thread(ask)
    assert seen == [7]
