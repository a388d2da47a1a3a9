"""The parts of threads' time: of real stacks (vLLM 0.32.0 on a CPU, 8 clients), and of made ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor.model.profile import DEVICE_WAIT, IDLE, OTHER, ProcessProfile, Profile
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem
from vllm_doctor.rules import parts
from vllm_doctor.sources.profile import facts, profiler, stacks
from vllm_doctor.sources.profile.py_spy import Sampled

HERE = Path(__file__).parent
PARTS = parts.load()


def process(role: str, text: bytes, cores: dict[int, float] | None = None) -> ProcessProfile:
    return profiler.of_process(role, 1, Sampled(stacks.parse(text)), PARTS, cores, 8.0)


def real(role: str) -> ProcessProfile:
    return process(role, (HERE / f"{role}.stacks").read_bytes())


def test_a_healthy_engine_core_waits_for_its_device() -> None:
    main = real("engine-core").main
    assert main is not None
    assert max(main.shares, key=lambda part: main.shares[part]) == DEVICE_WAIT
    assert main.shares[DEVICE_WAIT] > 0.8


def test_a_worker_executes_the_model() -> None:
    main = real("worker").main
    assert main is not None
    worked = {part: share for part, share in main.shares.items() if part != IDLE}
    assert max(worked, key=lambda part: worked[part]) == "model-execution"


def test_nothing_of_a_healthy_server_is_unassigned() -> None:
    shares = [thread.shares.get(OTHER, 0.0) for role in profiler.ROLES for thread in real(role).threads]
    assert max(shares) < 0.02


def test_shares_of_a_thread_are_of_the_time_watched() -> None:
    for role in profiler.ROLES:
        for thread in real(role).threads:
            assert sum(thread.shares.values()) <= 1.001


LOOP = b"thread (1): MainThread;<module> (vllm);run (uvloop/__init__.py);Runner.run (asyncio/runners.py) "


def test_a_loop_in_c_that_used_the_cpu_did_not_wait() -> None:
    [thread] = process("api-server", LOOP + b"100\n", {1: 0.6}).threads
    assert thread.shares["http"] == pytest.approx(0.6)
    assert thread.shares[IDLE] == pytest.approx(0.4)


def test_a_thread_that_was_seen_less_than_it_ran_is_told() -> None:
    waits = b"thread (1): MainThread;<module> (a.py);schedule (vllm/v1/core/sched/scheduler.py) 30\n"
    waits += b"thread (1): MainThread;<module> (a.py);wait (threading.py) 70\n"
    assert "too low" in process("engine-core", waits, {1: 0.6}).notes[0]
    assert process("engine-core", waits, {1: 0.35}).notes == ()


def test_without_the_cpus_time_it_is_taken_to_wait() -> None:
    [thread] = process("api-server", LOOP + b"100\n").threads
    assert dict(thread.shares) == {IDLE: 1.0}


def test_who_used_no_cpu_waited() -> None:
    [thread] = process("api-server", b"thread (1): MainThread;sleeps (mine.py) 10\n", {1: 0.0}).threads
    assert dict(thread.shares) == {IDLE: 1.0}


def test_what_no_entry_describes_is_told() -> None:
    [thread] = process("api-server", b"thread (1): MainThread;<module> (a.py);strange (mine.py) 10\n").threads
    assert dict(thread.shares) == {OTHER: 1.0}
    assert thread.unassigned == (("strange (mine.py) < <module> (a.py)", 1.0),)


def test_a_torn_stack_counts_like_whole_ones_in_the_same_file() -> None:
    whole = b"thread (1): MainThread;<module> (vllm);schedule (vllm/v1/core/sched/scheduler.py);to_dict (vllm/x.py) 8\n"
    torn = b"thread (1): MainThread;to_dict (vllm/x.py) 2\n"
    [thread] = process("engine-core", whole + torn).threads
    assert dict(thread.shares) == {"scheduler": 1.0}


def test_facts_are_shares_of_the_busiest_process() -> None:
    profile = Profile(8.0, 100, tuple(real(role) for role in profiler.ROLES))
    found = facts.of(profile, PARTS.parts)
    waits, hashing = found["profile_engine.device-wait"], found["profile_engine.prefix-hashing"]
    assert isinstance(waits, Known)
    assert float(waits.value) > 0.8
    assert hashing == Known(0.0)


def test_who_may_not_be_looked_into_is_unknown() -> None:
    denied = ProcessProfile("engine-core", 1, problem=Problem("denied", "no"))
    found = facts.of(Profile(8.0, 100, (denied,)), PARTS.parts)
    assert found["profile_engine.scheduler"] == Unknown(Reason.DENIED)
    assert found["profile_api_busy"] == Unknown(Reason.ABSENT)


def test_a_few_samples_are_no_share() -> None:
    few = process("engine-core", b"thread (1): MainThread;schedule (vllm/v1/core/sched/scheduler.py) 10\n")
    assert facts.of(Profile(8.0, 100, (few,)), PARTS.parts)["profile_engine_busy"] == Unknown(Reason.BETWEEN)
