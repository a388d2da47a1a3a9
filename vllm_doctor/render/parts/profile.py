"""Where the processes of a server spend their time: a bar a thread by part, its parts in words, and flame graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, pairwise

from vllm_doctor.model.profile import IDLE, Flame, ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import FlameGraph, Kind, Labelled, Lines, Span, Table, Words, code
from vllm_doctor.text import words

ROLE = {"api-server": "API server", "engine-core": "engine core", "worker": "worker"}
_WIDE = {True: 24, False: 40}
"""Characters of a bar, in whole, where it stands in a table, and in short."""
_SHADES, _AT_REST = "█▓▒", "░"
_LEAST = {True: 0.005, False: 0.02}
"""The share of the time below which a part is not named, in whole and in short."""
_WORKS = 0.1
"""In short other threads than the main one are told of where they work for so much of the time."""
_BREAK = Span(" · ", Kind.BREAK)


def profile(report: Report, whole: bool) -> tuple[Labelled, ...]:
    """Nothing where no process was looked into. In short: of each kind of process the busiest."""
    of_many = len(report.profiles) > 1
    return tuple(
        Labelled("Profile", _gist(target if of_many else "", seen), (_all(seen) if whole else _busiest(seen),))
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
    used = f", {words.number(round(thread.cpu, 2))} of a core" if thread.cpu is not None else ""
    return f"{_name(thread, process)}: busy {words.number(thread.busy, 'share')} of the time{used}"


def _name(thread: ThreadProfile, process: ProcessProfile) -> str:
    return "main thread" if thread is process.main else f"thread {words.shortened(thread.name, 40)}"


def unassigned(thread: ThreadProfile, least: float) -> list[tuple[str | Span, ...]]:
    """Of what no entry describes the shares, and the frames."""
    return [(words.number(share, "share"), " ", code(frames)) for frames, share in thread.unassigned if share >= least]


def in_order(thread: ThreadProfile) -> list[tuple[str, float]]:
    """Its parts, the largest first, idle last."""
    return sorted(thread.shares.items(), key=lambda item: (item[0] == IDLE, -item[1]))


def how(profile: Profile) -> str:
    """How it was looked at, and what that took."""
    used = [one.sampler_cpu for one in profile.processes if one.sampler_cpu is not None]
    errors = sum(one.errors for one in profile.processes)
    said = f"Sampled {profile.rate} times per second for {words.number(profile.seconds, 's')}"
    said += "" if profile.native else ", without stopping a process"
    said += f"; py-spy used {words.number(round(sum(used), 2))} of a core" if used else ""
    return said + (f"; {errors:,} stacks could not be read." if errors else ".")


def _gist(target: str, seen: Profile) -> str:
    of = f" ({target.removeprefix('profile of ')})" if target else ""
    unsure = f" {seen.unsure}." if seen.unsure else ""
    return f"Where the time goes{of}.{unsure} {how(seen)}"


def _all(seen: Profile) -> Table:
    """A row a thread. The parts stand in its bar as they are named beside it."""
    rows: list[tuple[Words, ...]] = []
    notes: list[Words] = []
    for process in seen.processes:
        for thread in process.told:
            bar, said = _bar(thread, seen, whole=True)
            rows.append((f"{named(process)}, {of_thread(thread, process)}", (Span(bar, Kind.BAR),), said))
            where = f"not assigned in the {_name(thread, process)} of the {named(process)}: "
            notes += [(where, *rest) for rest in unassigned(thread, _LEAST[True])]
    return Table(("process", f"{_AT_REST} idle", "share of the time"), tuple(rows), notes=(*notes, *_unread(seen)))


def _busiest(seen: Profile) -> Lines:
    """Of each kind of process the one that is busiest, and how busy the others are."""
    lines: list[Words] = []
    for role in dict.fromkeys(process.role for process in seen.processes):
        shown = seen.busiest(role)
        if shown is None:
            continue
        for thread in shown.told:
            if thread is shown.main or thread.busy >= _WORKS:
                bar, said = _bar(thread, seen, whole=False)
                lines.append((f"{named(shown)}, {of_thread(thread, shown)}", _BREAK, Span(bar, Kind.BAR), _BREAK, said))
                lines += [("not assigned: ", *rest) for rest in unassigned(thread, _LEAST[False])]
        rest = [one.main.busy for one in seen.processes if one.role == role and one.main and one is not shown]
        if rest:
            least, most = words.number(min(rest), "share"), words.number(max(rest), "share")
            extent = least if least == most else f"{least} to {most}"
            name = f"{ROLE.get(role, role)}{'s' if len(rest) > 1 else ''}"
            lines.append(f"{len(rest)} more {name}: main thread busy {extent} of the time")
    return Lines((*lines, *_unread(seen)))


def _unread(seen: Profile) -> Iterator[str]:
    """Those that could not be sampled, and why."""
    found: dict[tuple[str, str], list[ProcessProfile]] = {}
    for one in seen.processes:
        if not one.threads:
            found.setdefault((one.role, why_unread(one)), []).append(one)
    for (_, why), each in found.items():
        yield f"{named(each[0])}{f' and {len(each) - 1} more' if len(each) > 1 else ''}: {why}"


def _bar(thread: ThreadProfile, seen: Profile, whole: bool) -> tuple[str, str]:
    """Its parts as a bar, and in words."""
    parts = [(part, share) for part, share in in_order(thread) if share >= _LEAST[whole]]
    shades, bar, said = cycle(_SHADES), "", []
    for (part, share), wide in zip(parts, _cells([share for _, share in parts], _WIDE[whole]), strict=True):
        shade = (_AT_REST if part == IDLE else next(shades)) if wide else ""
        bar += shade * wide
        said.append(f"{shade} {seen.says.get(part, part)} {words.number(share, 'share')}".strip())
    return bar, ", ".join(said)


def _cells(shares: Sequence[float], wide: int) -> list[int]:
    """How wide each is, of `wide` in all, so that together they end where their sum does."""
    ends = [0]
    total = 0.0
    for share in shares:
        total += share
        ends.append(min(wide, round(total * wide)))
    return [end - begin for begin, end in pairwise(ends)]


def _said_of(flame: Flame) -> str:
    said = "As wide as its share of the time of the threads shown; each call stands below its caller."
    if flame.summed:
        said += f" {flame.summed:,} calls that took too little to be drawn are summed."
    if flame.cut:
        said += f" {flame.cut:,} samples go deeper than is drawn."
    return said
