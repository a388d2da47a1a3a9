"""What one file shows, as the report tells it: the parts of a step, its kernels by family, what cannot be judged."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from vllm_doctor.model import trace
from vllm_doctor.model.trace import FamilySeen, RankSeen, StepKind
from vllm_doctor.sources.trace import operators, steps
from vllm_doctor.sources.trace.events import COPY, Events
from vllm_doctor.sources.trace.steps import Split, Timeline
from vllm_doctor.text import words

_SECONDS = 1e-6
_MOST_LACKING = 0.05
"""Share of launches without what they launched, or of steps without their kernels: more, and idle time says nothing."""
_LEAST = 20
_FEW_FRAMES = 100
_ONE_OF_ALL = 0.5
"""Share of the time that a single kernel, of many, cannot have taken."""


def seen(events: Events, header: Mapping[str, Any], target: str, is_whole: bool = True) -> RankSeen | None:
    """None where nothing ran in it."""
    if not len(events.device) and not len(events.operators):
        return None
    found = (_of_device if len(events.device) else _of_operators)(events, header, target)
    found = replace(found, vllm=_version(header))
    if is_whole:
        return found
    parts = found.parts if found.is_on_cpu else _unjudged(found.parts)
    return replace(found, idle_unknown=_CUT, parts=parts, is_whole=False)


def notes(events: Events, rank: RankSeen) -> list[str]:
    """What the reader must know of how it was read."""
    found = []
    left_out = events.device.left_out + events.launches.left_out + events.operators.left_out
    if left_out:
        found.append(f"{left_out:,} events beyond the first million of their kind are left out")
    if events.impossible:
        have = "event has a time" if events.impossible == 1 else "events have times"
        found.append(f"{events.impossible:,} {have} that cannot be: left out")
    if rank.warm_up:
        found.append(f"{rank.warm_up:,} warm-up steps are left out")
    if rank.without_requests:
        says = words.number(rank.without_requests, "s")
        found.append(f"{says} before steps that only had new requests are left out: there may have been no request")
    if rank.idle_unknown not in ("", _NO_DEVICE):
        found.append(f"idle time is not judged: {rank.idle_unknown}")
    if rank.has_stacks and not rank.is_on_cpu:
        found.append("Python's stacks were recorded, which slows the host: waiting for it is an upper bound")
    if not rank.marked_by:
        found.append("nothing marks the steps: all of its time is one section")
    if rank.idle_unknown == _NO_DEVICE:
        found.append("no device in it: a build for CPUs, or a profiler without the GPU's activities")
    return found


def _of_device(events: Events, header: Mapping[str, Any], target: str) -> RankSeen:
    timeline = steps.split(events)
    kept = timeline.kept
    parts = _parts(kept)
    by_kind = _of_kernels(events, timeline)
    plain, plain_lacking, graphs, graphs_lacking = events.without_events()
    unknown = _why_unknown(events, timeline, (plain, plain_lacking, graphs, graphs_lacking), parts)
    if unknown:
        parts = _unjudged(parts)
    return RankSeen(
        target,
        *_place(header),
        device=_device(header),
        marked_by=timeline.marked_by,
        seconds=sum(parts.values()),
        parts=parts,
        overlapped=sum(one.overlapped for one in kept) * _SECONDS,
        kinds=tuple(_kinds(events, kept, by_kind)) if timeline.marked_by else (),
        families=_of_all(events, by_kind.values()),
        kernels=sum(one.kernels for one in kept),
        from_graphs=timeline.from_graphs,
        graph_launches=graphs,
        launches=plain,
        steps=len(kept) if timeline.marked_by else 0,
        warm_up=timeline.warm_up,
        without_requests=timeline.maybe_without_requests * _SECONDS,
        idle_unknown=unknown,
        has_stacks=events.python_frames > _FEW_FRAMES,
        is_forward=bool(timeline.marked_by) and events.is_forward,
    )


def _of_operators(events: Events, header: Mapping[str, Any], target: str) -> RankSeen:
    told = operators.split(events)
    outside = max(0.0, told.total - told.inside - told.between)
    parts = {trace.OPERATORS: told.inside, trace.OUTSIDE: outside, trace.BETWEEN: told.between}
    parts = {part: time * _SECONDS for part, time in parts.items() if time > 0}
    by_kind: dict[str, list[float]] = defaultdict(list)
    for kind, length in told.steps:
        by_kind[kind].append(length * _SECONDS)
    return RankSeen(
        target,
        *_place(header),
        device=None,
        marked_by=told.marked_by,
        seconds=sum(parts.values()),
        parts=parts,
        overlapped=0.0,
        kinds=tuple(
            StepKind(kind, len(lengths), median(lengths), {})
            for kind, lengths in sorted(by_kind.items(), key=lambda one: -len(one[1]))
        ),
        families=_families(events, told.by_name.items(), told.counts),
        kernels=sum(told.counts.values()),
        from_graphs=0,
        graph_launches=0,
        launches=0,
        steps=len(told.steps),
        warm_up=0,
        idle_unknown=_NO_DEVICE,
        is_on_cpu=True,
        has_stacks=events.python_frames > _FEW_FRAMES,
    )


def _parts(splits: Sequence[Split]) -> dict[str, float]:
    found = {part: sum(one.parts.get(part, 0.0) for one in splits) * _SECONDS for part in trace.SAYS}
    return {part: time for part, time in found.items() if time > 0}


def _unjudged(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts with all idle time as one, where it may not have been idle."""
    idle = sum(parts.get(part, 0.0) for part in trace.IDLE)
    return {part: time for part, time in parts.items() if part not in trace.IDLE} | {trace.UNEXPLAINED: idle}


def _kinds(events: Events, kept: Sequence[Split], kernels: Mapping[str, _Kernels]) -> Iterable[StepKind]:
    for kind, count in Counter(one.kind for one in kept).most_common():
        of_kind = [one for one in kept if one.kind == kind]
        parts = _parts(of_kind)
        total = sum(parts.values()) or 1.0
        shares = {part: time / total for part, time in parts.items()}
        families: defaultdict[str, float] = defaultdict(float)
        for name, time in kernels[kind].time.items():
            families[events.families[name][0]] += time / count * _SECONDS
        steps = [one.step for one in of_kind if one.step is not None]
        yield StepKind(
            kind,
            count,
            median(one.total for one in of_kind) * _SECONDS,
            shares,
            tokens=_mean([step.tokens for step in steps]),
            requests=_mean([step.requests for step in steps]),
            kv_tokens=_mean([step.kv_tokens for step in steps]),
            families=dict(families),
        )


def _mean(counts: Sequence[int | None]) -> float | None:
    """None where a step does not tell."""
    told = [count for count in counts if count is not None]
    return sum(told) / len(told) if told and len(told) == len(counts) else None


@dataclass
class _Kernels:
    """Time in microseconds, and how many there are, by the number of their name."""

    time: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    count: Counter[int] = field(default_factory=Counter)


def _of_kernels(events: Events, timeline: Timeline) -> dict[str, _Kernels]:
    """Those of each kind of steps."""
    found: defaultdict[str, _Kernels] = defaultdict(_Kernels)
    device, kinds = events.device, events.kinds
    for one, end in zip(timeline.kept, timeline.ends, strict=True):
        time, count = found[one.kind].time, found[one.kind].count
        for mine in timeline.order[one.first : end]:
            name = device.name[mine]
            if kinds[name] != COPY:
                time[name] += device.end[mine] - device.start[mine]
                count[name] += 1
    return found


def _of_all(events: Events, kinds: Iterable[_Kernels]) -> tuple[FamilySeen, ...]:
    time: defaultdict[int, float] = defaultdict(float)
    count: Counter[int] = Counter()
    for one in kinds:
        count.update(one.count)
        for name, taken in one.time.items():
            time[name] += taken
    return _families(events, time.items(), count)


def _families(events: Events, times: Iterable[tuple[int, float]], counts: Mapping[int, int]) -> tuple[FamilySeen, ...]:
    found: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for name, time in times:
        found[events.families[name]].append((time * _SECONDS, name))
    rows = [
        FamilySeen(
            family,
            events.table.says(family),
            precision,
            sum(time for time, _ in of_family),
            sum(counts[name] for _, name in of_family),
            events.names[max(of_family)[1]][:_NAME],
            max(of_family)[0],
        )
        for (family, precision), of_family in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


_NAME = 200
_VERSION = re.compile(r"\d{1,4}\.\d{1,4}[\w.+-]{0,40}")
_NO_DEVICE = "it has no device's events"
_CUT = "the file ends early, or is damaged"


def _why_unknown(
    events: Events,
    timeline: Timeline,
    launches: tuple[int, int, int, int],
    parts: Mapping[str, float],
) -> str:
    """Why the device may have been busy where nothing is recorded."""
    plain, plain_lacking, graphs, graphs_lacking = launches
    steps_seen = len(timeline.kept) + timeline.warm_up + timeline.lacking
    if events.device.left_out or events.launches.left_out:
        return "the trace is too long, and not all of it was kept"
    if len(events.devices) > 1:
        return f"it holds the events of {len(events.devices)} devices"
    if timeline.early > _MOST_LACKING:
        share = words.number(timeline.early, "share")
        return f"{share} of the kernels begin before their own launch: the device's clock is not the host's"
    if graphs_lacking > _MOST_LACKING * graphs:
        return f"{graphs_lacking:,} of {graphs:,} graph replays have no kernels in it"
    if plain_lacking > max(_LEAST, _MOST_LACKING * plain):
        return (
            f"{plain_lacking:,} of {plain:,} launches have no kernel in it: the profiler dropped events, or a graph was"
            " captured"
        )
    if timeline.lacking > _MOST_LACKING * steps_seen:
        return f"{timeline.lacking:,} of {steps_seen:,} steps hold less than half of the kernels of the others"
    longest = max(_durations(events, timeline), default=0.0) * _SECONDS
    if len(events.device) > _LEAST and longest > _ONE_OF_ALL * sum(parts.values()):
        return "one kernel is reported to have taken more than half of the time, which is no kernel's time"
    return ""


def _durations(events: Events, timeline: Timeline) -> Iterable[float]:
    device = events.device
    is_compute: Callable[[int], bool] = lambda mine: events.kinds[device.name[mine]] == 0  # noqa: E731
    return (device.end[mine] - device.start[mine] for mine in timeline.order if is_compute(mine))


def _place(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    told = header.get("distributedInfo")
    told = told if isinstance(told, dict) else {}
    rank, world = (told.get(name) for name in ("rank", "world_size"))
    return tuple(of if type(of) is int and 0 <= of < 1 << 31 else None for of in (rank, world))  # type: ignore[return-value]


def _version(header: Mapping[str, Any]) -> str | None:
    told = header.get("vllm_version")
    return told if isinstance(told, str) and _VERSION.fullmatch(told) else None


def _device(header: Mapping[str, Any]) -> str | None:
    """Its name, as the first of its properties has it: a host has one kind of GPU."""
    told = header.get("deviceProperties")
    first = told[0] if isinstance(told, list) and told and isinstance(told[0], dict) else {}
    name = first.get("name")
    return name[:80] if isinstance(name, str) and name.strip() else None
