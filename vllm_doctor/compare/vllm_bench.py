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
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure
from vllm_doctor.sources.bench import vllm_serve
from vllm_doctor.sources.bench.run import BenchRun, NoRunError, ratio

SEEN_BY = "vllm bench serve"
_ASKED = ("request_rate", "max_concurrency", "num_prompts", "burstiness", "ramp_up_strategy")
_MOST_TOKENS = 20_000_000
_Figure = Callable[[BenchRun], float | None]
is_result = vllm_serve.is_result


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
    parsed = [_parsed(run, name) for run in runs]
    for measure, figure in _FIGURES.items():
        values = [value for run in parsed if (value := figure(run)) is not None]
        if len(values) == len(runs):
            measures[measure] = Measure.of(measure, median(values), values, "runs")
    if len(runs) == 1 and "tokens_out" in measures and (tokens := _tokens_in_parts(runs[0])):
        measures["tokens_out"] = Measure.of("tokens_out", measures["tokens_out"].value, tokens, "parts")
    finished = sum(run.completed or 0.0 for run in parsed)
    measures["finished"] = Measure("finished", finished, finished, finished, 1, "none")
    return Result(
        name=name,
        kind="bench",
        seen_by=SEEN_BY,
        measures=measures,
        seconds=sum(run.duration or 0.0 for run in parsed),
        model=models.pop(),
        asked=asked[0],
        lacks=() if finished else ("no request succeeded",),
    )


def _parsed(run: Mapping[str, Any], name: str) -> BenchRun:
    try:
        return vllm_serve.run(run)
    except NoRunError as error:
        raise UsageError(f"{name}: {error}, as `vllm bench serve` writes it") from None


_FIGURES: Mapping[str, _Figure] = {
    "tokens_out": lambda run: run.output_rate,
    "tokens_in": lambda run: ratio(run.input_tokens, run.duration),
    "requests": lambda run: run.requests_per_second,
    "request_time": lambda run: run.e2e.mean,
    "ttft": lambda run: run.ttft.mean,
    "ttft_p50": lambda run: run.ttft.median,
    "ttft_p99": lambda run: run.ttft.p99,
    "itl": lambda run: run.itl.mean,
    "itl_p50": lambda run: run.itl.median,
    "itl_p99": lambda run: run.itl.p99,
    "given_up": lambda run: ratio(run.failed, (run.failed or 0.0) + (run.completed or 0.0)),
    "prompt_tokens": lambda run: ratio(run.input_tokens, run.completed),
    "output_tokens": lambda run: ratio(run.output_tokens, run.completed),
}


def _asked(run: Mapping[str, Any], name: str) -> dict[str, Value | None]:
    """The load that it was told to make; None: not limited."""
    asked: dict[str, Value | None] = {}
    for key in _ASKED:
        value = run.get(key)
        if value == "inf":
            value = None
        asked[key] = value if isinstance(value, str) else _limit({key: value}, key, name)
    return {
        key: value for key, value in asked.items() if value is not None or key in ("request_rate", "max_concurrency")
    }


def _limit(run: Mapping[str, Any], key: str, name: str) -> float | None:
    try:
        return vllm_serve.number(run, key)
    except NoRunError as error:
        raise UsageError(f"{name}: {error}, as `vllm bench serve` writes it") from None


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
