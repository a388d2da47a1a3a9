"""For a hurried reader: verdict and root cause first, then evidence, cure, what was not seen. 80 columns.

Signs and words carry the meaning; colour, on a terminal only, repeats it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar

from vllm_doctor.model.kinds import SERVERS
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Evidence, Finding, LifeSeen, Remedy, Report, UnknownRule, grouped
from vllm_doctor.text import times, words
from vllm_doctor.text.changes import brief, differences, dropped

WIDTH = 80
"""The columns of a report; on a terminal its parts are shown in as many as there are."""
_width = ContextVar("width", default=WIDTH)
_EVIDENCE = 6
"""The rows of it that a person in a hurry reads; one who opens a finding on a terminal sees them all."""
_evidence_rows: ContextVar[int | None] = ContextVar("evidence_rows", default=_EVIDENCE)
_INDENT = 9
_RUNNING = (Reason.NOT_IN_COMMAND, Reason.NOT_LOCAL, Reason.NO_LOG)
"""Why something is not known of a command alone: nothing runs yet."""
_PIDS = 6
_LIVES = 6
_ASKED = 6
_SCRAPED_ONCE = {
    "prometheus": "a rate needs two scrapes in the window: --window 30m",
    "page": "a rate needs two pages",
}
_NOT_IN_THIS_LOG = "the log does not hold it: does it begin where the server did?"
_COLOUR = {"critical": "1;37;41", "warning": "1;30;43", "unknown": "1;30;46", "ok": "1;30;42", "info": "1"}


def render(report: Report, colour: bool = False) -> str:
    """The report as text; `colour` adds ANSI colours to the verdict words."""
    if report.error is not None and not report.findings and not report.vitals:
        lines = _head(report.verdict.value.upper(), "Could not tell", report.verdict.value, colour)
        return "\n".join([*lines, *_paragraph("Why", report.error.message)]) + "\n"
    main, aside = report.main, report.aside
    lines = _head(report.verdict.value.upper(), report.headline, report.verdict.value, colour, _rule_of(report, main))
    servers = [*_recordings(report), *_servers(report), *_log_lines(report), *_commands(report)]
    lines += ["", *(line for server in servers for line in _wrapped(f"  {server}", "  "))]
    lines += [*_wrapped(f"  {_patient(report)}", "  "), *_host_lines(report)]
    lines += [] if report.is_postmortem else _vital_lines(report)
    lines += [*_course(report), *_life_lines(report), *_summary(main, report)]
    for place, group in enumerate(grouped(main)):
        finding = group[0]
        if place or finding.title != report.headline:
            lines += ["", *_head(finding.severity.upper(), finding.title, finding.severity, colour, finding.rule)]
        lines += ["", *_finding(group, report)]
    lines += _correction(report)
    if aside:
        lines.append("")
        for group in grouped(aside):
            lines += _aside(group, report)
    lines += ["", *_not_seen(report), *_counts(report, main or aside)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def finding(group: Sequence[Finding], report: Report, width: int) -> list[str]:
    """All about the findings of one rule."""
    return _in(width, lambda: _finding(group, report))


def correction(report: Report, width: int) -> list[str]:
    """The corrected command, where there is one."""
    return _in(width, lambda: _correction(report))


def patient(report: Report, width: int) -> list[str]:
    """What was examined: the server, its version and engines, cores, GPUs and command line."""

    def lines() -> list[str]:
        told = [*_servers(report), *_log_lines(report), *_commands(report), _patient(report)]
        return [*(line for one in told for line in _wrapped(f"  {one}", "  ")), *_host_lines(report)]

    return _in(width, lines)


def _in(width: int, lines: Callable[[], list[str]]) -> list[str]:
    """Parts of a report on a terminal of this width, with nothing left out."""
    width_before, rows_before = _width.set(width), _evidence_rows.set(None)
    try:
        return lines()
    finally:
        _width.reset(width_before)
        _evidence_rows.reset(rows_before)


def _recordings(report: Report) -> list[str]:
    """What was judged is of the past: of when, and what was said then where that was something else."""
    lines = []
    for seen in report.recordings:
        day = seen.taken.replace("T", " ").removesuffix("Z")
        lines.append(f"{seen.target}: recorded {day} UTC, {words.plain(round(seen.seconds, 1))} s")
    then = report.judged_otherwise
    if then is not None:
        other = "by other rules" if then.same_rules is False else "with other options"
        lines.append(f"When it was taken it said, {other}: {str(then.verdict).upper()}  {then.headline}")
    return lines


def _rule_of(report: Report, main: Sequence[Finding]) -> str | None:
    return main[0].rule if main and main[0].title == report.headline else None


def _head(word: str, title: str, severity: str, colour: bool, rule: str | None = None) -> list[str]:
    tag = f"[{rule}]" if rule else ""
    lines = textwrap.wrap(title, _width.get() - len(word) - 2) or [""]
    if tag and len(word) + 2 + len(lines[-1]) + 2 + len(tag) <= _width.get():
        lines[-1] += tag.rjust(_width.get() - len(word) - 2 - len(lines[-1]))
    elif tag:
        lines.append(tag.rjust(_width.get() - len(word) - 2))
    painted = f"\x1b[{_COLOUR[severity]}m{word}\x1b[0m" if colour else word
    return [f"{painted}  {lines[0]}", *(" " * (len(word) + 2) + line for line in lines[1:])]


def _servers(report: Report) -> list[str]:
    """The servers by their URLs, with the pids of their processes where those were seen."""
    pids = " ".join(f"{role} {pid}" for role, pid in report.patient.processes[:_PIDS])
    more = len(report.patient.processes) - _PIDS
    targets = [s.target for s in report.sources if s.kind in SERVERS]
    if not pids or len(targets) > 1:
        return targets
    return [f"{targets[0] if targets else ''} · pids: {pids}{f' and {more} more' if more > 0 else ''}".lstrip(" ·")]


def _log_lines(report: Report) -> list[str]:
    """Which logs were read, from when to when, and how much of them said something."""
    if report.lines is None:
        return []
    seen = report.lines
    targets = [source.target for source in report.sources if source.kind == "log"]
    thinned = f", 1 of {seen.one_in} statistics lines read" if seen.one_in > 1 else ""
    counted = f"{seen.read:,} lines, {seen.recognised:,} recognised{thinned}, read in {seen.seconds:.1f} s"
    joined = f"{times.span(report)} · {counted}"
    return [
        *([", ".join(targets)] if targets else []),
        *([joined] if len(joined) + 2 <= _width.get() else joined.split(" · ")),
    ]


def _commands(report: Report) -> list[str]:
    """Where the command lines stand that were given as texts, where there is nothing else."""
    return [source.target for source in report.sources if source.kind == "command" and report.is_unmeasured]


def _course(report: Report) -> list[str]:
    drawn = times.drawing(report)
    return ["", *(f"  {line}" for line in drawn)] if drawn else []


def _life_lines(report: Report) -> list[str]:
    """The server's lives and how they ended, those that ended alike as one; none of a single one that goes on."""
    if len(report.lives) < 2 and all(life.end != "died" for life in report.lives):
        return []
    lines = [""]
    groups = times.alike(report.lives)
    shown = groups if len(groups) <= _LIVES else [*groups[: _LIVES // 2], *groups[-_LIVES // 2 :]]
    for place, (number, lives) in enumerate(shown):
        if place == _LIVES // 2 and len(groups) > len(shown):
            between = groups[_LIVES // 2 : -_LIVES // 2]
            count = sum(len(alike) for _, alike in between)
            died = sum(life.end == "died" for _, alike in between for life in alike)
            lines.append(f"  … {count:,} lives between them, {died:,} of which died …")
        lines += _wrapped(f"  {_lives(number, lives, len(report.lives))}", " " * (_INDENT + 2))
    return lines


def _lives(number: int, lives: Sequence[LifeSeen], of: int) -> str:
    life, count = lives[0], len(lives)
    bounds = times.lasted(lives)
    facts = [] if life.began else ["its start is not in the log"]
    facts += [] if life.up or not life.began else ["never served"]
    name = f"lives {number:,}–{number + count - 1:,}" if count > 1 else f"life {number:,}"
    begun = f"{name}  {times.between(*bounds) if bounds else 'no times'}{''.join(f', {fact}' for fact in facts)}; "
    if life.end == "stopped":
        return f"{begun}was stopped"
    if life.end != "died":
        return f"{begun}the log {'ends' if number + count > of else 'goes on with another'}"
    at = f" {times.clock(life.died_at)}" if life.died_at is not None and count == 1 else ""
    who = f" in {life.process}" if life.process else ""
    cause = life.cause or "the log shows no exception"
    numbers = [died.cause_line for died in lives if died.cause_line is not None]
    line = f" (line {numbers[0]:,}{f' … {numbers[-1]:,}' if len(numbers) > 1 else ''})" if numbers else ""
    if of == 1:
        return f"died{at}{who}{''.join(f', {fact}' for fact in facts)}: {cause}{line}"
    return f"{begun}{'each ' if count > 1 else ''}died{at}{who}: {cause}{line}"


def _summary(main: Sequence[Finding], report: Report) -> list[str]:
    """Several findings of a log, and for how long each held."""
    groups = grouped(main)
    if not report.spans or len(groups) < 2:
        return []
    width = max(len(group[0].rule) for group in groups)
    lines = [""]
    for number, group in enumerate(groups, 1):
        told = times.held(group, report) or group[0].severity
        lines += _wrapped(f"  {number}  {group[0].rule:<{width}}  {told}", " " * (width + 7))
    return lines


def _host_lines(report: Report) -> list[str]:
    """What the server has of its host, and the flags that it was started with."""
    patient = report.patient
    parts = []
    if patient.cores_usable is not None and patient.cores_wanted is not None:
        usable, wanted = words.number(patient.cores_usable), words.number(patient.cores_wanted)
        parts.append(f"cores: {usable} usable, {wanted} wanted ({patient.cores_terms})")
    if patient.gpus is not None and not report.is_postmortem:
        parts.append(_gpus(patient.gpus, patient.gpu))
    lines = _wrapped(f"  {' · '.join(parts)}", "  ") if parts else []
    if report.command:
        shown = " ".join(words.quoted(word, report.variables) for word in report.command)
        lines += _wrapped(f"  {shown}", "    ")
    return lines


def _correction(report: Report) -> list[str]:
    """The corrected command, to be pasted, and in what it differs."""
    if report.correction is None:
        return []
    rules = list(dict.fromkeys(change.rule for change in report.correction.changes))
    is_elsewhere = report.correction.now == report.command  # in its --config file, or in its environment
    what = "with these changes" if is_elsewhere else "like this"
    lines = ["", *_paragraph("Start", f"it {what}, against {', '.join(rules)}:")]
    # The changes of a single finding stand with its cure.
    changes = differences(report.correction) if len(rules) > 1 or is_elsewhere else ()
    now = () if is_elsewhere else report.correction.now
    pasted = [*changes, *words.folded(now, _width.get() - _INDENT, report.variables)]
    lines += [f"{'':<{_INDENT}}{line}" for line in pasted]
    if any(source.kind == "command" for source in report.sources):
        lines += _paragraph("", "in the form it was given in, and whole: --format patch")
    for left in report.correction.left_out:
        lines += _paragraph("", f"not against {left.rule} ({left.do}): {left.reason}")
    return lines


def _gpus(count: int, name: str | None) -> str:
    if count and name:
        return f"{count} × {name}"
    return f"{count} GPU{'s' if count > 1 else ''}" if count else "no GPU"


def _patient(report: Report) -> str:
    patient = report.patient
    engines = f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient.engines else None
    if report.is_postmortem:
        lives = f"{len(report.lives):,} server lives" if len(report.lives) > 1 else None
        parts = [
            patient.model,
            f"vLLM {patient.vllm}" if patient.vllm else "vLLM (version not in the log)",
            engines,
            _gpus(patient.gpus, patient.gpu) if patient.gpus is not None else None,
            lives,
        ]
        return " · ".join(part for part in parts if part)
    seen = [s for s in report.sources if s.scrapes]
    scrapes = max((s.scrapes for s in seen), default=0)
    window = max((s.window_s for s in seen), default=0.0)
    watched = f"seen for {words.number(round(window, 1), 's')}, {scrapes} scrapes" if scrapes > 1 else "one scrape"
    if not scrapes:
        watched = "nothing was measured" if report.is_unmeasured else "no answer from /metrics"
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
        [
            say("decode_of_bound", "decode at {} of the GPUs' memory-bandwidth bound"),
            say("compute_of_bound", "computing at {} of their compute bound"),
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


def _where(group: Sequence[Finding], report: Report) -> str | None:
    named = report.engines_of(group)
    if not named:
        return None
    shown = "; ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    return f"on {len(named)} of {len(report.engines)} engines: {shown}"


def _finding(group: Sequence[Finding], report: Report) -> list[str]:
    finding = group[0]
    where = _where(group, report)
    lines = _paragraph("Where", where) if where else []
    when = times.when(group, report)
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
    lines += _prize(finding)
    for place, remedy in enumerate(finding.remedies):
        lines += ["", *_remedy("Or" if place else "Cure", remedy, finding)]
    return lines


def _prize(finding: Finding) -> list[str]:
    """What the cause costs, where that is asked."""
    if finding.prize is not None:
        return _paragraph("Gain", words.bound(finding.prize.at_most, finding.prize.basis))
    return _paragraph("Gain", "unknown") if finding.asks_prize else []


def _evidence(finding: Finding) -> list[str]:
    evidence = _strictest(finding.evidence)
    rows = [
        (
            e.says,
            words.reading(e.seen, e.unit),
            words.compared(e.is_, e.than, e.unit, e.than_signal),
            "computed" if e.origin == "computed" else f"from {e.origin}",
        )
        for e in evidence[: _evidence_rows.get()]
    ]
    widths = _widths(rows)
    origins = max((len(row[3]) for row in rows), default=0)
    if _INDENT + sum(widths) + 6 + origins > _width.get():  # the bare value fits
        rows = [(says, value, than.partition(" (")[0], origin) for says, value, than, origin in rows]
        widths = _widths(rows)
    room = max(_INDENT, min(widths[0], _width.get() - _INDENT - 6 - widths[1] - widths[2] - origins))
    lines: list[str] = []
    for says, value, than, origin in rows:
        first, *rest = textwrap.wrap(says, room) or [""]
        label = "" if lines else "  Seen"
        cells = f"{first:<{room}}  {value:>{widths[1]}}  {than:<{widths[2]}}  {origin}"
        lines += _wrapped(f"{label:<{_INDENT}}{cells}", " " * (_INDENT + 2))
        lines += [f"{'':<{_INDENT + 2}}{line}" for line in rest]
    if more := len(evidence) - len(rows):
        lines += _paragraph("", f"and {more} more {'comparison' if more == 1 else 'comparisons'}: --json")
    if rows:
        lines += _paragraph("", f"thresholds: {words.ORIGIN[finding.threshold_from]}")
    return lines


def _strictest(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Of one signal that is above two bounds, or below two, the bound that says more."""
    kept: dict[tuple[str, str], Evidence] = {}
    for e in evidence:
        key = (e.signal, e.is_[:1])
        before = kept.get(key)
        if before is not None and isinstance(before.than, float) and isinstance(e.than, float):
            says_more = e.than > before.than if key[1] == ">" else e.than < before.than
            kept[key] = e if says_more else before
        else:
            kept.setdefault(key, e)
    return list(kept.values())


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max((len(row[column]) for row in rows), default=0) for column in range(3)]


def _remedy(label: str, remedy: Remedy, finding: Finding) -> list[str]:
    lines = _paragraph(label, remedy.do)
    lines += [f"{'':<{_INDENT}}-  {flag}" for flag in dropped(remedy)]
    for flag, value in remedy.set.items():
        lines.append(f"{'':<{_INDENT}}+  {words.flag(flag, value)}")
    for name, value in remedy.env.items():
        lines.append(f"{'':<{_INDENT}}+  {name}={words.plain(value)}  (environment)")
    for command in remedy.run:
        lines += _paragraph("", f"$  {command}{'  (as an administrator)' if remedy.by == 'administrator' else ''}")
    if remedy.computed:
        lines += _paragraph("", remedy.computed)
    lacking: dict[Reason, list[str]] = {}
    for name, reason in remedy.needs.items():
        lacking.setdefault(reason, []).append(name)
    for reason, names in lacking.items():
        listed = " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])
        are = "are" if names[1:] else "is"
        lines += _paragraph("", f"the value needs {listed}, which {are} not known ({reason}): {HOW_TO_LEARN[reason]}")
    lines += _paragraph("", f"{words.COST[remedy.cost]}; then expect: {remedy.expect}")
    for sentence in remedy.then:
        lines += _paragraph("", f"then: {sentence}")
    lines += _paragraph("", f"risk: {remedy.risk}")
    if remedy.starts_unknown:
        told = ", ".join(f"{name} ({reason})" for name, reason in remedy.starts_unknown.items())
        lines += _paragraph("", f"not known whether vLLM starts with it: {told}")
    if remedy.gain is not None and remedy.gain != finding.prize:
        lines += _paragraph("", f"gain: {words.bound(remedy.gain.at_most, remedy.gain.basis)}")
    if remedy is not finding.remedies[0]:
        return lines
    if remedy.set and remedy.validated_for is None:
        lines += _paragraph("", "the flag was not checked: the server does not tell its version")
    return lines


def _aside(group: Sequence[Finding], report: Report) -> list[str]:
    finding = group[0]
    word = {"opportunity": "Chance", "not-server": "Client", "info": "Note", "root": "Note"}.get(finding.role, "Note")
    where = _where(group, report)
    when = times.held(group, report)
    parts = (
        f"({where})" if where else "",
        finding.here,
        f"Gain: {words.bound(finding.prize.at_most, finding.prize.basis)}." if finding.prize else "",
        f"({when})" if when and "all the time" not in when else "",
    )
    details = " ".join(part for part in parts if part)
    said = report.headline.startswith(finding.title)
    text = f"{finding.title} [{finding.rule}]{f': {details}' if details else ''}"
    lines = _paragraph(word, f"[{finding.rule}]" if said else text)
    for remedy in finding.remedies[:1]:
        computed = f" ({remedy.computed})" if remedy.computed else ""
        lines += _paragraph("", f"→ {remedy.do}{': ' + ', '.join(brief(remedy)) if brief(remedy) else ''}{computed}")
    return lines


def _not_seen(report: Report) -> list[str]:
    lines: list[str] = []
    for said in not_seen(report):
        lines += _paragraph("" if lines else "Not seen", said, indent=10)
    return lines


def not_seen(report: Report) -> list[str]:
    """What could not be looked at, and how to give it; a sentence each."""
    said: list[str] = []
    add = said.append

    for source in report.sources:
        if source.error is not None:
            add(source.error.message)
        for note in source.notes:
            add(note if source.kind == "gpu" or report.is_unmeasured else f"{source.target}: {note}")
    blind = any(finding.role == "blind" for finding in report.findings)
    if report.is_postmortem:
        for text in _not_told_by_log([] if blind else report.unknown, report):
            add(text)
        return said
    by_reason = {} if blind else report.unknown_by_reason
    kinds = {source.kind for source in report.sources}
    if report.is_unmeasured:
        running = {rule for reason in _RUNNING for rule in by_reason.pop(reason, [])}
        needed = f" ({len(running)} rules)" if running else ""
        add(f"What only a running server shows{needed}: examine it then, on its host or by its URL.")
        if report.patient.gpu is None:
            add("The GPUs that it is for: --gpu 8xH100.")
    need_log = by_reason.pop(Reason.NO_LOG, []) if "log" not in kinds else []
    for reason, rules in by_reason.items():
        how = _NOT_IN_THIS_LOG if reason is Reason.NOT_IN_LOG else HOW_TO_LEARN[reason]
        if reason is Reason.FIRST_SCRAPE:
            how = next((_SCRAPED_ONCE[kind] for kind in _SCRAPED_ONCE if kind in kinds), how)
        add(f"{reason}: {_named(rules, 3)}. {how[0].upper()}{how[1:]}.")
    if report.is_unmeasured:
        return said
    if "log" not in kinds:
        needed = f"{len(need_log)} rule{'s need' if len(need_log) > 1 else ' needs'} " if need_log else ""
        add(f"{needed}the log: add its file as another argument.")
    if "host" not in kinds:
        seen = "CPU and GPUs" if kinds & {"log", "command"} else "CPU, GPUs and flags"
        add(f"{seen}: run me on its host.")
    return said


def _not_told_by_log(unknown: Sequence[UnknownRule], report: Report) -> list[str]:
    """First what the log itself lacks, then what else, then the host, in a line each: every rule once.

    Those that ask the log for the most come first: they are of the server's work, not of a line that was not written.
    """
    lacks = [u for u in unknown if Reason.NOT_IN_LOG in u.because.values()]
    host = [u for u in unknown if u not in lacks and Reason.NOT_LOCAL in u.because.values()]
    others: dict[Reason, list[str]] = {}
    for rule in unknown:
        if rule not in lacks and rule not in host:
            others.setdefault(next(iter(rule.because.values()), Reason.ABSENT), []).append(rule.rule)
    said = []
    if lacks:
        lacks.sort(key=lambda u: -sum(reason is Reason.NOT_IN_LOG for reason in u.because.values()))
        said.append(
            f"not in this log, and asked for by {_named([u.rule for u in lacks], _ASKED)}."
            " Ask /metrics while the server runs: vllm-doctor http://HOST:PORT."
        )
    for reason, rules in others.items():
        said.append(f"{reason}: {_named(rules, 3)}. {HOW_TO_LEARN[reason][0].upper()}{HOW_TO_LEARN[reason][1:]}.")
    if host or not any(source.kind == "host" for source in report.sources):
        needed = f" (for {_named([u.rule for u in host], 3)})" if host else ""
        said.append(f"CPU and GPUs{needed}: run me on its host.")
    return said


def _named(rules: Sequence[str], most: int) -> str:
    return ", ".join(rules[:most]) + (f" and {len(rules) - most} more" if len(rules) > most else "")


def _counts(report: Report, findings: Sequence[Finding]) -> list[str]:
    more = [f"more: vllm-doctor rules {findings[0].rule}"] if findings else []
    return _wrapped(f"rules: {' · '.join([*report.counts, *more])}", "  ")


def _paragraph(label: str, text: str, indent: int = _INDENT) -> list[str]:
    head = f"  {label}" if indent == _INDENT and label else label
    return _wrapped(f"{head:<{indent}}{text}", " " * indent)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        _width.get(),
        subsequent_indent=indent,
        break_long_words=True,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]
