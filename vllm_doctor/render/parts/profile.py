"""Where the processes of a server spend their time: a bar a thread by part, its parts in words, and flame graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise

from vllm_doctor.model.profile import IDLE, Flame, ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import FlameGraph, Kind, Labelled, Lines, Span, Words, code
from vllm_doctor.text import words

ROLE = {"api-server": "API server", "engine-core": "engine core", "worker": "worker"}
_WIDE = 40
_SHADES, _AT_REST = "█▓▒", "░"
_LEAST = {True: 0.005, False: 0.02}
"""The share of the time below which a part is not named, in whole and in short."""
_WORKS = 0.1
"""In short other threads than the main one are told of where they work for so much of the time."""
_BREAK = Span(" · ", Kind.BREAK)


def profile(report: Report, whole: bool) -> tuple[Labelled, ...]:
    """Nothing where no process was looked into. In short: of each kind of process the busiest."""
    return tuple(
        Labelled("Profile", _gist(target, seen, len(report.profiles) > 1), (Lines(tuple(_rows(seen, whole))),))
        for target, seen in report.profiles.items()
    )


def flames(profile: Profile) -> tuple[FlameGraph, ...]:
    """The busiest process of each kind is shown at once."""
    return tuple(
        FlameGraph(
            f"Flame graph of the {named(process)}: {flame.total:,} samples",
            flame,
            profile.says,
            process is profile.busiest(process.role),
            _said_of(flame),
        )
        for process in profile.processes
        if (flame := profile.flames.get(process.pid)) is not None and flame.total
    )


def named(process: ProcessProfile) -> str:
    return f"{ROLE.get(process.role, process.role)} (pid {process.pid})"


def why_unread(process: ProcessProfile) -> str:
    """Of one without threads."""
    return process.problem.message if process.problem is not None else "no stack of it was read"


def of_thread(thread: ThreadProfile, process: ProcessProfile) -> str:
    """Which thread it is, and how much it does."""
    name = "main thread" if thread is process.main else f"thread {words.shortened(thread.name, 40)}"
    used = f", {words.number(thread.cpu)} of a core" if thread.cpu is not None else ""
    return f"{name}: busy {words.number(thread.busy, 'share')} of the time{used}"


def in_order(thread: ThreadProfile) -> list[tuple[str, float]]:
    """Its parts, the largest first, idle last."""
    return sorted(thread.shares.items(), key=lambda item: (item[0] == IDLE, -item[1]))


def how(profile: Profile) -> str:
    """How it was looked at, and what that took."""
    used = [one.sampler_cpu for one in profile.processes if one.sampler_cpu is not None]
    errors = sum(one.errors for one in profile.processes)
    said = f"Sampled {profile.rate} times a second for {words.number(profile.seconds, 's')}"
    said += "" if profile.native else ", without stopping a process"
    said += f"; py-spy used {words.number(sum(used))} of a core" if used else ""
    return said + (f"; {errors:,} stacks could not be read." if errors else ".")


def _gist(target: str, seen: Profile, is_one_of_many: bool) -> str:
    of = f" ({target.removeprefix('profile of ')})" if is_one_of_many else ""
    unsure = f" {seen.unsure}." if seen.unsure else ""
    return f"Where the time goes{of}.{unsure} {how(seen)}"


def _rows(seen: Profile, whole: bool) -> Iterator[Words]:
    """`░` is idle in every bar; the parts stand in it as they are named behind."""
    shown = [one for one in seen.processes if one.threads and (whole or one is seen.busiest(one.role))]
    for process in shown:
        for thread in process.told:
            if whole or thread is process.main or thread.busy >= _WORKS:
                yield from _bar(thread, process, seen, whole)
    unread: dict[tuple[str, str], list[ProcessProfile]] = {}
    for one in seen.processes:
        if not one.threads:
            unread.setdefault((one.role, why_unread(one)), []).append(one)
    for (_, why), each in unread.items():
        yield f"{named(each[0])}{f' and {len(each) - 1} more' if len(each) > 1 else ''}: {why}"
    for role in dict.fromkeys(one.role for one in seen.processes):
        rest = [one.main.busy for one in seen.processes if one.role == role and one.main and one not in shown]
        if rest:
            least, most = words.number(min(rest), "share"), words.number(max(rest), "share")
            extent = least if least == most else f"{least} to {most}"
            plural = "s" if len(rest) > 1 else ""
            yield f"{len(rest)} more {ROLE.get(role, role)}{plural}: main thread busy {extent} of the time"


def _bar(thread: ThreadProfile, process: ProcessProfile, seen: Profile, whole: bool) -> Iterator[Words]:
    named_parts = [(part, share) for part, share in in_order(thread) if share >= _LEAST[whole]]
    cells = _cells([share for _, share in named_parts])
    shades, bar, said = cycle(_SHADES), "", []
    for (part, share), wide in zip(named_parts, cells, strict=True):
        shade = (_AT_REST if part == IDLE else next(shades)) if wide else ""
        bar += shade * wide
        said.append(f"{shade} {seen.says.get(part, part)} {words.number(share, 'share')}".strip())
    yield f"{named(process)}, {of_thread(thread, process)}", _BREAK, code(bar), _BREAK, ", ".join(said)
    for frames, share in thread.unassigned:
        if share >= _LEAST[whole]:
            yield "not assigned: ", words.number(share, "share"), " ", code(frames)


def _cells(shares: Sequence[float]) -> list[int]:
    """How wide each is, so that together they end where their sum does."""
    ends = [0]
    total = 0.0
    for share in shares:
        total += share
        ends.append(min(_WIDE, round(total * _WIDE)))
    return [end - begin for begin, end in pairwise(ends)]


def _said_of(flame: Flame) -> str:
    said = "As wide as its share of the time of the threads shown; each call stands below its caller."
    if flame.summed:
        said += f" {flame.summed:,} calls that took too little to be drawn are summed."
    if flame.cut:
        said += f" {flame.cut:,} samples go deeper than is drawn."
    return said
