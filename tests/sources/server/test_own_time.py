"""What the doctor got of the CPU, by the kernel's own count."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from vllm_doctor.sources.server import own_time
from vllm_doctor.sources.server.own_time import NOTHING, OwnTime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_what_runs_is_counted() -> None:
    before, until = own_time.of_all(), time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    after = own_time.of_all()
    assert after.ran - before.ran > 0.04
    assert after.waited >= before.waited
    assert own_time.of_main().ran <= after.ran


def test_all_threads_count() -> None:
    spun, ended = threading.Event(), threading.Event()

    def spin() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        spun.set()
        ended.wait()

    before = own_time.of_all().ran
    thread = threading.Thread(target=spin)
    thread.start()
    assert spun.wait(60)
    assert own_time.of_all().ran - before > 0.04
    ended.set()
    thread.join()


@pytest.mark.parametrize(("time", "slowdown"), [(OwnTime(1.0, 12.0), 13.0), (OwnTime(2.0, 0.0), 1.0), (NOTHING, 1.0)])
def test_how_much_longer_it_takes(time: OwnTime, slowdown: float) -> None:
    assert time.slowdown == slowdown


def test_a_kernel_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_time, "_TASKS", "/no/such/folder")
    assert own_time.of_all() == own_time.of_main() == NOTHING


class Priority:
    """The priority of a thread, as os has it."""

    def __init__(self, value: int, may: bool = True) -> None:
        self.value, self.may = value, may

    def get(self, which: int, who: int) -> int:
        return self.value

    def set(self, which: int, who: int, value: int) -> None:
        if not self.may:
            raise PermissionError
        self.value = value


@pytest.mark.parametrize(
    ("own", "before", "may", "after"),
    [
        (OwnTime(0.1, 1.0), 0, True, -10),
        (OwnTime(0.1, 1.0), 0, False, 0),
        (OwnTime(0.1, 1.0), 5, True, 5),
        (OwnTime(0.1, 0.15), 0, True, 0),
        (OwnTime(0.01, 0.05), 0, True, 0),
    ],
)
def test_a_starved_doctor_goes_before_others_where_it_may(
    own: OwnTime, before: int, may: bool, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    priority = Priority(before, may)
    monkeypatch.setattr(own_time, "of_main", lambda: own)
    monkeypatch.setattr(os, "getpriority", priority.get)
    monkeypatch.setattr(os, "setpriority", priority.set)
    own_time.hurry()
    assert priority.value == after
    own_time.take_turns()
    assert priority.value == before
