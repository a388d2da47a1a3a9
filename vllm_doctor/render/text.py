"""For a hurried reader: verdict and root cause first, then evidence, cure, what was not seen. 80 columns.

Signs and words carry the meaning; colour, on a terminal only, repeats it.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence

from vllm_doctor import times as times_of
from vllm_doctor import words
from vllm_doctor.report import Evidence, Finding, LifeSeen, Remedy, Report
from vllm_doctor.signal import HOW_TO_LEARN, Known, Reason, Value

WIDTH = 80
_INDENT = 9
_PIDS = 6
_LIVES = 6
_COLOUR = {"critical": "1;37;41", "warning": "1;30;43", "unknown": "1;30;46", "ok": "1;30;42", "info": "1"}
_COST = {
    "none": "no cost",
    "client": "a change in the client",
    "restart": "restart",
    "capacity": "needs hardware",
    "quality": "restart, and a change of quality",
}
_ORIGIN = {
    "heuristic": "rule of thumb",
    "vllm-docs": "vLLM's docs",
    "vllm-source": "vLLM's source",
    "nvidia": "NVIDIA's docs",
    "measured": "measured",
}


def render(report: Report, colour: bool = False) -> str:
    """The report as text; `colour` adds ANSI colours to the verdict words."""
    if report.error is not None and not report.findings and not report.vitals:
        lines = _head(report.verdict.value.upper(), "Could not tell", report.verdict.value, colour)
        return "\n".join([*lines, *_paragraph("Why", report.error.message)]) + "\n"
    main = [f for f in report.findings if f.severity in ("critical", "warning") and f.role != "symptom"]
    aside = [f for f in report.findings if f not in main and f.role != "symptom"]
    lines = _head(report.verdict.value.upper(), report.headline, report.verdict.value, colour, _rule_of(report, main))
    servers = [*_servers(report), *_log_lines(report)]
    lines += ["", *(line for server in servers for line in _wrapped(f"  {server}", "  "))]
    lines += [*_wrapped(f"  {_patient(report)}", "  "), *_host_lines(report)]
    lines += _postmortem_lines(report) if report.timeline or not report.vitals else _vital_lines(report)
    for place, group in enumerate(_grouped(main)):
        finding = group[0]
        if place or finding.title != report.headline:
            lines += ["", *_head(finding.severity.upper(), finding.title, finding.severity, colour, finding.rule)]
        lines += ["", *_finding(group, report)]
    if aside:
        lines.append("")
        for group in _grouped(aside):
            lines += _aside(group, report)
    lines += ["", *_not_seen(report), *_counts(report, main or aside)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rule_of(report: Report, main: Sequence[Finding]) -> str | None:
    return main[0].rule if main and main[0].title == report.headline else None


def _head(word: str, title: str, severity: str, colour: bool, rule: str | None = None) -> list[str]:
    tag = f"[{rule}]" if rule else ""
    lines = textwrap.wrap(title, WIDTH - len(word) - 2) or [""]
    if tag and len(word) + 2 + len(lines[-1]) + 2 + len(tag) <= WIDTH:
        lines[-1] += tag.rjust(WIDTH - len(word) - 2 - len(lines[-1]))
    elif tag:
        lines.append(tag.rjust(WIDTH - len(word) - 2))
    painted = f"\x1b[{_COLOUR[severity]}m{word}\x1b[0m" if colour else word
    return [f"{painted}  {lines[0]}", *(" " * (len(word) + 2) + line for line in lines[1:])]


def _servers(report: Report) -> list[str]:
    """The servers by their URLs, with the pids of their processes where those were seen."""
    pids = " ".join(f"{role} {pid}" for role, pid in report.patient.processes[:_PIDS])
    more = len(report.patient.processes) - _PIDS
    targets = [s.target for s in report.sources if s.kind == "server"]
    if not pids or len(targets) > 1:
        return targets
    return [f"{targets[0] if targets else ''} · pids: {pids}{f' and {more} more' if more > 0 else ''}".lstrip(" ·")]


def _log_lines(report: Report) -> list[str]:
    """Which logs were read, from when to when, and how much of them said something."""
    if report.lines is None:
        return []
    seen = report.lines
    targets = [source.target for source in report.sources if source.kind == "log"]
    times = [at for life in report.lives for at in (life.first_at, life.last_at) if at is not None]
    span = f"{times_of.between(min(times), max(times))}{' UTC' if seen.zoned else ''}" if times else "no times in it"
    thinned = f", 1 of {seen.one_in} statistics lines read" if seen.one_in > 1 else ""
    counted = f"{seen.read:,} lines, {seen.recognised:,} recognised{thinned}, read in {seen.seconds:.1f} s"
    return [f"{', '.join(targets)} · {span}", counted]


def _postmortem_lines(report: Report) -> list[str]:
    """The course of the vital signs, where the main finding held, and how the lives ended."""
    lines: list[str] = []
    line = report.timeline
    if line is not None:
        columns = max(len(values) for values in line.rows.values())
        first, last = times_of.clock(line.first_at)[:-3], times_of.clock(line.last_at)[:-3]
        lines += ["", f"{'':<{_INDENT + 2}}{first}{last.rjust(columns - len(first))}"]
        for name, values in line.rows.items():
            known = [value for value in values if value is not None]
            top = 1.0 if name == "KV cache" else max(known, default=0.0)
            most = f"{max(known, default=0.0):.0%}" if name == "KV cache" else f"{max(known, default=0.0):,.0f}"
            lines.append(f"  {name:<{_INDENT}}{times_of.bars(values, top)}  max {most}")
        for finding in [f for f in report.findings if f.severity in ("critical", "warning") and f.role != "symptom"][
            :2
        ]:
            spans = [span for span in report.spans if span.rule == finding.rule]
            marked = times_of.marks(spans, line.first_at, line.last_at, columns)
            lines.append(f"{'':<{_INDENT + 2}}{marked.rstrip()}  {finding.rule}")
    if len(report.lives) > 1 or any(life.end == "died" for life in report.lives):
        lines.append("")
        shown = list(enumerate(report.lives, 1))
        shown = shown if len(shown) <= _LIVES else [*shown[: _LIVES // 2], *shown[-_LIVES // 2 :]]
        for number, life in shown:
            lines += _wrapped(f"  {_life(number, life)}", " " * _INDENT)
        if len(report.lives) > len(shown):
            lines.append(f"  … {len(report.lives) - len(shown)} lives between them are not shown")
    return lines


def _life(number: int, life: LifeSeen) -> str:
    when = times_of.between(life.first_at, life.last_at) if life.first_at and life.last_at else "no times"
    start = "" if life.began else ", its start is not in the log"
    up = "" if life.up else ", never served"
    ends = {"stopped": "was stopped", "open": "the log ends"}
    if life.end != "died":
        return f"life {number}  {when}{start}{up}; {ends[life.end]}"
    at = f" {times_of.clock(life.died_at)}" if life.died_at is not None else ""
    who = f" in {life.process}" if life.process else ""
    cause = life.cause or "no exception was logged"
    return f"life {number}  {when}{start}{up}; died{at}{who}: {cause} (line {life.cause_line:,})"


def _host_lines(report: Report) -> list[str]:
    """What the server has of its host, and the flags that it was started with."""
    patient = report.patient
    parts = []
    if patient.cores_usable is not None and patient.cores_wanted is not None:
        usable, wanted = words.number(patient.cores_usable), words.number(patient.cores_wanted)
        parts.append(f"cores: {usable} usable, {wanted} wanted ({patient.cores_terms})")
    if patient.gpus is not None:
        parts.append(f"{patient.gpus} × {patient.gpu}" if patient.gpus and patient.gpu else _no_gpu(patient.gpus))
    lines = _wrapped(f"  {' · '.join(parts)}", "  ") if parts else []
    if report.command:
        lines += _wrapped(f"  {shlex.join(report.command)}", "    ")
    return lines


def _no_gpu(gpus: int) -> str:
    return f"{gpus} GPUs" if gpus else "no GPU"


def _patient(report: Report) -> str:
    patient = report.patient
    engines = f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient.engines else None
    if report.lines is not None and not any(s.kind == "server" for s in report.sources):
        lives = f"{len(report.lives)} server lives" if len(report.lives) > 1 else None
        parts = [
            patient.model,
            f"vLLM {patient.vllm}" if patient.vllm else "vLLM (version not in the log)",
            engines,
            lives,
        ]
        return " · ".join(part for part in parts if part)
    seen = [s for s in report.sources if s.scrapes]
    scrapes = max((s.scrapes for s in seen), default=0)
    window = max((s.window_s for s in seen), default=0.0)
    watched = f"seen for {words.number(round(window, 1), 's')}, {scrapes} scrapes" if scrapes > 1 else "one scrape"
    watched = watched if scrapes else "no answer from /metrics"
    parts = [patient.model, f"vLLM {patient.vllm}" if patient.vllm else "vLLM (version not told)", engines, watched]
    return " · ".join(part for part in parts if part)


def _vital_lines(report: Report) -> list[str]:
    vitals = {vital.name: (vital.seen, vital.unit) for vital in report.vitals}

    def say(name: str, text: str, unit: str | None = None) -> str | None:
        reading, own_unit = vitals.get(name, (Reason.ABSENT, ""))
        if not isinstance(reading, Known):
            return None
        return text.format(words.reading(reading, own_unit if unit is None else unit))

    rows = [
        [
            say("requests_running", "{} running"),
            say("requests_waiting", "{} waiting"),
            say("kv_cache_usage", "KV cache {}"),
            say("generation_tokens_per_second", "{} tokens/s out", ""),
            say("prompt_tokens_per_second", "{} in", ""),
        ],
        [
            say("ttft_p50", "TTFT p50 {}"),
            say("ttft_p99", "p99 {}"),
            say("itl_p50", "ITL p50 {}"),
            say("itl_p99", "p99 {}"),
        ],
    ]
    lines = [" · ".join(part for part in row if part) for row in rows if any(row)]
    for target in report.targets:
        met = {True: "met", False: "MISSED", None: "cannot be told"}[target.met]
        seen = words.reading(target.seen, "s") if isinstance(target.seen, Known) else str(target.seen)
        lines.append(
            f"{target.name.replace('slo_', '').upper()} target {words.number(target.seconds, 's')}: {met} (p99 {seen})"
        )
    return [wrapped for line in lines for wrapped in _wrapped(f"  {line}", "  ")]


def _grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The same rule with the same severity on several engines is one paragraph."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.severity), []).append(finding)
    return list(groups.values())


def _where(group: Sequence[Finding], report: Report) -> str | None:
    if len(report.engines) < 2:
        return None
    named = [", ".join(f"{label} {text}" for label, text in f.subject.items() if label != "model_name") for f in group]
    named = [name for name in named if name]
    if not named:
        return None
    shown = "; ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    return f"on {len(named)} of {len(report.engines)} engines: {shown}"


def _finding(group: Sequence[Finding], report: Report) -> list[str]:
    finding = group[0]
    where = _where(group, report)
    lines = _paragraph("Where", where) if where else []
    when = times_of.when(finding, report)
    lines += _paragraph("When", when) if when else []
    lines += _paragraph("Why", " ".join(part for part in (finding.here, finding.why) if part))
    if finding.confidence != "high":
        lines += _paragraph("Sure?", f"{finding.confidence} confidence: partly inferred")
    lines += ["", *_evidence(finding)]
    symptoms = list(dict.fromkeys(
        f"{symptom.title} [{symptom.rule}]" for symptom in report.findings if symptom.explained_by == finding.rule
    ))  # fmt: skip
    for symptom in symptoms:
        lines += _wrapped(f"       → explains: {symptom}", " " * (_INDENT + 2))
    for place, remedy in enumerate(finding.remedies):
        lines += ["", *_remedy("Or" if place else "Cure", remedy, brief=place > 0)]
    return lines


def _evidence(finding: Finding) -> list[str]:
    rows = [
        (e.says, words.reading(e.seen, e.unit), _than(e), "computed" if e.origin == "computed" else f"from {e.origin}")
        for e in finding.evidence
    ]
    widths = _widths(rows)
    if _INDENT + sum(widths) + 6 + max((len(row[3]) for row in rows), default=0) > WIDTH:  # the bare value fits
        rows = [(says, value, than.partition(" (")[0], origin) for says, value, than, origin in rows]
        widths = _widths(rows)
    lines: list[str] = []
    for says, value, than, origin in rows:
        label = "" if lines else "  Seen"
        cells = f"{says:<{widths[0]}}  {value:>{widths[1]}}  {than:<{widths[2]}}  {origin}"
        lines += _wrapped(f"{label:<{_INDENT}}{cells}", " " * (_INDENT + 2))
    if rows:
        lines += _paragraph("", f"thresholds: {_ORIGIN[finding.threshold_from]}")
    return lines


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max((len(row[column]) for row in rows), default=0) for column in range(3)]


def _than(evidence: Evidence) -> str:
    if isinstance(evidence.than, bool):
        return ""  # "no" says it
    text = f"{evidence.is_} {words.reading(Known(evidence.than), evidence.unit)}"
    return f"{text} ({evidence.than_signal})" if evidence.than_signal else text


def _remedy(label: str, remedy: Remedy, brief: bool) -> list[str]:
    lines = _paragraph(label, remedy.do)
    for flag in remedy.unset:
        if flag not in remedy.set:
            lines.append(f"{'':<{_INDENT}}-  {flag}")
    for flag, value in remedy.set.items():
        lines.append(f"{'':<{_INDENT}}+  {_flag(flag, value)}")
    for name, value in remedy.env.items():
        lines.append(f"{'':<{_INDENT}}+  {name}={words.plain(value)}  (environment)")
    for command in remedy.run:
        lines += _paragraph("", f"$  {command}{'  (as an administrator)' if remedy.by == 'administrator' else ''}")
    if remedy.computed:
        lines += _paragraph("", remedy.computed)
    for name, reason in remedy.needs.items():
        lines += _paragraph("", f"the value needs {name}, which is not known ({reason}): {HOW_TO_LEARN[reason]}")
    lines += _paragraph("", f"{_COST[remedy.cost]}; then expect: {remedy.expect}")
    lines += _paragraph("", f"risk: {remedy.risk}")
    if brief:
        return lines
    if remedy.gain is not None:
        lines += _paragraph("", f"gain: at most × {words.number(remedy.gain.at_most)} ({remedy.gain.basis})")
    if remedy.set and remedy.validated_for is None:
        lines += _paragraph("", "the flag was not checked: the server does not tell its version")
    return lines


def _flag(flag: str, value: Value) -> str:
    return flag if value is True else f"{flag} {words.plain(value)}"


def _aside(group: Sequence[Finding], report: Report) -> list[str]:
    finding = group[0]
    word = {"opportunity": "Chance", "not-server": "Client", "info": "Note", "root": "Note"}.get(finding.role, "Note")
    where = _where(group, report)
    when = times_of.when(finding, report)
    parts = (f"({where})" if where else "", finding.here, f"({when})" if when and "all the time" not in when else "")
    details = " ".join(part for part in parts if part)
    said = report.headline.startswith(finding.title)
    text = f"{finding.title} [{finding.rule}]{f': {details}' if details else ''}"
    lines = _paragraph(word, f"[{finding.rule}]" if said else text)
    for remedy in finding.remedies[:1]:
        flags = [f"+ {_flag(flag, value)}" for flag, value in remedy.set.items()]
        flags += [f"- {flag}" for flag in remedy.unset if not remedy.set]
        computed = f" ({remedy.computed})" if remedy.computed else ""
        lines += _paragraph("", f"→ {remedy.do}{': ' + ', '.join(flags) if flags else ''}{computed}")
    return lines


def _not_seen(report: Report) -> list[str]:
    lines: list[str] = []

    def add(text: str) -> None:
        lines.extend(_paragraph("" if lines else "Not seen", text, indent=10))

    for source in report.sources:
        if source.error is not None:
            add(source.error.message)
        for note in source.notes:
            add(f"{source.target}: {note}" if source.kind != "gpu" else note)
    by_reason: dict[Reason, list[str]] = {}
    blind = any(finding.role == "blind" for finding in report.findings)
    for unknown in () if blind else report.unknown:
        for reason in dict.fromkeys(unknown.because.values()):
            by_reason.setdefault(reason, []).append(unknown.rule)
    for reason, rules in by_reason.items():
        names = ", ".join(rules[:3]) + (f" and {len(rules) - 3} more" if len(rules) > 3 else "")
        add(f"{reason}: {names}. {HOW_TO_LEARN[reason][0].upper()}{HOW_TO_LEARN[reason][1:]}.")
    kinds = {source.kind for source in report.sources}
    if "log" not in kinds:
        add("the log: add its file as another argument.")
    if "host" not in kinds:
        add("CPU and GPUs: run me on its host." if "log" in kinds else "CPU, GPUs and flags: run me on its host.")
    return lines


def _counts(report: Report, findings: Sequence[Finding]) -> list[str]:
    parts = [f"rules: {report.count('ok')} ok"]
    for state in ("critical", "warning", "info", "unknown"):
        if report.count(state):
            parts.append(f"{report.count(state)} {state}")
    if findings:
        parts.append(f"more: vllm-doctor rules {findings[0].rule}")
    return _wrapped(" · ".join(parts), "  ")


def _paragraph(label: str, text: str, indent: int = _INDENT) -> list[str]:
    head = f"  {label}" if indent == _INDENT and label else label
    return _wrapped(f"{head:<{indent}}{text}", " " * indent)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False, drop_whitespace=True
    ) or [""]
