"""The files for Prometheus are what promtool and Prometheus take them for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerting.test_alerts import written
from tests.promtool import promtool
from tests.test_fixtures import RULES, SIGNALS
from vllm_doctor.alerting import alerts
from vllm_doctor.alerting import files as render
from vllm_doctor.alerting.files import Choices
from vllm_doctor.alerting.recording_rules import Recorder
from vllm_doctor.prometheus.query import Scope
from vllm_doctor.rules import rule
from vllm_doctor.vllm import flags


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alerts")
    for name, text in render.files(written(), Choices()).items():
        (path / name).write_text(text)
    return path


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules(folder: Path) -> list[dict[str, Any]]:
    return [entry for group in loaded(folder / render.ALERTS_FILE)["groups"] for entry in group["rules"]]


def test_promtool_takes_the_rules(folder: Path) -> None:
    (folder / "stream.yaml").write_text(render.stream(written(), Choices()))
    operator = loaded(folder / "prometheusrule.yaml")
    assert (operator["apiVersion"], operator["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    (folder / "operator.yaml").write_text(json.dumps(operator["spec"]))
    for name in (render.SIGNALS_FILE, render.ALERTS_FILE, "stream.yaml", "operator.yaml"):
        done = promtool("check", "rules", "--lint=all", "--lint-fatal", name, cwd=folder)
        assert done.returncode == 0, done.stdout


def test_promtool_passes_the_tests_made_of_the_rules_examples(folder: Path) -> None:
    done = promtool("test", "rules", render.TESTS_FILE, cwd=folder)
    assert done.returncode == 0, done.stdout[:4000]
    tests = loaded(folder / render.TESTS_FILE)["tests"]
    assert {test["name"] for test in tests} == {entry["labels"]["rule"] for entry in rules(folder)}
    for test in tests:  # both firing and silent
        fired = {sample["labels"].partition("instance=")[2] for sample in test["promql_expr_test"][0]["exp_samples"]}
        instances = {series["series"].partition("instance=")[2] for series in test["input_series"]}
        assert fired
        assert instances - fired


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("vllm_doctor:kv_cache_usage > 0.8", "vllm_doctor:kv_cache_usage > 0.08"),
        ("vllm_doctor:preemptions_per_request > 0.1", "vllm_doctor:preemptions_per_request > 100"),
        ("vllm_doctor:requests_running_max == 0", "vllm_doctor:requests_running_max != 0"),
    ],
)
def test_promtool_does_not_pass_another_threshold(folder: Path, tmp_path: Path, was: str, now: str) -> None:
    text = (folder / render.ALERTS_FILE).read_text()
    assert was in text
    (tmp_path / render.ALERTS_FILE).write_text(text.replace(was, now))
    (tmp_path / render.TESTS_FILE).write_text((folder / render.TESTS_FILE).read_text())
    assert promtool("test", "rules", render.TESTS_FILE, cwd=tmp_path).returncode != 0


def test_an_alert_tells_what_and_why_and_what_to_do(folder: Path) -> None:
    for entry in rules(folder):
        told = entry["annotations"]
        assert set(told) == {"summary", "description", "remedy", "runbook_url"}
        assert told["runbook_url"].startswith("https://")
        assert "vllm-doctor 'http://{{ reReplaceAll" in told["remedy"]
        assert entry["labels"]["severity"] in ("critical", "warning")
        assert entry["for"] == "5m"
    (preemption, _) = (entry for entry in rules(folder) if entry["alert"] == "VllmPreemption")
    assert preemption["annotations"]["summary"].endswith("The KV cache is too small for the running batch")
    assert "preemptions per finished request: {{ with printf" in preemption["annotations"]["description"]
    assert "--max-num-seqs {{ with printf" in preemption["annotations"]["remedy"]


def test_of_servers_without_an_instance_another_label_tells_them_apart() -> None:
    made = alerts.of_rules(RULES, Recorder(SIGNALS, Scope(identity=("namespace", "pod")), {"goal": "throughput"}))
    stream = render.stream(made, Choices())
    assert "of {{ end }}{{ $labels.pod }}: " in stream
    assert "vllm-doctor URL" in stream
    assert "$labels.instance" not in stream


def test_no_remedy_names_a_flag_that_this_vllm_lacks() -> None:
    entries = yaml.safe_load(render.stream(written(), Choices(vllm="0.32.0")))["groups"][1]["rules"]
    named = {flag for entry in entries for flag in re.findall(r"\((--[a-z-]+)", entry["annotations"]["remedy"])}
    assert named
    assert {flag for flag in named if flags.has("0.32.0", flag) is False} == set()


def test_a_symptom_is_silent_beside_its_cause(folder: Path) -> None:
    inhibited = loaded(folder / "alertmanager-inhibit.yaml")["inhibit_rules"]
    by_source = {entry["source_matchers"][0]: entry for entry in inhibited}
    assert "VllmKvCacheSaturated" in by_source['alertname="VllmPreemption"']["target_matchers"][0]
    assert {"engine", "model_name", "instance"} <= set(by_source['alertname="VllmPreemption"']["equal"])
    assert "alertname" in inhibited[0]["equal"]  # the warning of the same alert
    names = {entry["alert"] for entry in rules(folder)}
    for inhibition in inhibited[1:]:
        for matcher in (*inhibition["source_matchers"], *inhibition["target_matchers"]):
            assert set(re.findall(r"Vllm\w+", matcher)) <= names


def test_what_is_left_out_is_told_with_its_reason(folder: Path) -> None:
    text = (folder / "left-out.txt").read_text()
    stream = render.stream(written(), Choices())
    for entry in written().left_out:
        assert entry.rule in text
        assert entry.rule in stream
    assert "cpu-throttled: needs cpu_throttled_share (visible on the server's host only)" in text


def test_a_text_of_a_rule_is_no_template(tmp_path: Path) -> None:
    text = (RULES[0].table.path.parents[1] / "scheduler" / "admission-rejected.yaml").read_text()
    text = text.replace("rule: admission-rejected", "rule: mine").replace("title: The server", 'title: "{{ .Bad }}')
    (tmp_path / "mine.yaml").write_text(re.sub(r"(title: .*)", r'\1"', text))
    (mine,) = rule.load([tmp_path], SIGNALS)
    made = alerts.of_rules([mine], Recorder(SIGNALS, Scope(), {"goal": "throughput"}))
    stream = render.stream(made, Choices())
    assert '{{ "{{" }} .Bad }}' in yaml.safe_load(stream)["groups"][1]["rules"][0]["annotations"]["summary"]
    (tmp_path / "mine.rules.yaml").write_text(stream)
    assert promtool("check", "rules", "mine.rules.yaml", cwd=tmp_path).returncode == 0
