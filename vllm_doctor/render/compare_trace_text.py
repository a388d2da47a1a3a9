"""Two traces compared, as text: what came of it, and what of a step grew."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from vllm_doctor.compare.comparison import Outcome
from vllm_doctor.compare.traces import Growth, TraceComparison
from vllm_doctor.model.trace import TraceSeen
from vllm_doctor.render import ansi
from vllm_doctor.text import words

_WIDTH = 80
_COLOUR = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "cyan"}
_NEGLIGIBLE = 0.001
"""Of a step: what is less is no row."""


def render(comparison: TraceComparison, colour: bool = False) -> str:
    """The comparison as text; `colour` adds ANSI colours to the outcome's word."""
    word = comparison.outcome.value
    lines = [f"{ansi.block(word, _COLOUR[comparison.outcome], colour)}  {comparison.headline}", ""]
    lines += [_seen("before", comparison.before), _seen("after", comparison.after)]
    for place, reason in enumerate(comparison.reasons):
        lines += textwrap.wrap(
            reason, _WIDTH, initial_indent="  " + ("" if place else "why").ljust(12), subsequent_indent=" " * 14
        )
    least = _NEGLIGIBLE * max(comparison.step.before or 0.0, comparison.step.after or 0.0)
    lines += ["", *_table(comparison.step.says, [*comparison.parts, comparison.step], least)]
    lines += ["", *_table("kernels", comparison.families, least), ""]
    return "\n".join(line.rstrip() for line in lines)


def _seen(label: str, seen: TraceSeen) -> str:
    rank = seen.told
    steps = f"{rank.steps:,} step{'s' if rank.steps != 1 else ''}" if rank.steps else "no steps marked"
    return "  " + label.ljust(12) + " · ".join(part for part in (rank.target, rank.device or "", steps) if part)


def _table(title: str, rows: Sequence[Growth], least: float) -> Iterator[str]:
    yield f"  {title:38}{'before':>11}{'after':>11}{'change':>12}"
    for row in rows:
        if max(row.before or 0.0, row.after or 0.0) >= least:
            yield f"  {row.says[:38]:38}{_time(row.before):>11}{_time(row.after):>11}{_change(row):>12}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else words.number(seconds, "s")


def _change(row: Growth) -> str:
    return f"{'+' if row.by >= 0 else '−'}{words.number(abs(row.by), 's')}"
