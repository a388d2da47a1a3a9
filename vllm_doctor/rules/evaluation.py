"""What the scrapes of one server and the facts about it say of each signal: a value, or the reason why not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.promql_eval import Estimate
from vllm_doctor.model.facts import BENCH, COMMAND, ENGINE_METRIC, ENVIRONMENT, FORM, LOG
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, project
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Evaluated, Series, Snapshot
from vllm_doctor.model.window import Labels, Window
from vllm_doctor.rules.signal import DEFAULT_IDENTITY, MEASURED, TEXTS, Signal, expression, info, parsed

_UNTOLD = "…"
"""The value of a flag that is given, where the text does not hold it."""

RECENT, _RECENT_SECONDS, _RECENT_SCRAPES = "$recent", 5.0, 3
"""A range that is the last scrapes: of so many seconds, and at least so many of them."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def snapshot(
    signals: Iterable[Signal],
    window: Window,
    facts: Mapping[str, Reading],
    tag: Subject = (),
    evaluated: Evaluated | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Snapshot:
    """All of these signals; each stands below what it is computed from.

    `tag` tells servers apart where several are examined together. `evaluated`: signals that need no scrapes.
    `is_over`: whether there is no time for another engine.
    """
    identity = _identity(window)
    engines = {_named(labels, identity) for labels in window.latest(ENGINE_METRIC)}
    subjects = tuple(sorted(engines if evaluated is None else evaluated.engines)) or ((),)
    series: dict[str, Series] = {}
    missing: dict[str, Reason] = {}
    formulas: list[tuple[str, Formula]] = []
    alike: set[str] = set()
    for signal in signals:
        readings: Mapping[Subject, Reading]
        if signal.formula is not None:
            formulas.append((signal.name, signal.formula))
            continue
        if evaluated is not None and (signal.way in MEASURED or signal.name in evaluated.readings):
            readings = evaluated.readings.get(signal.name, {})
            missing[signal.name] = evaluated.missing.get(
                signal.name, Reason.ABSENT if signal.way in MEASURED else signal.reason
            )
        else:
            readings, reason = _observed(signal, window, identity, facts)
            if reason is not None:
                missing[signal.name] = reason
        if readings:
            series[signal.name] = Series(readings)
        if not readings or series[signal.name].is_alike:
            alike.add(signal.name)
    computed = _computed(formulas, subjects, series, missing, alike, is_over)
    given = {name: fact for name, fact in facts.items() if name.startswith(("--", "$"))}
    of_flags = {
        name: fact.value if isinstance(fact, Known) else _UNTOLD
        for name, fact in given.items()
        if isinstance(fact, Known) or (name.startswith("-") and fact.reason is Reason.NOT_IN_COMMAND)
    }
    left_out = len(subjects) - computed
    return Snapshot(subjects[:computed], series, missing, tag, of_flags, frozenset(alike), left_out)


def _observed(
    signal: Signal, window: Window, identity: tuple[str, ...], facts: Mapping[str, Reading]
) -> tuple[Mapping[Subject, Reading], Reason | None]:
    absent = Reason.NOT_IN_LOG if window.origin == LOG else Reason.ABSENT
    match signal.way:
        case "fact":
            is_without = signal.reason is Reason.NOT_IN_LOG and not isinstance(facts.get(LOG), Known)
            fact = facts.get(signal.definition, Unknown(Reason.NO_LOG if is_without else signal.reason))
            is_other = isinstance(fact, Known) and isinstance(fact.value, str) and signal.unit not in TEXTS
            return _fact(Unknown(Reason.INVALID) if is_other else fact)
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
        case _ if RECENT in signal.definition and window.origin == LOG:
            return {}, Reason.NOT_IN_LOG  # it has no now: its stretches are judged one by one
        case _:
            ranged = _recent(window) if RECENT in signal.definition else window
            vector, trace = expression(signal.definition, identity).evaluate(ranged)
            if trace.lacked_points:
                reason = window.lone
            elif trace.found_series:
                reason = Reason.IDLE
            else:
                reason = absent
            readings = {_named(labels, identity): _reading(value, window.origin) for labels, value in vector.items()}
            return readings, reason


def _recent(window: Window) -> Window:
    """The last scrapes: what is true now, where a mean over the window hides it."""
    last = window.times[-1]
    first = min(last - _RECENT_SECONDS, window.times[-_RECENT_SCRAPES:][0])
    return window if first <= window.times[0] else window.part(first, last)


def _unmeasured(facts: Mapping[str, Reading]) -> Reason:
    """Why there are no measurements of a server."""
    if LOG in facts:
        return Reason.NOT_IN_LOG
    if BENCH in facts:
        return Reason.NOT_IN_BENCH
    return Reason.NOT_IN_COMMAND if FORM in facts else Reason.UNREACHABLE


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
    return tuple(sorted(names)) or DEFAULT_IDENTITY


def _named(labels: Labels, identity: tuple[str, ...]) -> Subject:
    return project(tuple(pair for pair in labels if pair[1] != ""), identity)


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


def _computed(
    formulas: Sequence[tuple[str, Formula]],
    subjects: tuple[Subject, ...],
    series: dict[str, Series],
    missing: Mapping[str, Reason],
    alike: set[str],
    is_over: Callable[[], bool],
) -> int:
    """Add what the formulas say of each engine to `series`, and those that say the same of all to `alike`.

    For how many engines there was time: one at least.
    """
    snapshot = Snapshot(subjects, series, missing)
    series |= {name: Series({}) for name, _ in formulas}
    differing: list[tuple[str, Formula]] = []
    for name, formula in formulas:
        if alike.issuperset(formula.names):
            alike.add(name)
            # A formula over server-wide signals is server-wide: one reading, not one for each engine.
            series[name].add((), _value(formula, snapshot, subjects[0])[1])
        else:
            differing.append((name, formula))
    for place, subject in enumerate(subjects):
        if place and is_over():
            return place
        for name, formula in differing:
            key, reading = _value(formula, snapshot, subject)
            series[name].add(key if isinstance(reading, Known) else subject, reading)
    return len(subjects)


def _value(formula: Formula, snapshot: Snapshot, subject: Subject) -> tuple[Subject, Reading]:
    """What the formula says of an engine, and the subject that what it read belongs to."""
    keys: set[tuple[str, str]] = set()

    def read(name: str) -> Reading:
        key, reading = snapshot.read(name, subject)
        keys.update(key)
        return reading

    reading = formula.evaluate(read)
    return tuple(sorted(keys)), reading
