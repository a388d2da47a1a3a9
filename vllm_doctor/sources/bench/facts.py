"""A run as facts (`bench_*`): what is told, what follows from it, and for the rest that the result does not hold it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vllm_doctor.model import outside
from vllm_doctor.model.facts import BENCH
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.bench.corrected import corrected
from vllm_doctor.sources.bench.run import LATENCY, OFFLINE, BenchRun, ratio

ORIGIN = "bench"
_FULL = 0.7
"""Share of the slots in use, below which the requests in flight are the load and not the limit."""
_UNTOLD = Unknown(Reason.NOT_IN_BENCH)


def facts(run: BenchRun, before: Sequence[BenchRun] = ()) -> dict[str, Reading]:
    """The facts of a run; `before`: those that were made before it, against the same server."""
    asked = run.asked
    told: dict[str, Value | None] = {
        BENCH: 1.0,
        "bench_tool": run.tool,
        "bench_model": run.model,
        "bench_offline": float(run.tool in OFFLINE),
        "bench_requests": run.completed,
        "bench_sent": None if run.completed is None or run.failed is None else run.completed + run.failed,
        "bench_failed": run.failed,
        "bench_duration": run.duration,
        "bench_rate_asked": None if asked.rate is None or math.isinf(asked.rate) else asked.rate,
        "bench_rate_unlimited": None if asked.rate is None else float(math.isinf(asked.rate)),
        "bench_capped": None if run.is_capped is None else float(run.is_capped),
        "bench_concurrency_asked": asked.concurrency if run.is_capped else None,
        "bench_prompts_asked": asked.prompts,
        "bench_input_len_asked": asked.input_len,
        "bench_output_len_asked": asked.output_len,
        "bench_warmups": asked.warmups,
        "bench_seed": asked.seed,
        "bench_ignore_eos": None if asked.ignore_eos is None else float(asked.ignore_eos),
        "bench_dataset": asked.dataset,
        "bench_prefix_len": asked.prefix_len,
        "bench_input_len": run.input_len,
        "bench_output_len": run.output_len or (asked.output_len if asked.ignore_eos else None),
        "bench_input_tokens": run.input_tokens,
        "bench_output_tokens": run.output_tokens,
        "bench_requests_per_second": run.requests_per_second,
        "bench_output_tokens_per_second": output_rate(run),
        "bench_total_tokens_per_second": run.total_rate,
        "bench_ttft": run.ttft.usual,
        "bench_ttft_p50": run.ttft.median,
        "bench_ttft_p99": run.ttft.p99,
        "bench_tpot": tpot(run),
        "bench_tpot_derived": float(run.tpot.usual is None and between_tokens(run) is None),
        "bench_tpot_p50": run.tpot.median,
        "bench_tpot_p99": run.tpot.p99,
        "bench_itl": run.itl.mean,
        "bench_itl_p50": run.itl.median,
        "bench_itl_p99": run.itl.p99,
        "bench_e2e": run.e2e.usual,
        "bench_concurrency": concurrency(run),
        "bench_in_flight": in_flight(run),
        "bench_first_requests": run.first_requests,
        "bench_acceptance": run.acceptance,
        "bench_acceptance_len": run.acceptance_len,
        "bench_load_format": run.flags.get("--load-format") or ("auto" if _is_engine_told(run) else None),
        **load(run),
        **_again(run, before),
        **corrected(run),
    }
    return {name: _reading(value) for name, value in told.items()}


def _is_engine_told(run: BenchRun) -> bool:
    """Whether its command also starts the engine; that of `vllm bench serve` says nothing of a server's flags."""
    return run.has_command and run.tool in OFFLINE


def _reading(value: Value | None) -> Reading:
    known = outside.number(value) if isinstance(value, float) else value
    return _UNTOLD if known is None else Known(known, origin=ORIGIN)


def output_rate(run: BenchRun) -> float | None:
    """Generated tokens a second."""
    if run.output_rate is not None:
        return run.output_rate
    if run.tool == LATENCY and run.e2e.usual and run.asked.concurrency and run.asked.output_len:
        return run.asked.concurrency * run.asked.output_len / run.e2e.usual
    return ratio(run.output_tokens, run.duration)


def tpot(run: BenchRun) -> float | None:
    """Seconds for an output token, after the first.

    The mean over requests counts one with few tokens as much as one with many; the mean over chunks does not, but a
    chunk may hold several tokens: the shorter of the two is nearer to a step's time. Where neither is told: a request's
    time without that to its first token, over its other tokens; else the requests in flight over the tokens a second,
    in which the time to the first token is a part.
    """
    if (told := _step(run)) is not None:
        return told or None  # 0: no request had a second token
    if (between := between_tokens(run)) is not None:
        return between
    limit, e2e, length = run.asked.concurrency, run.e2e.usual, run.output_len or run.asked.output_len
    if run.tool == LATENCY and e2e is not None and length:
        return e2e / length
    return ratio(limit, output_rate(run)) if limit is not None and math.isfinite(limit) else None


def _step(run: BenchRun) -> float | None:
    each = run.tpot.usual
    return min(each, run.itl.mean) if each and run.itl.mean else each


def between_tokens(run: BenchRun) -> float | None:
    """A request's time without that to its first token, over its other tokens."""
    e2e, ttft, length = run.e2e.usual, run.ttft.usual, run.output_len or run.asked.output_len
    if e2e is None or ttft is None or length is None or length <= 1:
        return None
    return (e2e - ttft) / (length - 1) or None


def load(run: BenchRun) -> dict[str, Value]:
    """What it asked of the server, as the load whose speed is expected; none where its parts are not known."""
    limit, held = run.asked.concurrency, in_flight(run)
    requests = limit if limit is not None and math.isfinite(limit) else concurrency(run)
    if requests is not None and held is not None and held < _FULL * requests:
        requests = held  # its slots were not in use
    length = run.output_len or run.asked.output_len
    if requests is None or run.input_len is None or length is None:
        return {}
    return {
        "load_requests": max(1.0, requests), "load_input_tokens": run.input_len, "load_output_tokens": length,
    }  # fmt: skip


def concurrency(run: BenchRun) -> float | None:
    """Requests that generate at the same time: tokens a second × seconds a token; else the limit that was asked for."""
    rate, told = output_rate(run), _step(run)
    if rate and told:
        return rate * told
    limit = run.asked.concurrency
    return limit if limit is not None and math.isfinite(limit) else None


def in_flight(run: BenchRun) -> float | None:
    """Requests that were sent and not answered yet, the mean over the run: requests a second × seconds a request."""
    if run.in_flight is not None:
        return run.in_flight
    seconds = run.e2e.usual
    if seconds is None and run.ttft.mean is not None and run.tpot.mean is not None and run.output_len:
        seconds = run.ttft.mean + run.tpot.mean * max(0.0, run.output_len - 1)
    if seconds is None or run.requests_per_second is None or run.tool == LATENCY:
        return None
    return seconds * run.requests_per_second


def _again(run: BenchRun, before: Sequence[BenchRun]) -> Mapping[str, Value | None]:
    """Against the first run with the same prompts: how many times as fast this one was, and its first tokens."""
    same = next((one for one in before if _has_prompts_of(run, one)), None)
    rate = output_rate(run)
    first = None if same is None else output_rate(same)
    sooner = None if same is None else ratio(same.ttft.usual, run.ttft.usual)
    return {"bench_again_faster": ratio(rate, first) if before else None, "bench_again_sooner": sooner}


def _has_prompts_of(run: BenchRun, other: BenchRun) -> bool:
    """Whether both sent the same prompts, and as many at a time."""
    if run.tool != other.tool or run.asked.concurrency != other.asked.concurrency or run.asked.rate != other.asked.rate:
        return False
    if run.asked.seed != other.asked.seed:
        return False
    if run.asked.seed is None and (run.input_tokens or 0.0) % (run.completed or 1.0) == 0:
        return False  # prompts of one length: another seed's would have as many tokens
    pairs = [(run.input_tokens, other.input_tokens), (run.completed, other.completed)]
    return all(a is not None and a == b for a, b in pairs) and run.model == other.model
