"""Where a server's processes spend their time, as a page: a bar for each part of each thread, what follows, and flame
graphs where they can be drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_doctor.model.kinds import State
from vllm_doctor.model.profile import ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Block, Head, Lines, Page, Table, Words
from vllm_doctor.render.parts import finding
from vllm_doctor.render.parts import profile as parts
from vllm_doctor.text import words

_WIDE = 24
_LEAST = 0.005
SAYS_NOTHING = "Nothing in the profile that a flag would fix"
NO_GC = (
    "Garbage collection has no frame of its own here: its time is in the part that it interrupted"
    " (--native sees it, and stops each process for a moment at each sample)."
)

GC_UNSEEN = (
    "No garbage collection was seen; of an interpreter that is stripped of its symbols (as Debian's is) it cannot be"
    " (VLLM_GC_DEBUG=1 logs each)."
)
_GC = "garbage-collection"


def page(profiles: Sequence[Profile], report: Report) -> Page:
    """`report`: with the findings that the profile is evidence of."""
    blocks: list[Block] = [_head(profiles, report)]
    for profile in profiles:
        blocks.append(Lines((parts.how(profile),)))
        for process in profile.processes:
            blocks += _process(process, profile.says)
        if not profile.native:
            blocks.append(Lines((NO_GC,)))
        elif not any(_GC in thread.shares for one in profile.processes for thread in one.threads):
            blocks.append(Lines((GC_UNSEEN,)))
    cards: list[Block] = [finding.card([one], report, False, "") for one in report.findings]
    flames = [flame for profile in profiles for flame in parts.flames(profile)]
    return *blocks, *cards, *flames


def _head(profiles: Sequence[Profile], report: Report) -> Head:
    """What follows, before what it follows from."""
    found = report.findings
    if not found:
        unsure = next((profile.unsure for profile in profiles if profile.unsure), "")
        return Head(State.UNKNOWN, unsure) if unsure else Head(State.OK, SAYS_NOTHING)
    return Head(State(found[0].severity), found[0].title, found[0].rule)


def _process(process: ProcessProfile, says: Mapping[str, str]) -> Iterator[Block]:
    name = parts.named(process)
    if not process.threads:
        yield Lines((f"{name}: {parts.why_unread(process)}",))
        return
    for thread in process.told:
        yield Lines((f"{name}, {parts.of_thread(thread, process)}.",))
        yield _bars(thread, says)
    rest = len(process.threads) - len(process.told)
    lines: list[Words] = [note[:1].upper() + note[1:] + "." for note in process.notes]
    if rest:
        lines.append(f"{rest} more thread{'s' if rest > 1 else ''}: idle, or nearly.")
    if lines:
        yield Lines(tuple(lines))


def _bars(thread: ThreadProfile, says: Mapping[str, str]) -> Table:
    rows = tuple(
        (words.number(share, "share"), "█" * max(1, round(share * _WIDE)), says.get(part, part))
        for part, share in parts.in_order(thread)
        if share >= _LEAST
    )
    notes = tuple(("not assigned: ", *rest) for rest in parts.unassigned(thread, _LEAST))
    return Table(("share", "", "part"), rows, frozenset({0}), notes)
