"""Results of GuideLLM, as three of its releases wrote them (tests/data/guidellm)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.paths import DATA
from vllm_doctor.compare import guidellm, vllm_bench
from vllm_doctor.model.errors import UsageError

RESULTS = DATA / "guidellm"
RELEASES = ("0.3.1", "0.5.3", "0.8.1")


def result(release: str = "0.8.1") -> dict[str, Any]:
    told: dict[str, Any] = json.loads((RESULTS / f"{release}.json").read_text())
    return told


@pytest.mark.parametrize("release", RELEASES)
def test_a_result_is_known_by_its_keys(release: str) -> None:
    assert guidellm.is_result(result(release))
    assert not vllm_bench.is_result(result(release))
    others: list[Any] = [
        {"schema": "vllm-doctor/report/v1"},
        {"benchmarks": []},
        {"benchmarks": [{"name": "x"}]},
        [],
        None,
    ]
    for other in others:
        assert not guidellm.is_result(other)


@pytest.mark.parametrize(
    ("release", "figures"),
    [
        ("0.3.1", {"tokens_out": 250.6, "requests": 7.838, "request_time": 0.4773, "ttft": 0.1851, "itl": 0.009403}),
        ("0.5.3", {"tokens_out": 286.2, "requests": 8.8, "request_time": 0.4404}),
        ("0.8.1", {"tokens_out": 209.9, "requests": 6.561, "request_time": 0.4807, "ttft": 0.1638, "itl": 0.009335}),
    ],
)
def test_its_figures_are_in_seconds_and_tokens(release: str, figures: dict[str, float]) -> None:
    side = guidellm.result(result(release), "a.json")
    assert {name: float(f"{side.measures[name].value:.4g}") for name in figures} == figures
    assert side.measures["finished"].value == 40
    assert side.measures["output_tokens"].value == 32
    assert side.measures["given_up"].value == 0
    # Forty requests of 32 tokens: GuideLLM's own rate, which 0.5.3 takes over a little less than the whole time.
    assert side.seconds is not None
    assert side.measures["tokens_out"].value == pytest.approx(1280 / side.seconds, rel=0.02)
    assert (side.kind, side.seen_by, side.model, side.lacks) == ("guidellm", "GuideLLM", "tiny", ())
    assert side.asked == {"strategy": "concurrent", "streams": 4.0, "rate": None}


def test_quantiles_between_tokens_are_of_means_and_not_read() -> None:
    assert {"itl_p50", "itl_p99"}.isdisjoint(guidellm.result(result(), "a.json").measures)


def test_where_all_failed_nothing_was_measured() -> None:
    told = result()
    for metric in told["benchmarks"][0]["metrics"].values():
        if metric.get("successful") and isinstance(metric["successful"], dict):
            metric["successful"] = dict.fromkeys(metric["successful"], 0.0) | {"percentiles": {"p99": 0.0}}
    told["benchmarks"][0]["metrics"]["request_totals"] = {"successful": 0, "errored": 40, "incomplete": 0, "total": 40}
    side = guidellm.result(told, "a.json")
    assert side.lacks == ("no request succeeded",)
    assert set(side.measures) == {"finished", "given_up"}
    assert side.measures["given_up"].value == 1.0


def test_several_runs_of_one_load_are_samples_and_a_sweep_is_none() -> None:
    told = result()
    told["benchmarks"] *= 4
    assert guidellm.result(told, "a.json").measures["tokens_out"].samples == 4
    other = result()
    other["benchmarks"][0]["config"]["strategy"] = {"type_": "constant", "rate": 2.5, "max_concurrency": None}
    told["benchmarks"] = [*told["benchmarks"], *other["benchmarks"]]
    with pytest.raises(UsageError, match=r"5 benchmarks of different load \(concurrent 4, constant 2.5\)"):
        guidellm.result(told, "a.json")


def _newer(told: dict[str, Any]) -> None:
    told["metadata"]["version"] = 3


def _no_metrics(told: dict[str, Any]) -> None:
    del told["benchmarks"][0]["metrics"]["requests_per_second"]


def _no_number(told: dict[str, Any]) -> None:
    told["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]["mean"] = "fast"


def _no_load(told: dict[str, Any]) -> None:
    told["benchmarks"][0]["config"]["strategy"] = None


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_newer, "a GuideLLM result of format 3"),
        (_no_metrics, "not a result as GuideLLM 0.2 to 0.8 writes it .*requests_per_second"),
        (_no_number, "'fast' is no number"),
        (_no_load, "not a result as GuideLLM"),
    ],
)
def test_what_cannot_be_read_with_certainty_is_refused(spoil: Callable[[dict[str, Any]], None], says: str) -> None:
    told = result()
    spoil(told)
    with pytest.raises(UsageError, match=says):
        guidellm.result(told, "a.json")
