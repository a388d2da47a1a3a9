"""What inference-perf writes: summary_lifecycle_metrics.json, and stage_N_lifecycle_metrics.json of each rate.

Times are in seconds. `time_per_output_token` is without the first token; the normalised one has it, and is not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm_doctor.sources.bench.nested import at, first, number
from vllm_doctor.sources.bench.run import Asked, BenchRun, Spread

TOOL = "inference-perf"


def is_result(document: object) -> bool:
    """Whether this JSON is such a result."""
    return isinstance(at(document, "successes", "latency"), dict) and isinstance(at(document, "load_summary"), dict)


def run(document: Mapping[str, Any], place: str = "") -> BenchRun:
    """The result as a run."""
    load, good = document["load_summary"], document["successes"]
    completed = number(good, "count")
    rate = number(load, "requested_rate")
    limit = first(number(load, "concurrency"), number(load, "concurrency_level"))
    return BenchRun(
        tool=TOOL,
        place=place,
        asked=Asked(
            rate=rate if rate is not None else math.inf if limit is not None else None,
            concurrency=limit if limit is not None else math.inf if rate is not None else None,
        ),
        completed=completed,
        failed=number(document, "failures", "count"),
        duration=first(number(document, "benchmark_time_seconds"), number(load, "send_duration")),
        input_tokens=_tokens(good, ("prompt_tokens", "prompt_len"), completed),
        output_tokens=_tokens(good, ("output_tokens", "output_len"), completed),
        requests_per_second=number(good, "throughput", "requests_per_sec"),
        output_rate=number(good, "throughput", "output_tokens_per_sec"),
        total_rate=number(good, "throughput", "total_tokens_per_sec"),
        ttft=_spread(good, "time_to_first_token"),
        tpot=_spread(good, "time_per_output_token"),
        itl=_spread(good, "inter_token_latency"),
        e2e=_spread(good, "request_latency"),
    )


def _tokens(good: Mapping[str, Any], names: tuple[str, str], requests: float | None) -> float | None:
    for name in names:
        mean = number(good, name, "mean")
        total = number(good, name, "total")
        if total is not None or (mean is not None and requests is not None):
            return total if total is not None else (mean or 0.0) * (requests or 0.0)
    return None


def _spread(good: Mapping[str, Any], name: str) -> Spread:
    of = at(good, "latency", name)
    return Spread(number(of, "mean"), number(of, "median"), number(of, "p99"))
