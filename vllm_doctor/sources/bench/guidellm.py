"""What GuideLLM 0.2 to 0.8 writes (benchmarks.json): a benchmark for each rate or concurrency of a sweep.

Until 0.3 the load stands in `args` and the counts beside the metrics; since 0.4 in `config`, and in `metrics`. Its
`inter_token_latency` is a request's time after the first token over its other tokens, which vLLM calls TPOT; its
`time_per_output_token` has the first token in it, and is read nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm_doctor.sources.bench.nested import at, number, text
from vllm_doctor.sources.bench.run import Asked, BenchRun, Spread, scaled

TOOL = "GuideLLM"
_GENERATIVE = "generative_benchmark"
_CLOSED = ("concurrent", "synchronous")


def is_result(document: object) -> bool:
    """Whether this JSON is such a result, of any version."""
    benchmarks = at(document, "benchmarks")
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and all(isinstance(one, dict) and one.get("type_") == _GENERATIVE for one in benchmarks)
    )


def runs(document: Mapping[str, Any]) -> list[BenchRun]:
    """Its benchmarks."""
    return [_run(one) for one in document["benchmarks"]]


def _run(one: Mapping[str, Any]) -> BenchRun:
    strategy = at(one, "config", "strategy") or at(one, "args", "strategy")
    kind = text(strategy, "type_") or ""
    metrics = one.get("metrics")
    totals = at(metrics, "request_totals") or one.get("request_totals")
    completed = number(totals, "successful")
    limit = number(strategy, "streams") if kind == "concurrent" else 1.0 if kind == "synchronous" else None
    rate = number(strategy, "rate")
    return BenchRun(
        tool=TOOL,
        model=text(one, "config", "backend", "model") or text(one, "worker", "backend_model"),
        asked=Asked(
            rate=rate if rate is not None else math.inf,
            concurrency=limit if limit is not None else math.inf,
            ignore_eos=True,  # its synthetic prompts ask for it, and for no other length
        ),
        completed=completed,
        failed=number(totals, "errored"),
        duration=number(one, "duration"),
        input_tokens=_total(metrics, "prompt_token_count", completed),
        output_tokens=_total(metrics, "output_token_count", completed),
        requests_per_second=_mean(metrics, "requests_per_second"),
        output_rate=_mean(metrics, "output_tokens_per_second"),
        total_rate=_mean(metrics, "tokens_per_second"),
        ttft=_spread(metrics, "time_to_first_token_ms", 1e-3),
        tpot=_spread(metrics, "inter_token_latency_ms", 1e-3),
        e2e=_spread(metrics, "request_latency", 1.0),
        in_flight=_mean(metrics, "request_concurrency"),
    )


def _mean(metrics: object, name: str) -> float | None:
    return number(metrics, name, "successful", "mean")


def _total(metrics: object, name: str, requests: float | None) -> float | None:
    mean = _mean(metrics, name)
    return None if mean is None or requests is None else mean * requests


def _spread(metrics: object, name: str, unit: float) -> Spread:
    of = at(metrics, name, "successful")
    mean, median, p99 = number(of, "mean"), number(of, "median"), number(of, "percentiles", "p99")
    return Spread(scaled(mean, unit), scaled(median, unit), scaled(p99, unit))
