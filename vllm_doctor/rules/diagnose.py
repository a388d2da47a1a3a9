"""diagnose(rules, snapshots) -> what was found. Pure: no clock, no file, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.elimination import Gate
from vllm_doctor.model.kinds import GRAVE, Role, Severity, Stage, State
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import (
    Cost,
    EngineSeen,
    Evidence,
    Finding,
    Gain,
    Remedy,
    Target,
    UnknownRule,
    Verdict,
    Vital,
)
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.speed import Expected
from vllm_doctor.rules import causes, elimination, explain, prediction, speed
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.elimination import Tried
from vllm_doctor.rules.rule import Case, Costs, Outcome, RemedyRule, Rule
from vllm_doctor.rules.signal import Signal
from vllm_doctor.rules.verdict import Complaint, concluded
from vllm_doctor.text import words
from vllm_doctor.vllm import flags

_LATENCY = "latency"
_VERSION, _CHECKED_BY, _WINDOW, _GOAL = "vllm_version", "flags_checked_by", "flags_window", "goal"
HEADLINES = (Stage.BROKEN, Stage.CLIENT, Stage.LIMIT)
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
    states: Mapping[str, State]
    speeds: tuple[Expected, ...] = ()
    is_of_speed: bool = False
    """The headline is of the speed that is missing, which outweighs what was found."""
    left_out: int = 0
    """Engines for which there was no time."""
    gates: tuple[Gate, ...] = ()
    """Of the engine that the headline is about: where requests are held up, and where not."""


class Reader:
    """Reads one engine's signals, and keeps which labels the readings belong to.

    `then`: flags that are changed already; what follows is read as it would be with them.
    """

    def __init__(
        self, snapshot: Snapshot, subject: Subject, catalogue: Catalogue, then: prediction.Flags | None = None
    ) -> None:
        self._snapshot, self._subject, self._catalogue = snapshot, subject, catalogue
        self.engine = subject
        self.keys: set[tuple[str, str]] = set(snapshot.tag)
        self.flags = snapshot.flags
        self._then = then or {}
        self._foreseen = self.changed({}) if then else None

    def changed(self, flags: prediction.Flags) -> prediction.Changed:
        """The signals as they would be with these flags, too."""
        return prediction.Changed(self._snapshot, self._subject, self._catalogue, {**self._then, **flags})

    def __call__(self, name: str) -> Reading:
        key, reading = self._snapshot.read(name, self._subject)
        self.keys.update(key)
        return self._foreseen(name) if self._foreseen is not None else reading

    @property
    def subject(self) -> Subject:
        """What the readings so far are of."""
        return tuple(sorted(self.keys))

    def worded(self, name: str) -> tuple[Reading, str]:
        if self._foreseen is not None:
            return self._foreseen.worded(name)
        _, reading = self._snapshot.read(name, self._subject)
        return reading, self._catalogue.signals[name].unit


def outcomes(rules: Sequence[Rule], catalogue: Catalogue, snapshot: Snapshot) -> Iterator[tuple[Rule, Outcome, Reader]]:
    """Each rule, judged for each engine; and the reader, which knows what was read for it.

    A cause that is known to cost next to nothing is only worth knowing. A rule by which nothing is found, and that
    reads the same of every engine, is judged once.
    """
    nothing: dict[str, Outcome] = {}
    rules = [rule for rule in rules if rule.is_of_path] if snapshot.is_path else rules
    nothing |= {rule.id: Outcome(State.NOT_APPLICABLE) for rule in rules if rule.is_of_path is not snapshot.is_path}
    for subject in snapshot.subjects:
        for rule in rules:
            reader = Reader(snapshot, subject, catalogue)
            if rule.id in nothing:
                yield rule, nothing[rule.id], reader
                continue
            outcome = rule.judge(reader)
            if outcome.state.severity in GRAVE and is_negligible(rule, Reader(snapshot, subject, catalogue), catalogue):
                outcome = replace(outcome, state=State.INFO)
            if outcome.state.severity is None and snapshot.alike.issuperset(rule.signals()):
                nothing[rule.id] = outcome
            yield rule, outcome, reader


def is_negligible(rule: Rule, read: Callable[[str], Reading], catalogue: Catalogue) -> bool:
    """Whether all that it may cost is known, and too little to act for. What is not known changes nothing."""
    limit = catalogue.negligible
    if rule.role is not Role.ROOT or limit is None:
        return False
    gain, cost = _gain(rule.gain, read), _cost(rule.costs, read)
    if (gain is None and rule.gain is not None) or (cost is not None and cost.at_most is None):
        return False
    is_small = []
    if gain is not None:
        is_small.append(gain.at_most < limit.below and limit.when.judge(read)[0] is True)
    if cost is not None and cost.at_most is not None and catalogue.speed is not None:
        step = read(catalogue.speed.measured)
        if not isinstance(step, Known) or not isinstance(step.value, float):
            return False
        is_small.append(step.value < limit.below * (step.value - cost.at_most))
    return bool(is_small) and all(is_small)


Judge = Callable[[Snapshot], Iterable[tuple[Rule, Outcome, Reader]]]


def diagnose(
    rules: Sequence[Rule],
    catalogue: Catalogue,
    snapshots: Sequence[Snapshot],
    measured: bool = True,
    judge: Judge | None = None,
    is_over: Callable[[], bool] = lambda: False,
    steady: Callable[[], Snapshot | None] = lambda: None,
    explained: bool = False,
) -> Diagnosis:
    """Judge every rule for every engine of every server; fold symptoms under their causes.

    Where nothing was `measured`, of a command alone, nothing is hidden by statistics that are off: that is a finding
    like others. `judge`: in place of `outcomes`, for who knows most of them already. `is_over`: whether there is no
    time for another engine; one is judged at least. `steady`: a time of a steady load, by which the speed is judged
    where `snapshots` cannot tell it. `explained`: with every rule in the gates, and what decided it.
    """
    snapshots = list(snapshots)
    findings: dict[tuple[str, Subject], Finding] = {}
    unknown: dict[str, dict[str, Reason]] = {}
    states: dict[str, State] = {}
    tried: dict[str, Tried] = {}
    complaints: list[Complaint] = []
    speeds: list[Expected] = []
    left_out = sum(snapshot.left_out for snapshot in snapshots)
    for place, snapshot in enumerate(snapshots):
        done: list[Subject] = []
        for engine, judged in groupby(judge(snapshot) if judge else outcomes(rules, catalogue, snapshot), _engine):
            if (place or done) and is_over():
                left_out += len(snapshot.subjects) - len(done)
                snapshot = snapshots[place] = replace(snapshot, subjects=tuple(done))
                break
            done.append(engine)
            for rule, outcome, reader in judged:
                if rule.id not in states or outcome.state.rank < states[rule.id].rank:
                    states[rule.id], tried[rule.id] = outcome.state, Tried(rule, outcome.state, reader)
                if outcome.state is State.UNKNOWN:
                    unknown.setdefault(rule.id, {}).update(outcome.because)
                elif (severity := outcome.state.severity) is not None:
                    named = reader.subject
                    if (rule.id, named) not in findings:
                        findings[rule.id, named] = finding_of(
                            rule, severity, outcome.evidence, named, reader, catalogue
                        )
        for subject in () if snapshot.is_path else snapshot.subjects:
            reader = by_speed = Reader(snapshot, subject, catalogue)
            named = (*subject, *snapshot.tag)
            if catalogue.speed is not None and measured:
                speeds.append(speed.judged(catalogue.speed, dict(named), reader.worded))
                if speeds[-1].tpot.measured is None and (other := steady()) is not None:
                    by_speed = Reader(other, subject, catalogue)
                    speeds[-1] = speed.judged(catalogue.speed, dict(named), by_speed.worded)
            for symptom in catalogue.symptoms:
                of = by_speed if symptom.of_speed else reader
                if symptom.when.judge(of)[0]:
                    says = words.fill(symptom.says, of.worded) or symptom.says
                    complaints.append(Complaint(Verdict(symptom.verdict), says, named, symptom.of_speed))
    found = [replace(f, role=Role.ROOT) if f.role is Role.BLIND and not measured else f for f in findings.values()]
    folded, judged_speeds = causes.folded(found, rules), tuple(speeds)
    worthwhile = catalogue.negligible.below if catalogue.negligible is not None else 1.0
    if catalogue.speed is not None:
        folded, judged_speeds = explain.explained(folded, speeds, catalogue.speed, worthwhile)
        for one in folded:  # a note that explains the loss is a warning
            if State(one.severity).rank < states[one.rule].rank:
                states[one.rule] = State(one.severity)
    in_order = causes.ordered(folded, rules)
    engines = _engines(catalogue, snapshots)
    vitals = _vitals(catalogue, engines, Reason.TIMEOUT if left_out else None)
    told = {rule.id for rule in rules if rule.stage in HEADLINES or rule.role is Role.SYMPTOM}
    outweighs = catalogue.speed.outweighs if catalogue.speed is not None else 1.0
    conclusion = concluded(in_order, complaints, vitals, told, judged_speeds, outweighs, worthwhile)
    about = dict(complaints[0].subject) if complaints and not any(f.is_grave for f in in_order) else {}
    about = next((dict(finding.subject) for finding in in_order if finding.is_grave), about)
    return Diagnosis(
        verdict=conclusion.verdict,
        headline=conclusion.headline,
        is_of_speed=conclusion.is_of_speed,
        findings=tuple(in_order),
        unknown=tuple(UnknownRule(id, because) for id, because in sorted(unknown.items())),
        vitals=vitals,
        engines=engines,
        targets=_targets(catalogue, snapshots),
        states=dict(sorted(states.items())),
        speeds=judged_speeds,
        left_out=left_out,
        gates=elimination.gates(
            catalogue,
            rules,
            states,
            in_order,
            _reader_of(about, snapshots, catalogue).worded,
            tried.values() if explained else None,
        )
        if snapshots
        else (),
    )


def _reader_of(about: Mapping[str, str], snapshots: Sequence[Snapshot], catalogue: Catalogue) -> Reader:
    """Reads the engine that these labels name, else the first."""
    engines = [(snapshot, subject) for snapshot in snapshots for subject in snapshot.subjects]
    named = (
        (snapshot, subject)
        for snapshot, subject in engines
        if all(about.get(label, value) == value for label, value in (*subject, *snapshot.tag))
    )
    return Reader(*next(named, engines[0]), catalogue)


def _engine(judged: tuple[Rule, Outcome, Reader]) -> Subject:
    return judged[2].engine


def finding_of(
    rule: Rule,
    severity: Severity,
    comparisons: Iterable[Comparison],
    subject: Subject,
    reader: Reader,
    catalogue: Catalogue,
) -> Finding:
    """What a rule found, with its remedies as they fit what is read."""
    held = rule.held(reader) if rule.cases else ()
    return Finding(
        rule=rule.id,
        severity=severity,
        role=rule.role,
        explained_by=None,
        confidence=rule.confidence,
        subject=dict(subject),
        title=_titled(rule.title, held),
        here=" ".join((*_filled(rule.here, reader), *(case.says for case in held))),
        why=rule.why,
        threshold_from=rule.threshold_from,
        evidence=tuple(
            _evidence(comparison, catalogue) for comparison in dict.fromkeys(comparisons) if _seen(comparison)
        ),
        remedies=remedies(rule, reader, catalogue),
        see=tuple(dict.fromkeys((*(url for case in held for url in case.see), *rule.see))),
        stage=rule.stage,
        gain=_limited(rule.gain, reader, catalogue),
        cost=_cost_of_cases(rule.costs, held, reader, catalogue) if rule.cases else _cost(rule.costs, reader),
    )


def _titled(title: str, held: Sequence[Case]) -> str:
    """With the first of the cases, and how many others there are."""
    if not held:
        return title
    more = f", and {len(held) - 1} more" if len(held) > 1 else ""
    return f"{title}: {held[0].title}{more}"


def remedies(rule: Rule, reader: Reader, catalogue: Catalogue) -> tuple[Remedy, ...]:
    """Those that fit, as the rule has them; but what can be done now comes before what needs a value not known.

    Those that serve the other goal at the cost of the user's come last; where latency was asked for,
    those that buy it with throughput come first.
    """
    fitting = [remedy for written in rule.remedies if (remedy := _remedy(written, reader, catalogue)) is not None]
    goal = reader(_GOAL)

    def rank(remedy: Remedy) -> tuple[bool, bool, bool]:
        wanted = goal.value if isinstance(goal, Known) else ""
        is_bought = wanted == _LATENCY == remedy.goal
        return bool(wanted) and remedy.goal not in ("", wanted), bool(remedy.needs), not is_bought

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


def _limited(bound: tuple[str, str] | None, reader: Reader, catalogue: Catalogue) -> Gain | None:
    """The gain, or where the speed is judged what its physical bound leaves of it."""
    gain = _gain(bound, reader)
    speed = catalogue.speed
    if gain is None or bound is None or speed is None or not isinstance(reader(speed.measured), Known):
        return gain
    limit = speed.limit_of(bound[0])
    if limit is None or limit.signal is None:
        return gain
    most = _gain((limit.signal, words.fill(limit.says, reader.worded) or limit.says), reader)
    return most if most is not None and most.at_most <= gain.at_most else gain


def _cost(costs: Costs | None, reader: Callable[[str], Reading]) -> Cost | None:
    """What the cause adds to each output token, at most; of a value that is known within bounds, the larger."""
    if costs is None:
        return None
    reading = reader(costs.signal) if costs.signal is not None else None
    if not isinstance(reading, Known) or not isinstance(reading.value, float):
        return Cost(None, costs.basis)
    at_most = max(0.0, reading.value if reading.high is None else reading.high)
    return Cost(at_most if math.isfinite(at_most) else None, costs.basis)


def _cost_of_cases(
    costs: Costs | None, held: Sequence[Case], reader: Callable[[str], Reading], catalogue: Catalogue
) -> Cost | None:
    """What those that hold add to each output token together, at most; None where none of them lengthens one."""
    times = [case.times for case in held if case.times is not None]
    if costs is None or not costs.of_cases or not times:
        return None
    measured = reader(catalogue.speed.measured) if catalogue.speed is not None else None
    factor = math.prod(times)
    if not isinstance(measured, Known) or not isinstance(measured.value, float) or not math.isfinite(factor):
        return Cost(None, costs.basis)
    return Cost(measured.value * (1 - 1 / factor), costs.basis)


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


@dataclass(frozen=True)
class _Values:
    """What a remedy changes, with its values."""

    set: Mapping[str, Value]
    unset: tuple[str, ...]
    env: Mapping[str, Value]
    run: tuple[str, ...]


def _remedy(written: RemedyRule, reader: Reader, catalogue: Catalogue) -> Remedy | None:
    """The remedy with its values; None where it does not fit: its `if` is false, this vLLM lacks the flag, or would
    not start with it."""
    needs: dict[str, Reason] = {}
    if not _may_fit(written, reader, needs):
        return None
    vllm = _vllm(reader)
    if any(_lacks(vllm, flag, reader) for flag in written.set):
        return None
    values = _values(written, reader, vllm, needs)
    if needs and _drops_what_may_not_be_there(written, values, reader):
        return None
    known = _Values({}, (), {}, ()) if needs else values  # with one that is not known yet nothing can be predicted
    then = reader.changed({**dict.fromkeys(known.unset), **known.set})
    starts = then.start()
    if starts.refused is not None:
        return None
    was = {flag: reader.flags[flag] for flag in (*values.set, *values.unset) if flag in reader.flags}
    was |= {name: reader.flags[f"${name}"] for name in values.env if f"${name}" in reader.flags}
    return Remedy(
        do=written.do,
        set=known.set,
        was=was,
        unset=known.unset,
        env=known.env,
        run=known.run,
        by=written.by,
        computed="; ".join(_filled(written.computed, reader)) or None,
        needs=needs,
        validated_for=_validated_for((*values.set, *values.unset), vllm, reader),
        cost=written.cost,
        risk="; ".join((written.risk, *_later(values.set, reader))),
        expect=written.expect,
        gain=_limited(written.gain, reader, catalogue),
        then=() if needs else _filled(written.then, then),
        starts_unknown=starts.unknown,
        goal=written.goal,
    )


def _drops_what_may_not_be_there(written: RemedyRule, values: _Values, reader: Reader) -> bool:
    """Whether all that it does is to leave out flags of which none is known to be given."""
    does_more = written.set or written.env or written.run
    return bool(values.unset) and not does_more and not any(flag in reader.flags for flag in values.unset)


def _may_fit(written: RemedyRule, reader: Reader, needs: dict[str, Reason]) -> bool:
    """Whether its `if` is not false. Where that is not known, `needs` gets what would tell: no flag is printed that may
    be followed already, or not fit."""
    if written.condition is None:
        return True
    fits, seen = written.condition.judge(reader)
    if fits is None:
        needs |= {name: reason for c in seen if c.holds is None for name, reason in c.unknowns()}
    return fits is not False


def _vllm(reader: Reader) -> str | None:
    """The version whose flags are proposed: the one that a written command is judged by, else the server's own."""
    version = checked if isinstance(checked := reader(_CHECKED_BY), Known) else reader(_VERSION)
    return str(version.value) if isinstance(version, Known) else None


def _lacks(vllm: str | None, flag: str, reader: Reader) -> bool:
    """Whether this vLLM has no such flag; where its version is not told, whether no release has it that it can be."""
    if vllm is not None:
        return flags.has(vllm, flag) is False
    releases = _possible(reader)
    return bool(releases) and all(flags.has(release, flag) is False for release in releases)


def _validated_for(named: Sequence[str], vllm: str | None, reader: Reader) -> str | None:
    """The version that is known to have all of these flags; None: they may be strange to this vLLM. Where no version is
    told, the newest that is possible, if each of those has them, or the command has them already."""
    if vllm is not None:
        return vllm if all(flags.has(vllm, flag) for flag in named) else None
    is_given = bool(named) and all(flag in reader.flags for flag in named)
    releases = _possible(reader) or (flags.releases() if is_given else ())
    is_there = bool(releases) and all(flags.has(release, flag) for release in releases for flag in named)
    return releases[-1] if is_there else None


def _possible(reader: Reader) -> Sequence[str]:
    """The releases that it can be of, as its flags or its log tell, where its version is not told; oldest first."""
    is_told = isinstance(reader(_VERSION), Known) and not isinstance(reader(_CHECKED_BY), Known)
    window = reader(_WINDOW)
    return str(window.value).split() if isinstance(window, Known) and not is_told else ()


def _later(named: Iterable[str], reader: Reader) -> Iterator[str]:
    """Of the flags those that not every release has that it can be of, in sentences."""
    releases = _possible(reader)
    for flag in named:
        if any(flags.has(release, flag) is False for release in releases):
            known = flags.flag(releases[-1], flag)
            if known is not None and known.since is not None:
                yield f"{flag} is there from vLLM {known.since} on"


def _values(written: RemedyRule, reader: Reader, vllm: str | None, needs: dict[str, Reason]) -> _Values:
    """What it changes; `needs` gets the signals without which a value cannot be computed."""
    settings = {flag: _value(value, reader, needs) for flag, value in written.set.items()}
    env = {name: _value(value, reader, needs) for name, value in written.env.items()}
    named = [flag for text in written.unset for flag in str(_value(text, reader, needs)).split()]
    # One that was not given, and that this vLLM does not have, is not told to be left out.
    unset = tuple(flag for flag in named if flag in reader.flags or flags.has(vllm, flag) is not False)
    return _Values(settings, unset, env, tuple(_command(command, reader, needs) for command in written.run))


def _filled(sentences: Iterable[str], reader: Reader | prediction.Changed) -> tuple[str, ...]:
    """The sentences with their numbers, without those whose numbers are not known."""
    filled = (words.fill(sentence, reader.worded) for sentence in sentences)
    return tuple(sentence for sentence in filled if sentence)


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
    """A shell command with its values."""
    for name in words.names(template):
        reading = reader(name)
        if isinstance(reading, Unknown):
            needs[name] = reading.reason
    return words.command(template, reader.worded)


def _engines(catalogue: Catalogue, snapshots: Sequence[Snapshot]) -> tuple[EngineSeen, ...]:
    """Each engine with its vital signs, in the catalogue's order."""
    seen = []
    for snapshot in snapshots:
        for subject in () if snapshot.is_path else snapshot.subjects:
            vitals = []
            for signal in _vital_signals(catalogue):
                _, reading = snapshot.read(signal.name, subject)
                value = reading if isinstance(reading, Known) else reading.reason
                vitals.append(Vital(signal.name, signal.says, signal.unit, value, signal.needed))
            seen.append(EngineSeen(dict((*subject, *snapshot.tag)), tuple(vitals)))
    return tuple(seen)


def _vitals(catalogue: Catalogue, engines: Sequence[EngineSeen], lacks: Reason | None) -> tuple[Vital, ...]:
    """The vital signs of all engines together. `lacks`: why some of them are not here."""
    return tuple(
        Vital(
            signal.name,
            signal.says,
            signal.unit,
            lacks or _of_all([engine.vitals[place].seen for engine in engines], signal.vital == "sum"),
            signal.needed,
        )
        for place, signal in enumerate(_vital_signals(catalogue))
    )


def _vital_signals(catalogue: Catalogue) -> list[Signal]:
    return [signal for signal in catalogue.signals.values() if signal.vital]


def _of_all(seen: Sequence[Known | Reason], is_sum: bool) -> Known | Reason:
    """The sum over the engines, or the largest; not known where it is not known of one."""
    unknown = [one for one in seen if isinstance(one, Reason)]
    if unknown or not seen:
        return unknown[0] if unknown else Reason.UNREACHABLE
    known = [one for one in seen if isinstance(one, Known) and not isinstance(one.value, str)]
    if is_sum:
        return Known(sum(float(one.value) for one in known))
    return max(known, key=lambda one: float(one.value))


def _targets(catalogue: Catalogue, snapshots: Sequence[Snapshot]) -> tuple[Target, ...]:
    targets = []
    for signal in catalogue.signals.values():
        if signal.target is None:
            continue
        readings = [
            (reading, s.read(signal.target, subject)[1])
            for s in snapshots
            if not s.is_path
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
