"""OpenMetrics for the textfile collector: parses, no timestamps, one true state each."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.render.reports import AT, unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.model.report import Report
from vllm_doctor.render import openmetrics


def samples(report: Report, is_whole: bool = False) -> list[tuple[str, dict[str, str], float]]:
    families = list(text_string_to_metric_families(openmetrics.render(report, is_whole)))
    found = [sample for family in families for sample in family.samples]
    assert all(sample.timestamp is None for sample in found), "the collector skips a file with timestamps"
    return [(sample.name, dict(sample.labels), sample.value) for sample in found]


@pytest.mark.parametrize("name", NAMES)
def test_exactly_one_state_holds_for_each_rule(name: str) -> None:
    report = judged(name, slice(0, 4))
    states: dict[str, list[str]] = {}
    for metric, labels, value in samples(report, is_whole=True):
        if metric == "vllm_doctor_rule_state" and value:
            states.setdefault(labels["rule"], []).append(labels["state"])
    assert states == {rule: [state] for rule, state in report.states.items()}


@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_known(name: str) -> None:
    report = judged(name, slice(0, 4))
    told = [(labels["rule"], labels["state"]) for metric, labels, _ in samples(report) if metric.endswith("rule_state")]
    nothing = ("unknown", "not-applicable")
    assert told == [(rule, state) for rule, state in report.states.items() if state not in nothing]
    counted = {labels["state"]: count for metric, labels, count in samples(report) if metric == "vllm_doctor_rules"}
    assert sum(counted.values()) == len(report.states)
    assert counted["unknown"] == len(report.unknown)


def test_the_verdict_and_the_time() -> None:
    found = samples(judged("preemption", slice(0, 4)))
    assert [labels["verdict"] for metric, labels, value in found if metric == "vllm_doctor_verdict" and value] == [
        "critical"
    ]
    assert ("vllm_doctor_kv_cache_usage", {"engine": "0", "model_name": "tiny"}, 1.0) in found
    assert openmetrics.render(judged("preemption", slice(0, 4))).endswith("# EOF\n")


def test_nobody_answered() -> None:
    found = samples(unreachable())
    assert ("vllm_doctor_checked_timestamp_seconds", {}, AT.timestamp()) in found
    assert ("vllm_doctor_verdict", {"verdict": "unknown"}, 1.0) in found
