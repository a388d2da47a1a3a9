"""The same load, early and late: which moments are of one load, and what is said of them."""

from __future__ import annotations

import dataclasses

import pytest

from vllm_doctor.model import drift
from vllm_doctor.model.drift import Moment
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

HOURS = 24


def moments(*seconds: float, running: float = 8, used: float = 0.2, each: int = 8) -> list[Moment]:
    """So many moments at each of these times between two tokens, evenly over a day."""
    times = [one for one in seconds for _ in range(each)]
    apart = 3600 * HOURS / len(times)
    return [Moment(place * apart, one, running, used) for place, one in enumerate(times)]


def drifted(found: list[Moment]) -> Reading | None:
    return drift.facts(found, "x").get("decode_drift")


def values(found: list[Moment]) -> dict[str, object]:
    return {name: one.value for name, one in drift.facts(found, "x").items() if isinstance(one, Known)}


def test_what_gets_slower_from_third_to_third_drifts() -> None:
    found = values(moments(0.02, 0.03, 0.04))
    assert found == pytest.approx({
        "decode_early": 0.02,
        "decode_late": 0.04,
        "decode_drift": 2.0,
        "decode_drift_seconds": 16 * 3600,
        "decode_drift_batch": 8.0,
    })  # fmt: skip


def test_loads_of_which_each_came_seldom_tell_it_together() -> None:
    """Four of each load at each end; and a larger batch is no drift."""
    loads = [
        [dataclasses.replace(one, seconds=one.seconds * factor, running=running) for one in moments(1, 1.5, 2, each=4)]
        for running, factor in ((4, 0.015), (8, 0.02), (16, 0.03))
    ]
    assert drifted(loads[0]) is None
    found = values([one for load in loads for one in load])
    assert found["decode_drift"] == pytest.approx(2)


def test_a_load_that_comes_at_one_end_only_is_not_compared() -> None:
    small = [one for one in moments(0.02, 0.02, 0.02) if one.at < 8 * 3600]
    large = [one for one in moments(0.04, 0.04, 0.04, running=32) if one.at >= 8 * 3600]
    assert drift.facts(small + large, "x") == {}


@pytest.mark.parametrize("seconds", [(0.02, 0.02, 0.02), (0.04, 0.03, 0.02), (0.02, 0.06, 0.021)])
def test_what_is_as_fast_as_before_has_none(seconds: tuple[float, ...]) -> None:
    found = drifted(moments(*seconds))
    assert isinstance(found, Known)
    assert isinstance(found.value, float)
    assert found.value < 1.1


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param((0.02, 0.03, 0.02, 0.02, 0.03, 0.02, 0.03, 0.02, 0.03), id="the ends overlap"),
        pytest.param((0.0200, 0.0201, 0.0202, 0.0401, 0.0403, 0.0402, 0.0400, 0.0402, 0.0401), id="a step"),
        pytest.param((0.020, 0.020, 0.020, 0.060, 0.060, 0.060, 0.030, 0.030, 0.030), id="slowest in the middle"),
    ],
)
def test_what_is_slower_and_no_drift_is_unknown(seconds: tuple[float, ...]) -> None:
    assert drifted(moments(*seconds)) == Unknown(Reason.BETWEEN)


def test_one_slow_moment_of_ten_hides_nothing() -> None:
    found = [
        dataclasses.replace(one, seconds=0.1) if place == 3 else one
        for place, one in enumerate(moments(0.02, 0.03, 0.04, each=12))
    ]
    assert drifted(found) == Known(2.0)


@pytest.mark.parametrize(
    "other",
    [
        {"running": 0},
        {"used": 0.004},
        {"used": 0.97},
        {"prompts": 1.2},
        {"prompts": float("inf")},
        {"seconds": 0},
        {"seconds": float("inf")},
        {"seconds": 1e-200},
    ],
)
def test_a_moment_that_cannot_be_compared(other: dict[str, float]) -> None:
    found = [dataclasses.replace(one, **other) for one in moments(0.02, 0.03, 0.04)]
    assert {one.load for one in found} == {None}
    assert drift.facts(found, "x") == {}


def test_with_other_prompts_beside_it_a_load_is_another() -> None:
    loads = {Moment(0, 0.02, 8, 0.2, prompts).load for prompts in (0, 0.1, 0.5, 0.6, 1.0)}
    assert len(loads) == 3


def test_memory_is_that_of_the_moments_compared() -> None:
    found = [
        dataclasses.replace(one, memory=1e9 + 1000 * one.at, served=one.at / 2) for one in moments(0.02, 0.03, 0.04)
    ]
    told = values(found)
    assert told["requests_between"] == 8 * 3600
    assert told["memory_late"] == pytest.approx(float(str(told["memory_early"])) + 2000 * 8 * 3600)


def test_of_nothing_nothing_is_told() -> None:
    assert drift.facts([], "x") == {}
    assert drift.facts(moments(0.02, each=1), "x") == {}
