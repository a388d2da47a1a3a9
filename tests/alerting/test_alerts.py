"""Alerts fire where the doctor finds, and nowhere else: on the rules' examples, and on recorded servers in promtool."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import FIXTURES
from tests.promtool import promtool
from tests.test_fixtures import NAMES, RULES, SIGNALS
from vllm_doctor.alerting import alerts
from vllm_doctor.alerting import files as render
from vllm_doctor.alerting.alerts import Alert, Alerts
from vllm_doctor.alerting.recording_rules import Recorder
from vllm_doctor.expr.promql import Series
from vllm_doctor.expr.promql_eval import Expression
from vllm_doctor.model.reading import Known, Subject, Value
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Sample, Window
from vllm_doctor.prometheus.query import Scope
from vllm_doctor.recording import bundle
from vllm_doctor.rules import diagnose, rule
from vllm_doctor.sources.server.exposition import parse

NOT_A_NUMBER = {("idle", "vllm_doctor:requests_that_fill")}
"""Where the doctor says max(1, 0/0) is 1, and Prometheus, rightly, that it is not known. No alert compares it."""
SCRAPES = 10
SECONDS = SCRAPES - 1


@cache
def written(window: str = "5m", latency: bool = False) -> Alerts:
    given: dict[str, Value] = (
        {"goal": "latency", "slo_ttft": 2.0, "slo_itl": 0.05} if latency else {"goal": "throughput"}
    )
    return alerts.of_rules(RULES, Recorder(SIGNALS, Scope(window=window), given))


def of(name: str, severity: str) -> Alert:
    (found,) = (a for a in written().alerts if (a.rule.id, a.severity) == (name, severity))
    return found


@pytest.mark.parametrize("latency", [False, True], ids=["throughput", "latency and targets"])
def test_an_alert_fires_in_exactly_the_examples_where_the_doctor_would(latency: bool) -> None:
    """Also where one value after the other is absent. Each fires in one of them at least."""
    made = written(latency=latency)
    for alert in made.alerts:
        expression, fired = Expression(alert.when), 0
        for case in (case for case in made.cases if case.rule == alert.rule.id):
            window = Window()
            window.add(0.0, [Sample(name, (("engine", "0"),), value) for name, value in case.values.items()])
            fires = bool(expression.evaluate(window)[0])
            assert fires == (alert.severity in case.fires), (alert.name, alert.severity, case)
            fired += fires
        assert fired, alert.name


def test_the_rules_that_prometheus_can_judge_are_alerts() -> None:
    known = {
        "preemption",
        "kv-cache-saturated",
        "max-num-seqs-cap",
        "scheduler-stall",
        "client-timeouts",
        "dp-imbalance",
    }
    assert known <= {alert.rule.id for alert in written().alerts}


def test_every_rule_is_an_alert_or_left_out_with_a_reason() -> None:
    made = written()
    assert {alert.rule.id for alert in made.alerts} | {entry.rule for entry in made.left_out} == {r.id for r in RULES}
    assert all(entry.why for entry in made.left_out)


def test_a_severity_that_needs_a_target_is_left_out_until_one_is_given() -> None:
    (entry,) = (e for e in written().left_out if e.rule == "kv-cache-saturated")
    assert entry.severity == "critical"
    assert "--slo" in entry.why
    assert "critical" in {a.severity for a in written(latency=True).alerts if a.rule.id == "kv-cache-saturated"}


def test_a_cause_that_costs_next_to_nothing_does_not_alert() -> None:
    """As in the doctor: but not where the user asks for latency, or gave a target for it."""
    assert "unless" in of("requests-deferred", "warning").when
    assert not any("unless" in alert.when for alert in written(latency=True).alerts)


def test_a_rule_that_no_example_makes_fire_is_left_out(tmp_path: Path) -> None:
    """It may be that what it compares can never be so: an alert that cannot fire is worse than none."""
    text = (rule.shipped() / "scheduler" / "admission-rejected.yaml").read_text()
    shown = "admission_rejections_per_second: 2, gives: warning"
    (tmp_path / "mine.yaml").write_text(
        text.replace("rule: admission-rejected", "rule: mine").replace(shown, "requests_waiting: 2, gives: unknown")
    )
    (mine,) = rule.load([tmp_path], SIGNALS)
    made = alerts.of_rules([mine], Recorder(SIGNALS, Scope(), {"goal": "throughput"}))
    assert made.alerts == ()
    assert "no example" in made.left_out[0].why


# ---- recorded servers, through promtool ----------------------------------------------------------------------------


def scraped(name: str) -> tuple[Window, dict[str, list[str]]]:
    """The first scrapes of a recording, as if exactly a second apart: for the doctor, and as promtool's series."""
    taken = bundle.read(FIXTURES / name)
    window, series = Window(), dict[str, list[str]]()
    for second, text in enumerate(taken.pages[:SCRAPES]):
        page = parse(text.decode(), SIGNALS.metrics | {"up"})
        window.add(float(second), page.samples)
        for sample in page.samples:
            labels = {**dict(sample.labels), "job": "vllm", "instance": name}
            written_labels = ", ".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
            values = series.setdefault(f"{sample.name}{{{written_labels}}}", [])
            values += ["_"] * (second - len(values)) + [repr(sample.value)]
    return window, series


def values_of(made: Alerts, snapshot: Snapshot) -> Iterator[tuple[Subject, str, float | None]]:
    """Each recorded series of each engine, and the doctor's own value for it; None: unknown."""
    for name in SIGNALS.signals:
        term = made.recorder.term(name)
        if not isinstance(term, Series) or not {term.low, term.high} <= made.records.keys():
            continue
        for subject in snapshot.subjects:
            reading = snapshot.read(name, subject)[1]
            ends: Sequence[float | None] = (None, None)
            if isinstance(reading, Known) and not isinstance(reading.value, str):
                ends = reading.bounds or (float(reading.value), float(reading.value))
            for record, value in {term.low: ends[0], term.high: ends[1]}.items():
                yield subject, record, value


@pytest.mark.parametrize("name", NAMES)
def test_prometheus_records_the_doctors_values_and_fires_where_it_finds(name: str, tmp_path: Path) -> None:
    made = written(window=f"{SECONDS}s")
    for file, text in render.files(made, render.Choices(hold=0)).items():
        (tmp_path / file).write_text(text)
    window, series = scraped(name)
    snapshot = SIGNALS.snapshot(window, {"goal": Known("throughput")})
    expected: list[dict[str, Any]] = []

    def expect(query: str, samples: list[str]) -> None:
        asked = {"expr": query, "eval_time": f"{SECONDS}s"}
        expected.append({**asked, "exp_samples": [{"labels": labels, "value": 1} for labels in samples]})

    compared = 0
    for subject, record, value in values_of(made, snapshot) if window.latest("vllm:num_requests_running") else ():
        labels = ", ".join(f'{label}="{text}"' for label, text in (*subject, ("instance", name), ("job", "vllm")))
        if value is None:
            expect(f"{record}{{{labels}}}", [])
        elif (name, record) in NOT_A_NUMBER:
            expect(record, [])
        elif math.isinf(value):  # a bucket without an end, or divided by one that begins at 0: that is nearly 0 here
            expect(f"{record}{{{labels}}} < 1e6", [])
        else:
            close = 1e-6 * max(1.0, abs(value))
            expect(f"abs({record}{{{labels}}} - ({value!r})) <= bool {close!r}", [f"{{{labels}}}"])
            compared += 1
    firing = []
    for subject in snapshot.subjects:
        for judged, outcome, _ in diagnose.outcomes(RULES, SIGNALS, replace(snapshot, subjects=(subject,))):
            for alert in (a for a in made.alerts if a.rule.id == judged.id):
                if outcome.state in ("critical", alert.severity):
                    named = {**dict(subject), "instance": name, "job": "vllm", "severity": alert.severity}
                    told = {"alertname": alert.name, "alertstate": "firing", "rule": judged.id, **named}
                    firing.append("ALERTS{" + ", ".join(f'{k}="{v}"' for k, v in told.items()) + "}")
    expect('ALERTS{alertstate="firing"}', firing)
    test = {
        "rule_files": [render.SIGNALS_FILE, render.ALERTS_FILE],
        "evaluation_interval": "1s",
        # What is recorded stands before what alerts of it, as they are evaluated one after the other here.
        "group_eval_order": ["vllm-doctor-signals", "vllm-doctor-alerts"],
        "tests": [
            {
                "interval": "1s",
                "input_series": [{"series": text, "values": " ".join(values)} for text, values in series.items()],
                "promql_expr_test": expected,
            }
        ],
    }
    (tmp_path / "recorded.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", "recorded.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[:4000]
    assert compared > 60 or name == "no-log-stats"


def test_a_pod_that_is_throttled_alerts_and_a_server_that_is_no_pod_does_not(tmp_path: Path) -> None:
    scope = Scope(identity=("job", "namespace", "pod", "container", "instance"))
    made = alerts.of_rules(RULES, Recorder(SIGNALS, scope, {"goal": "throughput"}))
    for file, text in render.files(made, render.Choices(hold=0)).items():
        (tmp_path / file).write_text(text)
    pod = 'namespace="n", pod="p", container="vllm"'
    engine = 'engine="0", model_name="m", job="vllm"'
    series = {
        f'vllm:num_requests_running{{{engine}, instance="in a pod", {pod}}}': "1+0x20",
        f'vllm:num_requests_running{{{engine}, instance="in none"}}': "1+0x20",
        f"container_cpu_cfs_throttled_periods_total{{{pod}}}": "0+300x20",
        f"container_cpu_cfs_periods_total{{{pod}}}": "0+600x20",
        'container_cpu_cfs_throttled_periods_total{id="/system.slice"}': "0+300x20",
        'container_cpu_cfs_periods_total{id="/system.slice"}': "0+600x20",
    }
    firing = 'alertname="VllmCpuThrottled", alertstate="firing"'
    expected = [
        f'ALERTS{{{firing}, {engine}, instance="in a pod", {pod}, rule="cpu-throttled", severity="{severity}"}}'
        for severity in ("critical", "warning")
    ]
    asked = {"expr": f"ALERTS{{{firing}}}", "eval_time": "10m"}
    test = {
        "rule_files": [render.SIGNALS_FILE, render.ALERTS_FILE],
        "evaluation_interval": "1m",
        "group_eval_order": ["vllm-doctor-signals", "vllm-doctor-alerts"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": text, "values": values} for text, values in series.items()],
                "promql_expr_test": [{**asked, "exp_samples": [{"labels": text, "value": 1} for text in expected]}],
            }
        ],
    }
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(test))
    done = promtool("test", "rules", "pods.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_without_a_pods_labels_what_runs_beside_it_is_not_asked() -> None:
    assert "cpu-throttled" not in {alert.rule.id for alert in written().alerts}  # by job and instance
