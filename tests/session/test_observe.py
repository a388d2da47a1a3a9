"""Sources in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.observe import observe
from vllm_doctor.session.source import Source
from vllm_doctor.sources.server import own_time
from vllm_doctor.sources.server.own_time import OwnTime


def server(name: str, look: Callable[[], Observation] | None = None) -> Source:
    return Source(SourceKind.SERVER, name, name, look or (lambda: Observation(SourceKind.SERVER, name)))


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set when the test is over, so that its threads end."""
    event = threading.Event()
    yield event
    event.set()


def test_observations_come_in_the_order_of_their_sources() -> None:
    late = threading.Event()

    def slow() -> Observation:
        assert late.wait(60)
        return Observation(SourceKind.SERVER, "slow")

    def fast() -> Observation:
        late.set()
        return Observation(SourceKind.SERVER, "fast")

    assert [o.target for o in observe([server("slow", slow), server("fast", fast)], 60)] == ["slow", "fast"]


def test_sources_look_at_the_same_time() -> None:
    together = threading.Barrier(3)

    def look() -> Observation:
        together.wait(60)  # for all three
        return Observation(SourceKind.SERVER, "x")

    assert len(observe([server("x", look)] * 3, 60)) == 3


def test_one_that_hangs_does_not_hang_the_doctor(never: threading.Event) -> None:
    def hang() -> Observation:
        never.wait()
        return Observation(SourceKind.SERVER, "hung")

    hung, fine = observe([Source(SourceKind.GPU, "the driver", "here", hang), server("fine")], 0.1)
    assert (hung.kind, hung.target, hung.patient) == ("gpu", "the driver", "here")
    assert hung.error == Problem("timeout", "the driver did not answer in time: raise --timeout")
    assert fine.error is None


def raising(error: Exception) -> Callable[[], Observation]:
    def look() -> Observation:
        raise error

    return look


def test_a_fault_of_our_own_is_the_error_of_its_source_and_the_others_are_seen() -> None:
    fine, ill = observe([server("fine"), server("ill", raising(ZeroDivisionError("boom")))], 60)
    assert fine.error is None
    assert ill.error is not None
    assert (ill.target, ill.patient, ill.error.kind) == ("ill", "ill", "internal")
    assert ill.error.message.startswith("internal error: ZeroDivisionError: boom")


def test_a_source_for_which_there_is_no_memory_is_named() -> None:
    [ill] = observe([server("ill", raising(MemoryError()))], 60)
    assert ill.error is not None
    assert ill.error.kind == "no-memory"
    assert "ulimit -v" in ill.error.message


def test_a_mistake_of_the_user_is_raised_here() -> None:
    with pytest.raises(UsageError, match="--until is before"):
        observe([server("fine"), server("ill", raising(UsageError("--until is before --since")))], 60)


def test_where_there_are_no_more_threads_sources_are_looked_at_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert [(o.target, o.error) for o in observe([server("a"), server("b")], 60)] == [("a", None), ("b", None)]


def test_nobody_to_look_at() -> None:
    assert observe([], 60) == []


def test_of_one_that_hangs_it_is_what_it_has_seen_so_far(never: threading.Event) -> None:
    def hang() -> Observation:
        never.wait()
        return Observation(SourceKind.SERVER, "hung")

    seen = Observation(SourceKind.SERVER, "hung", notes=("three scrapes",))
    [found] = observe([Source(SourceKind.SERVER, "hung", "hung", hang, so_far=lambda: seen)], 0.0)
    assert found is seen


def test_what_a_starved_doctor_did_not_look_at_in_time(never: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang() -> Observation:
        never.wait()
        return Observation(SourceKind.HOST, "pid 1")

    waits = iter((OwnTime(1.0, 1.0), OwnTime(1.0, 9.0)))
    monkeypatch.setattr(own_time, "of_all", lambda: next(waits))
    [found] = observe([Source(SourceKind.HOST, "pid 1", "pid 1", hang)], 0.0)
    assert found.error is not None
    assert found.error.kind == "starved"
    assert found.error.message.startswith("the doctor itself waited 8.0 s for a CPU: pid 1 was not read in time")


@pytest.mark.parametrize("kind", [SourceKind.LOG, SourceKind.BENCH])
def test_a_file_was_not_read_to_its_end(kind: SourceKind, never: threading.Event) -> None:
    def hang() -> Observation:
        never.wait()
        return Observation(kind, "a.log")

    [found] = observe([Source(kind, "a.log", "a.log", hang)], 0.0)
    assert found.error is not None
    assert "a.log was not read to its end in time" in found.error.message


def test_what_was_there_before_is_read_without_a_limit() -> None:
    def source(kind: SourceKind, was_there: bool = False) -> Source:
        return Source(kind, "x", "x", lambda: Observation(kind, "x"), was_there=was_there)

    assert all(source(kind).is_past for kind in (SourceKind.LOG, SourceKind.COMMAND, SourceKind.GPU_NAME))
    assert not source(SourceKind.GPU).is_past
    assert source(SourceKind.GPU, was_there=True).is_past
