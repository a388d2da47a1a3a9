"""The rules as alerts of a Prometheus: which of them it can judge, when each fires, and cases that show it.

An alert fires where the rule's condition is known to be true, by what Prometheus has (recorded.py): never because
something is absent. What it has not makes an alert narrower than its rule, or leaves it out: then the reason is told.
An alert of which no example of its rule shows that it can fire is left out as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.alerting.recording_rules import ENGINE, Recorder
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.promql import Constant, Missing, Series, both, either
from vllm_doctor.model.kinds import GRAVE, Role, Severity
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import query
from vllm_doctor.rules import document
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import is_negligible
from vllm_doctor.rules.rule import Rule, example_reading
from vllm_doctor.text import words

_FIRES = {Severity.CRITICAL: (Severity.CRITICAL,), Severity.WARNING: GRAVE}
"""An alert of a severity, and with which conditions it fires. An `info` is for a person who looks."""
_REMEMBERED = "1d"


@dataclass(frozen=True)
class Alert:
    """One alert: `when` is PromQL, a row for each engine. `seen`: the signals to show, with the series of each."""

    rule: Rule
    severity: Severity
    when: str
    seen: Mapping[str, Series]
    without: tuple[str, ...]
    """Signals of the condition that Prometheus lacks: it fires in fewer cases than the doctor."""
    values: Mapping[str, Series]
    """The signals that its remedies set flags to, where Prometheus can compute them."""

    @property
    def name(self) -> str:
        return alert_name(self.rule.id)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A rule, or one severity of it, that is no alert, and why."""

    rule: str
    severity: Severity | None
    why: str


@dataclass(frozen=True)
class Case:
    """Values of recorded series with which these severities of a rule's alert fire, and no others."""

    rule: str
    says: str
    values: Mapping[str, float]
    fires: tuple[str, ...]


@dataclass(frozen=True)
class Blind:
    """The alert that something cannot be seen: `when` has a row for each engine and each signal (label `signal`)."""

    when: str
    signals: tuple[str, ...]


@dataclass(frozen=True)
class Alerts:
    """All that is written. `records`: the series that the alerts are made of, each below what it uses."""

    alerts: tuple[Alert, ...]
    blind: Blind
    records: Mapping[str, str]
    left_out: tuple[LeftOut, ...]
    cases: tuple[Case, ...]
    recorder: Recorder


def alert_name(rule: str) -> str:
    """VllmKvCacheSaturated of "kv-cache-saturated"."""
    return "Vllm" + "".join(word.capitalize() for word in rule.split("-"))


def of_rules(rules: Sequence[Rule], recorder: Recorder) -> Alerts:
    """The alerts that these rules give."""
    written: list[Alert] = []
    left_out: list[LeftOut] = []
    cases: list[Case] = []
    for rule in rules:
        if not any(severity in rule.when for severity in GRAVE):
            left_out.append(LeftOut(rule.id, None, "only worth knowing: it has no warning"))
            continue
        mine = list(_cases(rule, recorder))
        found, reasons = _of_rule(rule, recorder, mine)
        written += found
        left_out += reasons
        if found:
            emitted = {alert.severity for alert in found}
            cases += [Case(c.rule, c.says, c.values, tuple(s for s in c.fires if s in emitted)) for c in mine]
    blind = _blind(recorder)
    records = recorder.rules([*(alert.when for alert in written), *_shown(written), blind.when])
    return Alerts(tuple(written), blind, records, tuple(left_out), tuple(cases), recorder)


def _shown(alerts: Iterable[Alert]) -> Iterator[str]:
    for alert in alerts:
        for series in (*alert.seen.values(), *alert.values.values()):
            yield from (series.low, series.high)


def _of_rule(rule: Rule, recorder: Recorder, cases: Sequence[Case]) -> tuple[list[Alert], list[LeftOut]]:
    found = [_of_severity(rule, severity, recorder, cases) for severity in GRAVE if severity in rule.when]
    alerts = [one for one in found if isinstance(one, Alert)]
    return _merged(rule, alerts, [one for one in found if isinstance(one, LeftOut)])


def _of_severity(rule: Rule, severity: Severity, recorder: Recorder, cases: Sequence[Case]) -> Alert | LeftOut:
    """The alert of one severity, or why there is none."""
    applies = True if rule.applies is None else recorder.holds(rule.applies)
    conditions = [rule.when[s] for s in _FIRES[severity] if s in rule.when]
    own = [*([rule.applies] if rule.applies else []), rule.when[severity]]
    when = both([applies, either(recorder.holds(condition) for condition in conditions)])
    if both([applies, recorder.holds(rule.when[severity])]) is False:
        return LeftOut(rule.id, severity, _why_never(own, recorder))
    negligible = _negligible(rule, recorder)
    if when is True or negligible is True:
        return LeftOut(rule.id, severity, "what Prometheus has does not decide it")
    if not any(severity in case.fires for case in cases):
        return LeftOut(rule.id, severity, "no example of the rule shows that it can fire in Prometheus")
    assert isinstance(when, str)
    names = dict.fromkeys(name for condition in own for name in condition.names)
    terms = {name: recorder.term(name) for name in names}
    return Alert(
        rule,
        severity,
        f"({when}) unless ({negligible})" if negligible else when,
        {name: term for name, term in terms.items() if isinstance(term, Series)},
        tuple(name for name, term in terms.items() if isinstance(term, Missing)),
        dict(_values_to_set(rule, recorder)),
    )


def _values_to_set(rule: Rule, recorder: Recorder) -> Iterator[tuple[str, Series]]:
    for remedy in rule.remedies:
        for value in remedy.set.values():
            for name in words.names(value) if isinstance(value, str) else ():
                term = recorder.term(name)
                if isinstance(term, Series) and term.is_exact:
                    yield name, term


def _merged(rule: Rule, alerts: list[Alert], left_out: list[LeftOut]) -> tuple[list[Alert], list[LeftOut]]:
    """Where no severity is left, the rule is; its reasons are those of the mildest: it asks for the least."""
    if not alerts and left_out:
        return [], [LeftOut(rule.id, None, left_out[-1].why)]
    return alerts, left_out


def _negligible(rule: Rule, recorder: Recorder) -> str | bool:
    """Where the cause is known to cost next to nothing, as diagnose.is_negligible has it."""
    negligible = recorder.catalogue.negligible
    if rule.role is not Role.ROOT or rule.gain is None or negligible is None:
        return False
    cheap = Condition(f"{rule.gain[0]} < {negligible.below}")
    return both([recorder.holds(negligible.when), recorder.holds(cheap)])


def _why_never(conditions: Sequence[Condition], recorder: Recorder) -> str:
    names = list(dict.fromkeys(name for condition in conditions for name in condition.names))
    missing = {name: term.because for name in names if isinstance(term := recorder.term(name), Missing)}
    if not missing:
        # A constant stands for what is not known: of a command that was not given as a text, nothing is wrong.
        names = [name for name in names if isinstance(recorder.term(name), Constant)]
        missing = {name: recorder.lacking(name) for name in names}
    reasons = dict.fromkeys(why for because in missing.values() for why in because.values())
    return f"needs {', '.join(missing)} ({'; '.join(reasons)})"


def _blind(recorder: Recorder) -> Blind:
    """An engine is seen, and one of its vital signs is not; or its server answers, and has shown engines before."""
    needed = tuple(signal.name for signal in recorder.catalogue.signals.values() if signal.needed)
    parts = []
    for name in needed:
        term = recorder.term(name)
        lacking = ENGINE if isinstance(term, Missing) else None
        if isinstance(term, Series):
            lacking = f"{ENGINE} unless {term.low}"
        if lacking is not None:
            parts.append(f'label_replace({lacking}, "signal", "{name}", "", "")')
    server = ", ".join(recorder.scope.identity)
    before = f"group by ({server}) (last_over_time({query.servers(recorder.scope)}[{_REMEMBERED}]))"
    gone = f"({before} and on ({server}) (up == 1)) unless on ({server}) {ENGINE}"
    parts.append(f'label_replace({gone}, "signal", "all of them", "", "")')
    return Blind(" or ".join(parts), needed)


# ---- cases out of the rules' examples --------------------------------------------------------------------------------


def _cases(rule: Rule, recorder: Recorder) -> Iterator[Case]:
    """Each example of the rule with what of it Prometheus has, and again without one value after the other."""
    names = _asked(rule, recorder.catalogue)
    given: set[tuple[tuple[str, float], ...]] = set()
    for number, example in enumerate(document.read(rule.table.path).tables("examples"), 1):
        seen = {name: example_reading(example[name]) for name in names if name in example}
        readings = _by_series(seen, recorder)
        if readings is None:
            continue
        for without in (None, *readings):
            kept = {series: reading for series, reading in readings.items() if series != without}
            values = _values(kept)
            if tuple(values.items()) in given:
                continue
            given.add(tuple(values.items()))
            says = f"example {number}" + (f" without {without.low}" if without else "")
            yield Case(rule.id, says, values, _fires(rule, kept, recorder))


def _asked(rule: Rule, catalogue: Catalogue) -> list[str]:
    """The signals that decide whether the rule fires."""
    names = [*rule.signals()]
    if rule.gain is not None and catalogue.negligible is not None:
        names += [rule.gain[0], *catalogue.negligible.when.names]
    return list(dict.fromkeys(names))


def _by_series(seen: Mapping[str, Reading], recorder: Recorder) -> dict[Series, Known] | None:
    """The values by the series that hold them; None where two signals of one series have two values."""
    readings: dict[Series, Known] = {}
    for name, reading in seen.items():
        term = recorder.term(name)
        if not isinstance(term, Series) or not isinstance(reading, Known):
            continue
        if isinstance(reading.value, str) or readings.setdefault(term, reading) != reading:
            return None
    return readings


def _values(readings: Mapping[Series, Known]) -> dict[str, float]:
    values: dict[str, float] = {}
    for series, reading in readings.items():
        low, high = reading.bounds or (float(reading.value), float(reading.value))
        values |= {series.low: low, series.high: high}
    return values


def _fires(rule: Rule, readings: Mapping[Series, Known], recorder: Recorder) -> tuple[str, ...]:
    """What the doctor itself says of these values, and of what else Prometheus lacks."""

    def read(name: str) -> Reading:
        match recorder.term(name):
            case Constant(value):
                return Known(value)
            case Series() as series:
                return readings.get(series, Unknown(Reason.ABSENT))
            case _:
                return Unknown(Reason.ABSENT)

    severity = rule.judge(read).state.severity
    if severity not in GRAVE or is_negligible(rule, read, recorder.catalogue):
        return ()
    return tuple(alert for alert in GRAVE if alert in rule.when and severity in _FIRES[alert])
