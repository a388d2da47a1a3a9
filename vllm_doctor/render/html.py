"""One page for people: the verdict first, then what it was seen from, how to cure it, and what was not seen.

A file that needs nothing else: no network, no script. Nothing that came from outside takes effect in it: every text is
escaped, and the page forbids itself scripts, frames and anything from elsewhere. The same report gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from vllm_doctor import __version__
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import HOW_TO_LEARN
from vllm_doctor.model.report import (
    SERVERS,
    Course,
    Evidence,
    Finding,
    LifeSeen,
    Remedy,
    Report,
    Span,
    Timeline,
    grouped,
)
from vllm_doctor.render import unseen
from vllm_doctor.text import times, words
from vllm_doctor.text.changes import brief, diff, differences
from vllm_doctor.text.durations import duration

_LIVES = 40
_SPANS = 12
_WIDE, _HIGH = 320.0, 96.0
_LEFT, _TOP, _BOTTOM = 2.0, 6.0, 80.0
_UNITS = {"running": "requests", "waiting": "requests", "KV cache": "share"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --soft: #59636e; --line: #d5dae0; --card: #f6f8fa;
  --critical: #b4232c; --warning: #8a5a00; --unknown: #0b6b7d; --ok: #1a6f37; --info: #59636e; --plot: #2f66c4;
  --add: #e3f5e8; --drop: #fbe6e6; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161b; --ink: #e2e7ec; --soft: #97a2ae; --line: #333c46;
  --card: #1b2128; --critical: #ff8079; --warning: #e5b454; --unknown: #5cc3d6; --ok: #6cc98a; --info: #97a2ae;
  --plot: #7fa8f5; --add: #17331f; --drop: #3d1d1e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
header { border-left: .4rem solid var(--tone); padding: .1rem 0 .1rem 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .2rem 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .7rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; line-height: 1.35; margin: 0 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
header code { background: var(--card); padding: .1rem .35rem; border-radius: .25rem; }
.verdict { color: var(--tone); font-weight: 700; letter-spacing: .06em; }
.soft, figcaption, dt, th, footer { color: var(--soft); }
.facts { margin: 0; padding: 0; list-style: none; color: var(--soft); font-size: .92rem; }
.critical { --tone: var(--critical); } .warning { --tone: var(--warning); } .unknown { --tone: var(--unknown); }
.ok { --tone: var(--ok); } .info { --tone: var(--info); }
.vitals { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .6rem; margin: 0; }
.vitals div { background: var(--card); border-radius: .4rem; padding: .5rem .75rem; }
.vitals dt { font-size: .82rem; line-height: 1.3; }
.vitals dd { margin: .15rem 0 0; font-size: 1.15rem; font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem 1.5rem; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .88rem; } figcaption b { color: var(--ink); }
svg { display: block; width: 100%; height: auto; } svg text { font: 9px system-ui, sans-serif; fill: var(--soft); }
.area { fill: var(--plot); fill-opacity: .14; } .curve { fill: none; stroke: var(--plot); stroke-width: 1.6;
  stroke-linejoin: round; stroke-linecap: round; } .dot { fill: var(--plot); }
.axis { stroke: var(--line); stroke-width: 1; } .span { fill: var(--tone); } .died { stroke: var(--critical);
  stroke-width: 2; }
.finding { border: 1px solid var(--line); border-left: .3rem solid var(--tone); border-radius: .4rem;
  padding: .9rem 1.1rem; margin: 0 0 1rem; }
.finding .rule { float: right; margin-left: 1rem; font-size: .85rem; }
.finding dl { display: grid; grid-template-columns: 5rem minmax(0, 1fr); gap: .4rem .8rem; margin: .6rem 0 0; }
.finding dd { margin: 0; } .finding dd p { margin: 0 0 .35rem; } dd ul { margin: .25rem 0; padding-left: 1.1rem; }
table { border-collapse: collapse; font-size: .92rem; width: 100%; }
th { text-align: left; font-weight: 500; }
td, th { padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
pre, code { font: .88rem/1.5 ui-monospace, monospace; } pre { background: var(--card); border-radius: .4rem;
  padding: .6rem .8rem; margin: .4rem 0; white-space: pre-wrap; } pre span { display: block; }
.add { background: var(--add); } .drop { background: var(--drop); }
footer { margin-top: 2.5rem; font-size: .85rem; border-top: 1px solid var(--line); padding-top: .6rem; }
@media (max-width: 34rem) { main { padding: 1rem .9rem 2rem; } h1 { font-size: 1.3rem; }
  .finding dl { grid-template-columns: minmax(0, 1fr); gap: 0; } .finding dd { margin-bottom: .7rem; }
  .finding .rule { float: none; display: block; margin: 0; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --card: #f4f4f4;
  --critical: #a01; --warning: #750; --unknown: #056; --ok: #153; --plot: #24a; --add: #e8f5ec; --drop: #fbeaea; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } h2 { break-after: avoid; }
  .evidence, pre, table, .vitals div { break-inside: avoid; } }
"""


def render(report: Report) -> str:
    """The report as a page."""
    tone = report.verdict.value
    main, aside = report.main, report.aside
    parts = [
        f'<header class="{tone}"><span class="verdict">{_text(tone.upper())}</span><h1>{_text(report.headline)}</h1>',
        _brief(main),
        _facts(_patient(report)),
        "</header>",
    ]
    if report.error is not None and report.error.message != report.headline:
        parts.append(f"<p>{_text(report.error.message)}</p>")
    parts += [*_course(report), *_lives(report), *_vitals(report)]
    if main:
        parts.append(f"<h2>{'Cause and cure' if len(grouped(main)) == 1 else 'Causes and cures'}</h2>")
        parts += [_finding(group, report) for group in grouped(main)]
    parts += _correction(report)
    if aside:
        parts.append("<h2>Also seen</h2>")
        parts += [_aside(group, report) for group in grouped(aside)]
    parts += [*_not_seen(report), _footer(report)]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_text(_POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(f'{tone.upper()}: {report.headline}')}</title>",
            f"<style>{_STYLE}</style></head>",
            "<body><main>",
            *parts,
            "</main></body></html>",
            "",
        ]
    )


def _brief(main: Sequence[Finding]) -> str:
    """For a reader who stops here: what was seen, and what to change."""
    if not main:
        return ""
    here = f'<p class="here">{_text(main[0].here)}</p>' if main[0].here else ""
    if not main[0].remedies:
        return here
    changes = diff(main[0].remedies[0])
    flags = " ".join(_code(line) for line in [c for c in changes if c.startswith("+")] or changes)
    return f"{here}<p><b>Cure</b> {_text(main[0].remedies[0].do)} {flags}</p>"


def _text(value: object) -> str:
    return escape(str(value), quote=True)


def _code(value: object) -> str:
    return f"<code>{_text(value)}</code>"


def _list(items: Iterable[str], name: str = "") -> str:
    return f"<ul{name}>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _facts(items: Sequence[str]) -> str:
    return _list(items, ' class="facts"') if items else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A table of cells that are HTML; `numbers`: the columns that are aligned right."""
    right = set(numbers)

    def row(cells: Sequence[str], tag: str) -> str:
        of = ' class="number"'
        return "".join(f"<{tag}{of if n in right else ''}>{cell}</{tag}>" for n, cell in enumerate(cells))

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f'<table class="evidence"><thead><tr>{row(head, "th")}</tr></thead><tbody>{body}</tbody></table>'


def _patient(report: Report) -> list[str]:
    """What was examined: where, what it is, and how much of it was seen."""
    patient = report.patient
    lines = [
        f"recording {_code(seen.target)}, taken {_text(seen.taken)} over {_text(words.number(seen.seconds, 's'))}"
        f" by vllm-doctor {_text(seen.doctor)}"
        for seen in report.recordings
    ]
    if (then := report.judged_otherwise) is not None:
        lines.append(_text(f"when it was taken, it was judged {then.verdict}: {then.headline}"))
    lines += [_code(source.target) for source in report.sources if source.kind in SERVERS]
    if report.lines is not None:
        seen = report.lines
        logs = ", ".join(_code(source.target) for source in report.sources if source.kind == "log")
        counted = f"{times.span(report)}, {seen.read:,} lines, {seen.recognised:,} recognised"
        lines.append(f"{logs}: {_text(counted)}" if logs else _text(counted))
    if report.is_unmeasured:
        lines += [f"{_code(s.target)}: nothing was measured" for s in report.sources if s.kind == "command"]
    known = [
        patient.model or "",
        f"vLLM {patient.vllm}" if patient.vllm else "vLLM (version not known)",
        f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient.engines else "",
        f"{patient.gpus} × {patient.gpu or 'GPU'}" if patient.gpus else "no GPU" if patient.gpus == 0 else "",
        f"{len(report.lives):,} server lives" if len(report.lives) > 1 else "",
        *(_watched(report)),
    ]
    if patient.model or patient.vllm or report.vitals:
        lines.append(" · ".join(_text(part) for part in known if part))
    if patient.cores_usable is not None and patient.cores_wanted is not None:
        usable, wanted = words.number(patient.cores_usable), words.number(patient.cores_wanted)
        lines.append(_text(f"cores: {usable} usable, {wanted} wanted ({patient.cores_terms or ''})"))
    lines.append(_text(f"examined {report.at.strftime('%Y-%m-%d %H:%M:%S')} UTC"))
    return lines


def _watched(report: Report) -> Iterable[str]:
    scrapes = max((s.scrapes for s in report.sources), default=0)
    window = max((s.window_s for s in report.sources if s.scrapes), default=0.0)
    if scrapes and not report.is_postmortem:
        yield f"seen for {words.number(round(window, 1), 's')}, {scrapes} scrapes" if scrapes > 1 else "one scrape"


def _vitals(report: Report) -> list[str]:
    known = [vital for vital in report.vitals if isinstance(vital.seen, Known)]
    if report.is_postmortem or not (known or report.targets):
        return []
    tiles = [
        f"<div><dt>{_text(vital.says)}</dt><dd>{_text(words.reading(vital.seen, vital.unit))}</dd></div>"
        for vital in known
        if isinstance(vital.seen, Known)
    ]
    for target in report.targets:
        met = {True: "met", False: "missed", None: "cannot be told"}[target.met]
        seen = words.reading(target.seen, "s") if isinstance(target.seen, Known) else str(target.seen)
        name = f"{target.name.removeprefix('slo_').upper()} target {words.number(target.seconds, 's')}"
        tiles.append(f"<div><dt>{_text(name)}</dt><dd>{_text(f'{met} (p99 {seen})')}</dd></div>")
    return ["<h2>Vital signs</h2>", f'<dl class="vitals">{"".join(tiles)}</dl>']


def _course(report: Report) -> list[str]:
    """Plots over time, with the spans in which each verdict held."""
    if report.timeline is not None:
        line = report.timeline
        figures = [_timeline(name, values, line, report) for name, values in line.rows.items()]
    else:
        figures = [_live(course) for course in report.courses]
    spans = _spans(report)
    if not figures and not spans:
        return []
    return ["<h2>Over time</h2>", f'<div class="plots">{"".join(figures)}</div>', spans]


def _live(course: Course) -> str:
    last = course.points[-1][0]
    values = [value for _, value in course.points if value is not None]
    top = 1.0 if course.unit == "share" else max(values, default=0.0)
    points = [(at, value) for at, value in course.points]
    caption = f"<b>{_text(course.says)}</b> {_text(_range(values, course.unit))}"
    return _figure(caption, points, 0.0, last, top, ("0 s", words.number(round(last, 1), "s")), ())


def _timeline(name: str, values: Sequence[float | None], line: Timeline, report: Report) -> str:
    width = (line.last_at - line.first_at) / max(1, len(values))
    points = [(line.first_at + (n + 0.5) * width, value) for n, value in enumerate(values)]
    known = [value for value in values if value is not None]
    unit = _UNITS.get(name, "")
    top = 1.0 if unit == "share" else max(known, default=0.0)
    died = [life.died_at for life in report.lives if life.died_at is not None]
    caption = f"<b>{_text(name)}</b> {_text(_range(known, unit))}"
    ends = (times.clock(line.first_at), times.clock(line.last_at))
    return _figure(caption, points, line.first_at, line.last_at, top, ends, died)


def _range(values: Sequence[float], unit: str) -> str:
    if not values:
        return "not known"
    low, high = words.number(min(values), unit), words.number(max(values), unit)
    return low if low == high else f"{low} to {high}"


def _figure(
    caption: str,
    points: Sequence[tuple[float, float | None]],
    first: float,
    last: float,
    top: float,
    ends: tuple[str, str],
    died: Iterable[float],
) -> str:
    """A curve over time, from 0 to `top`; where nothing is known it is broken."""

    def x(at: float) -> float:
        return _LEFT + (at - first) / max(last - first, 1e-9) * (_WIDE - 2 * _LEFT)

    def y(value: float) -> float:
        return _BOTTOM - (value / top if top > 0 else 0.0) * (_BOTTOM - _TOP)

    shapes = [f'<line class="axis" x1="0" y1="{_BOTTOM:g}" x2="{_WIDE:g}" y2="{_BOTTOM:g}"/>']
    for run in _runs(points):
        places = [f"{x(at):.1f},{y(value):.1f}" for at, value in run]
        if len(run) > 1:
            begin, end = x(run[0][0]), x(run[-1][0])
            shapes.append(
                f'<path class="area" d="M{begin:.1f},{_BOTTOM:g} L{" L".join(places)} L{end:.1f},{_BOTTOM:g} Z"/>'
            )
            shapes.append(f'<polyline class="curve" points="{" ".join(places)}"/>')
        if len(run) == 1 or len(points) <= 12:
            shapes += [f'<circle class="dot" cx="{x(at):.1f}" cy="{y(value):.1f}" r="2.2"/>' for at, value in run]
    for at in died:
        shapes.append(f'<line class="died" x1="{x(at):.1f}" y1="{_TOP:g}" x2="{x(at):.1f}" y2="{_BOTTOM:g}"/>')
    shapes.append(f'<text x="0" y="92">{_text(ends[0])}</text>')
    shapes.append(f'<text x="{_WIDE:g}" y="92" text-anchor="end">{_text(ends[1])}</text>')
    return (
        f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 {_WIDE:g} {_HIGH:g}" role="img"'
        f' aria-hidden="true">{"".join(shapes)}</svg></figure>'
    )


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The points that are known, in stretches without a hole."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _spans(report: Report) -> str:
    """When each verdict held, a bar a rule; below it the time line."""
    bounds = times.whole(report)
    if bounds is None or not report.spans:
        return ""
    first, last = bounds
    by_rule: dict[tuple[str, str], list[Span]] = {}
    main = {finding.rule for finding in report.main}
    for span in sorted(report.spans, key=lambda s: (s.rule not in main, s.first_at)):
        by_rule.setdefault((span.rule, span.severity), []).append(span)
    rows = []
    for (rule, severity), spans in list(by_rule.items())[:_SPANS]:
        bars = "".join(_bar(span, first, last) for span in spans[:500])
        held = duration(sum(span.seconds for span in spans))
        svg = (
            f'<svg viewBox="0 0 {_WIDE:g} 10" preserveAspectRatio="none" style="height:.8rem" aria-hidden="true">'
            f'<line class="axis" x1="0" y1="9.5" x2="{_WIDE:g}" y2="9.5"/>{bars}</svg>'
        )
        rows.append([_code(rule), f'<div class="{_tone(severity)}">{svg}</div>', _text(held)])
    more = len(by_rule) - len(rows)
    table = _table(("Found", _text(times.between(first, last)), "For"), rows, (2,))
    return table + (f'<p class="soft">and {more} more</p>' if more > 0 else "")


def _bar(span: Span, first: float, last: float) -> str:
    scale = _WIDE / max(last - first, 1e-9)
    begin = max(0.0, (span.first_at - first) * scale)
    width = max(1.0, min(_WIDE - begin, span.seconds * scale))
    return f'<rect class="span" x="{begin:.1f}" y="1" width="{width:.1f}" height="8"/>'


def _tone(severity: str) -> str:
    return severity if severity in ("critical", "warning", "unknown", "ok") else "info"


def _lives(report: Report) -> list[str]:
    """The server's lives and how they ended; none of a single one that goes on."""
    if len(report.lives) < 2 and all(life.end != "died" for life in report.lives):
        return []
    groups = times.alike(report.lives)
    shown = groups if len(groups) <= _LIVES else [*groups[: _LIVES // 2], *groups[-_LIVES // 2 :]]
    hidden = sum(len(lives) for _, lives in groups) - sum(len(lives) for _, lives in shown)
    head = ("Life", "From – to", "Ended", "In", "Cause", "Log line")
    table = _table(head, [_life(number, lives) for number, lives in shown], (5,))
    more = f'<p class="soft">{hidden:,} lives between them are not shown.</p>' if hidden else ""
    return ["<h2>Lives of the server</h2>", table + more]


def _life(number: int, lives: Sequence[LifeSeen]) -> list[str]:
    life, count = lives[0], len(lives)
    bounds = times.lasted(lives)
    died = life.end == "died"
    ended = {"open": "goes on", "stopped": "was stopped"}.get(life.end, "died, each of them" if count > 1 else "died")
    if died and count == 1 and life.died_at is not None:
        ended = f"died {times.clock(life.died_at)}"
    return [
        f"{number:,}–{number + count - 1:,}" if count > 1 else f"{number:,}",
        _text((times.between(*bounds) if bounds else "no times") + ("" if life.began else " (start not in the log)")),
        _text(ended),
        _code(life.process) if died and life.process else "",
        _code(life.cause) if died and life.cause else "the log shows no exception" if died else "",
        f"{life.cause_line:,}" if life.cause_line is not None else "",
    ]


def _finding(group: Sequence[Finding], report: Report) -> str:
    finding = group[0]
    rows: list[tuple[str, str]] = []
    where, when = _where(group, report), times.when(group, report)
    rows += [("Where", _text(where))] if where else []
    rows += [("When", _text(when))] if when else []
    if finding.here:
        rows.append(("Here", f"<p>{_text(finding.here)}</p>"))
    rows.append(("Why", f"<p>{_text(finding.why)}</p>"))
    if finding.confidence != "high":
        rows.append(("Sure?", _text(f"{finding.confidence} confidence: partly inferred")))
    if finding.evidence:
        table = _table(("", "Seen", "Threshold", "From"), [_evidence(e) for e in finding.evidence], (1,))
        source = f'<p class="soft">thresholds: {_text(words.ORIGIN[finding.threshold_from])}</p>'
        rows.append(("Seen", table + source))
    explained = dict.fromkeys((s.title, s.rule) for s in report.findings if s.explained_by == finding.rule)
    if explained:
        rows.append(("Explains", _list(f"{_text(title)} ({_code(rule)})" for title, rule in explained)))
    if finding.prize is not None:
        rows.append(("Gain", _text(words.bound(finding.prize.at_most, finding.prize.basis))))
    elif finding.asks_prize:
        rows.append(("Gain", "unknown"))
    rows += [("Or" if place else "Cure", _remedy(remedy, finding)) for place, remedy in enumerate(finding.remedies)]
    body = "".join(f"<dt>{name}</dt><dd>{told}</dd>" for name, told in rows)
    tone = _tone(finding.severity)
    return (
        f'<section class="finding {tone}"><span class="rule">{_code(finding.rule)}</span>'
        f'<h3><span class="verdict">{_text(finding.severity)}</span> {_text(finding.title)}</h3>'
        f"<dl>{body}</dl></section>"
    )


def _where(group: Sequence[Finding], report: Report) -> str:
    named = report.engines_of(group)
    if not named:
        return ""
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return f"on {len(named)} of {len(report.engines)} engines: {'; '.join(named[:4])}{more}"


def _evidence(evidence: Evidence) -> list[str]:
    than = words.compared(evidence.is_, evidence.than, evidence.unit, evidence.than_signal)
    seen = words.reading(evidence.seen, evidence.unit)
    return [_text(evidence.says), _text(seen), _text(than), _text(evidence.origin)]


def _diff(lines: Iterable[str]) -> str:
    shown = [f'<span class="{"add" if line.startswith("+") else "drop"}">{_text(line)}</span>' for line in lines]
    return f"<pre>{''.join(shown)}</pre>" if shown else ""


def _remedy(remedy: Remedy, finding: Finding) -> str:
    told = [f"<p>{_text(remedy.do)}</p>", _diff(diff(remedy))]
    if remedy.run:
        told.append(f"<pre>{_text(chr(10).join(remedy.run))}</pre>")
    said = [_text(remedy.computed)] if remedy.computed else []
    if remedy.run and remedy.by == "administrator":
        said.append("as an administrator")
    for reason in dict.fromkeys(remedy.needs.values()):
        names = ", ".join(_code(name) for name, why in remedy.needs.items() if why is reason)
        said.append(f"the value needs {names}, not known ({_text(reason)}): {_text(HOW_TO_LEARN[reason])}")
    said += [f"{_text(words.COST[remedy.cost])}; then expect: {_text(remedy.expect)}", f"risk: {_text(remedy.risk)}"]
    said += [f"then: {_text(sentence)}" for sentence in remedy.then]
    if remedy.starts_unknown:
        lacking = ", ".join(f"{_code(name)} ({_text(reason)})" for name, reason in remedy.starts_unknown.items())
        said.append(f"not known whether vLLM starts with it: {lacking}")
    if remedy.gain is not None and remedy.gain != finding.prize:
        said.append(f"gain: {_text(words.bound(remedy.gain.at_most, remedy.gain.basis))}")
    if remedy.set and remedy.validated_for is None:
        said.append("the flag was not checked: the server does not tell its version")
    return "".join(told) + _list(said)


def _correction(report: Report) -> list[str]:
    """The corrected command, and in what it differs; without one, the command as it was."""
    if not report.command:
        return []
    if report.correction is None:
        return ["<h2>Its command</h2>", _command(report.command, report)]
    left = [
        f"not against {_code(left.rule)} ({_text(left.do)}): {_text(left.reason)}"
        for left in report.correction.left_out
    ]
    return [
        "<h2>The corrected command</h2>",
        _diff(differences(report.correction)),
        _command(report.correction.now, report),
        _list(left) if left else "",
    ]


def _command(command: Sequence[str], report: Report) -> str:
    return f"<pre>{_text(chr(10).join(words.folded(command, 88, report.variables)))}</pre>"


def _aside(group: Sequence[Finding], report: Report) -> str:
    finding = group[0]
    word = {"opportunity": "Chance", "not-server": "Client"}.get(finding.role, "Note")
    where, held = _where(group, report), times.held(group, report)
    details = [finding.here, f"({where})" if where else "", f"({held})" if held and "all the time" not in held else ""]
    if finding.prize is not None:
        details.append(f"Gain: {words.bound(finding.prize.at_most, finding.prize.basis)}.")
    told = f"<p>{_text(' '.join(part for part in details if part))}</p>" if any(details) else ""
    for remedy in finding.remedies[:1]:
        told += f"<p>→ {_text(remedy.do)}</p>{_diff(brief(remedy))}"
    return (
        f'<section class="finding {_tone(finding.severity)}"><span class="rule">{_code(finding.rule)}</span>'
        f"<h3>{word}: {_text(finding.title)}</h3>{told}</section>"
    )


def _not_seen(report: Report) -> list[str]:
    lines = []
    for found in unseen.told(report):
        said = _text(found.says)
        if found.target:
            said = f"{_code(found.target)}: {said}"
        if found.reason:
            rules = ", ".join(map(_code, found.rules))
            said = f"<b>{_text(found.reason)}</b>: {said}. <span class=soft>{rules}</span>"
        lines.append(said)
    if not lines:
        return []
    count = unseen.count(report)
    said = f'<p class="soft">{count}. Unknown is not ok:</p>' if count else ""
    return ["<h2>Not seen</h2>", said, _list(lines)]


def _footer(report: Report) -> str:
    parts = [f"vllm-doctor {__version__}", f"rules: {' · '.join(report.counts)}"]
    masked: Mapping[str, int] = report.redacted
    parts += [f"masked: {', '.join(f'{count} × {what}' for what, count in masked.items())}"] if masked else []
    return f"<footer>{_text(' · '.join(parts))}</footer>"
