"""An autoscaler's manifest on the command line: alone, beside a command, and beside a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor
from tests.launch.test_autoscaler import HPA_PUBLIC, KEDA_PUBLIC, keda
from tests.serving import pages

__all__ = ["doctor"]

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: m}
spec: {template: {spec: {containers: [{name: v, image: "vllm/vllm-openai:v0.32.0",
  args: [--model, m, --max-num-seqs, "16"]}]}}}
---
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scaling.yaml"
    path.write_text(text, "utf-8")
    return path


def test_alone(tmp_path: Path, doctor: Doctor) -> None:
    report = doctor(write(tmp_path, KEDA_PUBLIC), "--json").report
    assert [(source["kind"], source["taken_as"]) for source in report["sources"]] == [
        ("autoscaler", "an autoscaler's triggers")
    ]
    assert (report["verdict"], report["findings"][0]["rule"]) == ("warning", "autoscaler-query-many")
    sound = doctor(write(tmp_path, HPA_PUBLIC), "--json").report
    assert sound["headline"] == "Nothing was measured: only the autoscaler's triggers were checked"
    assert [finding["rule"] for finding in sound["findings"]] == ["autoscaler-metric-unknown"]
    assert sound["verdict"] == "unknown"


@pytest.mark.parametrize("option", [(), ("--command",)])
def test_beside_the_command_in_the_same_file(option: tuple[str, ...], tmp_path: Path, doctor: Doctor) -> None:
    text = DEPLOYMENT + keda("sum(vllm:num_requests_running)", "64")
    report = doctor(*option, write(tmp_path, text), "--json").report
    found = next(one for one in report["findings"] if one["rule"] == "autoscaler-threshold-unreachable")
    assert "from 64 running requests on; a replica runs 16 at most" in found["here"]
    low = DEPLOYMENT + keda("sum(vllm:num_requests_running)", "12")
    rules = [one["rule"] for one in doctor(*option, write(tmp_path, low), "--json").report["findings"]]
    assert not any(rule.startswith("autoscaler") for rule in rules)


def test_beside_a_page_of_the_server(tmp_path: Path, doctor: Doctor) -> None:
    page = tmp_path / "metrics.prom"
    page.write_text(pages("preemption")[-1], "utf-8")
    text = write(tmp_path, keda("avg(DCGM_FI_DEV_GPU_UTIL)", "80"))
    rules = {one["rule"] for one in doctor(page, text, "--json").report["findings"]}
    assert {"autoscaler-metric-stuck", "kv-cache-saturated"} <= rules


def test_a_server_without_one_has_no_such_rule(tmp_path: Path, doctor: Doctor) -> None:
    page = tmp_path / "metrics.prom"
    page.write_text(pages("preemption")[-1], "utf-8")
    states = doctor(page, "--json").report["rules"]
    assert {state for rule, state in states.items() if rule.startswith("autoscaler-")} == {"not-applicable"}
