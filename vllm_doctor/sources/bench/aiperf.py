"""What AIPerf and genai-perf before it write: profile_export_aiperf.json and .csv, profile_export_genai_perf.json.

Each metric is {"unit", "avg", "p50", "p99", …}; times are in milliseconds unless the unit says otherwise. Their
inter-token latency is a request's time after the first token over its other tokens, which vLLM calls TPOT.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.sources.bench.nested import at, first, number, text
from vllm_doctor.sources.bench.run import Asked, BenchRun, Spread, scaled

TOOL = "AIPerf"
_SECONDS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "s": 1.0, "sec": 1.0}
_NEEDED = ("request_throughput", "request_latency")
_CSV_NAMES = {
    "Time to First Token": "time_to_first_token",
    "Inter Token Latency": "inter_token_latency",
    "Request Latency": "request_latency",
    "Output Sequence Length": "output_sequence_length",
    "Input Sequence Length": "input_sequence_length",
    "Output Token Throughput": "output_token_throughput",
    "Total Token Throughput": "total_token_throughput",
    "Request Throughput": "request_throughput",
    "Request Count": "request_count",
    "Error Request Count": "error_request_count",
    "Benchmark Duration": "benchmark_duration",
}
_MOST_LINES = 500


def is_result(document: object) -> bool:
    """Whether this JSON is such a result."""
    return isinstance(document, dict) and all(isinstance(document.get(key), dict) for key in _NEEDED)


def run(document: Mapping[str, Any], place: str = "") -> BenchRun:
    """The result as a run."""
    given = document.get("input_config")
    load = at(given, "loadgen") or at(given, "phases", "profiling") or at(given, "perf_analyzer", "stimulus")
    completed = number(document, "request_count", "avg")
    limit, rate = number(load, "concurrency"), number(load, "request_rate")
    names = at(given, "endpoint", "model_names") or at(given, "model_names")
    model = names[0] if isinstance(names, list) and names else None
    outputs = number(given, "input", "prompt", "output_tokens", "mean")
    return BenchRun(
        tool=TOOL,
        model=str(model)[:200] if model else text(given, "endpoint", "model_name"),
        place=place,
        asked=Asked(
            rate=rate if rate is not None else math.inf if limit is not None else None,
            concurrency=limit if limit is not None else math.inf if rate is not None else None,
            prompts=number(load, "request_count"),
            input_len=number(given, "input", "prompt", "input_tokens", "mean"),
            output_len=outputs,
            warmups=number(load, "warmup_request_count"),
            seed=first(number(given, "input", "random_seed"), number(given, "random_seed")),
        ),
        completed=completed,
        failed=first(
            number(document, "error_request_count", "avg"), 0.0 if document.get("error_summary") == [] else None
        ),
        duration=_time(document, "benchmark_duration", "avg"),
        input_tokens=_total(document, "input_sequence_length", completed),
        output_tokens=_total(document, "output_sequence_length", completed),
        requests_per_second=number(document, "request_throughput", "avg"),
        output_rate=number(document, "output_token_throughput", "avg"),
        total_rate=number(document, "total_token_throughput", "avg"),
        ttft=_spread(document, "time_to_first_token"),
        tpot=_spread(document, "inter_token_latency"),
        e2e=_spread(document, "request_latency"),
    )


def _time(document: Mapping[str, Any], name: str, statistic: str) -> float | None:
    unit = _SECONDS.get(str(at(document, name, "unit")), 1.0 if name == "benchmark_duration" else 1e-3)
    return scaled(number(document, name, statistic), unit)


def _spread(document: Mapping[str, Any], name: str) -> Spread:
    mean, median, p99 = (_time(document, name, statistic) for statistic in ("avg", "p50", "p99"))
    return Spread(mean, median, p99)


def _total(document: Mapping[str, Any], name: str, requests: float | None) -> float | None:
    mean = number(document, name, "avg")
    return None if mean is None or requests is None else mean * requests


# ---- the same as CSV -------------------------------------------------------------------------------------------------


def is_csv(content: str) -> bool:
    """Whether this text is its table of metrics."""
    head = content[:4096]
    return head.lstrip("\ufeff").startswith("Metric,") and ("Time to First Token" in head or "Request Latency" in head)


def of_csv(content: str) -> BenchRun:
    """The table as a run: a part with statistics of each metric, then one of single values."""
    document: dict[str, dict[str, object]] = {}
    columns: list[str] = []
    for row in csv.reader(content.splitlines()[:_MOST_LINES]):
        if not row:
            continue
        if row[0].lstrip("\ufeff") == "Metric":
            columns = row[1:]
            continue
        name, _, unit = row[0].partition(" (")
        key = _CSV_NAMES.get(name.strip())
        if key is None:
            continue
        figures = {
            "avg" if column == "Value" else column: outside.number(value.replace(",", ""))
            for column, value in zip(columns, row[1:], strict=False)
        }
        document[key] = {**figures, "unit": unit.rstrip(")")}
    return run(document)
