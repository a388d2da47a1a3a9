"""Traces among the words of a command line: known by content, judged by rules, shown in each format."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests import trace_files
from tests.cli.test_main import Doctor, doctor
from tests.paths import PACKAGE
from vllm_doctor.session.sources import trace

__all__ = ["doctor"]

SCHEMA = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text())


def _rules(report: dict[str, object]) -> list[str]:
    findings = report["findings"]
    assert isinstance(findings, list)
    return [finding["rule"] for finding in findings]


def test_a_busy_device_has_no_finding(doctor: Doctor, tmp_path: Path) -> None:
    ran = doctor(str(trace_files.busy().write(tmp_path / "t.pt.trace.json.gz")), "--json")
    assert (ran.code, ran.report["verdict"], _rules(ran.report)) == (0, "ok", [])
    assert ran.report["headline"] == "The device works 100 % of the time, most of it GEMM"
    jsonschema.validate(ran.report, SCHEMA)
    (rank,) = ran.report["trace"]["ranks"]
    assert rank["parts"] == {"compute": pytest.approx(0.005)}
    assert rank["idle_unknown"] is None


def test_a_device_that_waits_for_the_host_is_a_finding(doctor: Doctor, tmp_path: Path) -> None:
    ran = doctor(str(trace_files.eager().write(tmp_path / "t.json")), "--json")
    assert (ran.code, _rules(ran.report)) == (1, ["trace-host-bound"])
    (finding,) = ran.report["findings"]
    assert finding["remedies"][0]["unset"] == ["--enforce-eager"]
    assert finding["remedies"][0]["gain"]["at_most"] == pytest.approx(4, rel=0.1)
    jsonschema.validate(ran.report, SCHEMA)


def test_with_stacks_the_wait_bounds_no_gain(doctor: Doctor, tmp_path: Path) -> None:
    made = trace_files.eager(gap=30, length=50)
    made.stacks()
    ran = doctor(str(made.write(tmp_path / "t.json")), "--json")
    (finding,) = ran.report["findings"]
    assert finding["severity"] == "info"
    assert all(remedy["gain"] is None for remedy in finding["remedies"])


def test_ranks_are_one_server_and_the_slow_one_is_named(doctor: Doctor, tmp_path: Path) -> None:
    for rank in range(4):
        late = 90.0 if rank == 2 else 0.0
        trace_files.busy(kernels=3, rank=rank, world=4, late=late).write(tmp_path / f"r{rank}.pt.trace.json.gz")
    ran = doctor(str(tmp_path), "--json")
    assert [source["kind"] for source in ran.report["sources"]] == ["trace"]
    assert ran.report["trace"]["slowest"] == 2
    assert _rules(ran.report) == ["trace-rank-slow"]
    assert "rank 2 is waited for" in ran.report["findings"][0]["here"]


@pytest.mark.parametrize("form", ["text", "markdown", "html", "openmetrics", "nagios", "checkmk"])
def test_each_format_shows_it(doctor: Doctor, tmp_path: Path, form: str) -> None:
    ran = doctor(str(trace_files.eager().write(tmp_path / "t.json")), "--format", form)
    assert ran.code == 1
    if form in ("text", "markdown", "html"):
        assert "idle: host, within a step" in ran.out
        assert "GEMM, BF16" in ran.out


def test_graph_replays_without_kernels_are_no_finding(doctor: Doctor, tmp_path: Path) -> None:
    made = trace_files.busy(steps=2)
    for step in range(2, 30):
        made.step(1000.0 * step, 200)
        made.launch(1000.0 * step + 50, (trace_files.GEMM, 1000.0 * step + 300, 1))
        made.launch(1000.0 * step + 60, call="cudaGraphLaunch")
    ran = doctor(str(made.write(tmp_path / "t.json")), "--json")
    assert (ran.code, ran.report["verdict"], _rules(ran.report)) == (3, "unknown", [])
    assert "graph replays have no kernels" in ran.report["headline"]


def test_names_that_a_terminal_would_obey_do_not_reach_it(doctor: Doctor, tmp_path: Path) -> None:
    made = trace_files.eager()
    for place, event in enumerate(made.events):
        if event["cat"] == "kernel":
            event["name"] = f"\x1b[2J\x1b]0;gemm{place % 3}\x07\u202e\n<script>alert(1)</script>"
    path = str(made.write(tmp_path / "t.json"))
    for form in ("text", "markdown", "html", "json"):
        out = doctor(path, "--format", form).out
        assert not {"\x1b", "\x07", "\u202e"} & set(out), form
        assert form == "json" or "<script>alert" not in out


@pytest.mark.parametrize(
    "values",
    [
        {"ts": -1.0},
        {"dur": -5.0},
        {"ts": float("nan")},
        {"ts": float("inf")},
        {"dur": 1e300},
        {"ts": 10**4000},
        {"ts": "soon"},
        {"ts": None},
        {"args": [1]},
        {"args": {"correlation": -(10**30)}},
        {"name": {"a": 1}},
        {"name": "x" * 2_000_000},
        {"cat": ["kernel"]},
    ],
)
def test_values_that_cannot_be_break_nothing(doctor: Doctor, tmp_path: Path, values: dict[str, object]) -> None:
    made = trace_files.eager()
    for event in made.events[1::5]:
        event.update(values)
    ran = doctor(str(made.write(tmp_path / "t.json")), "--json")
    assert ran.code in (0, 1, 3)
    assert "traceback" not in ran.err.lower()
    jsonschema.validate(ran.report, SCHEMA)


def test_json_that_is_no_trace_is_not_taken_for_one(tmp_path: Path) -> None:
    others = {
        "log.json": '{"log": "INFO 11-20 [loggers.py:1] \\"traceEvents\\"", "stream": "stderr"}\n',
        "report.json": json.dumps({"schema": "vllm-doctor/report/v1", "trace": None}),
        "spans.json": json.dumps({"traceEvents": [], "resourceSpans": []}),
        "list.json": json.dumps([{"ph": 1, "cat": "cats"}]),
        "config.json": json.dumps({"schemaVersion": 1, "model_type": "llama"}),
        "empty.json": "",
    }
    for name, text in others.items():
        path = tmp_path / name
        path.write_text(text)
        assert not trace.is_named_by(str(path)), name
    assert not trace.is_named_by("-")
    assert not trace.is_named_by("http://127.0.0.1:1")
    assert not trace.is_named_by(str(tmp_path / "missing.pt.trace.json"))


def test_a_trace_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    for name in ("t.json", "rank0.pt.trace.json.gz", "t.json.gz", "profile"):
        assert trace.is_named_by(str(trace_files.busy().write(tmp_path / name))), name


def test_a_trace_beside_a_log_is_of_its_server(doctor: Doctor, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "INFO 10-06 06:17:14 [api_server.py:1839] vLLM API server version 0.11.0\n"
        "INFO 10-06 06:18:30 [loggers.py:127] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg"
        " generation throughput: 40.0 tokens/s, Running: 1 reqs,"
        " Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%\n"
    )
    ran = doctor(str(log), str(trace_files.eager().write(tmp_path / "t.json")), "--json")
    assert {source["kind"] for source in ran.report["sources"]} == {"log", "trace"}
    assert ran.report["trace"] is not None
    assert "trace-host-bound" in _rules(ran.report)
