"""What `vllm bench throughput` and `vllm bench latency` write with --output-json (vllm/benchmarks, 0.9 to 0.32)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.sources.bench.run import LATENCY, THROUGHPUT, Asked, BenchRun, Spread, ratio
from vllm_doctor.sources.bench.vllm_serve import number, text

_THROUGHPUT = ("elapsed_time", "num_requests", "requests_per_second", "tokens_per_second")
_LATENCY = ("avg_latency", "latencies", "percentiles")


def is_result(document: object) -> bool:
    """Whether this JSON is of either."""
    return isinstance(document, dict) and any(all(key in document for key in keys) for keys in (_THROUGHPUT, _LATENCY))


def run(document: Mapping[str, Any], place: str = "") -> BenchRun:
    """The result as a run. Raises NoRunError."""
    model = text(document.get("model_id"))
    if "avg_latency" in document:
        percentiles = document["percentiles"] if isinstance(document["percentiles"], dict) else {}
        mean, median, p99 = number(document, "avg_latency"), number(percentiles, "50"), number(percentiles, "99")
        rounds = document["latencies"] if isinstance(document["latencies"], list) else []
        first, rest = (rounds[0], rounds[1:]) if len(rounds) > 2 else (None, [])
        known = [value for value in map(outside.number, rest) if value]
        return BenchRun(
            tool=LATENCY,
            model=model,
            place=place,
            asked=Asked(prompts=float(len(rounds)) or None),
            completed=float(len(rounds)) or None,
            e2e=Spread(mean, median, p99),
            first_requests=ratio(outside.number(first), sum(known) / len(known)) if known and first else None,
        )
    return BenchRun(
        tool=THROUGHPUT,
        model=model,
        place=place,
        asked=Asked(rate=math.inf, prompts=number(document, "num_requests")),
        completed=number(document, "num_requests"),
        duration=number(document, "elapsed_time"),
        requests_per_second=number(document, "requests_per_second"),
        total_rate=number(document, "tokens_per_second"),
    )
