"""Where prompts part that should begin alike: a sentence, and a row for each group of them."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model import prefix
from vllm_doctor.model.prefix import Prefixes, PrefixGroup
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Labelled, Lines, Table, Words, code
from vllm_doctor.text import words

_HEAD = ("part at", "prompts", "what changes there", "behind it")
_MOST = {True: 50, False: 6}
"""Rows of one source."""


def prefixes(report: Report, whole: bool) -> tuple[Labelled, ...]:
    """Nothing where no source holds prompts."""
    return tuple(Labelled("Prefixes", _gist(seen), tuple(_body(seen, whole))) for seen in report.prefixes)


def _gist(seen: Prefixes) -> Words:
    units = f"{seen.units:,} {seen.unit}s"
    left_out = f" ({seen.left_out:,} more were not compared)" if seen.left_out else ""
    told = f"{seen.prompts:,} prompts of {units} in "
    if seen.worst is None:
        return told, code(seen.target), f"{left_out}: nothing that is the same again stands behind where they part"
    return (
        told,
        code(seen.target),
        f"{left_out}: {words.number(seen.lost_share or 0.0, 'share')} of that stands behind a change, and is the same"
        " as in an earlier prompt",
    )


def _body(seen: Prefixes, whole: bool) -> Iterator[Table | Lines]:
    shown = [group for group in seen.groups if whole or group.again or len(seen.groups) <= 2][: _MOST[whole]]
    if shown:
        rows = tuple(_row(group, seen) for group in shown)
        more = len(seen.groups) - len(shown)
        notes = (f"{more:,} more group{'s' if more > 1 else ''}",) if more else ()
        yield Table(_HEAD, rows, frozenset({1, 3}), notes)
    texts = [(group, text) for group in shown for text in group.shown]
    if texts:
        yield Lines(tuple((f"{prefix.where(group, seen.unit)}: ", code(text)) for group, text in texts))


def _row(group: PrefixGroup, seen: Prefixes) -> tuple[Words, ...]:
    again = f"{group.again:,} {seen.unit}s the same again" if group.again else ""
    return prefix.where(group, seen.unit), f"{group.prompts:,} prompts", group.change.says, again
