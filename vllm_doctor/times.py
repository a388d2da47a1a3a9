"""Times, durations and courses over time, in words and signs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from vllm_doctor.report import Finding, Report, Span

_BARS = "▁▂▃▄▅▆▇█"
_MOST_SPANS = 3


def clock(at: float) -> str:
    """ "13 Nov 08:12:05", as the log's own clock has it."""
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M:%S").lstrip("0")


def iso(at: float, zoned: bool) -> str:
    """RFC 3339; without an offset where the log does not tell its zone."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S") + ("Z" if zoned else "")


def duration(seconds: float) -> str:
    """ "45 s", "12 min", "7 h 20", "3 d 4 h"."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02}" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def between(first: float, last: float) -> str:
    """ "13 Nov 10:02:11 – 13:12:40": the day once where it is the same."""
    began, ended = clock(first), clock(last)
    day = began.rpartition(" ")[0]
    return f"{began} – {ended.removeprefix(day).strip()}"


def bars(values: Sequence[float | None], top: float) -> str:
    """One sign for each value, on a scale from 0 to `top`; a blank where nothing was measured."""
    signs = []
    for value in values:
        if value is None:
            signs.append(" ")
        else:
            signs.append(_BARS[min(7, int(8 * value / top))] if top > 0 and value > 0 else _BARS[0])
    return "".join(signs)


def when(finding: Finding, report: Report) -> str | None:
    """When a finding held, and for how long; None where the report is of one moment, or it held all the time."""
    spans = [s for s in report.spans if s.rule == finding.rule and dict(s.subject) == dict(finding.subject)]
    whole = sum(s.last_at - s.first_at for s in _wholes(report))
    if not spans or not whole:
        return None
    seconds = sum(span.seconds for span in spans)
    if seconds >= 0.995 * whole:
        return f"all the time ({duration(whole)})"
    longest = sorted(sorted(spans, key=lambda s: -s.seconds)[:_MOST_SPANS], key=lambda s: s.first_at)
    listed = "; ".join(between(s.first_at, s.last_at) for s in longest)
    more = f" and {len(spans) - len(longest)} more" if len(spans) > len(longest) else ""
    count = f"in {len(spans)} spans, " if len(spans) > 1 else ""
    return f"{count}{duration(seconds)} of {duration(whole)}: {listed}{more}"


def marks(spans: Iterable[Span], first: float, last: float, columns: int) -> str:
    """Where the spans lie on a line of time."""
    line = [" "] * columns
    step = max(last - first, 1e-9) / columns
    for span in spans:
        begin = max(0, min(columns - 1, int((span.first_at - first) / step)))
        end = max(begin, min(columns - 1, int((span.last_at - first) / step - 1e-6)))
        line[begin : end + 1] = "─" * (end - begin + 1)
        line[begin] = "└"
        line[end] = "┘" if end > begin else "╵"
    return "".join(line)


def _wholes(report: Report) -> list[Span]:
    """The time that the report covers: each life, from its first line to its last."""
    return [
        Span("", "", place, {}, life.first_at, life.last_at)
        for place, life in enumerate(report.lives)
        if life.first_at is not None and life.last_at is not None
    ]
