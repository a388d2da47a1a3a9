"""A run as facts: what is told, what follows, and what stays unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.bench.facts import facts
from vllm_doctor.sources.bench.run import LATENCY, SERVE, Asked, BenchRun, Spread

RUN = BenchRun(
    SERVE, "m", asked=Asked(rate=math.inf, concurrency=8, seed=1), completed=100, failed=0, duration=20.0,
    input_tokens=25600, output_tokens=6400, requests_per_second=5.0, output_rate=320.0, ttft=Spread(0.1),
    tpot=Spread(0.02),
)  # fmt: skip


def value(run: BenchRun, name: str, *before: BenchRun) -> Any:
    reading = facts(run, before)[name]
    return reading.value if isinstance(reading, Known) else None


def test_what_is_not_told_is_unknown_and_not_zero() -> None:
    found = facts(BenchRun(SERVE))
    assert found["bench_given"] == Known(1.0)
    for name in ("bench_failed", "bench_rate_asked", "bench_ttft", "bench_capped", "bench_ignore_eos", "bench_warmups"):
        assert found[name] == Unknown(Reason.NOT_IN_BENCH), name


def test_no_limit_is_not_an_unknown_limit() -> None:
    free = BenchRun(SERVE, asked=Asked(rate=math.inf, concurrency=math.inf))
    assert (value(free, "bench_rate_unlimited"), value(free, "bench_capped")) == (1, 0)
    assert value(free, "bench_concurrency_asked") is None


def test_requests_that_generate_and_requests_in_flight() -> None:
    assert value(RUN, "bench_concurrency") == pytest.approx(6.4)  # tokens a second × seconds a token
    assert value(RUN, "bench_in_flight") == pytest.approx(5 * (0.1 + 63 * 0.02))  # Little's law


def test_time_per_token_is_derived_where_it_is_not_told() -> None:
    by_time = BenchRun(SERVE, completed=10, output_tokens=110, ttft=Spread(1.0), e2e=Spread(3.0))
    assert (value(by_time, "bench_tpot"), value(by_time, "bench_tpot_derived")) == (pytest.approx(0.2), 0)
    by_rate = BenchRun(SERVE, asked=Asked(concurrency=8), output_rate=400.0)
    assert (value(by_rate, "bench_tpot"), value(by_rate, "bench_tpot_derived")) == (0.02, 1)
    alone = BenchRun(LATENCY, asked=Asked(concurrency=4, output_len=100), e2e=Spread(2.0))
    assert (value(alone, "bench_tpot"), value(alone, "bench_output_tokens_per_second")) == (0.02, 200)


def test_the_shorter_of_two_means_is_the_time_of_a_step() -> None:
    ragged = BenchRun(SERVE, output_rate=100.0, tpot=Spread(1.376), itl=Spread(0.661))
    assert (value(ragged, "bench_tpot"), value(ragged, "bench_concurrency")) == (0.661, pytest.approx(66.1))
    drafted = BenchRun(SERVE, output_rate=100.0, tpot=Spread(0.013), itl=Spread(0.036))
    assert value(drafted, "bench_tpot") == 0.013


def test_one_token_has_no_time_per_token() -> None:
    assert value(BenchRun(SERVE, tpot=Spread(0.0)), "bench_tpot") is None


def test_the_load_whose_speed_is_expected() -> None:
    load = [value(RUN, f"load_{name}") for name in ("requests", "input_tokens", "output_tokens")]
    assert load == [8, 256, 64]
    assert "load_requests" not in facts(BenchRun(SERVE, output_rate=3.0))


def test_the_same_prompts_again() -> None:
    faster = BenchRun(**{name: getattr(RUN, name) for name in RUN.__slots__} | {"output_rate": 800.0})
    assert value(faster, "bench_again_faster", RUN) == 2.5
    assert value(RUN, "bench_again_faster") is None
    other = BenchRun(**{name: getattr(RUN, name) for name in RUN.__slots__} | {"input_tokens": 25601.0})
    assert value(other, "bench_again_faster", RUN) is None


def test_the_command_of_a_client_tells_nothing_of_how_the_server_loads_its_weights() -> None:
    """Seen on a server with dummy weights: the client's command, which has no such flag, said that they were real."""
    assert value(replace(RUN, has_command=True), "bench_load_format") is None
    assert value(replace(RUN, tool=LATENCY, has_command=True), "bench_load_format") == "auto"
