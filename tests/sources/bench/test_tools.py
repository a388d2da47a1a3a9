"""Results of other tools, with the keys that they write."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.paths import ROOT
from vllm_doctor.sources.bench import documents
from vllm_doctor.sources.bench.run import BenchRun, NoRunError

SERVE: dict[str, Any] = {
    "model_id": "m", "num_prompts": 100, "request_rate": "inf", "max_concurrency": 8, "duration": 20.0, "completed": 98,
    "total_input_tokens": 12800, "total_output_tokens": 20000, "request_throughput": 5.0, "output_throughput": 1000.0,
}  # fmt: skip


def only(document: Any) -> BenchRun:
    (run,) = documents.runs(json.dumps(document).encode())
    return run


def test_vllm_counts_what_did_not_succeed_where_it_does_not_tell() -> None:
    assert only(SERVE).failed == 2
    assert only(SERVE | {"failed": 0}).failed == 0


def test_appended_results_are_runs_in_their_order() -> None:
    lines = "\n".join(json.dumps(SERVE | {"max_concurrency": n}) for n in (1, 4))
    runs = documents.runs(lines.encode())
    assert [(run.asked.concurrency, run.place) for run in runs] == [(1, "run 1"), (4, "run 2")]


def test_a_sweep_is_a_list_or_a_table() -> None:
    assert len(documents.runs(json.dumps([SERVE, SERVE]).encode())) == 2
    columns = [key for key in SERVE if key != "request_rate"]
    table = ",".join(["", *columns]) + "\n" + ",".join(["0", *(str(SERVE[key]) for key in columns)]) + "\n"
    (run,) = documents.runs(table.encode())
    assert (run.model, run.completed, run.output_rate, run.place) == ("m", 98, 1000, "row 1")


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(NoRunError, match="'duration' must be a number"):
        only(SERVE | {"duration": "long"})


@pytest.mark.parametrize("version", ["0.3.1", "0.5.3", "0.8.1"])
def test_guidellm(version: str) -> None:
    (run,) = documents.runs((ROOT / f"tests/data/guidellm/{version}.json").read_bytes())
    assert (run.tool, run.model, run.completed, run.failed, run.asked.concurrency) == ("GuideLLM", "tiny", 40, 0, 4)
    assert run.tpot.mean == pytest.approx(0.0094, abs=0.0002)  # its inter-token latency: without the first token
    assert run.output_len == pytest.approx(32, abs=1)
    assert run.in_flight == pytest.approx(3.5, abs=0.5)


def metric(value: float, unit: str) -> dict[str, Any]:
    return {"unit": unit, "avg": value, "p50": value, "p99": 2 * value}


AIPERF = {
    "request_count": metric(200, "requests"), "request_throughput": metric(4.0, "requests/sec"),
    "request_latency": metric(2000.0, "ms"), "time_to_first_token": metric(100.0, "ms"),
    "inter_token_latency": metric(15.0, "ms"), "output_token_throughput": metric(512.0, "tokens/sec"),
    "input_sequence_length": metric(1024.0, "tokens"), "output_sequence_length": metric(128.0, "tokens"),
    "benchmark_duration": metric(50.0, "sec"), "error_summary": [],
    "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"concurrency": 8, "request_count": 200}},
}  # fmt: skip


def test_aiperf() -> None:
    run = only(AIPERF)
    assert (run.tool, run.model, run.completed, run.failed, run.duration) == ("AIPerf", "m", 200, 0, 50)
    assert (run.asked.concurrency, run.asked.rate, run.input_len, run.output_len) == (8, math.inf, 1024, 128)
    assert (run.ttft.p99, run.tpot.mean, run.itl.mean) == (0.2, 0.015, None)


def test_aiperf_as_a_table() -> None:
    table = (
        'Metric,avg,min,max,p99,p90,p75,std\nTime to First Token (ms),"1,100.5",1,2,200,1,1,1\n'
        "Inter Token Latency (ms),15,1,2,30,1,1,1\n\nMetric,Value\nRequest Count,200\n"
        "Output Token Throughput (tokens/sec),512\nRequest Throughput (requests/sec),4\n"
    )
    (run,) = documents.runs(table.encode())
    assert (run.completed, run.output_rate, run.ttft.mean, run.tpot.p99) == (200, 512, 1.1005, 0.03)


def test_inference_perf() -> None:
    of = {"mean": 0.02, "median": 0.02, "p99": 0.04}
    run = only(
        {
            "load_summary": {"count": 300, "requested_rate": 10.0, "achieved_rate": 9.8, "send_duration": 30.0},
            "benchmark_time_seconds": 31.0,
            "successes": {
                "count": 290,
                "latency": {
                    "request_latency": of, "normalized_time_per_output_token": {"mean": 9.0},
                    "time_per_output_token": of, "time_to_first_token": of, "inter_token_latency": of,
                },
                "throughput": {"output_tokens_per_sec": 1000.0, "requests_per_sec": 9.4},
                "prompt_len": {"mean": 100.0},
                "output_tokens": {"total": 29000.0, "mean": 100.0},
            },
            "failures": {"count": 10},
        }
    )  # fmt: skip
    assert (run.completed, run.failed, run.asked.rate, run.duration) == (290, 10, 10, 31)
    assert (run.tpot.mean, run.input_tokens, run.output_len) == (0.02, 29000, 100)


REPORT_2 = """\
version: 0.2.1
run: {time: {duration: PT1M40.5S}}
results:
  request_performance:
    aggregate:
      latency:
        time_to_first_token: {mean: 36.0, p50: 30.0, p99: 90.0, units: ms}
        time_per_output_token: {mean: 0.02, units: s/token}
      requests: {failures: 5, total: 500, input_length: {mean: 1000.0}, output_length: {mean: 100.0}}
      throughput: {output_token_rate: {mean: 2262.4}, request_rate: {mean: 4.9}}
scenario:
  load: {standardized: {concurrency: .inf, rate_qps: 5.0, output_seq_len: {value: 100}}}
  stack: [{standardized: {model: {name: m}}}]
"""


def test_a_report_of_llm_d() -> None:
    (run,) = documents.runs(REPORT_2.encode())
    assert (run.model, run.completed, run.failed, run.duration) == ("m", 495, 5, 100.5)
    assert (run.ttft.p99, run.tpot.mean, run.output_rate) == pytest.approx((0.09, 0.02, 2262.4))
    assert (run.asked.rate, run.is_capped, run.asked.output_len) == (5, False, 100)


def test_its_first_version() -> None:
    run = only(
        {
            "version": "0.1",
            "metrics": {
                "latency": {"time_to_first_token": {"units": "s", "mean": 0.1}},
                "requests": {"total": 10, "failures": 0},
                "throughput": {"output_tokens_per_sec": 9.0},
                "time": {"duration": 12.0},
            },
            "scenario": {"model": {"name": "m"}},
        }
    )
    assert (run.model, run.completed, run.duration, run.output_rate, run.ttft.mean) == ("m", 10, 12, 9, 0.1)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"schema": "vllm-doctor/report/v1"}', b"\xff\xfe",
     b"version: 1\nx: y\n", b"Metric,Time to First Token", b'{"benchmarks": []}',
     b"completed,request_throughput,model_id\n", b'{"request_throughput": {}, "request_latency": {}}'],
)  # fmt: skip
def test_what_is_no_result_gives_none_or_one_without_figures(raw: bytes) -> None:
    assert all(run.output_rate is None for run in documents.runs(raw))


@pytest.mark.parametrize("value", [None, "x", [], {}, math.nan, 10**400, True])
def test_figures_that_are_none_are_unknown(value: Any) -> None:
    broken = {name: value if name != "request_latency" else AIPERF[name] for name in AIPERF}
    broken["request_throughput"] = {"avg": value}
    assert only(broken).requests_per_second is None
