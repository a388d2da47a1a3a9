"""A trace without a device: what the operators of the busiest thread took, by themselves. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.sources.trace.events import Events


@dataclass(frozen=True)
class Operators:
    """Microseconds. `by_name`: an operator's own time, without those that it called; `inside`: of all; `between`: no
    step and no operator."""

    total: float
    inside: float
    between: float
    by_name: dict[int, float]
    counts: dict[int, int]
    steps: tuple[tuple[str, float], ...]
    """Kind and length of each step."""
    marked_by: str


def split(events: Events) -> Operators:
    ops = events.operators
    busy: defaultdict[int, float] = defaultdict(float)
    for start, end, thread in zip(ops.start, ops.end, ops.key, strict=True):
        busy[thread] += end - start
    main = max(busy, key=busy.__getitem__)
    marked_by, steps = events.steps
    spans = [(step.start, step.end) for step in steps]
    mine = [place for place in range(len(ops)) if ops.key[place] == main]
    mine.sort(key=lambda place: (ops.start[place], -ops.end[place]))
    own: defaultdict[int, float] = defaultdict(float)
    counts: Counter[int] = Counter()
    inside, covered = 0.0, -1.0
    open_ops: list[int] = []
    first, last = ops.start[mine[0]], max(ops.end[place] for place in mine)
    for place in mine:
        start, end, name = ops.start[place], ops.end[place], ops.name[place]
        while open_ops and ops.end[open_ops[-1]] <= start:
            open_ops.pop()
        if open_ops:
            own[ops.name[open_ops[-1]]] -= min(end, ops.end[open_ops[-1]]) - start
        own[name] += end - start
        counts[name] += 1
        inside += max(0.0, end - max(start, covered))
        covered = max(covered, end)
        open_ops.append(place)
    if spans:
        first, last = min(first, spans[0][0]), max(last, max(end for _, end in spans))
    kinds = tuple((_kind(step.context, step.generation), step.end - step.start) for step in steps)
    between = _between(spans, first, last, [(ops.start[place], ops.end[place]) for place in mine]) if spans else 0.0
    return Operators(
        last - first, inside, between, {n: max(0.0, t) for n, t in own.items()}, dict(counts), kinds, marked_by
    )


def _between(
    steps: Sequence[tuple[float, float]], first: float, last: float, mine: Sequence[tuple[float, float]]
) -> float:
    """The time in neither."""
    covered, free = first, 0.0
    for start, end in sorted([*steps, *mine]):
        free += max(0.0, start - covered)
        covered = max(covered, end)
    return free + max(0.0, last - covered)


def _kind(context: int | None, generation: int | None) -> str:
    if context is None and generation is None:
        return ""
    if not generation:
        return "prefill" if context else "empty"
    return "mixed" if context else "decode"
