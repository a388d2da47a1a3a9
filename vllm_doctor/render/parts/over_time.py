"""What went on over time: curves, when which finding held, and the runs of the server."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.model.report import Finding, Report, RunSeen, Span, Timeline, Trend, grouped
from vllm_doctor.render.page import Curve, Heading, Held, Lines, Numbered, Plots, Table, Words, code
from vllm_doctor.text import durations, times, words

_RUNS = 6
_WHOLE_LIVES = 40
_HELD, _HELD_SPANS = 12, 500
_UNITS = {"running": "requests", "waiting": "requests", "KV cache": "share"}


def plots(report: Report) -> tuple[Plots, ...]:
    drawn = tuple(times.drawing(report))
    if report.timeline is not None:
        line = report.timeline
        curves = tuple(_of_log(name, values, line, report) for name, values in line.rows.items())
    else:
        curves = tuple(_of_server(trend) for trend in report.trends)
    bounds = times.whole(report) if report.spans else None
    if bounds is None:
        return (Plots(drawn, curves),) if drawn or curves else ()
    held = _held(report)
    return (Plots(drawn, curves, held[:_HELD], max(0, len(held) - _HELD), *bounds, times.between(*bounds)),)


def _of_server(trend: Trend) -> Curve:
    last = trend.points[-1][0]
    known = [value for _, value in trend.points if value is not None]
    ends = ("0 s", words.number(round(last, 1), "s"))
    extent, top = _extent(known, trend.unit)
    return Curve(trend.says, extent, trend.points, 0.0, last, top, ends)


def _of_log(name: str, values: Sequence[float | None], line: Timeline, report: Report) -> Curve:
    width = (line.last_at - line.first_at) / max(1, len(values))
    points = tuple((line.first_at + (n + 0.5) * width, value) for n, value in enumerate(values))
    extent, top = _extent([value for value in values if value is not None], _UNITS.get(name, ""))
    deaths = tuple(run.died_at for run in report.runs if run.died_at is not None)
    ends = (times.clock(line.first_at), times.clock(line.last_at))
    return Curve(name, extent, points, line.first_at, line.last_at, top, ends, deaths)


def _extent(known: Sequence[float], unit: str) -> tuple[str, float]:
    """ "2 to 24", and how high the plot is: a share's is always the whole."""
    top = 1.0 if unit == "share" else max(known, default=0.0)
    if not known:
        return "not known", top
    low, high = words.number(min(known), unit), words.number(max(known), unit)
    return (low if low == high else f"{low} to {high}"), top


def _held(report: Report) -> tuple[Held, ...]:
    """Each rule's spans, those of the main findings first."""
    main = {finding.rule for finding in report.main}
    by_rule: dict[tuple[str, str], list[Span]] = {}
    for span in sorted(report.spans, key=lambda span: (span.rule not in main, span.first_at)):
        by_rule.setdefault((span.rule, span.severity), []).append(span)
    return tuple(
        Held(
            rule,
            severity,
            tuple((span.first_at, span.last_at) for span in spans[:_HELD_SPANS]),
            durations.duration(sum(span.seconds for span in spans)),
        )
        for (rule, severity), spans in by_rule.items()
    )


def numbered(main: Sequence[Finding], report: Report) -> tuple[Numbered, ...]:
    """Several findings of a log, and for how long each held."""
    groups = grouped(main)
    if not report.spans or len(groups) < 2:
        return ()
    return (Numbered(tuple((group[0].rule, times.held(group, report) or group[0].severity) for group in groups)),)


def runs(report: Report, whole: bool) -> tuple[Heading | Lines | Table, ...]:
    """The server's runs and how they ended, those that ended alike as one; none of a single one that goes on."""
    if len(report.runs) < 2 and all(run.end == "open" for run in report.runs):
        return ()
    groups = times.alike(report.runs)
    most = _WHOLE_LIVES if whole else _RUNS
    first, between, last = groups, groups[:0], groups[:0]
    if len(groups) > most:
        first, between, last = groups[: most // 2], groups[most // 2 : -most // 2], groups[-most // 2 :]
    hidden = [run for _, alike in between for run in alike]
    died = sum(run.end == "died" for run in hidden)
    if whole:
        rows = tuple(_row(number, alike) for number, alike in (*first, *last))
        notes = (f"{len(hidden):,} runs between them are not shown; {died:,} of them crashed.",) if hidden else ()
        head = ("Run", "From – to", "Served", "Ended", "In", "Cause", "Log line")
        return Heading("Runs of the server"), Table(head, rows, frozenset({0, 6}), notes)
    items = [_sentence(number, alike, len(report.runs)) for number, alike in first]
    items += [f"… {len(hidden):,} runs between them, {died:,} of them crashed …"] if hidden else []
    items += [_sentence(number, alike, len(report.runs)) for number, alike in last]
    return (Lines(tuple(items), hang=11),)


def _sentence(number: int, runs: Sequence[RunSeen], of: int) -> str:
    run, count = runs[0], len(runs)
    bounds = times.lasted(runs)
    facts = [] if run.began else ["log starts mid-run"]
    is_early = run.began and not run.up
    facts += ["never served"] if is_early and run.end != "died" else []
    name = f"runs {number:,}–{number + count - 1:,}" if count > 1 else f"run {number:,}"
    begun = f"{name}  {times.between(*bounds) if bounds else 'no times'}{''.join(f', {fact}' for fact in facts)}; "
    if run.end in ("stopped", "hung"):
        return _ended(run, count) if of == 1 else f"{begun}{_ended(run, count)}"
    if run.end != "died":
        return f"{begun}{'the log ends' if number + count > of else 'the next run follows'}"
    at = f" {times.clock(run.died_at)}" if run.died_at is not None and count == 1 else ""
    who = f" in {run.process}" if run.process else ""
    ended = f"crashed during startup{_stage(run)}" if is_early else "crashed"
    cause = run.cause or _NO_CAUSE
    places = _places(runs)
    line = f" (line {places})" if places else ""
    if of == 1:
        return f"{ended}{at}{who}{''.join(f', {fact}' for fact in facts)}: {cause}{line}"
    return f"{begun}{'each ' if count > 1 else ''}{ended}{at}{who}: {cause}{line}"


_NO_CAUSE = "the log shows no exception"


def _row(number: int, runs: Sequence[RunSeen]) -> tuple[Words, ...]:
    run, count = runs[0], len(runs)
    bounds = times.lasted(runs)
    is_dead = run.end == "died"
    return (
        f"{number:,}–{number + count - 1:,}" if count > 1 else f"{number:,}",
        (times.between(*bounds) if bounds else "no times") + ("" if run.began else " (log starts mid-run)"),
        "yes" if run.up else "no" if run.began else "",
        _ended(run, count),
        (code(run.process),) if is_dead and run.process else "",
        (code(run.cause),) if is_dead and run.cause else _NO_CAUSE if is_dead else "",
        _places(runs),
    )


def _stage(run: RunSeen) -> str:
    return f" ({run.stage})" if run.stage not in (None, "serving") else ""


def _ended(run: RunSeen, count: int) -> str:
    if run.end == "stopped":
        early = f" during startup{_stage(run)}" if run.stage is not None else ""
        return f"was stopped{early}: {run.ended_by}" if run.ended_by else f"was stopped{early}"
    if run.end == "hung":
        hung = words.number(run.hung_seconds, "s")
        return f"hangs: requests run, and no tokens are generated for {hung} to the log's end"
    if run.end != "died":
        return "goes on"
    if count > 1:
        return f"crashed, each of them{_stage(run)}"
    return f"crashed{_stage(run)} {times.clock(run.died_at)}" if run.died_at is not None else "crashed"


def _places(runs: Sequence[RunSeen]) -> str:
    """The lines of the log in which the first and the last cause stand."""
    numbers = [run.cause_line for run in runs if run.cause_line is not None]
    return " … ".join(f"{line:,}" for line in ([numbers[0], numbers[-1]] if len(numbers) > 1 else numbers))
