"""Where a server's processes spend their time, as a page: a bar for each part of each thread, then what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.model.kinds import State
from vllm_doctor.model.profile import IDLE, ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Block, Head, Lines, Page, Table, Words, code
from vllm_doctor.render.parts import finding
from vllm_doctor.text import words

_WIDE = 24
_LEAST = 0.005
_BUSY = 0.02
"""Of other threads only those that are busier are shown."""
_THREADS = 6
ROLE = {"api-server": "API server", "engine-core": "engine core", "worker": "worker"}
SAYS_NOTHING = "Nothing in the profile that a flag would fix"
NO_GC = (
    "Garbage collection has no frame of its own here: its time is in the part that it interrupted"
    " (--native sees it, and stops each process for a moment at each sample)."
)


def page(profiles: Sequence[Profile], report: Report, parts: Mapping[str, str]) -> Page:
    """`report`: with the findings that the profile is evidence of; `parts`: their words, by id."""
    blocks: list[Block] = [_head(profiles, report)]
    for profile in profiles:
        for process in profile.processes:
            blocks += _process(process, parts)
        notes: list[Words] = [_how(profile)]
        if not profile.native:
            notes.append(NO_GC)
        blocks.append(Lines(tuple(notes)))
    cards: list[Block] = [finding.card([one], report, False, "") for one in report.findings]
    return *blocks, *cards


def _head(profiles: Sequence[Profile], report: Report) -> Head:
    """What follows, before what it follows from."""
    found = report.findings
    if not found:
        unsure = next((profile.unsure for profile in profiles if profile.unsure), "")
        return Head(State.UNKNOWN, unsure) if unsure else Head(State.OK, SAYS_NOTHING)
    return Head(State(found[0].severity), found[0].title, found[0].rule)


def _how(profile: Profile) -> str:
    used = [one.sampler_cpu for one in profile.processes if one.sampler_cpu is not None]
    errors = sum(one.errors for one in profile.processes)
    said = f"Sampled {profile.rate} times per second for {words.number(profile.seconds, 's')}"
    said += "" if profile.native else ", without stopping a process"
    said += f"; py-spy used {words.number(sum(used))} of a core" if used else ""
    return said + (f"; {errors:,} stacks could not be read." if errors else ".")


def _process(process: ProcessProfile, parts: Mapping[str, str]) -> Iterator[Block]:
    name = f"{ROLE.get(process.role, process.role)} (pid {process.pid})"
    if not process.threads:
        why = process.problem.message if process.problem is not None else "no stack of it was read"
        yield Lines((f"{name}: {why}",))
        return
    shown = [thread for thread in process.threads if thread is process.main or thread.busy >= _BUSY]
    for thread in shown[:_THREADS]:
        yield Lines((f"{name}, {_named(thread, process)}.",))
        yield _bars(thread, parts)
    rest = len(process.threads) - len(shown[:_THREADS])
    lines: list[Words] = [note[:1].upper() + note[1:] + "." for note in process.notes]
    if rest:
        lines.append(f"{rest} more thread{'s' if rest > 1 else ''}: idle, or nearly.")
    if lines:
        yield Lines(tuple(lines))


def _named(thread: ThreadProfile, process: ProcessProfile) -> str:
    name = "main thread" if thread is process.main else f"thread {words.shortened(thread.name, 40)}"
    used = f", {words.number(thread.cpu)} of a core" if thread.cpu is not None else ""
    return f"{name}: busy {words.number(thread.busy, 'share')} of the time{used}"


def _bars(thread: ThreadProfile, parts: Mapping[str, str]) -> Table:
    """The largest first, idle last."""
    ordered = sorted(thread.shares.items(), key=lambda item: (item[0] == IDLE, -item[1]))
    rows = tuple(
        (words.number(share, "share"), "█" * max(1, round(share * _WIDE)), parts.get(part, part))
        for part, share in ordered
        if share >= _LEAST
    )
    notes: list[Words] = [
        ("not assigned: ", words.number(share, "share"), " ", code(frames)) for frames, share in thread.unassigned
        if share >= _LEAST
    ]  # fmt: skip
    return Table(("share", "", "part"), rows, frozenset({0}), tuple(notes))
