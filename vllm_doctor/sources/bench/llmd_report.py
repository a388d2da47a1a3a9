"""What llm-d-benchmark writes: a benchmark report, 0.1 (`metrics`) or 0.2 (`results.request_performance.aggregate`).

YAML, or the same as JSON. Each figure has its own `units`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from vllm_doctor.sources.bench.nested import at, first, number, text
from vllm_doctor.sources.bench.run import Asked, BenchRun, Spread, scaled

TOOL = "llm-d-benchmark"
_SECONDS = {"ms": 1e-3, "ms/token": 1e-3, "s": 1.0, "s/token": 1.0, "us": 1e-6, "us/token": 1e-6}
_DURATION = re.compile(r"PT(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,20})?)S)?")


def is_result(document: object) -> bool:
    """Whether this document is such a report."""
    return text(document, "version") is not None and isinstance(at(_figures(document), "latency"), dict)


def _figures(document: object) -> object:
    return at(document, "results", "request_performance", "aggregate") or at(document, "metrics")


def run(document: Mapping[str, Any], place: str = "") -> BenchRun:
    """The report as a run."""
    figures = _figures(document)
    load = at(document, "scenario", "load", "standardized")
    requests, rates = at(figures, "requests"), at(figures, "throughput")
    total, failed = number(requests, "total"), number(requests, "failures")
    completed = None if total is None else total - (failed or 0.0)
    limit, rate = number(load, "concurrency"), number(load, "rate_qps")
    if at(load, "concurrency") in (math.inf, ".inf"):
        limit = math.inf
    return BenchRun(
        tool=TOOL,
        model=_model(document),
        place=place,
        asked=Asked(
            rate=rate,
            concurrency=limit,
            input_len=number(load, "input_seq_len", "value"),
            output_len=number(load, "output_seq_len", "value"),
        ),
        completed=completed,
        failed=failed,
        duration=first(number(figures, "time", "duration"), _duration(text(document, "run", "time", "duration"))),
        input_tokens=_total(requests, "input_length", completed),
        output_tokens=_total(requests, "output_length", completed),
        requests_per_second=first(number(rates, "request_rate", "mean"), number(rates, "requests_per_sec")),
        output_rate=first(number(rates, "output_token_rate", "mean"), number(rates, "output_tokens_per_sec")),
        total_rate=first(number(rates, "total_token_rate", "mean"), number(rates, "total_tokens_per_sec")),
        ttft=_spread(figures, "time_to_first_token"),
        tpot=_spread(figures, "time_per_output_token"),
        itl=_spread(figures, "inter_token_latency"),
        e2e=_spread(figures, "request_latency"),
    )


def _model(document: Mapping[str, Any]) -> str | None:
    stack = at(document, "scenario", "stack")
    parts = stack if isinstance(stack, list) else []
    named = (text(part, "standardized", "model", "name") for part in parts)
    return text(document, "scenario", "model", "name") or next((name for name in named if name), None)


def _total(requests: object, name: str, completed: float | None) -> float | None:
    mean = number(requests, name, "mean")
    return None if mean is None or completed is None else mean * completed


def _spread(figures: object, name: str) -> Spread:
    of = at(figures, "latency", name)
    unit = _SECONDS.get(str(at(of, "units")))
    if unit is None:
        return Spread()
    mean, median, p99 = (scaled(number(of, statistic), unit) for statistic in ("mean", "p50", "p99"))
    return Spread(mean, median, p99)


def _duration(told: str | None) -> float | None:
    """Seconds of "PT49.9S"."""
    match = _DURATION.fullmatch(told or "")
    if match is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds
