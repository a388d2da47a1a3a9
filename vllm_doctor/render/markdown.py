"""Markdown as GitHub has it, to paste into an issue or a chat. Nothing that came from outside takes effect in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vllm_doctor.model.kinds import SERVERS
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import HOW_TO_LEARN
from vllm_doctor.model.report import Evidence, Finding, LifeSeen, Remedy, Report, grouped
from vllm_doctor.render import unseen
from vllm_doctor.text import times, words
from vllm_doctor.text.changes import brief, diff, differences

_WIDTH = 80
_LIVES = 12
_SIGNS = re.compile(r"[\\`*\[\]<~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_AT_START = re.compile(r"^(?:#{1,6}(?=\s|$)|[+-](?=\s|$)|[-=](?=[-=\s]*$)|>|:(?=-)|\d{1,9}(?=[.)](?:\s|$)))")
_LINKED = re.compile(r"@(?=[\w-])|#(?=\d)|:(?=//)|www(?=\.)|GH-(?=\d)|(?<!\d):(?=[\w+-]+:)", re.IGNORECASE)
"""What GitHub links although it is escaped, but not in code: people, issues, addresses; and emoji by their names."""


def render(report: Report) -> str:
    main, aside = report.main, report.aside
    blocks = [f"## {report.verdict.value.upper()}: {text(report.headline)}"]
    if report.error is not None and report.error.message != report.headline:
        blocks.append(text(report.error.message))
    blocks += [*_patient(report), *_lives(report)]
    blocks += _fenced(times.drawing(report))
    blocks += [] if report.is_postmortem else _vitals(report)
    for group in grouped(main):
        blocks += _finding(group, report)
    blocks += _correction(report)
    if aside:
        blocks.append("\n".join(_aside(group, report) for group in grouped(aside)))
    blocks += [*_not_seen(report), _counts(report, main or aside)]
    return "\n\n".join(blocks) + "\n"


def finding(group: Sequence[Finding], report: Report) -> str:
    """The findings of one rule, with the server they are of, to paste where the whole report is too much."""
    head = f"## {group[0].severity.upper()}: {text(group[0].title)}"
    return "\n\n".join([head, *_patient(report), *_finding(group, report)]) + "\n"


def text(value: str) -> str:
    """As it reads: of its own signs none is markdown, HTML, or a link to a person, an issue or an address."""
    line = " ".join(r"\|".join(map(_piece, word.split("|"))) for word in value.split())
    start = _AT_START.match(line)
    if start is None:
        return line
    return f"{start[0]}\\{line[start.end() :]}" if start[0].isdigit() else f"\\{line}"


def _piece(value: str) -> str:
    """A word, or what stands of it between bars, which a table would take out of code."""
    return code(value) if _LINKED.search(value) else _SIGNS.sub(r"\\\g<0>", value)


def code(value: str) -> str:
    """As a code span, in more backticks than it holds."""
    line = " ".join(value.split())
    if not line:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def _fenced(lines: Sequence[str], language: str = "") -> list[str]:
    """A code block, whose fence is longer than any in it."""
    if not lines:
        return []
    within = [" ".join(line.splitlines()) for line in lines]
    fence = "`" * max([3, *(len(run) + 1 for line in within for run in re.findall("`+", line))])
    return ["\n".join([f"{fence}{language}", *within, fence])]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; `head` may end in ":" to align its column right. The cells are markdown."""
    lines = [
        f"| {' | '.join(name.removesuffix(':') for name in head)} |",
        f"|{'|'.join('--:' if name.endswith(':') else '---' for name in head)}|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _cell(value: str) -> str:
    """Code in a table, where a bar would end the cell even within code."""
    return text(value) if "|" in value else code(value)


def _patient(report: Report) -> list[str]:
    """What was examined: where, what it is, and how much of it was seen."""
    patient = report.patient
    lines = []
    for kept in report.recordings:
        day = kept.taken.replace("T", " ").removesuffix("Z")
        lines.append(f"{code(kept.target)}: recorded {day} UTC, {words.number(round(kept.seconds), 's')}")
    then = report.judged_otherwise
    if then is not None:
        other = "by other rules" if then.same_rules is False else "with other options"
        said = f"{str(then.verdict).upper()} {then.headline}"
        lines.append(f"When it was taken it said, {other}: {text(said)}")
    servers = [code(source.target) for source in report.sources if source.kind in SERVERS]
    if servers:
        lines.append(", ".join(servers))
    if report.lines is not None:
        seen = report.lines
        logs = [code(source.target) for source in report.sources if source.kind == "log"]
        thinned = f", 1 of {seen.one_in} statistics lines read" if seen.one_in > 1 else ""
        counted = f"{times.span(report)}, {seen.read:,} lines, {seen.recognised:,} recognised{thinned}"
        lines.append(": ".join([*([", ".join(logs)] if logs else []), counted]))
    if report.is_unmeasured:
        lines += [f"{code(s.target)}: nothing was measured" for s in report.sources if s.kind == "command"]
    known = [
        code(patient.model or ""),
        text(f"vLLM {patient.vllm}") if patient.vllm else "vLLM (version not known)",
        f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient.engines else "",
        _gpus(report),
        f"{len(report.lives):,} server lives" if len(report.lives) > 1 else "",
    ]
    if patient.model or patient.vllm or report.vitals:
        lines.append(" · ".join(part for part in known if part))
    if patient.cores_usable is not None and patient.cores_wanted is not None:
        usable, wanted = words.number(patient.cores_usable), words.number(patient.cores_wanted)
        lines.append(f"cores: {usable} usable, {wanted} wanted ({text(patient.cores_terms or '')})")
    blocks = ["\n".join(f"- {line}" for line in lines)] if lines else []
    return [*blocks, *_fenced(words.folded(report.command, _WIDTH, report.variables), "sh")]


def _correction(report: Report) -> list[str]:
    """The corrected command, and in what it differs."""
    if report.correction is None:
        return []
    lines = [
        *differences(report.correction),
        *words.folded(report.correction.now, _WIDTH, report.variables),
    ]
    left = [
        f"- not against {code(left.rule)} ({text(left.do)}): {text(left.reason)}" for left in report.correction.left_out
    ]
    blocks = ["### The corrected command, after one restart", *_fenced(lines, "diff")]
    return [*blocks, *(["\n".join(left)] if left else [])]


def _gpus(report: Report) -> str:
    count, name = report.patient.gpus, report.patient.gpu
    if count is None:
        return ""
    if count and name:
        return text(f"{count} × {name}")
    return f"{count} GPU{'s' if count > 1 else ''}" if count else "no GPU"


def _lives(report: Report) -> list[str]:
    """A table of the server's lives, those that ended alike as one; none of a single one that goes on."""
    if len(report.lives) < 2 and all(life.end != "died" for life in report.lives):
        return []
    groups = times.alike(report.lives)
    shown = groups if len(groups) <= _LIVES else [*groups[: _LIVES // 2], *groups[-_LIVES // 2 :]]
    table = _table(
        ("Life:", "From – to", "Served", "Died", "In", "Cause", "Log line:"),
        [_life(number, lives) for number, lives in shown],
    )
    hidden = sum(len(lives) for _, lives in groups) - sum(len(lives) for _, lives in shown)
    return [table, *([f"{hidden:,} lives between them are not shown."] if hidden else [])]


def _life(number: int, lives: Sequence[LifeSeen]) -> list[str]:
    life, count = lives[0], len(lives)
    bounds = times.lasted(lives)
    deaths = [died.died_at for died in lives if died.died_at is not None]
    numbers = [died.cause_line for died in lives if died.cause_line is not None]
    ended = {"open": "", "stopped": "was stopped"}.get(life.end, "each of them" if count > 1 else "yes")
    if deaths and count == 1:
        ended = times.clock(deaths[0])
    died = life.end == "died"
    return [
        f"{number:,}–{number + count - 1:,}" if count > 1 else f"{number:,}",
        (times.between(*bounds) if bounds else "no times") + ("" if life.began else " (its start is not in the log)"),
        "yes" if life.up else "no" if life.began else "",
        ended,
        _cell(life.process or "") if died else "",
        _cell(life.cause or "") or ("the log shows no exception" if died else ""),
        " … ".join(f"{line:,}" for line in ([numbers[0], numbers[-1]] if len(numbers) > 1 else numbers)),
    ]


def _vitals(report: Report) -> list[str]:
    rows = [
        [text(vital.says), text(words.reading(vital.seen, vital.unit))]
        for vital in report.vitals
        if isinstance(vital.seen, Known)
    ]
    blocks = [_table(("Vital sign", "Seen:"), rows)] if rows else []
    for target in report.targets:
        met = {True: "met", False: "missed", None: "cannot be told"}[target.met]
        seen = words.reading(target.seen, "s") if isinstance(target.seen, Known) else str(target.seen)
        name = target.name.removeprefix("slo_").upper()
        blocks.append(f"{text(name)} target {words.number(target.seconds, 's')}: {met} (p99 {seen})")
    return blocks


def _where(group: Sequence[Finding], report: Report) -> str:
    named = report.engines_of(group)
    if not named:
        return ""
    more = f" and {len(named) - 4} more" if len(named) > 4 else ""
    return f"on {len(named)} of {len(report.engines)} engines: {text('; '.join(named[:4]))}{more}"


def _finding(group: Sequence[Finding], report: Report) -> list[str]:
    finding = group[0]
    title = "" if finding.title == report.headline else f": {text(finding.title)} ({finding.severity})"
    blocks = [f"### {code(finding.rule)}{title}"]
    where, when = _where(group, report), times.when(group, report)
    blocks += [f"**Where** {where}"] if where else []
    blocks += [f"**When** {when}"] if when else []
    blocks.append(f"**Why** {text(' '.join(part for part in (finding.here, finding.why) if part))}")
    if finding.confidence != "high":
        blocks.append(f"**Sure?** {text(finding.confidence)} confidence: partly inferred")
    if finding.evidence:
        rows = [_evidence(evidence) for evidence in finding.evidence]
        blocks.append(_table(("What", "Seen:", "Threshold", "From"), rows))
        blocks.append(f"Thresholds: {words.ORIGIN[finding.threshold_from]}")
    if finding.prize is not None:
        blocks.append(f"**Gain** {text(words.bound(finding.prize.at_most, finding.prize.basis))}")
    elif finding.asks_prize:
        blocks.append("**Gain** unknown")
    explained = dict.fromkeys((s.title, s.rule) for s in report.findings if s.explained_by == finding.rule)
    if explained:
        blocks.append(f"Explains: {', '.join(f'{text(title)} ({code(rule)})' for title, rule in explained)}")
    for place, remedy in enumerate(finding.remedies):
        blocks += _remedy("Or" if place else "Cure", remedy, finding)
    return blocks


def _evidence(evidence: Evidence) -> list[str]:
    than = words.compared(evidence.is_, evidence.than, evidence.unit, evidence.than_signal)
    return [text(evidence.says), text(words.reading(evidence.seen, evidence.unit)), _cell(than), text(evidence.origin)]


def _remedy(label: str, remedy: Remedy, finding: Finding) -> list[str]:
    blocks = [f"**{label}** {text(remedy.do)}"]
    blocks += [*_fenced(diff(remedy), "diff"), *_fenced(remedy.run, "sh")]
    said = [text(remedy.computed)] if remedy.computed else []
    if remedy.run and remedy.by == "administrator":
        said.append("as an administrator")
    for reason in dict.fromkeys(remedy.needs.values()):
        names = ", ".join(code(name) for name, why in remedy.needs.items() if why is reason)
        said.append(f"the value needs {names}, not known ({reason}): {text(HOW_TO_LEARN[reason])}")
    said += [f"cost: {words.COST[remedy.cost]}", f"risk: {text(remedy.risk)}", f"then expect: {text(remedy.expect)}"]
    said += [f"then: {text(sentence)}" for sentence in remedy.then]
    if remedy.starts_unknown:
        lacking = ", ".join(f"{code(name)} ({reason})" for name, reason in remedy.starts_unknown.items())
        said.append(f"not known whether vLLM starts with it: {lacking}")
    if remedy.gain is not None and remedy.gain != finding.prize:
        said.append(f"gain: {text(words.bound(remedy.gain.at_most, remedy.gain.basis))}")
    if remedy.set and remedy.validated_for is None:
        said.append("the flag was not checked: the server does not tell its version")
    return [*blocks, "\n".join(f"- {line}" for line in said)]


def _aside(group: Sequence[Finding], report: Report) -> str:
    finding = group[0]
    word = {"opportunity": "Chance", "not-server": "Client"}.get(finding.role, "Note")
    where, held = _where(group, report), times.held(group, report)
    when = f"({held})" if held and "all the time" not in held else ""
    gain = f"Gain: {words.bound(finding.prize.at_most, finding.prize.basis)}." if finding.prize else ""
    details = " ".join(part for part in (f"({where})" if where else "", text(finding.here), text(gain), when) if part)
    line = f"- {word}: {text(finding.title)} ({code(finding.rule)}){': ' + details if details else ''}"
    for remedy in finding.remedies[:1]:
        line += f" → {text(remedy.do)}{': ' + ', '.join(map(code, brief(remedy))) if brief(remedy) else ''}"
    return line


def _not_seen(report: Report) -> list[str]:
    """Folded."""
    lines = []
    for found in unseen.told(report):
        said = text(found.says)
        if found.target:
            said = f"{code(found.target)}: {said}"
        if found.reason:
            said = f"{found.reason} ({said}): {', '.join(map(code, found.rules))}"
        lines.append(f"- {said}")
    if not lines:
        return []
    count = unseen.count(report)
    summary = f"<details>\n<summary>Not seen{f': {count}' if count else ''}</summary>"
    return [summary, "\n".join(lines), "</details>"]


def _counts(report: Report, findings: Sequence[Finding]) -> str:
    parts = [f"Rules: {report.counts[0]}", *report.counts[1:]]
    if findings:
        parts.append(code(f"vllm-doctor rules {findings[0].rule}"))
    return " · ".join(parts)
