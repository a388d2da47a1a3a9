"""columns: formulas and conditions over many engines give what they give for each alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.making import shipped_catalogue, shipped_rules
from vllm_doctor.expr.formula import Formula
from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Unknown, Value, Values
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.columns import Columns
from vllm_doctor.rules.diagnosis_file import Diagnosis

ENGINES = 40
SIGNALS = shipped_catalogue().signals
GIVEN = [name for name, signal in SIGNALS.items() if signal.formula is None]
NUMBERS: Sequence[float] = (0.0, 0.005, 0.3, 0.5, 0.91, 0.99, 1.0, 1.5, 2.0, 8.0, 16.0, 100.0, 2048.0, 3e9)


def readings(chance: random.Random, text: bool) -> list[Reading]:
    """A signal of all engines: mostly numbers, some unknown; or texts, or yes and no."""

    def one() -> Reading:
        if chance.random() < 0.15:
            return Unknown(Reason.ABSENT)
        if text:
            return Known(chance.choice(("auto", "throughput", "latency", "cuda", "fp8")))
        return Known(chance.choice(NUMBERS) if chance.random() < 0.9 else chance.choice((True, False)))

    return [one() for _ in range(ENGINES)]


def bounds(chance: random.Random) -> list[Reading]:
    def one() -> Reading:
        low, value, high = sorted(chance.choices(NUMBERS, k=3))
        return Known(value, low, high) if chance.random() < 0.9 else Unknown(Reason.IDLE)

    return [one() for _ in range(ENGINES)]


def column(each: Sequence[Reading]) -> Column:
    values: list[Value | None] = [reading.value if isinstance(reading, Known) else None for reading in each]
    return Values(values, any(isinstance(value, str) for value in values))


def made(seed: int) -> tuple[dict[str, list[Reading]], dict[str, Column]]:
    """All signals that are no formula: of each engine, and as columns. Some are the same for all."""
    chance = random.Random(seed)
    each: dict[str, list[Reading]] = {}
    columns: dict[str, Column] = {}
    for name in GIVEN:
        kind = chance.random()
        if kind < 0.2:
            same: Reading = Unknown(Reason.NOT_LOCAL)
            each[name], columns[name] = [same] * ENGINES, same
        elif kind < 0.35:
            same = Known(chance.choice(NUMBERS))
            each[name], columns[name] = [same] * ENGINES, same
        elif kind < 0.5 and SIGNALS[name].unit != "text":
            each[name] = bounds(chance)
            columns[name] = Bounded(each[name])
        else:
            each[name] = readings(chance, SIGNALS[name].unit == "text")
            columns[name] = column(each[name])
    return each, columns


def reader(each: Mapping[str, Sequence[Reading]], engine: int) -> Callable[[str], Reading]:
    known: dict[str, Reading] = {}

    def read(name: str) -> Reading:
        if name not in known:
            formula = SIGNALS[name].formula
            known[name] = each[name][engine] if formula is None else formula.evaluate(read)
        return known[name]

    return read


def shown(column: Column, engine: int) -> tuple[object, object]:
    """The value and its bounds; None: unknown."""
    reading: Reading | Value | None
    reading = column.each[engine] if isinstance(column, Values | Bounded) else column
    if isinstance(reading, Known):
        return reading.value, reading.bounds if reading.low != reading.high else None
    return (None, None) if isinstance(reading, Unknown) else (reading, None)


@pytest.mark.parametrize("seed", range(6))
def test_each_signal_is_as_it_is_alone(seed: int) -> None:
    each, given = made(seed)
    columns = Columns(ENGINES, shipped_catalogue(), given.__getitem__)
    computed = {name: columns.read(name) for name in SIGNALS}
    for engine in range(ENGINES):
        read = reader(each, engine)
        for name in SIGNALS:
            assert shown(computed[name], engine) == shown(read(name), 0), (name, engine)


@pytest.mark.parametrize("seed", range(6))
def test_each_rule_is_as_it_is_alone(seed: int) -> None:
    each, given = made(seed)
    columns = Columns(ENGINES, shipped_catalogue(), given.__getitem__)
    for rule in shipped_rules():
        alone = [rule.judge(reader(each, engine)).state for engine in range(ENGINES)]
        assert columns.states(rule) == alone, rule.id


def test_the_random_engines_are_of_every_kind() -> None:
    """What the two tests above compare is not all unknown."""
    found: set[str] = set()
    for seed in range(6):
        _, given = made(seed)
        columns = Columns(ENGINES, shipped_catalogue(), given.__getitem__)
        found |= {state for rule in shipped_rules() for state in columns.states(rule)}
    assert found == {"critical", "warning", "info", "ok", "unknown", "not-applicable"}


def test_a_formula_is_computed_once() -> None:
    asked: list[str] = []

    def given(name: str) -> Column:
        asked.append(name)
        return Known(1.0)

    columns = Columns(1, shipped_catalogue(), given)
    for _ in range(2):
        columns.read("requests_in_flight")
    assert sorted(asked) == ["requests_running", "requests_waiting"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("known(a / b, 7)", [2.0, None, 7.0]),  # 1/0 is a number until the end
        ("known(below(a, 2), 7)", [7.0, 1.0, 7.0]),
        ("known(seen(b), 5)", [2.0, 5.0, 5.0]),
        ("min(a, b, 1.5)", [1.5, 0.0, None]),
    ],
)
def test_the_edges_of_arithmetic(text: str, expected: list[float | None]) -> None:
    given: dict[str, Column] = {"a": Values([4.0, 1.0, None]), "b": Values([2.0, 0.0, 0.0])}
    columns = Columns(3, _with(Formula(text)), given.__getitem__)
    assert columns.read("x") == Values(expected)


def _with(formula: Formula) -> Catalogue:
    some = SIGNALS["requests_running"]
    signals = {"a": some, "b": some, "x": replace(some, name="x", way="formula", definition="", formula=formula)}
    return Catalogue(signals, Diagnosis(), shipped_catalogue().path)
