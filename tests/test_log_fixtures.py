"""Logs of real servers: what must and what must not be found in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.paths import LOGS
from vllm_doctor.cli import main

EXPECTED = yaml.safe_load((LOGS / "expected.yaml").read_text())["logs"]


def test_each_log_says_what_is_expected() -> None:
    assert {path.name.removesuffix(".log.gz") for path in LOGS.glob("*.log.gz")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_log(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = EXPECTED[name]
    main.main([str(LOGS / f"{name}.log.gz"), "--json"])
    report = json.loads(capsys.readouterr().out)
    found = [finding["rule"] for finding in report["findings"]]
    assert report["verdict"] == expected["verdict"], report["headline"]
    if "root" in expected:
        assert found[:1] == [expected["root"]]
    assert not set(found) & set(expected["never"])
    # A number that stands for what nobody saw is no evidence: of a full step, say, which a log does not tell.
    assert "token_budget_fill_if_seen" not in [e["signal"] for f in report["findings"] for e in f["evidence"]]
    unknown = {entry["rule"]: set(entry["because"].values()) for entry in report["unknown"]}
    assert all(reason in unknown[rule] for rule, reason in expected.get("unknown", {}).items())


V0 = """\
INFO 08-01 10:00:00 api_server.py:495] vLLM API server version 0.6.3
INFO 08-01 10:00:05 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='m', device_config=cuda
"""
V0_STATISTICS = (
    "INFO 08-01 10:00:{:02} metrics.py:349] Avg prompt throughput: 400.0 tokens/s, Avg generation throughput: "
    "900.0 tokens/s, Running: 43 reqs, Swapped: 0 reqs, Pending: 20 reqs, GPU KV cache usage: 98.5%, "
    "CPU KV cache usage: 0.0%.\n"
)
V0_PREEMPTION = (
    "WARNING 08-01 10:00:{:02} scheduler.py:1481] Sequence group cmpl-{} is preempted by PreemptionMode.RECOMPUTE mode "
    "because there is not enough KV cache space. This can affect the end-to-end performance. Increase "
    "gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory. "
    "total_num_cumulative_preemption={}\n"
)


def test_preemption_stands_in_a_log_of_v0_and_not_in_one_of_v1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In V0's as a running number, of which only every fiftieth is printed."""
    at = range(10, 60, 5)
    lines = "".join(V0_STATISTICS.format(s) + V0_PREEMPTION.format(s, s, 1 + 10 * (s - 10)) for s in at)
    (tmp_path / "v0.log").write_text(V0 + lines)
    main.main([str(tmp_path / "v0.log"), "--json"])
    report = json.loads(capsys.readouterr().out)
    first = report["findings"][0]
    assert (first["rule"], first["severity"], first["role"]) == ("preemption", "warning", "root")
    assert first["evidence"][0]["value"] == pytest.approx(10, rel=0.2)  # a second
    assert {evidence["from"] for evidence in first["evidence"]} <= {"log", "computed"}
    main.main([str(LOGS / "preemption.log.gz"), "--json"])
    unknown = {u["rule"]: u["because"] for u in json.loads(capsys.readouterr().out)["unknown"]}
    assert unknown["preemption"]["preemptions_per_second"] == "not-in-log"
