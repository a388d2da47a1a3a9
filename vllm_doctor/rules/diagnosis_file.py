"""What is no signal, but made of signals: rules/diagnosis.yaml.

The symptoms of which a person complains, what vLLM refuses to start with, what is negligible, and what makes an engine
an outlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.parser import ConditionError
from vllm_doctor.rules import document
from vllm_doctor.rules.document import Problems, Table
from vllm_doctor.rules.signal import Signal

FILE = "diagnosis.yaml"


@dataclass(frozen=True, slots=True)
class Symptom:
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
class Negligible:
    """A finding is only worth knowing where its potential gain, a factor, is known to be less, and `when` holds."""

    below: float
    when: Condition


@dataclass(frozen=True, slots=True)
class Outlier:
    """An engine is told apart from its peers where this signal is `factor` times their median, or a part of it, and
    differs from it by `least`."""

    signal: str
    factor: float
    least: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole file."""

    symptoms: tuple[Symptom, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    negligible: Negligible | None = None
    outliers: tuple[Outlier, ...] = ()


def load(path: Path, signals: Mapping[str, Signal], problems: Problems | None = None) -> Diagnosis:
    """Read the file; where there is none, nothing is made of the signals. Raises DocumentError with the line."""
    if not path.is_file():
        return Diagnosis()
    with document.gathered(problems):
        return _read(document.read(path, problems=problems), signals)
    return Diagnosis()


def _read(root: Table, signals: Mapping[str, Signal]) -> Diagnosis:
    root.allow("symptoms", "refusals", "negligible", "outliers")
    return Diagnosis(
        tuple(_symptom(entry, signals) for entry in root.tables("symptoms")),
        tuple(_refusal(entry, signals) for entry in root.tables("refusals")),
        _negligible(root.table("negligible"), signals) if "negligible" in root else None,
        tuple(_outlier(entry, signals) for entry in root.tables("outliers")),
    )


def _symptom(entry: Table, signals: Mapping[str, Signal]) -> Symptom:
    entry.allow("when", "says", "verdict")
    when = condition_of(entry, "when", signals.__contains__)
    return Symptom(when, entry.text("says"), entry.one_of("verdict", ("unknown", "warning", "critical")))


def _refusal(entry: Table, signals: Mapping[str, Signal]) -> Refusal:
    entry.allow("when", "says", "from")
    return Refusal(condition_of(entry, "when", signals.__contains__), entry.text("says"), entry.text("from"))


def _negligible(table: Table, signals: Mapping[str, Signal]) -> Negligible:
    table.allow("below", "when")
    below = table.get("below")
    if not isinstance(below, int | float) or isinstance(below, bool):
        table.fail("'below' must be a number: the least potential gain that is worth a restart", "below")
    return Negligible(float(below), condition_of(table, "when", signals.__contains__))


def _outlier(entry: Table, signals: Mapping[str, Signal]) -> Outlier:
    entry.allow("signal", "factor", "least")
    name = entry.text("signal")
    if name not in signals:
        entry.fail(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", "signal")
    return Outlier(name, _number(entry, "factor"), _number(entry, "least"))


def _number(table: Table, key: str) -> float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        table.fail(f"{key!r} must be a number above 0", key)
    return float(value)


def condition_of(table: Table, key: str, is_signal: Callable[[str], bool]) -> Condition:
    """The condition under a key; every name in it must be a signal. Raises DocumentError."""
    try:
        condition = Condition(table.text(key))
    except ConditionError as error:
        table.fail(str(error), key)
    for name in condition.names:
        if not is_signal(name):
            table.mistake(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", key)
    return condition
