"""Over many engines each expression gives what it gives for each engine alone, and in PromQL nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from vllm_doctor.expr import columns, nodes, parser, promql, scalar
from vllm_doctor.expr.functions import ARITHMETIC, FUNCTIONS
from vllm_doctor.expr.nodes import TruthNode, ValueNode
from vllm_doctor.expr.promql_eval import Expression
from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Unknown, Value, Values
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.window import Sample, Window

ENGINES = 12
NUMBERS = (0.0, 0.5, 1.0, 2.0, 3.0, 8.0)
SIGNS = tuple(nodes.OPPOSITE)
CALLED = [function for function in FUNCTIONS.values() if function.name not in ARITHMETIC]


def value(chance: random.Random, depth: int, names: Sequence[str]) -> ValueNode:
    def below() -> ValueNode:
        return value(chance, depth - 1, names)

    if depth == 0:
        return nodes.Name(chance.choice(names)) if chance.random() < 0.8 else nodes.Number(chance.choice(NUMBERS))
    match chance.choice(("arithmetic", "call", "known", "where", "choose", "is_known", "leaf")):
        case "arithmetic":
            return nodes.Arithmetic(below(), chance.choice(ARITHMETIC), below())
        case "call":
            function = chance.choice(CALLED)
            return nodes.Call(function.name, tuple(below() for _ in range(min(function.most, 3))))
        case "known":
            return nodes.FirstKnown((below(), below()))
        case "where":
            return nodes.Where(truth(chance, depth - 1, names), below())
        case "choose":
            return nodes.Choose(truth(chance, depth - 1, names), below(), below())
        case "is_known":
            return nodes.IsKnown(below())
        case _:
            return value(chance, 0, names)


def truth(chance: random.Random, depth: int, names: Sequence[str]) -> TruthNode:
    if depth == 0 or chance.random() < 0.4:
        left = nodes.Name(chance.choice(names)) if depth == 0 else value(chance, depth - 1, names)
        if isinstance(left, nodes.Number):
            left = nodes.Name(names[0])
        return nodes.Compare(left, chance.choice(SIGNS), value(chance, 0, names))
    match chance.choice(("and", "or", "not", "is_known")):
        case "and":
            return nodes.And((truth(chance, depth - 1, names), truth(chance, depth - 1, names)))
        case "or":
            return nodes.Or((truth(chance, depth - 1, names), truth(chance, depth - 1, names)))
        case "not":
            return nodes.Not(truth(chance, depth - 1, names))
        case _:
            return nodes.IsKnown(value(chance, depth - 1, names))


def readings(chance: random.Random, kind: str) -> list[Reading]:
    def one() -> Reading:
        if chance.random() < 0.2:
            return Unknown(Reason.ABSENT)
        if kind == "bounded":
            low, middle, high = sorted(chance.choices(NUMBERS, k=3))
            return Known(middle, low, high)
        if kind == "text" and chance.random() < 0.5:
            return Known(chance.choice(("auto", "fp8")))
        return Known(chance.choice(NUMBERS))

    return [one()] * ENGINES if kind == "alike" else [one() for _ in range(ENGINES)]


def column(kind: str, each: Sequence[Reading]) -> Column:
    if kind == "alike":
        return each[0]
    if kind == "bounded":
        return Bounded(each)
    values: list[Value | None] = [reading.value if isinstance(reading, Known) else None for reading in each]
    return Values(values, kind == "text")


def shown(reading: Reading | Value | None) -> object:
    if isinstance(reading, Known):
        return repr(reading.value + 0.0 if isinstance(reading.value, float) else reading.value), (
            reading.bounds if reading.low != reading.high else None
        )
    if isinstance(reading, Unknown) or reading is None:
        return None
    return shown(Known(reading))


def reader(each: dict[str, list[Reading]], engine: int) -> Callable[[str], Reading]:
    return lambda name: each[name][engine]


KINDS = {"a": "numbers", "b": "numbers", "same": "alike", "word": "text", "p99": "bounded"}


@pytest.mark.parametrize("seed", range(300))
def test_many_engines_are_judged_as_each_alone(seed: int) -> None:
    chance = random.Random(seed)
    each = {name: readings(chance, kind) for name, kind in KINDS.items()}
    given = {name: column(kind, each[name]) for name, kind in KINDS.items()}
    engines = columns.Engines(ENGINES, given.__getitem__)
    of, asked = value(chance, 3, tuple(KINDS)), truth(chance, 3, tuple(KINDS))
    found, holds = columns.finite(engines.value(of)), engines.truth(asked)
    for engine in range(ENGINES):
        read = reader(each, engine)
        here = found.each[engine] if isinstance(found, Values | Bounded) else found
        assert shown(here) == shown(scalar.finite(scalar.value(of)(read))), nodes.text(of)
        truth_here = holds[engine] if isinstance(holds, list) else holds
        assert truth_here == scalar.truth(asked)(read, []), nodes.text(asked)


@pytest.mark.parametrize("seed", range(300))
def test_an_expression_written_as_text_is_the_same_expression(seed: int) -> None:
    of = value(random.Random(seed), 4, ("a", "b", "c"))
    assert parser.formula(nodes.text(of)) == of


def rows(text: str, values: dict[str, float]) -> list[float]:
    window = Window()
    window.add(0.0, [Sample(name, (("engine", "0"),), number) for name, number in {"engine": 1.0, **values}.items()])
    return list(Expression(text).evaluate(window)[0].values())


@pytest.mark.parametrize(
    "text",
    [
        "where(a > 1, b)",
        "where(a > 1, 7)",
        "where(not a > 1, a + b)",
        "where(is_known(a), b)",
        "where(not is_known(a), b)",
        "where(a > 1 and is_known(b), a)",
        "a if b > 1 else b",
        "a if b > 1 or a > 2 else 5",
        "a if is_known(a) else 5",
        "1 if a > 1 else 0 if b > 1 else 4",
        "is_known(a)",
        "is_known(a) + 2 * is_known(b)",
        "is_known(a / b)",
        "where(a / b > 1, a)",
        "where(a > 1, a) + b",
        "known(where(a > 1, a), where(b > 1, b), 9)",
        "a if gone > 1 else b",
        "known(where(gone > 1, a), b)",
        "is_known(gone)",
        "where(a == 2, b)",
    ],
)
def test_in_promql_an_expression_gives_the_same_rows(text: str) -> None:
    def term(name: str) -> promql.Term:
        return promql.Missing({name: "not here"}) if name == "gone" else promql.Series(name, name)

    node = parser.formula(text)
    written = promql.Writer(term, "engine").value(node)
    for a in (None, 0.0, 1.0, 2.0, 3.0):
        for b in (None, 0.0, 1.0, 2.0):
            values = {name: number for name, number in (("a", a), ("b", b)) if number is not None}

            def read(name: str, values: dict[str, float] = values) -> Reading:
                return Known(values[name]) if name in values else Unknown(Reason.ABSENT)

            expected = scalar.finite(scalar.value(node)(read))
            match written:
                case promql.Series(low, high):
                    assert low == high
                    assert rows(promql.finite(low), values) == ([expected.value] if isinstance(expected, Known) else [])
                case promql.Constant(number):
                    assert expected == Known(number)
                case promql.Missing():
                    assert isinstance(expected, Unknown)
