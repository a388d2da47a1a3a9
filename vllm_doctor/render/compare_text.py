"""A comparison for a hurried reader: what came of it, whether the load was the same, what changed, the figures."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator

from vllm_doctor.compare.comparison import LEAST_CHANGE, LEAST_SAMPLES, Comparison, Difference, Outcome, Result, Row
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure
from vllm_doctor.render import ansi
from vllm_doctor.text import words

_WIDTH = 80
_INDENT = 12
_COLOUR = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INCONCLUSIVE: "cyan"}
_SAYS = 24
_TOLD = ("better", "worse", "changed")


def render(comparison: Comparison, colour: bool = False) -> str:
    """The comparison as text; `colour` adds ANSI colours to the outcome's word."""
    word = comparison.outcome.value
    lines = textwrap.wrap(comparison.headline, _WIDTH - len(word) - 2, break_on_hyphens=False) or [""]
    painted = ansi.block(word, _COLOUR[comparison.outcome], colour)
    lines = [f"{painted}  {lines[0]}", *(" " * (len(word) + 2) + line for line in lines[1:]), ""]
    lines += [*_paragraph("before", _result(comparison.before)), *_paragraph("after", _result(comparison.after))]
    same = {True: "yes", False: "no", None: "unknown"}[comparison.same_load]
    lines += _paragraph("same load?", f"{same}: {comparison.load_says.removeprefix('not the same load: ')}")
    for place, change in enumerate(_changes(comparison)):
        lines += _paragraph("" if place else "changed", change)
    found = [f"{rule}: gone" for rule in comparison.gone]
    found += [f"{rule}: still there" for rule in comparison.stayed] + [f"{rule}: new" for rule in comparison.new]
    lines += _paragraph("found", ", ".join(found)) if found else []
    for place, reason in enumerate(comparison.reasons if len(comparison.reasons) > 1 else ()):
        lines += _paragraph("" if place else "why", f"- {reason}")
    lines += ["", *_table(comparison), ""]
    for note in comparison.notes:
        lines += _paragraph("note", note)
    lines += textwrap.wrap(
        "In brackets: the least and the most of the samples, or the bounds of a histogram's bucket. A difference counts"
        " where chance alone makes it less than once in 100 times (Welch's t, in which parts shorter than a request"
        " count for less; of buckets, where they do not overlap) and it is at least"
        f" {words.number(LEAST_CHANGE, 'share')}; else it is unclear.",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _result(result: Result) -> str:
    runs = max((m.samples for m in result.measures.values() if m.spread == "runs"), default=0)
    seconds = f"{words.number(round(result.seconds, 1), 's')}" if result.seconds else ""
    parts = [
        result.name,
        {"bench": "vllm bench serve", "guidellm": "GuideLLM", "server": "server, seen now"}.get(
            result.kind, result.kind
        ),
        f"{runs} runs" if runs > 1 else "",
        words.shortened(result.model or "model not known"),
        f"vLLM {result.vllm}" if result.vllm else "",
        f"{seconds}" if seconds else "",
        result.verdict or "",
    ]
    return " · ".join(part for part in parts if part)


def _changes(comparison: Comparison) -> Iterator[str]:
    if comparison.changes is None:
        yield "unknown: one of the command lines is not known (it is on the server's own host, or in its log)"
        return
    if not comparison.changes:
        yield "no flag"
    for change in comparison.changes:
        advised = {
            "yes": f"as vllm-doctor advised [{change.rule}]",
            "another value": f"vllm-doctor advised another value [{change.rule}]",
            "no": "not advised by vllm-doctor",
        }[change.advised]
        yield f"{_change(change)}   ({advised})"
    for advice in comparison.not_done:
        yield f"{advice.name}: advised {_value(advice.now)}, not done [{advice.rule}]"


def _change(change: Difference) -> str:
    return f"{change.name} {_value(change.was)} → {_value(change.now)}"


def _value(value: Value | None) -> str:
    if value is None:
        return "not set"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(words.plain(value))


def _table(comparison: Comparison) -> list[str]:
    befores = [_figure(row.before, row) for row in comparison.rows]
    afters = [_figure(row.after, row) for row in comparison.rows]
    wide, wider = (max(map(len, [head, *shown])) for head, shown in (("before", befores), ("after", afters)))
    lines = [f"  {'':<{_SAYS}}{'before':>{wide}}  {'after':>{wider}}"] if befores else []
    for row, before, after in zip(comparison.rows, befores, afters, strict=True):
        times = words.times(row.factor) if row.factor and row.word in _TOLD else ""
        says = f"{row.says} /s" if row.unit == "1/s" else row.says
        lines.append(f"  {says:<{_SAYS}}{before:>{wide}}  {after:>{wider}}  {_is(row)} {times}")
    return lines


def _is(row: Row) -> str:
    """What became of it. "the same" is said of figures that look so; a difference within the spread is "unclear"."""
    if row.word == "cannot tell" and row.before is not None and row.after is not None:
        return "few samples" if min(row.before.samples, row.after.samples) < LEAST_SAMPLES else row.word
    if row.word != "the same" or row.before is None or row.after is None:
        return row.word
    was, now = row.before.value, row.after.value
    return "unclear" if abs(now - was) >= LEAST_CHANGE * max(abs(was), abs(now)) > 0 else row.word


def _figure(measure: Measure | None, row: Row) -> str:
    """ "2.66 s (0.853–3.52)", in one unit; "2.5–5 s" where only the bucket is known."""
    if measure is None:
        return "-"
    factor, unit = 1.0, ""
    if row.unit == "share":
        factor, unit = 100.0, " %"
    elif row.unit == "s":
        factor, unit = (1.0, " s") if max(measure.value, measure.low) >= 1 else (1000.0, " ms")
    value, low, high = (_digits(v * factor) for v in (measure.value, measure.low, measure.high))
    if measure.spread == "bucket":
        return f"over {low}{unit}" if measure.high == math.inf else f"{low}–{high}{unit}"
    return f"{value}{unit}" if low == high else f"{value}{unit} ({low}–{high})"


def _digits(value: float) -> str:
    return words.number(value) if value == 0 or value >= 0.01 else "0.01"


def _paragraph(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"  {label:<{_INDENT}}{text}",
        _WIDTH,
        subsequent_indent=" " * (_INDENT + 2),
        break_on_hyphens=False,
    )
