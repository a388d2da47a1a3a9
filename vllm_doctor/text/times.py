"""Times, durations and trends over time, in words and signs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from vllm_doctor.model import outside
from vllm_doctor.model.report import Finding, Report, RunSeen, Span, Timeline
from vllm_doctor.text.durations import duration
from vllm_doctor.text.words import number

_BARS = "▁▂▃▄▅▆▇█"
_MOST_SPANS = 3
_MOST_MARKED = 2
_LABEL = 9
_UNDATED = 365 * 86400.0
"""POSIX seconds: no log is of 1970."""
_SHORT = 600.0
"""A shorter time is told to the second."""
_STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 28 * 86400)
_TICK = 12
"""The least columns from one time on the axis to the next."""
_BESIDE = 13
"""The columns right of the drawing that a name may take."""
_KV_CACHE = "KV cache"
DEATH = "engine-died"
DEATHS = frozenset({DEATH, "container-oom-killed", "probe-ends-server"})
"""The rules whose findings are of moments, the ends of runs, and not of spans."""


def is_dated(at: float) -> bool:
    """Whether that is a time of the calendar: a log that writes none is timed from its beginning, by its statistics."""
    return at >= _UNDATED


def clock(at: float) -> str:
    """ "13 Nov 08:12:05", as the log's own clock has it; "+0:08:20" where it has none."""
    if not is_dated(at):
        return f"+{int(at // 3600)}:{int(at // 60 % 60):02d}:{int(at % 60):02d}"
    return outside.moment(at).strftime("%d %b %H:%M:%S").lstrip("0")


def iso(at: float, zoned: bool) -> str:
    """RFC 3339; without an offset where the log does not tell its zone."""
    return outside.moment(at).replace(tzinfo=None).isoformat(timespec="seconds") + ("Z" if zoned else "")


def between(first: float, last: float, seconds: bool = True) -> str:
    """ "13 Nov 10:02:11 – 13:12:40": the day once where it is the same; one time where both are."""
    began, ended = (clock(at) if seconds else clock(at)[:-3] for at in (first, last))
    if began == ended:
        return began
    day = began.rpartition(" ")[0]
    return f"{began} – {ended.removeprefix(day).strip()}"


def whole(report: Report) -> tuple[float, float] | None:
    """From when to when the report's log tells; None where it holds no times."""
    bounds = _wholes(report)
    bounds += [(report.timeline.first_at, report.timeline.last_at)] if report.timeline is not None else []
    return (min(first for first, _ in bounds), max(last for _, last in bounds)) if bounds else None


def span(report: Report) -> str:
    """ "13 Nov 08:12 – 14 Nov 19:40 (35 h 28)", with its zone where the log tells it."""
    bounds = whole(report)
    if bounds is None:
        return "no times in it"
    first, last = bounds
    if not is_dated(first):
        return f"about {duration(last - first)}, by its statistics"
    zone = " UTC" if report.lines is not None and report.lines.zoned else ""
    return f"{between(first, last, last - first < _SHORT)}{zone} ({duration(last - first)})"


def bars(values: Sequence[float | None], top: float) -> str:
    """One sign for each value, on a scale from 0 to `top`: the lowest is 0; a blank where nothing was measured."""
    signs = []
    for value in values:
        if value is None:
            signs.append(" ")
        else:
            signs.append(_BARS[max(1, round(7 * min(1.0, value / top)))] if top > 0 and value > 0 else _BARS[0])
    return "".join(signs)


def held(findings: Sequence[Finding], report: Report) -> str | None:
    """For how long one rule's findings held: "in 3 spans, 7 h 20 of 35 h"; None where the report is of one moment."""
    told = _held(findings, report)
    return told[0] if told else None


def when(findings: Sequence[Finding], report: Report) -> str | None:
    """When one rule's findings held, and for how long; None where the report is of one moment."""
    told = _held(findings, report)
    if told is None:
        return None
    text, spans = told
    if not spans:
        return text
    longest = sorted(sorted(spans, key=lambda s: s[0] - s[1])[:_MOST_SPANS])
    listed = "; ".join(between(*s) for s in longest)
    return f"{text}: {listed}{f' and {len(spans) - len(longest)} more' if len(spans) > len(longest) else ''}"


def _held(findings: Sequence[Finding], report: Report) -> tuple[str, list[tuple[float, float]]] | None:
    """In words, and the spans where those say more."""
    if any(finding.rule in DEATHS for finding in findings):
        deaths = _deaths(report)
        return (deaths, []) if deaths else None
    subjects = [(finding.rule, dict(finding.subject)) for finding in findings]
    spans = _united(s for s in report.spans if (s.rule, dict(s.subject)) in subjects)
    total = sum(last - first for first, last in _wholes(report))
    if not spans or not total:
        return None
    seconds = sum(last - first for first, last in spans)
    if seconds >= 0.995 * total:
        return f"all the time ({duration(total)})", []
    return f"{f'in {len(spans)} spans, ' if len(spans) > 1 else ''}{duration(seconds)} of {duration(total)}", spans


def _united(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Spans that overlap or touch (of several engines, of two severities) as one."""
    united: list[tuple[float, float]] = []
    for first, last in sorted((s.first_at, s.last_at) for s in spans):
        if united and first <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], last))
        else:
            united.append((first, last))
    return united


def _deaths(report: Report) -> str | None:
    """ "17 Apr 02:01:23, 7 min after its start"; "5 times, 27 Jun 01:27:12 – 01:58:07"."""
    died = [run for run in report.runs if run.end == "died"]
    known = [(run, run.died_at) for run in died if run.died_at is not None]
    if not known:
        return None
    ats = [at for _, at in known]
    if len(died) > 1:
        return f"{len(died)} times, {between(min(ats), max(ats))}"
    run, at = known[0]
    after = at - run.first_at if run.began and run.first_at is not None else -1.0
    return clock(at) + (f", {duration(after)} after its start" if after >= 0 else "")


def alike(runs: Sequence[RunSeen]) -> list[tuple[int, Sequence[RunSeen]]]:
    """Runs that ended alike and follow each other, as one: the first one's number, from 1, and they."""

    def how(numbered: tuple[int, RunSeen]) -> object:
        run = numbered[1]
        return run.began, run.up, run.end, run.ended_by, run.process, run.cause, run.vllm, run.model

    groups = (list(group) for _, group in groupby(enumerate(runs, 1), how))
    return [(group[0][0], [run for _, run in group]) for group in groups]


def lasted(runs: Sequence[RunSeen]) -> tuple[float, float] | None:
    """From the first line of these runs to their last; None where they have no times."""
    ats = [at for run in runs for at in (run.first_at, run.last_at) if at is not None]
    return (min(ats), max(ats)) if ats else None


def drawing(report: Report) -> list[str]:
    """The trend of what was measured; under it where the main findings held, and where an engine died."""
    line = report.timeline
    columns = max(map(len, line.rows.values()), default=0) if line is not None else 0
    if line is None or not columns:
        return []
    lines = [" " * _LABEL + axis(line.first_at, line.last_at, columns)]
    lines += [_row(name, values) for name, values in line.rows.items()]
    grave = [f.rule for f in report.findings if f.is_grave]
    for rule in [rule for rule in dict.fromkeys(grave) if rule not in DEATHS][:_MOST_MARKED]:
        spans = [span for span in report.spans if span.rule == rule]
        if spans:
            lines += [" " * _LABEL + marked for marked in marks(spans, line, columns, rule)]
    died = [run.died_at for run in report.runs if run.died_at is not None]
    if died:
        lines.append(" " * _LABEL + _crosses(died, line, columns))
    return [line.rstrip() for line in lines]


def _row(name: str, values: Sequence[float | None]) -> str:
    most = max((value for value in values if value is not None), default=0.0)
    share = name == _KV_CACHE
    told = number(most, "share" if share else "requests")
    return f"{name:<{_LABEL}}{bars(values, 1.0 if share else most)}  max {told}"


def axis(first: float, last: float, columns: int) -> str:
    """Times over the columns: at both ends, and round ones between, each at the column where it begins."""
    short = last - first < _SHORT

    def label(at: float, before: float) -> str:
        text = clock(at) if short else clock(at)[:-3]
        day, _, time = text.rpartition(" ")
        return time if day == clock(before).rpartition(" ")[0] else text

    left, right = clock(first) if short else clock(first)[:-3], label(last, first)
    line = list(left.ljust(columns - len(right))[: max(0, columns - len(right))] + right)
    step = next((s for s in _STEPS if s * columns >= _TICK * (last - first)), _STEPS[-1])
    before, free = first, len(left) + 2
    at = first - first % step + step
    while at < last:
        place, text = int((at - first) / max(last - first, 1e-9) * columns), label(at, before)
        if place >= free and place + len(text) + 2 <= columns - len(right):
            line[place : place + len(text)] = text
            before, free = at, place + len(text) + 2
        at += step
    return "".join(line)


def marks(spans: Iterable[Span], line: Timeline, columns: int, name: str) -> list[str]:
    """Where the spans lie on a line of time, with their name: in the widest of them, or beside them, or below."""
    places: list[tuple[int, int]] = []
    for first, last in _united(spans):
        begin = _column(first, line, columns)
        end = max(begin, _column(last - 1e-6, line, columns))
        if places and begin <= places[-1][1]:
            begin, end = places[-1][0], max(end, places.pop()[1])
        places.append((begin, end))
    signs = [" "] * columns
    widest = (0, -1)
    for begin, end in places:
        signs[begin : end + 1] = "─" * (end - begin + 1)
        signs[begin] = "└" if end > begin else "╵"
        if end > begin:
            signs[end] = "┘"
        widest = max(widest, (begin, end), key=lambda place: place[1] - place[0])
    begin, end = widest
    drawn = "".join(signs).rstrip()
    if end - begin + 1 >= len(name) + 6:
        place = begin + (end - begin + 1 - len(name) - 2) // 2
        return [f"{drawn[:place]} {name} {drawn[place + len(name) + 2 :]}"]
    free = len(drawn) - len(drawn.lstrip())
    if len(name) + 2 <= free and len(drawn) + 2 + len(name) > columns:
        return [f"{name:>{free - 2}}{drawn[free - 2 :]}"]
    if len(drawn) + 2 + len(name) <= columns + _BESIDE:
        return [f"{drawn}  {name}"]
    return [drawn, f"{name[:columns]:>{columns}}"]


def _crosses(ats: Iterable[float], line: Timeline, columns: int) -> str:
    signs = [" "] * columns
    for at in ats:
        signs[_column(at, line, columns)] = "✖"
    return f"{''.join(signs).rstrip()} crashed"


def _column(at: float, line: Timeline, columns: int) -> int:
    place = int((at - line.first_at) / max(line.last_at - line.first_at, 1e-9) * columns)
    return max(0, min(columns - 1, place))


def _wholes(report: Report) -> list[tuple[float, float]]:
    """The time that the report covers: each run, from its first line to its last.

    Where logs were put together in another order than they were written, what held lies outside of that.
    """
    wholes = []
    for place, run in enumerate(report.runs):
        if run.first_at is not None and run.last_at is not None:
            within = [at for s in report.spans if s.run == place for at in (s.first_at, s.last_at)]
            wholes.append((min([run.first_at, *within]), max([run.last_at, *within])))
    return wholes
