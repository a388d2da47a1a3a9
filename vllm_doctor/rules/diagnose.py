"""diagnose(rules, snapshots) -> what was found. Pure: no clock, no file, no network."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import (
    EngineSeen,
    Evidence,
    Finding,
    Gain,
    Remedy,
    Target,
    UnknownRule,
    Verdict,
    Vital,
    worst,
)
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules import prediction
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import NOT_APPLICABLE, OK, SEVERITIES, STAGES, UNKNOWN, Outcome, RemedyRule, Rule
from vllm_doctor.text import words
from vllm_doctor.vllm import flags

_STATES = (*SEVERITIES, UNKNOWN, OK, NOT_APPLICABLE)  # a rule's state over all engines is the first it has
_VERSION, _CHECKED_BY, _GOAL = "vllm_version", "flags_checked_by", "goal"
HEADLINES = ("broken", "client", "limit")
"""The stages that make a headline of a server that is well: what it does; not which kernels it has."""


@dataclass(frozen=True)
class Diagnosis:
    """What the rules say; report.Report adds who was asked, and when."""

    verdict: Verdict
    headline: str
    findings: tuple[Finding, ...]
    unknown: tuple[UnknownRule, ...]
    vitals: tuple[Vital, ...]
    engines: tuple[EngineSeen, ...]
    targets: tuple[Target, ...]
    states: Mapping[str, str]


class Reader:
    """Reads one engine's signals, and keeps which labels the readings belong to."""

    def __init__(self, snapshot: Snapshot, subject: Subject, catalogue: Catalogue) -> None:
        self._snapshot, self._subject, self._catalogue = snapshot, subject, catalogue
        self.keys: set[tuple[str, str]] = set(snapshot.tag)
        self.flags = snapshot.flags

    def changed(self, flags: prediction.Flags) -> prediction.Changed:
        """The signals as they would be with these flags."""
        return prediction.Changed(self._snapshot, self._subject, self._catalogue, flags)

    def __call__(self, name: str) -> Reading:
        key, reading = self._snapshot.read(name, self._subject)
        self.keys.update(key)
        return reading

    @property
    def subject(self) -> Subject:
        """What the readings so far are of."""
        return tuple(sorted(self.keys))

    def worded(self, name: str) -> tuple[Reading, str]:
        _, reading = self._snapshot.read(name, self._subject)
        return reading, self._catalogue.signals[name].unit


def outcomes(rules: Sequence[Rule], catalogue: Catalogue, snapshot: Snapshot) -> Iterator[tuple[Rule, Outcome, Reader]]:
    """Each rule, judged for each engine; and the reader, which knows what was read for it.

    A cause that is known to cost next to nothing is only worth knowing.
    """
    for subject in snapshot.subjects:
        for rule in rules:
            reader = Reader(snapshot, subject, catalogue)
            outcome = rule.judge(reader)
            if outcome.state in ("critical", "warning") and is_negligible(
                rule, Reader(snapshot, subject, catalogue), catalogue
            ):
                outcome = replace(outcome, state="info")
            yield rule, outcome, reader


def is_negligible(rule: Rule, read: Callable[[str], Reading], catalogue: Catalogue) -> bool:
    """Whether the prize is known to be too small to act for. What is not known changes nothing."""
    prize = _gain(rule.prize, read) if rule.role == "root" else None
    if prize is None or catalogue.negligible is None or prize.at_most >= catalogue.negligible.below:
        return False
    return catalogue.negligible.when.judge(read)[0] is True


Judge = Callable[[Snapshot], Iterable[tuple[Rule, Outcome, Reader]]]


def diagnose(
    rules: Sequence[Rule],
    catalogue: Catalogue,
    snapshots: Sequence[Snapshot],
    measured: bool = True,
    judge: Judge | None = None,
) -> Diagnosis:
    """Judge every rule for every engine of every server; fold symptoms under their causes.

    Where nothing was `measured`, of a command alone, nothing is hidden by statistics that are off: that is a finding
    like others. `judge`: in place of `outcomes`, for who knows most of them already.
    """
    findings: dict[tuple[str, Subject], Finding] = {}
    unknown: dict[str, dict[str, Reason]] = {}
    states: dict[str, str] = {}
    symptoms: list[tuple[Verdict, str, Subject]] = []
    for snapshot in snapshots:
        for rule, outcome, reader in judge(snapshot) if judge else outcomes(rules, catalogue, snapshot):
            states[rule.id] = min(states.get(rule.id, outcome.state), outcome.state, key=_STATES.index)
            if outcome.state == UNKNOWN:
                unknown.setdefault(rule.id, {}).update(outcome.because)
            elif outcome.state in SEVERITIES:
                named = reader.subject
                if (rule.id, named) not in findings:
                    findings[rule.id, named] = _finding(rule, outcome.state, outcome.evidence, named, reader, catalogue)
        for subject in snapshot.subjects:
            reader = Reader(snapshot, subject, catalogue)
            for symptom in catalogue.symptoms:
                if symptom.when.judge(reader)[0]:
                    says = words.fill(symptom.says, reader.worded) or symptom.says
                    symptoms.append((Verdict(symptom.verdict), says, (*subject, *snapshot.tag)))
    found = [replace(f, role="root") if f.role == "blind" and not measured else f for f in findings.values()]
    in_order = ordered(_folded(found, rules), rules)
    vitals = _vitals(catalogue, snapshots)
    told = {rule.id for rule in rules if rule.stage in HEADLINES or rule.role == "symptom"}
    verdict, headline = _verdict(in_order, symptoms, vitals, told)
    return Diagnosis(
        verdict=verdict,
        headline=headline,
        findings=tuple(in_order),
        unknown=tuple(UnknownRule(id, because) for id, because in sorted(unknown.items())),
        vitals=vitals,
        engines=_engines(catalogue, snapshots),
        targets=_targets(catalogue, snapshots),
        states=dict(sorted(states.items())),
    )


def _finding(
    rule: Rule,
    severity: str,
    comparisons: Iterable[Comparison],
    subject: Subject,
    reader: Reader,
    catalogue: Catalogue,
) -> Finding:
    sentences = [words.fill(sentence, reader.worded) for sentence in rule.here]
    return Finding(
        rule=rule.id,
        severity=severity,
        role=rule.role,
        explained_by=None,
        confidence=rule.confidence,
        subject=dict(subject),
        title=rule.title,
        here=" ".join(sentence for sentence in sentences if sentence),
        why=rule.why,
        threshold_from=rule.threshold_from,
        evidence=tuple(
            _evidence(comparison, catalogue) for comparison in dict.fromkeys(comparisons) if _seen(comparison)
        ),
        remedies=_remedies(rule, reader),
        see=rule.see,
        stage=rule.stage,
        prize=_gain(rule.prize, reader),
    )


def _remedies(rule: Rule, reader: Reader) -> tuple[Remedy, ...]:
    """Those that fit, as the rule has them; but what can be done now comes before what needs a value not known.

    Those that serve the other goal at the cost of the user's come last.
    """
    fitting = [remedy for written in rule.remedies if (remedy := _remedy(written, reader)) is not None]
    goal = reader(_GOAL)

    def rank(remedy: Remedy) -> tuple[bool, bool]:
        return isinstance(goal, Known) and remedy.goal not in ("", goal.value), bool(remedy.needs)

    return tuple(sorted(fitting, key=rank))


def _gain(bound: tuple[str, str] | None, reader: Callable[[str], Reading]) -> Gain | None:
    """The bound with its value; of a value that is known within bounds, the larger."""
    if bound is None:
        return None
    reading = reader(bound[0])
    if not isinstance(reading, Known) or not isinstance(reading.value, float):
        return None
    at_most = max(1.0, reading.value if reading.high is None else reading.high)
    return Gain(at_most, bound[1]) if math.isfinite(at_most) else None


def _seen(comparison: Comparison) -> bool:
    """Whether somebody told the value: a number that stands for what is not known, of known(x, 0), is no evidence."""
    return isinstance(comparison.seen, Known) and comparison.seen.origin != ""


def _evidence(comparison: Comparison, catalogue: Catalogue) -> Evidence:
    signal = catalogue.signals[comparison.signal]
    assert isinstance(comparison.seen, Known)
    assert isinstance(comparison.than, Known)
    return Evidence(
        signal=signal.name,
        says=signal.says,
        seen=comparison.seen,
        is_=comparison.is_,
        than=comparison.than.value,
        than_signal=comparison.than_signal,
        unit=signal.unit,
        origin=comparison.seen.origin,
    )


def _remedy(written: RemedyRule, reader: Reader) -> Remedy | None:
    """The remedy with its values; None where it does not fit: its `if` is false, or this vLLM lacks the flag."""
    needs: dict[str, Reason] = {}
    if written.condition is not None:
        fits, seen = written.condition.judge(reader)
        if fits is False:
            return None
        if fits is None:  # no flag is printed that may be followed already, or not fit
            needs |= {name: reason for c in seen if c.holds is None for name, reason in c.unknowns()}
    version = checked if isinstance(checked := reader(_CHECKED_BY), Known) else reader(_VERSION)
    vllm = str(version.value) if isinstance(version, Known) else None
    has = [flags.has(vllm, flag) for flag in written.set]
    if False in has:
        return None
    settings = {flag: _value(value, reader, needs) for flag, value in written.set.items()}
    env = {name: _value(value, reader, needs) for name, value in written.env.items()}
    named = [flag for text in written.unset for flag in str(_value(text, reader, needs)).split()]
    # One that was not given, and that this vLLM does not have, is not told to be left out.
    unset = tuple(flag for flag in named if flag in reader.flags or flags.has(vllm, flag) is not False)
    run = tuple(_command(command, reader, needs) for command in written.run)
    # Of its values one that is not known yet cannot be predicted with.
    changes: dict[str, Value | None] = {} if needs else {**dict.fromkeys(unset), **settings}
    then = reader.changed(changes)
    starts = then.start()
    if starts.refused is not None:
        return None
    return Remedy(
        do=written.do,
        set={} if needs else settings,
        was={flag: reader.flags[flag] for flag in (*written.set, *unset) if flag in reader.flags}
        | {name: reader.flags[f"${name}"] for name in env if f"${name}" in reader.flags},
        unset=() if needs else unset,
        env={} if needs else env,
        run=() if needs else run,
        by=written.by,
        computed="; ".join(told for text in written.computed if (told := words.fill(text, reader.worded))) or None,
        needs=needs,
        validated_for=vllm if all((*has, *(flags.has(vllm, flag) for flag in unset))) else None,
        cost=written.cost,
        risk=written.risk,
        expect=written.expect,
        gain=_gain(written.gain, reader),
        then=() if needs else tuple(said for text in written.then if (said := words.fill(text, then.worded))),
        starts_unknown=starts.unknown,
        goal=written.goal,
    )


def _value(template: Value, reader: Reader, needs: dict[str, Reason]) -> Value:
    """`"{requests_that_fit}"` as the signal's own value; other texts with their placeholders filled."""
    if not isinstance(template, str):
        return template
    names = words.names(template)
    for name in names:
        reading = reader(name)
        if isinstance(reading, Unknown):
            needs[name] = reading.reason
        elif template == f"{{{name}}}":
            return words.plain(reading.value)
    return template if needs else words.fill(template, reader.worded) or template


def _command(template: str, reader: Reader, needs: dict[str, Reason]) -> str:
    """A shell command with its values as a shell reads them: 1024, not "1,024"."""
    values: dict[str, str] = {}
    for name in words.names(template):
        reading = reader(name)
        if isinstance(reading, Unknown):
            needs[name] = reading.reason
        else:
            values[f"{{{name}}}"] = shlex.quote(str(words.plain(reading.value)))
    for place, value in values.items():
        template = template.replace(place, value)
    return template


def _folded(findings: list[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """A finding that another one explains, about the same engine, becomes its symptom."""
    explains = {rule.id: rule.explains for rule in rules}
    folded = []
    for finding in findings:
        causes = [
            cause.rule
            for cause in findings
            if finding.rule in explains.get(cause.rule, ())
            and _overlap(cause.subject, finding.subject)
            and (cause.severity != "info" or finding.severity == "info")
        ]
        if causes:
            folded.append(replace(finding, role="symptom", explained_by=causes[0]))
        else:  # a symptom without a cause in sight is worth knowing all the same
            folded.append(replace(finding, role="info") if finding.role == "symptom" else finding)
    return folded


def _overlap(a: Mapping[str, str], b: Mapping[str, str]) -> bool:
    return all(b[label] == value for label, value in a.items() if label in b)


def ordered(
    findings: Sequence[Finding], rules: Sequence[Rule], minor: Callable[[Finding], bool] = lambda _: False
) -> list[Finding]:
    """By cause, then by what is at stake: severity, stage of reasoning, size of the prize. Symptoms come last.

    Of one severity those that are `minor` come after those that are not.
    """
    stages = {rule.id: STAGES.index(rule.stage) for rule in rules}
    roles = ("blind", "not-server", "root", "info", "opportunity", "symptom")

    def key(finding: Finding) -> tuple[int, int, bool, int, float]:
        gains = [gain.at_most for gain in (finding.prize, *(r.gain for r in finding.remedies)) if gain]
        # An actionable warning of any role stands before what is merely worth knowing.
        rank = roles.index(finding.role) if finding.severity == "info" or finding.role == "symptom" else 0
        severity, stage = SEVERITIES.index(finding.severity), stages[finding.rule]
        return rank, severity, minor(finding), stage, -max(gains, default=0.0)

    return sorted(findings, key=key)


def _verdict(
    findings: Sequence[Finding],
    symptoms: list[tuple[Verdict, str, Subject]],
    vitals: tuple[Vital, ...],
    told: Collection[str],
) -> tuple[Verdict, str]:
    causes = [finding for finding in findings if finding.role != "symptom"]
    if any(finding.role == "blind" for finding in causes):
        blind = next(finding for finding in causes if finding.role == "blind")
        return Verdict.UNKNOWN, blind.title
    verdict = worst(*(Verdict(f.severity) for f in findings if f.severity in ("critical", "warning")))
    grave = [finding for finding in causes if finding.severity in ("critical", "warning")]
    unexplained = [
        (least, says)
        for least, says, subject in symptoms
        if not any(_overlap(finding.subject, dict(subject)) for finding in grave)
    ]
    missing = [vital for vital in vitals if vital.needed and isinstance(vital.seen, Reason)]
    reasons = worst(*(least for least, _ in unexplained), Verdict.UNKNOWN if missing else Verdict.OK)
    if grave:
        return worst(verdict, reasons), grave[0].title
    if unexplained:
        return reasons, unexplained[0][1]
    if missing:
        what = ", ".join(f"{vital.says} ({vital.seen})" for vital in missing)
        return Verdict.UNKNOWN, f"Vital signs could not be read: {what}"
    aside = [f for f in [*causes, *findings] if f.role in ("not-server", "info", "symptom") and f.rule in told]
    if aside:
        return Verdict.OK, aside[0].title + (f": {aside[0].here}" if aside[0].here else "")
    return Verdict.OK, "No limit found in what could be seen"


def _vitals(catalogue: Catalogue, snapshots: Sequence[Snapshot]) -> tuple[Vital, ...]:
    vitals = []
    for signal in catalogue.signals.values():
        if not signal.vital:
            continue
        readings = [
            reading for s in snapshots for subject in s.subjects for _, reading in [s.read(signal.name, subject)]
        ]
        unknown = [reading for reading in readings if isinstance(reading, Unknown)]
        seen: Known | Reason
        if unknown or not readings:
            seen = unknown[0].reason if unknown else Reason.UNREACHABLE
        else:
            known = [r for r in readings if isinstance(r, Known) and not isinstance(r.value, str)]
            if signal.vital == "sum":
                seen = Known(sum(float(r.value) for r in known))
            else:
                seen = max(known, key=lambda r: float(r.value))
        vitals.append(Vital(signal.name, signal.says, signal.unit, seen, signal.needed))
    return tuple(vitals)


def _engines(catalogue: Catalogue, snapshots: Sequence[Snapshot]) -> tuple[EngineSeen, ...]:
    seen = []
    for snapshot in snapshots:
        for subject in snapshot.subjects:
            vitals = []
            for signal in catalogue.signals.values():
                if signal.vital:
                    _, reading = snapshot.read(signal.name, subject)
                    value = reading if isinstance(reading, Known) else reading.reason
                    vitals.append(Vital(signal.name, signal.says, signal.unit, value, signal.needed))
            seen.append(EngineSeen(dict((*subject, *snapshot.tag)), tuple(vitals)))
    return tuple(seen)


def _targets(catalogue: Catalogue, snapshots: Sequence[Snapshot]) -> tuple[Target, ...]:
    targets = []
    for signal in catalogue.signals.values():
        if signal.target is None:
            continue
        readings = [
            (reading, s.read(signal.target, subject)[1])
            for s in snapshots
            for subject in s.subjects
            for _, reading in [s.read(signal.name, subject)]
        ]
        wanted = next((r.value for r, _ in readings if isinstance(r, Known)), None)
        if not isinstance(wanted, float):
            continue
        known = [r for _, r in readings if isinstance(r, Known)]
        if not known:
            reasons = [r.reason for _, r in readings if isinstance(r, Unknown)]
            targets.append(Target(signal.name, wanted, reasons[0], None))
            continue
        slowest = max(known, key=lambda r: r.high if r.high is not None else float(r.value))
        low, high = slowest.bounds or (float(slowest.value), float(slowest.value))
        met = True if high <= wanted else False if low >= wanted else None
        targets.append(Target(signal.name, wanted, slowest, met))
    return tuple(targets)
