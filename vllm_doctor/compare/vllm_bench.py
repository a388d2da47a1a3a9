"""The result of `vllm bench serve --save-result`, or of several runs (--append-result), to be compared.

The keys are those that vllm/benchmarks/serve.py writes (0.8 to 0.32). Times there are in milliseconds, and of requests
as the client saw them. With --save-detailed the tokens are counted over parts of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from vllm_doctor.compare.comparison import Result
from vllm_doctor.compare.measure import MOST_PARTS
from vllm_doctor.model import outside
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure

SEEN_BY = "vllm bench serve"
_ASKED = ("request_rate", "max_concurrency", "num_prompts", "burstiness", "ramp_up_strategy")
_NEEDED = ("duration", "completed", "request_throughput", "model_id")
_MOST_TOKENS = 20_000_000
_Figure = Callable[[Mapping[str, Any]], float | None]


def is_result(document: object) -> bool:
    """Whether this JSON is such a result."""
    return isinstance(document, dict) and all(key in document for key in _NEEDED)


def result(runs: Sequence[Mapping[str, Any]], name: str) -> Result:
    """The runs of one file as a result. Raises UsageError where they are not what they must be."""
    models = {str(run["model_id"])[:200] for run in runs}
    if len(models) > 1:
        raise UsageError(f"{name} holds runs of several models ({', '.join(sorted(models)[:3])}): compare one")
    asked = [_asked(run, name) for run in runs]
    if any(one != asked[0] for one in asked):
        raise UsageError(
            f"{name} holds runs with different load (request rate, concurrency or prompts): compare one kind"
        )
    measures = {}
    for measure, figure in _FIGURES.items():
        values = [value for run in runs if (value := _checked(figure, run, name)) is not None]
        if len(values) == len(runs):
            measures[measure] = Measure(measure, median(values), min(values), max(values), len(values), "runs")
    if len(runs) == 1 and "tokens_out" in measures and (tokens := _tokens_in_parts(runs[0])):
        whole = measures["tokens_out"].value
        measures["tokens_out"] = Measure(
            "tokens_out", whole, min(whole, *tokens), max(whole, *tokens), len(tokens), "parts"
        )
    finished = sum(_number(run, "completed", name) or 0.0 for run in runs)
    measures["finished"] = Measure("finished", finished, finished, finished, 1, "none")
    return Result(
        name=name,
        kind="bench",
        seen_by=SEEN_BY,
        measures=measures,
        seconds=sum(_number(run, "duration", name) or 0.0 for run in runs),
        model=models.pop(),
        asked=asked[0],
        lacks=() if finished else ("no request succeeded",),
    )


def _number(run: Mapping[str, Any], key: str, name: str) -> float | None:
    """The number under the key; None where there is none. UsageError where it is none, or not finite."""
    value = run.get(key)
    if value is None:
        return None
    found = outside.number(value) if isinstance(value, int | float) else None
    if found is None:
        raise UsageError(f"{name}: {key!r} must be a number, as `vllm bench serve` writes it")
    return found


def _checked(figure: _Figure, run: Mapping[str, Any], name: str) -> float | None:
    try:
        return figure(_Numbers(run, name))
    except ZeroDivisionError:
        return None


class _Numbers(Mapping[str, Any]):
    """A run's numbers, each checked when it is asked for."""

    def __init__(self, run: Mapping[str, Any], name: str) -> None:
        self._run, self._name = run, name

    def __getitem__(self, key: str) -> float | None:
        return _number(self._run, key, self._name)

    def __iter__(self) -> Any:
        return iter(self._run)

    def __len__(self) -> int:
        return len(self._run)


def _of(key: str, per: float = 1.0) -> _Figure:
    def figure(run: Mapping[str, Any]) -> float | None:
        value = run[key]
        return None if value is None else value / per

    return figure


def _ratio(key: str, per: str) -> _Figure:
    def figure(run: Mapping[str, Any]) -> float | None:
        value, count = run[key], run[per]
        return None if value is None or count is None else value / count

    return figure


def _failed(run: Mapping[str, Any]) -> float | None:
    failed, completed = run["failed"], run["completed"]
    return None if failed is None or completed is None else failed / (failed + completed)


_FIGURES: Mapping[str, _Figure] = {
    "tokens_out": _of("output_throughput"),
    "tokens_in": _ratio("total_input_tokens", "duration"),
    "requests": _of("request_throughput"),
    "request_time": _of("mean_e2el_ms", 1000.0),
    "ttft": _of("mean_ttft_ms", 1000.0),
    "ttft_p50": _of("median_ttft_ms", 1000.0),
    "ttft_p99": _of("p99_ttft_ms", 1000.0),
    "itl": _of("mean_itl_ms", 1000.0),
    "itl_p50": _of("median_itl_ms", 1000.0),
    "itl_p99": _of("p99_itl_ms", 1000.0),
    "given_up": _failed,
    "prompt_tokens": _ratio("total_input_tokens", "completed"),
    "output_tokens": _ratio("total_output_tokens", "completed"),
}


def _asked(run: Mapping[str, Any], name: str) -> dict[str, Value | None]:
    """The load that it was told to make; None: not limited."""
    asked: dict[str, Value | None] = {}
    for key in _ASKED:
        value = run.get(key)
        if value == "inf":
            value = None
        asked[key] = value if isinstance(value, str) else _number({key: value}, key, name)
    return {
        key: value for key, value in asked.items() if value is not None or key in ("request_rate", "max_concurrency")
    }


def _tokens_in_parts(run: Mapping[str, Any]) -> list[float]:
    """Tokens a second in equal parts of the run, without the first and the last, in which the load comes and goes.

    None where the run was not saved in detail.
    """
    starts, firsts, gaps, lengths = (run.get(key) for key in ("start_times", "ttfts", "itls", "output_lens"))
    if not all(isinstance(told, list) for told in (starts, firsts, gaps, lengths)):
        return []
    assert isinstance(starts, list)
    assert isinstance(firsts, list)
    assert isinstance(gaps, list)
    assert isinstance(lengths, list)
    moments: list[tuple[float, float]] = []
    try:
        for start, first, between, length in zip(starts, firsts, gaps, lengths, strict=True):
            if not length:
                continue  # it failed
            at, each = start + first, length / (len(between) + 1)  # several tokens may come at once
            moments.append((at, each))
            for gap in between:
                at += gap
                moments.append((at, each))
            if len(moments) > _MOST_TOKENS:
                return []
        begin = min(starts)
        end = max(at for at, _ in moments)
        if begin > min(at for at, _ in moments):
            return []  # an answer before its request: no clock tells that
        width = (end - begin) / (MOST_PARTS + 2)
        counts = [0.0] * (MOST_PARTS + 2)
        for at, tokens in moments:
            counts[min(MOST_PARTS + 1, int((at - begin) / width))] += tokens
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return []
    return [count / width for count in counts[1:-1]]
