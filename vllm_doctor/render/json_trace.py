"""A trace as JSON: seconds, and shares of the time looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_doctor.render.json_values import number

if TYPE_CHECKING:
    from vllm_doctor.model.trace import RankSeen, TraceSeen


def document(seen: TraceSeen | None) -> dict[str, Any] | None:
    """null where no trace was given."""
    if seen is None:
        return None
    return {
        "tool": seen.tool,
        "slowest": seen.slowest,
        "told": seen.slowest or 0,
        "ranks": [_rank(rank) for rank in seen.ranks],
        "notes": list(seen.notes),
        "bounds": _bounds(seen),
    }


def _bounds(seen: TraceSeen) -> dict[str, Any] | None:
    """null where no step is told to be one pass through the model."""
    kind = seen.told.bounded
    if kind is None:
        return None
    return {
        "kind": kind.name or None,
        "lacks": seen.bounds_lack or None,
        "families": [
            {
                "family": bound.family,
                "says": bound.says,
                "seconds": number(bound.seconds),
                "least": number(bound.least),
                "factor": number(bound.factor),
                "because": bound.because or None,
            }
            for bound in seen.bounds
        ],
    }


def _rank(rank: RankSeen) -> dict[str, Any]:
    return {
        "target": rank.target,
        "rank": rank.rank,
        "world_size": rank.world,
        "device": rank.device,
        "on_cpu": rank.is_on_cpu,
        "marked_by": rank.marked_by or None,
        "seconds": number(rank.seconds),
        "steps": rank.steps,
        "warm_up_steps": rank.warm_up,
        "parts": {part: number(seconds) for part, seconds in rank.parts.items()},
        "overlapped_communication": number(rank.overlapped),
        "idle_unknown": rank.idle_unknown or None,
        "python_stacks": rank.has_stacks,
        "kernels": rank.kernels,
        "kernels_from_graphs": rank.from_graphs,
        "graph_launches": rank.graph_launches,
        "launches": rank.launches,
        "waits_for_others": number(rank.waits),
        "kinds": [
            {
                "kind": kind.name or None,
                "steps": kind.steps,
                "seconds": number(kind.seconds),
                "parts": {part: number(share) for part, share in kind.parts.items()},
                "tokens": number(kind.tokens),
                "requests": number(kind.requests),
                "kv_tokens": number(kind.kv_tokens),
                "families": {family: number(seconds) for family, seconds in kind.families.items()},
            }
            for kind in rank.kinds
        ],
        "families": [
            {
                "family": family.name,
                "says": family.says,
                "precision": family.precision or None,
                "seconds": number(family.seconds),
                "count": family.count,
                "longest": family.longest,
                "longest_seconds": number(family.longest_seconds),
            }
            for family in rank.families
        ],
    }
