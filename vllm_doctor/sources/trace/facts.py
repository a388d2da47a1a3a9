"""A trace as facts (`trace_*`): shares of the time looked at; what it does not tell is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from vllm_doctor.model import trace
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.trace import RankSeen, TraceSeen

_LEAST = 20
"""Kernels: a step of a model has more, and what is less tells nothing of a server."""
ORIGIN = "trace"
GIVEN = "trace_given"
_UNTOLD = Unknown(Reason.NOT_IN_TRACE)
_DECODES = (trace.DECODE, "mixed")


def facts(seen: TraceSeen) -> dict[str, Reading]:
    rank = seen.told
    told: dict[str, Value | None] = {
        GIVEN: 1.0,
        "trace_on_cpu": float(rank.is_on_cpu),
        "trace_ranks": float(len(seen.ranks)),
        "trace_steps": float(rank.steps) if rank.marked_by else None,
        "trace_seconds": rank.seconds,
        "trace_stacks": float(rank.has_stacks),
        "trace_world": None if rank.world is None else float(rank.world),
        "trace_device": rank.device,
        **({} if rank.vllm is None else {"vllm_version": rank.vllm}),
        **({} if rank.device is None else {"gpu_written": rank.device}),
        **_largest(rank),
        **_bounded(rank),
        **({} if rank.is_on_cpu else _of_device(rank)),
        **_waits(seen),
    }
    return {name: _UNTOLD if value is None else Known(value, origin=ORIGIN) for name, value in told.items()}


def _of_device(rank: RankSeen) -> Mapping[str, Value | None]:
    is_judged = not rank.idle_unknown and rank.kernels >= _LEAST
    decode = [kind for kind in rank.kinds if kind.name in _DECODES]
    host = rank.share(*trace.WAITS_FOR_HOST)
    return {
        "trace_step_seconds": median(kind.seconds for kind in rank.kinds) if rank.kinds else None,
        "trace_decodes": float(bool(decode)) if rank.kinds and rank.kinds[0].name else None,
        "trace_compute": rank.share(trace.COMPUTE) if is_judged else None,
        "trace_communication": rank.share(trace.COMMUNICATION) if is_judged else None,
        "trace_copies": rank.share(trace.COPIES) if is_judged else None,
        "trace_idle": rank.idle / rank.seconds if is_judged and rank.seconds else None,
        "trace_host": host if is_judged else None,
        "trace_host_between": rank.share(trace.HOST_BETWEEN) if is_judged and rank.marked_by else None,
        "trace_host_within": rank.share(trace.HOST_WITHIN) if is_judged and rank.marked_by else None,
        "trace_gaps": rank.share(trace.GAPS) if is_judged else None,
        "trace_unexplained": rank.share(trace.UNEXPLAINED) if is_judged else None,
        "trace_graph_launches": float(rank.graph_launches) if rank.launches or rank.graph_launches else None,
        "trace_from_graphs": rank.from_graphs / rank.kernels if rank.kernels and rank.launches else None,
    }


_TIMES = {"trace_gemm": "gemm", "trace_moe": "moe", "trace_attention": "attention", "trace_all_reduce": "communication"}
"""Families of which a bound is known, by the fact of their time."""


def _bounded(rank: RankSeen) -> Mapping[str, Value | None]:
    """What a step of the kind computes that bounds are told of, and how long its kernels take."""
    kind = rank.bounded
    if kind is None:
        return {}
    return {
        "trace_bound_tokens": kind.tokens,
        "trace_bound_requests": kind.requests,
        "trace_bound_kv_tokens": kind.kv_tokens,
        "trace_bound_generates": 1.0 if kind.name == trace.DECODE else None,
        **{fact: kind.families.get(family) for fact, family in _TIMES.items()},
    }


def _largest(rank: RankSeen) -> Mapping[str, Value | None]:
    if not rank.families:
        return {}
    first = rank.families[0]
    total = sum(family.seconds for family in rank.families)
    says = f"{first.says} ({first.precision})" if first.precision else first.says
    return {"trace_largest": says, "trace_largest_share": first.seconds / total if total else None}


def _waits(seen: TraceSeen) -> Mapping[str, Value | None]:
    waits = [rank.waits for rank in seen.ranks if rank.waits is not None]
    if len(seen.ranks) < 2 or not waits:
        return {}
    most = max(waits) / max(rank.seconds for rank in seen.ranks)
    slowest = None if seen.slowest is None else seen.ranks[seen.slowest]
    name = None if slowest is None else f"rank {slowest.rank}" if slowest.rank is not None else slowest.target
    lag = 0.0 if slowest is None or slowest.waits is None else most - slowest.waits / slowest.seconds
    return {"trace_rank_waits": most, "trace_rank_lag": lag, "trace_slowest": name}
