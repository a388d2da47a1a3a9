"""The device's time, split by step: what ran, and where nothing did, for what it waited. Pure.

A step begins on the device with the first kernel that it launched, so each border is the start of an event, and the
time between two borders is that of the first one's step, the wait for the next one included.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from vllm_doctor.model import trace
from vllm_doctor.sources.trace.events import COMMUNICATION, COMPUTE, COPY, Events, Step

_QUEUED = 50.0
"""Microseconds that a launched kernel may take to begin; what is longer, something else holds up."""
_MISREAD = 5.0
"""Microseconds by which the profiler's clocks may differ."""
_OUTLIER = 1.5
"""A first step so many times as long as the others of its kind was still being recorded for the first time."""
_MOST_LIKE = 3
"""Steps with which it is compared, or more."""
_LACKS = 0.5
"""A step with fewer kernels than this share of the usual was not recorded whole."""


@dataclass
class Split:
    """One step, or all of the time. Microseconds."""

    step: Step | None
    began: float
    parts: dict[str, float] = field(default_factory=dict)
    overlapped: float = 0.0
    kernels: int = 0
    first: int = 0
    """Its first event, as a place in the order of starts."""
    before: float = 0.0
    """Idle time just before it, of the step before."""

    def add(self, part: str, time: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + time

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def kind(self) -> str:
        """What is computed: prompts, tokens, or both; "" where the mark does not tell."""
        step = self.step
        if step is None or (step.context is None and step.generation is None):
            return step.kind.lower() if step is not None else ""
        if not step.generation:
            return "prefill" if step.context else "empty"
        return "mixed" if step.context else "decode"


@dataclass
class Timeline:
    """`kept`: the steps that are told of; `order`: the device's events by their start, `place_of`: each one's step."""

    marked_by: str
    kept: list[Split]
    warm_up: int
    lacking: int
    """Steps with less than half the kernels of the others of their kind."""
    maybe_without_requests: float
    """Microseconds before steps that only had new requests: nothing may have been there to compute."""
    order: list[int]
    from_graphs: int
    ends: list[int]
    """Of each kept step, where its events end in `order`."""
    early: float = 0.0
    """Share of the events whose launch is known that began before it, which cannot be."""


def split(events: Events) -> Timeline:
    """Of a trace with events on the device."""
    began, is_graph = events.joined()
    order = events.device.by_start()
    marked_by, steps = events.steps
    first_of = _first_events(events, began, steps)
    if not first_of:
        marked_by = ""
    splits, last = _swept(events, began, is_graph, order, first_of, steps)
    kept, warm_up, lacking, empty = _kept(events, splits, bool(marked_by))
    places = {id(one): place for place, one in enumerate(splits)}
    ends = [splits[places[id(one)] + 1].first if places[id(one)] + 1 < len(splits) else last for one in kept]
    delays = [start - at for start, at in zip(events.device.start, began, strict=True) if not math.isnan(at)]
    early = sum(delay < -_MISREAD for delay in delays) / max(1, len(delays))
    return Timeline(marked_by, kept, warm_up, lacking, empty, order, sum(is_graph), ends, early)


def _first_events(events: Events, began: array[float], steps: Sequence[Step]) -> dict[int, int]:
    """By event: the step that it is the first of."""
    if not steps:
        return {}
    device = events.device
    starts = [step.start for step in steps]
    first: dict[int, int] = {}
    for mine, launched in enumerate(began):
        if math.isnan(launched):
            continue
        step = bisect_right(starts, launched) - 1
        if step < 0:
            continue
        known = first.get(step)
        if known is None or device.start[mine] < device.start[known]:
            first[step] = mine
    found: dict[int, int] = {}
    latest = -math.inf
    for step in sorted(first):  # a step whose work runs before the last one's is part of that
        if device.start[first[step]] > latest:
            latest = device.start[first[step]]
            found[first[step]] = step
    return found


def _swept(
    events: Events,
    began: array[float],
    is_graph: bytearray,
    order: Sequence[int],
    first_of: dict[int, int],
    steps: Sequence[Step],
) -> tuple[list[Split], int]:
    """The splits, and where in `order` the last one ends."""
    device, kinds = events.device, events.kinds
    start, end, name, key = device.start, device.end, device.name, device.key
    by_end = device.by_end()
    closes = _close(events, began, steps) if first_of else math.inf
    last_place = len(order)
    running = [0, 0, 0]
    now, graph = start[order[0]], 0
    current: Split | None = None if first_of else Split(None, now)
    splits: list[Split] = [] if current is None else [current]
    ended = 0
    for place, mine in enumerate(order):
        at = start[mine]
        if at > closes:
            last_place = place
            break
        while ended < len(by_end) and end[by_end[ended]] <= at:
            other = by_end[ended]
            if current is not None:
                _run(current, running, end[other] - now)
            now = end[other]
            running[kinds[name[other]]] -= 1
            ended += 1
        is_first = mine in first_of
        if current is not None:
            if any(running):
                _run(current, running, at - now)
            elif at > now:
                _idle(
                    current, now, at, began[mine], bool(is_graph[mine]) and key[mine] == graph, is_first, bool(first_of)
                )
        if is_first:
            gap = 0.0 if any(running) else at - now
            current = Split(steps[first_of[mine]], at, first=place, before=gap)
            splits.append(current)
        if current is not None and kinds[name[mine]] != COPY:
            current.kernels += 1
        running[kinds[name[mine]]] += 1
        now, graph = at, key[mine] if is_graph[mine] else 0
    while current is not None and ended < len(by_end) and end[by_end[ended]] <= closes:
        other = by_end[ended]
        if start[other] > closes:
            break
        _run(current, running, end[other] - now)
        now = end[other]
        running[kinds[name[other]]] -= 1
        ended += 1
    return splits, last_place


def _close(events: Events, began: array[float], steps: Sequence[Step]) -> float:
    """When the last step's own work ends: what a trace holds behind it is of a step that is not whole."""
    last = max(step.start for step in steps)
    ends = [events.device.end[mine] for mine, launched in enumerate(began) if launched >= last]
    return max(ends, default=math.inf)


def _run(split: Split, running: Sequence[int], time: float) -> None:
    if time <= 0:
        return
    if running[COMPUTE]:
        split.add(trace.COMPUTE, time)
        if running[COMMUNICATION]:
            split.overlapped += time
    elif running[COMMUNICATION]:
        split.add(trace.COMMUNICATION, time)
    elif running[COPY]:
        split.add(trace.COPIES, time)


def _idle(
    split: Split, since: float, until: float, launched: float, in_graph: bool, is_first: bool, is_marked: bool
) -> None:
    """Nothing ran until this event began: because of the host, where its launch came only when nothing was left."""
    time = until - since
    if in_graph:
        split.add(trace.GAPS, time)
    elif math.isnan(launched):
        split.add(trace.UNEXPLAINED, time)
    elif launched < since:
        split.add(trace.GAPS if time <= _QUEUED else trace.UNEXPLAINED, time)
    else:
        host = min(time, launched - since + _QUEUED)
        part = trace.HOST if not is_marked else trace.HOST_BETWEEN if is_first else trace.HOST_WITHIN
        split.add(part, host)
        if time > host:
            split.add(trace.UNEXPLAINED, time - host)


def _kept(events: Events, splits: list[Split], is_marked: bool) -> tuple[list[Split], int, int, float]:
    """The steps that are told of, and how many were not: warm-up, and those of which kernels lack; and the time that
    was taken out of them, before steps for which nothing may have waited."""
    if not is_marked or len(splits) < 2:
        return splits, 0, 0, 0.0
    counts: dict[str, list[int]] = {}
    for one in splits:
        counts.setdefault(one.kind, []).append(one.kernels)
    usual = {kind: median(of_kind) for kind, of_kind in counts.items()}
    whole = [one for one in splits if one.kernels >= _LACKS * usual[one.kind]]
    cold = [one for one in whole if _is_cold(one, whole, events.loads)]
    left_out = set(map(id, cold))
    kept = [one for one in whole if id(one) not in left_out] or whole
    told = set(map(id, kept))
    empty = 0.0
    for one, after in pairwise(splits):
        step = after.step
        is_new = step is not None and step.generation == 0 and bool(step.context)
        if is_new and after.before > 0 and id(one) in told:
            idle = one.parts.get(trace.HOST_BETWEEN, 0.0)
            taken = min(idle, after.before)
            one.parts[trace.HOST_BETWEEN] = idle - taken
            empty += taken
    return kept, len(whole) - len(kept), len(splits) - len(whole), empty


def _is_cold(one: Split, splits: Sequence[Split], loads: Sequence[float]) -> bool:
    """Whether kernels were loaded in it, or it is the first and far longer than the others of its kind."""
    step = one.step
    if step is not None and any(step.start <= at < step.end for at in loads):
        return True
    if one is not splits[0]:
        return False
    others = [other.total for other in splits[1:] if other.kind == one.kind]
    return len(others) >= _MOST_LIKE and one.total > _OUTLIER * median(others)
