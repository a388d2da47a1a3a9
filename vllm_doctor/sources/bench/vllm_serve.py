"""What `vllm bench serve --save-result` writes (0.8 to 0.32), and benchmark_serving.py before.

Times there are in milliseconds. Since 0.32 each request's latency is saved even without --save-detailed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.sources.bench.run import SERVE, Asked, BenchRun, NoRunError, Spread, ratio, scaled

_NEEDED = ("duration", "completed", "request_throughput", "model_id")
_MILLI = 1e-3
_MOST_REQUESTS = 200_000
_UNLIMITED = math.inf


def is_result(document: object) -> bool:
    """Whether this JSON is such a result."""
    return isinstance(document, dict) and all(key in document for key in _NEEDED)


def run(document: Mapping[str, Any], place: str = "") -> BenchRun:
    """The result as a run. Raises NoRunError, which names the key that is wrong."""
    completed = number(document, "completed")
    prompts = number(document, "num_prompts")
    failed = number(document, "failed")
    if failed is None and completed is not None and prompts is not None and prompts >= completed:
        failed = prompts - completed
    duration = number(document, "duration")
    latencies = _latencies(document)
    concurrency = number(document, "max_concurrency")
    rate = document.get("request_rate")
    return BenchRun(
        tool=SERVE,
        model=text(document.get("model_id")),
        place=place,
        asked=Asked(
            rate=_UNLIMITED if rate == "inf" else number(document, "request_rate"),
            concurrency=_UNLIMITED if concurrency is None and "max_concurrency" in document else concurrency,
            prompts=prompts,
        ),
        completed=completed,
        failed=failed,
        duration=duration,
        input_tokens=number(document, "total_input_tokens"),
        output_tokens=number(document, "total_output_tokens"),
        requests_per_second=number(document, "request_throughput"),
        output_rate=number(document, "output_throughput"),
        total_rate=number(document, "total_token_throughput"),
        ttft=_spread(document, "ttft"),
        tpot=_spread(document, "tpot"),
        itl=_spread(document, "itl"),
        e2e=_spread(document, "e2el"),
        in_flight=ratio(sum(latencies), duration) if latencies else None,
        first_requests=_first_requests(latencies, concurrency),
        acceptance=scaled(number(document, "spec_decode_acceptance_rate"), 0.01),
        acceptance_len=number(document, "spec_decode_acceptance_length"),
    )


def number(document: Mapping[str, Any], key: str) -> float | None:
    """The number under the key; None where there is none. Raises NoRunError where it is none, or not finite."""
    value = document.get(key)
    if value is None:
        return None
    found = outside.number(value) if isinstance(value, int | float) else None
    if found is None:
        raise NoRunError(f"{key!r} must be a number")
    return found


def text(value: object) -> str | None:
    return str(value)[:200] if value else None


def _spread(document: Mapping[str, Any], name: str) -> Spread:
    mean, median, p99 = (scaled(number(document, f"{of}_{name}_ms"), _MILLI) for of in ("mean", "median", "p99"))
    return Spread(mean, median, p99)


def _latencies(document: Mapping[str, Any]) -> Sequence[float]:
    """Seconds of each request that succeeded, in the order in which they were sent; none where that is not told."""
    told = document.get("latencies")
    if not isinstance(told, list) or len(told) > _MOST_REQUESTS:
        return ()
    found = [outside.number(value) if isinstance(value, int | float) else None for value in told]
    return [value for value in found if value]  # of one that failed it is 0


def _first_requests(latencies: Sequence[float], concurrency: float | None) -> float | None:
    """The mean of those that were sent together at the beginning, over that of the rest."""
    first = int(concurrency) if concurrency is not None else 0
    if not 0 < 2 * first < len(latencies):
        return None
    return ratio(fmean(latencies[:first]), fmean(latencies[first:]))
