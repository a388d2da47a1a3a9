"""Where a step's time goes, as a trace shows it: a row a part with a bar, the kernels by family, and the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vllm_doctor.model import trace
from vllm_doctor.model.report import Report
from vllm_doctor.model.trace import Bound, FamilySeen, RankSeen, TraceSeen
from vllm_doctor.render.page import Labelled, Table, Words, soft
from vllm_doctor.text import words

_BAR = 20
_LEAST = 0.001
"""Share of the time below which a part is no row, but in the whole."""
_FAMILIES, _MOST = 6, 40
_NAME, _LONG_NAME = 22, 60
_BEFORE_ARGUMENTS = re.compile(r"^(?:void )?(?:\(anonymous namespace\)::)?(?P<name>(?:\(anonymous namespace\)|[^<(])+)")


def step(report: Report, whole: bool) -> tuple[Labelled, ...]:
    """Nothing where no trace was given."""
    seen = report.trace
    if seen is None:
        return ()
    rank = seen.told
    found = [Labelled("Step", _sentence(seen), (_parts(rank, whole),))]
    if rank.families:
        found.append(Labelled("Operators" if rank.is_on_cpu else "Kernels", "", (_families(seen, whole),)))
    if seen.bounds:
        found.append(_bounds(seen))
    if len(rank.kinds) > 1 or (whole and rank.kinds and rank.kinds[0].parts):
        found.append(Labelled("Steps", "", (_kinds(rank),)))
    if len(seen.ranks) > 1:
        found.append(Labelled("Ranks", "", (_ranks(seen),)))
    return tuple(found)


def _sentence(seen: TraceSeen) -> str:
    rank = seen.told
    what = ", ".join(_what(rank))
    marks = f" ({rank.marked_by})" if rank.marked_by else ""
    if not rank.steps:
        return f"{words.number(rank.seconds, 's')} of a trace{marks}: {what}."
    length = words.number(rank.seconds / rank.steps, "s")
    steps = f"{rank.steps:,} steps{marks}, {length} each" if rank.steps > 1 else f"one step{marks}, {length}"
    return f"{steps[0].upper()}{steps[1:]}: {what}."


def _what(rank: RankSeen) -> Iterator[str]:
    if rank.rank is not None and rank.world is not None and rank.world > 1:
        yield f"rank {rank.rank} of {rank.world}"
    yield rank.device or ("no device" if rank.is_on_cpu else "a device without a name")
    yield f"{rank.kernels:,} {'operators' if rank.is_on_cpu else 'kernels'}"
    if rank.is_on_cpu:
        return
    if rank.graph_launches:
        yield f"{words.number(rank.from_graphs / rank.kernels if rank.kernels else 0.0, 'share')} of them from graphs"
    elif rank.launches:
        yield "none of them from a graph"
    if rank.overlapped > 0:
        yield f"{words.number(rank.overlapped, 's')} of communication behind compute"


def _parts(rank: RankSeen, whole: bool) -> Table:
    rows: list[tuple[Words, ...]] = []
    for part, says in trace.SAYS.items():
        share = rank.share(part)
        if share >= (0.0 if whole else _LEAST) and part in rank.parts:
            per = rank.parts[part] / (rank.steps or 1)
            rows.append((says, words.number(per, "s"), words.number(share, "share"), _bar(share)))
    notes: tuple[Words, ...] = (soft(f"idle time is not judged: {rank.idle_unknown}"),) if rank.idle_unknown else ()
    return Table(("part", "a step" if rank.steps else "time", "share", ""), tuple(rows), frozenset({1, 2}), notes)


def _families(seen: TraceSeen, whole: bool) -> Table:
    rank = seen.told
    total = sum(family.seconds for family in rank.families) or 1.0
    most = _MOST if whole else _FAMILIES
    shown = [family for family in rank.families[:most] if whole or family.seconds >= _LEAST * total]
    rows = tuple(_family(family, total, rank.steps, whole) for family in shown)
    more = len(rank.families) - len(shown)
    notes: tuple[Words, ...] = (soft(f"and {more} more kinds"),) if more else ()
    if seen.bounds_lack:
        notes += (soft(f"not compared with what the GPU could do: {seen.bounds_lack}"),)
    head = ("kind", "a step" if rank.steps else "time", "share", "count", "the one that takes most")
    return Table(head, rows, frozenset({1, 2, 3}), notes)


def _family(family: FamilySeen, total: float, steps: int, whole: bool) -> tuple[Words, ...]:
    says = f"{family.says}, {family.precision}" if family.precision else family.says
    time, share = words.number(family.seconds / (steps or 1), "s"), words.number(family.seconds / total, "share")
    return says, time, share, f"{family.count:,}", _short(family.longest, _LONG_NAME if whole else _NAME)


def _bounds(seen: TraceSeen) -> Labelled:
    """A step's kernels beside the least time that the GPU needs for them."""
    rows = tuple(
        (
            bound.says,
            words.number(bound.seconds, "s"),
            "?" if bound.least is None else words.number(bound.least, "s"),
            "" if bound.factor is None else f"× {words.number(bound.factor, '')}",
            _why(bound),
        )
        for bound in seen.bounds
    )
    kind = seen.told.bounded
    of = f"{kind.name} step" if kind is not None and kind.name else "step"
    tokens = f" of {words.number(kind.tokens, 'tokens')} tokens" if kind is not None and kind.tokens is not None else ""
    says = f"What a {of}{tokens} takes, and the least that the GPU needs for it by its data sheet:"
    return Labelled("At best", says, (Table(("kind", "takes", "at least", "", ""), rows, frozenset({1, 2, 3})),))


def _why(bound: Bound) -> str:
    if bound.least is None:
        return bound.because
    if bound.is_below:
        return f"{bound.because}: faster than can be; another model or GPU, or kernels counted as of other kinds"
    return bound.because


def _kinds(rank: RankSeen) -> Table:
    rows = tuple(
        (
            kind.name or "step",
            f"{kind.steps:,}",
            words.number(kind.seconds, "s"),
            words.number(kind.parts.get(trace.COMPUTE, 0.0), "share") if kind.parts else "",
            words.number(sum(kind.parts.get(part, 0.0) for part in trace.IDLE), "share") if kind.parts else "",
        )
        for kind in rank.kinds
    )
    return Table(("kind", "steps", "median", "compute", "idle"), rows, frozenset({1, 2, 3, 4}))


def _ranks(seen: TraceSeen) -> Table:
    rows = tuple(
        (
            f"{'?' if rank.rank is None else rank.rank}{', the slowest' if place == seen.slowest else ''}",
            words.number(rank.seconds, "s"),
            words.number(rank.share(trace.COMPUTE), "share"),
            words.number(rank.share(trace.COMMUNICATION), "share"),
            "?" if rank.waits is None else words.number(rank.waits, "s"),
        )
        for place, rank in enumerate(seen.ranks)
    )
    return Table(("rank", "time", "compute", "communication", "waits"), rows, frozenset({1, 2, 3, 4}))


def _bar(share: float) -> str:
    return "█" * round(share * _BAR) or "▏"


def _short(name: str, most: int) -> str:
    """A kernel's name without its template's arguments."""
    found = _BEFORE_ARGUMENTS.match(name)
    return words.shortened(found["name"].strip() if found else name, most)
