"""The result of GuideLLM (benchmarks.json), as one of two that are compared.

The keys are those that GuideLLM 0.2 to 0.8 writes; results of 0.3.1, 0.5.3 and 0.8.1 are in tests/data/guidellm. Until
0.3 the load stands in `args` of each benchmark and the counts beside its metrics; since 0.4 in `config`, and in
`metrics`; since 0.5 `metadata.version` names the format (1, from 0.7 on 2). What is read here means the same in all:
figures of the requests that succeeded, as GuideLLM's own table shows them. Its quantiles between tokens are those of
requests' means, not of tokens: they are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from vllm_doctor.compare.comparison import Result
from vllm_doctor.model import outside
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure
from vllm_doctor.sources.bench import guidellm

KIND = "guidellm"
SEEN_BY = guidellm.TOOL
is_result = guidellm.is_result
_NEWEST = 2
_MILLI = 1e-3
_FIGURES: Mapping[str, tuple[str, str, float]] = {
    "tokens_out": ("output_tokens_per_second", "mean", 1.0),
    "requests": ("requests_per_second", "mean", 1.0),
    "request_time": ("request_latency", "mean", 1.0),
    "ttft": ("time_to_first_token_ms", "mean", _MILLI),
    "ttft_p50": ("time_to_first_token_ms", "median", _MILLI),
    "ttft_p99": ("time_to_first_token_ms", "p99", _MILLI),
    "itl": ("inter_token_latency_ms", "mean", _MILLI),
    "prompt_tokens": ("prompt_token_count", "mean", 1.0),
    "output_tokens": ("output_token_count", "mean", 1.0),
}
"""Measure -> metric, statistic, and what makes it seconds."""


def result(document: Mapping[str, Any], name: str) -> Result:
    """The benchmarks of one file, which must be of one load, as a result. Raises UsageError with what is wrong."""
    try:
        return _result(document, name)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"{name} is not a result as GuideLLM 0.2 to 0.8 writes it ({type(error).__name__}: {str(error)[:100]})"
        ) from None


def _result(document: Mapping[str, Any], name: str) -> Result:
    version = (document.get("metadata") or {}).get("version")
    if isinstance(version, int) and version > _NEWEST:
        raise UsageError(
            f"{name} is a GuideLLM result of format {version}, and those up to {_NEWEST} (GuideLLM 0.8) are read:"
            " it needs a newer vllm-doctor"
        )
    runs: Sequence[Mapping[str, Any]] = document["benchmarks"]
    loads = [_asked(run) for run in runs]
    if any(load != loads[0] for load in loads):
        raise UsageError(
            f"{name} holds {len(runs)} benchmarks of different load ({_told(loads)}): compare files of one load"
        )
    models = {_model(run) for run in runs}
    found = {name: list(_figures(runs, name)) for name in _FIGURES}
    counts = [_counts(run) for run in runs]
    if len(models) > 1:
        raise UsageError(f"{name} holds benchmarks of several models: compare one")
    good, bad = sum(done for done, _ in counts), sum(failed for _, failed in counts)
    measures = {
        name: Measure.of(name, median(values), values, "runs")
        for name, values in found.items()
        if good and len(values) == len(runs)
    }
    measures["finished"] = Measure("finished", good, good, good, 1, "none")
    if good + bad:
        failed = bad / (good + bad)
        measures["given_up"] = Measure("given_up", failed, failed, failed, 1, "runs")
    return Result(
        name=name,
        kind=KIND,
        seen_by=SEEN_BY,
        measures=measures,
        seconds=sum(_number(run["duration"]) for run in runs),
        model=models.pop(),
        asked=loads[0],
        lacks=() if good else ("no request succeeded",),
    )


def _asked(run: Mapping[str, Any]) -> dict[str, Value | None]:
    """The load that it was told to make; None: not limited."""
    strategy = (run.get("config") or run["args"])["strategy"]
    kind = str(strategy["type_"])[:40]
    most = strategy.get("streams") if kind == "concurrent" else strategy.get("max_concurrency")
    rate = strategy.get("rate")
    return {
        "strategy": kind,
        "streams": None if most is None else _number(most),
        "rate": None if rate is None else _number(rate),
    }


def _told(loads: Sequence[Mapping[str, Value | None]]) -> str:
    names = [" ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in load.values() if v) for load in loads]
    different = list(dict.fromkeys(names))
    return ", ".join(different[:4]) + (", …" if len(different) > 4 else "")


def _model(run: Mapping[str, Any]) -> str | None:
    backend = (run.get("config") or {}).get("backend") or {}
    model = backend.get("model") if "config" in run else run["worker"]["backend_model"]
    return None if model is None else str(model)[:200]


def _figures(runs: Sequence[Mapping[str, Any]], name: str) -> Iterator[float]:
    metric, statistic, unit = _FIGURES[name]
    for run in runs:
        told = run["metrics"][metric]["successful"]
        if told is not None and told["count"]:
            yield unit * _number(told["percentiles"]["p99"] if statistic == "p99" else told[statistic])


def _counts(run: Mapping[str, Any]) -> tuple[float, float]:
    """Requests that succeeded, and that failed; what was under way at the end is neither."""
    totals = run["metrics"].get("request_totals") or run["request_totals"]
    return _number(totals["successful"]), _number(totals["errored"])


def _number(value: object) -> float:
    found = outside.number(value) if isinstance(value, int | float) else None
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return found
