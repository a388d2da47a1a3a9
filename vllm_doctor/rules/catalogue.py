"""The signal catalogue: where a metric, a label or a fact becomes a signal.

rules/signals.yaml defines each signal once, in one of eight ways:

    promql    evaluated over the scrapes; $engine is the labels that name an engine, $model the same
              without `engine`, $window the time range
    info      a label of an info metric, read as a value: metric{label}
    present   whether the server exports one of these metrics
    fact      what a source or the user knows: the version, the cores granted, an SLO
    flag      a flag of the server's command line; `none` is its value where it was not given
    env       a variable of the server's environment; `none` is its value where it is not set
    log       how often a line of rules/log-lines stands in the server's log, or a value of it: line, line.value;
              of several lines (a b c) the sum; line@serving: since the server was up
    formula   computed from other signals

A fact of the server's host may besides have an `exporter`: how a Prometheus tells it by another exporter's series, of a
container or a GPU. Its `promql` is evaluated there only, may be all of PromQL, and is aggregated by labels that an
engine has too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.parser import ConditionError, FormulaError
from vllm_doctor.expr.promql_eval import Estimate, Expression, PromQLError, aggregated_by
from vllm_doctor.model.facts import COMMAND, ENGINE_METRIC, ENVIRONMENT, FORM, LOG
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value, project
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Series, Snapshot, Told
from vllm_doctor.model.window import Labels, Window
from vllm_doctor.rules import document
from vllm_doctor.vllm import flags

_UNTOLD = "…"
"""The value of a flag that is given, where the text does not hold it."""

MEASURED = ("promql", "info", "present")
"""The ways of what stands on /metrics, and so in a Prometheus."""

_WAYS = ("promql", "info", "present", "fact", "flag", "env", "log", "formula")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_DEFAULT_IDENTITY = ("engine", "model_name")
EXPORTERS = ("cadvisor", "dcgm")
"""Those whose series tell facts."""
UNITS = (
    "ratio", "share", "factor", "s", "1/s", "bytes", "tokens", "blocks", "requests", "engines",
    "adapters", "cores", "W", "MHz", "°C", "text", "flag", "",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exporter:
    """Another exporter that tells a fact: who it is, its query ($window is the range), and what it is aggregated by."""

    origin: str
    promql: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """One entry: what it is called and what it means; `definition` is the text under its `way`."""

    name: str
    says: str
    unit: str
    way: str
    definition: str
    vital: str | None = None
    """Shown as a vital sign; how it adds up over engines: sum or max."""
    needed: bool = False
    """Without it there is no verdict."""
    target: str | None = None
    """For a target the user may give (an SLO): the signal that must stay below it."""
    none: Value | None = None
    count: bool = False
    reason: Reason = Reason.ABSENT
    present: tuple[str, ...] = ()
    formula: Formula | None = None
    exporter: Exporter | None = None


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a person would call slow. It demands a cause: where none is found, the report says so."""

    when: Condition
    says: str
    verdict: str
    """The least verdict of a report in which it holds and no root finding explains it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """With what vLLM does not start. Its signals are read as a changed command would set them (prediction.py)."""

    when: Condition
    says: str
    source: str
    """Where vLLM checks it: the file of its sources."""


@dataclass(frozen=True, slots=True)
class Petty:
    """A finding is only worth knowing where its prize, a factor, is known to be below this, and `when` holds."""

    below: float
    when: Condition


@dataclass(frozen=True, slots=True)
class Outlier:
    """An engine is told apart from its peers where this signal is `factor` times their median, or a part of it, and
    differs from it by `least`."""

    signal: str
    factor: float
    least: float


class Catalogue:
    """All signals, and which metrics they are made of."""

    def __init__(
        self,
        signals: Mapping[str, Signal],
        complaints: tuple[Complaint, ...],
        path: Path,
        refusals: tuple[Refusal, ...] = (),
        petty: Petty | None = None,
        outliers: tuple[Outlier, ...] = (),
    ) -> None:
        self.signals = signals
        self.complaints = complaints
        self.refusals = refusals
        self.petty = petty
        self.outliers = outliers
        self.path = path
        self.metrics = frozenset(name for signal in signals.values() for name in _metrics(signal)) | {ENGINE_METRIC}

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These signals and all that they are computed from."""
        found: set[str] = set()
        wanted = list(names)
        while wanted:
            name = wanted.pop()
            if name not in found:
                found.add(name)
                formula = self.signals[name].formula
                wanted += formula.names if formula is not None else ()
        return frozenset(found)

    def metrics_behind(self, names: Iterable[str]) -> frozenset[str]:
        """The metrics that these signals are made of."""
        return frozenset(metric for name in self.behind(names) for metric in _metrics(self.signals[name]))

    def narrowed(self, names: Iterable[str]) -> Catalogue:
        """The catalogue with only these signals, what they are computed from, and what the complaints name.

        Without refusals: no command is corrected by it.
        """
        complained = [name for complaint in self.complaints for name in complaint.when.names]
        kept = self.behind([*names, *complained, *(self.petty.when.names if self.petty else ())])
        signals = {n: s for n, s in self.signals.items() if n in kept}
        return Catalogue(signals, self.complaints, self.path, petty=self.petty)

    def snapshot(
        self, window: Window, facts: Mapping[str, Reading], tag: Subject = (), told: Told | None = None
    ) -> Snapshot:
        """What the scrapes of one server and the facts about it say.

        `tag` tells servers apart where several are examined together. `told`: signals that need no scrapes.
        """
        identity = _identity(window)
        engines = {_named(labels, identity) for labels in window.latest(ENGINE_METRIC)}
        subjects = tuple(sorted(engines if told is None else told.engines)) or ((),)
        series: dict[str, Series] = {}
        missing: dict[str, Reason] = {}
        for signal in self.signals.values():
            readings: Mapping[Subject, Reading]
            if signal.way == "formula":
                assert signal.formula is not None
                readings = _computed(signal.formula, subjects, Snapshot(subjects, series, missing))
            elif told is not None and (signal.way in MEASURED or signal.name in told.readings):
                readings = told.readings.get(signal.name, {})
                missing[signal.name] = told.missing.get(
                    signal.name, Reason.ABSENT if signal.way in MEASURED else signal.reason
                )
            else:
                readings, reason = self._observed(signal, window, identity, facts)
                if reason is not None:
                    missing[signal.name] = reason
            if readings:
                series[signal.name] = Series(readings)
        given = {name: fact for name, fact in facts.items() if name.startswith(("--", "$"))}
        of_flags = {
            name: fact.value if isinstance(fact, Known) else _UNTOLD
            for name, fact in given.items()
            if isinstance(fact, Known) or (name.startswith("-") and fact.reason is Reason.NOT_IN_COMMAND)
        }
        return Snapshot(subjects, series, missing, tag, of_flags)

    def _observed(
        self, signal: Signal, window: Window, identity: tuple[str, ...], facts: Mapping[str, Reading]
    ) -> tuple[Mapping[Subject, Reading], Reason | None]:
        absent = Reason.NOT_IN_LOG if window.origin == LOG else Reason.ABSENT
        match signal.way:
            case "fact":
                return _fact(facts.get(signal.definition, Unknown(signal.reason)))
            case "flag":
                return _fact(_given(signal, signal.definition, facts, COMMAND, "cmdline"))
            case "env":
                return _fact(_given(signal, f"${signal.definition}", facts, ENVIRONMENT, "environ"))
            case "log":
                return _fact(_logged(signal.definition, facts))
            case _ if not window.times:
                return {}, _unmeasured(facts)
            case "present" if window.origin == LOG:
                return {}, Reason.NOT_IN_LOG
            case "present":
                if not window.latest(ENGINE_METRIC):
                    return {}, Reason.ABSENT
                return {(): Known(any(window.latest(name) for name in signal.present))}, None
            case "info":
                return _labelled(signal, window, identity), absent
            case _:
                # A window holds no points but its own, so a range takes them all, however long it says it is.
                expression = _expression(_filled(signal.definition, identity, 1.0))
                vector, trace = expression.evaluate(window)
                if trace.lacked_points:
                    reason = window.lone
                elif trace.found_series:
                    reason = Reason.IDLE
                else:
                    reason = absent
                readings = {
                    _named(labels, identity): _reading(value, window.origin) for labels, value in vector.items()
                }
                return readings, reason


def _unmeasured(facts: Mapping[str, Reading]) -> Reason:
    """Why there are no measurements of a server."""
    if LOG in facts:
        return Reason.NOT_IN_LOG
    return Reason.NOT_IN_COMMAND if FORM in facts else Reason.UNREACHABLE


def _metrics(signal: Signal) -> Iterable[str]:
    match signal.way:
        case "promql":
            return _expression(_filled(signal.definition, _DEFAULT_IDENTITY, 1.0)).names
        case "present":
            return signal.present
        case "info":
            return (info(signal.definition)[0],)
        case _:
            return ()


def _fact(reading: Reading) -> tuple[Mapping[Subject, Reading], Reason | None]:
    return ({(): reading}, None) if isinstance(reading, Known) else ({}, reading.reason)


def _given(signal: Signal, name: str, facts: Mapping[str, Reading], where: str, origin: str) -> Reading:
    """What the server was given under this name; its `none` where it was given other things, but not this."""
    given = facts.get(name)
    if given is not None:
        return given
    was_read = facts.get(where, Unknown(Reason.NOT_LOCAL))
    if isinstance(was_read, Unknown):
        return was_read
    return Unknown(Reason.NOT_SET) if signal.none is None else Known(signal.none, origin=origin)


def _logged(definition: str, facts: Mapping[str, Reading]) -> Reading:
    """What the log holds of these lines. What was found is known, though another of them could not be looked for."""
    was_read = facts.get(LOG, Unknown(Reason.NO_LOG))
    if isinstance(was_read, Unknown):
        return was_read
    readings = [facts.get(f"log:{name}", Unknown(Reason.NOT_IN_LOG)) for name in definition.split()]
    if len(readings) == 1:
        return readings[0]
    known = [reading.value for reading in readings if isinstance(reading, Known)]
    count = sum(value for value in known if isinstance(value, float))
    unknown = next((reading for reading in readings if isinstance(reading, Unknown)), None)
    return Known(count, origin=LOG) if count or unknown is None else unknown


def _reading(value: float, origin: str) -> Reading:
    if not math.isfinite(value) and not isinstance(value, Estimate):
        return Unknown(Reason.IDLE)
    if isinstance(value, Estimate):
        return Known(float(value), value.low, value.high, origin)
    return Known(value, origin=origin)


def _identity(window: Window) -> tuple[str, ...]:
    """The label names that tell engines apart on this page: model_name and engine; under Ray also the replica."""
    names = {name for labels in window.series(ENGINE_METRIC) for name, _ in labels if _LABEL.fullmatch(name)}
    return tuple(sorted(names)) or _DEFAULT_IDENTITY


def _named(labels: Labels, identity: tuple[str, ...]) -> Subject:
    return project(tuple(pair for pair in labels if pair[1] != ""), identity)


def _filled(text: str, identity: tuple[str, ...], seconds: float) -> str:
    model = tuple(name for name in identity if name != "engine")
    text = text.replace("$engine", ", ".join(identity)).replace("$model", ", ".join(model))
    return text.replace("$window", f"{max(1, round(seconds * 1000))}ms")


@cache
def _expression(text: str) -> Expression:
    return Expression(text)


def info(definition: str) -> tuple[str, str]:
    """The metric and the label of an info signal: "metric{label}". Raises PromQLError."""
    match = re.fullmatch(r"([\w:]+)\{(\w+)\}", definition)
    if match is None:
        raise PromQLError(f"write an info signal as metric{{label}}: {definition}")
    return match[1], match[2]


def _labelled(signal: Signal, window: Window, identity: tuple[str, ...]) -> Mapping[Subject, Reading]:
    metric, label = info(signal.definition)
    newest: dict[Subject, tuple[float, str]] = {}
    for labels, value in window.latest(metric).items():
        text = dict(labels).get(label)
        subject = _named(labels, identity)
        # Old label sets stay on the page: vLLM sets lora_requests_info to the time of its last change.
        if text is not None and value >= newest.get(subject, (-math.inf, ""))[0]:
            newest[subject] = (value, text)
    return {subject: parsed(text, signal) for subject, (_, text) in newest.items()}


def parsed(text: str, signal: Signal) -> Reading:
    """An info metric's label as the signal's value."""
    if signal.count:
        return Known(float(len([item for item in text.split(",") if item.strip()])))
    if text in ("None", ""):
        return Unknown(Reason.ABSENT) if signal.none is None else Known(signal.none)
    if signal.unit == "text":
        return Known(text)
    if text in ("True", "False"):
        return Known(text == "True")
    try:
        value = float(text)
    except ValueError:
        return Unknown(Reason.INVALID)
    return Known(value) if math.isfinite(value) else Unknown(Reason.INVALID)


def _computed(formula: Formula, subjects: tuple[Subject, ...], snapshot: Snapshot) -> Mapping[Subject, Reading]:
    readings: dict[Subject, Reading] = {}
    for subject in subjects:
        keys: set[tuple[str, str]] = set()

        def read(name: str, subject: Subject = subject, keys: set[tuple[str, str]] = keys) -> Reading:
            key, reading = snapshot.read(name, subject)
            keys.update(key)
            return reading

        result = formula.evaluate(read)
        # A formula over server-wide signals is server-wide: one reading, not one for each engine.
        readings[tuple(sorted(keys)) if isinstance(result, Known) else subject] = result
    return readings


def load(path: Path) -> Catalogue:
    """Read signals.yaml. Raises DocumentError with the line."""
    root = document.read(path)
    root.allow("signals", "petty", "refusals", "complaints", "outliers")
    signals: dict[str, Signal] = {}
    table = root.table("signals")
    for name in table:
        signals[name] = _signal(name, table.table(name), signals)
    complaints = []
    for entry in root.tables("complaints"):
        entry.allow("when", "says", "verdict")
        when = condition_of(entry, "when", signals.__contains__)
        complaints.append(
            Complaint(when, entry.text("says"), entry.one_of("verdict", ("unknown", "warning", "critical")))
        )
    refusals = []
    for entry in root.tables("refusals"):
        entry.allow("when", "says", "from")
        when = condition_of(entry, "when", signals.__contains__)
        refusals.append(Refusal(when, entry.text("says"), entry.text("from")))
    outliers = tuple(_outlier(entry, signals) for entry in root.tables("outliers"))
    return Catalogue(signals, tuple(complaints), path, tuple(refusals), _petty(root, signals), outliers)


def _outlier(entry: document.Table, signals: Mapping[str, Signal]) -> Outlier:
    entry.allow("signal", "factor", "least")
    name = entry.text("signal")
    if name not in signals:
        entry.fail(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", "signal")
    return Outlier(name, _number(entry, "factor"), _number(entry, "least"))


def _number(table: document.Table, key: str) -> float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        table.fail(f"{key!r} must be a number above 0", key)
    return float(value)


def _petty(root: document.Table, signals: Mapping[str, Signal]) -> Petty | None:
    if "petty" not in root:
        return None
    table = root.table("petty")
    table.allow("below", "when")
    below = table.get("below")
    if not isinstance(below, int | float) or isinstance(below, bool):
        table.fail("'below' must be a number: the least prize that is worth a restart", "below")
    return Petty(float(below), condition_of(table, "when", signals.__contains__))


def condition_of(table: document.Table, key: str, is_signal: Callable[[str], bool]) -> Condition:
    """The condition under a key; every name in it must be a signal. Raises DocumentError."""
    try:
        condition = Condition(table.text(key))
    except ConditionError as error:
        table.fail(str(error), key)
    for name in condition.names:
        if not is_signal(name):
            table.fail(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", key)
    return condition


def _signal(name: str, table: document.Table, known: Mapping[str, Signal]) -> Signal:
    table.allow("says", "unit", *_WAYS, "vital", "needed", "target", "none", "count", "reason", "exporter")
    ways = [way for way in _WAYS if way in table]
    if len(ways) != 1:
        table.fail(f"signal {name!r} needs exactly one of {', '.join(_WAYS)}")
    way = ways[0]
    present: tuple[str, ...] = ()
    formula: Formula | None = None
    definition = ""
    if way == "present":
        present = table.texts(way)
    else:
        definition = table.text(way)
    try:
        if way == "promql":
            _expression(_filled(definition, _DEFAULT_IDENTITY, 1.0))
        elif way == "info":
            info(definition)
        elif way == "flag" and not flags.is_flag(definition):
            table.fail(f"{definition} is a flag of no vLLM", way)
        elif way == "formula":
            formula = Formula(definition)
            for used in formula.names:
                if used not in known:
                    table.fail(f"formula of {name!r} uses {used!r}, which is not defined above it", way)
    except (PromQLError, FormulaError) as error:
        table.fail(str(error), way)
    if "exporter" in table and way != "fact":
        table.fail(f"signal {name!r} stands on /metrics: only a fact of the host has an exporter", "exporter")
    none = table.get("none")
    return Signal(
        name=name,
        says=table.text("says"),
        unit=table.one_of("unit", UNITS),
        way=way,
        definition=definition,
        vital=table.one_of("vital", ("sum", "max")) if "vital" in table else None,
        needed=table.get("needed") is True,
        target=table.text("target") if "target" in table else None,
        none=float(none) if type(none) is int else none,
        count=table.get("count") is True,
        reason=Reason(table.one_of("reason", tuple(Reason), Reason.NOT_LOCAL.value)),
        present=present,
        formula=formula,
        exporter=_exporter(table.table("exporter")) if "exporter" in table else None,
    )


def _exporter(table: document.Table) -> Exporter:
    table.allow("from", "promql")
    text = " ".join(table.text("promql").split())
    try:
        labels = aggregated_by(text.replace("$window", "1s"))
    except PromQLError as error:
        table.fail(str(error), "promql")
    return Exporter(table.one_of("from", EXPORTERS), text, labels)
