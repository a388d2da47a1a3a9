from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.making import reads
from vllm_doctor.expr import nodes, parser
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

IDLE = Unknown(Reason.IDLE)
DENIED = Unknown(Reason.DENIED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", 14),
        ("(a + b) * 2", 20),
        ("a - b", 2),
        ("a / b", 1.5),
        ("floor(a / b)", 1),
        ("ceil(a / b)", 2),
        ("min(a, b, 5)", 4),
        ("max(a, b, 5)", 6),
        ("power_of_two(a)", 8),
        ("power_of_two(8)", 8),
        ("power_of_two(a - b - 2)", 1),
        ("power(b, 2)", 16),
        ("power(1 - 0.5, a - b)", 0.25),
        ("power(0, 0)", 1),
        ("divisor(6, 2)", 2),
        ("divisor(6, 4)", 6),
        ("divisor(12, 3.2)", 4),
        ("divisor(8, 0)", 1),
        ("divisor(8, 100)", 8),
        ("below(b, a)", 4),
        ("known(below(a, b), 9)", 9),
        ("known(missing, b)", 4),
        ("known(a, b)", 6),
        ("max(1, a - 100)", 1),
        ("on + 1", 2),
        ("7", 7),
    ],
)
def test_arithmetic(text: str, expected: float) -> None:
    assert Formula(text).evaluate(reads(a=6.0, b=4.0, on=True)) == Known(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a + denied", DENIED, id="an unknown operand"),
        pytest.param("max(1, denied)", DENIED, id="though max could guess"),
        pytest.param("denied + missing", DENIED, id="the first reason"),
        pytest.param("known(denied, missing)", DENIED, id="known of nothing known: the first reason"),
        pytest.param("known(missing, denied) * 2", Unknown(Reason.ABSENT), id="known inside"),
        pytest.param("zero / zero", IDLE, id="0/0"),
        pytest.param("a / zero", IDLE, id="x/0"),
        pytest.param("power_of_two(huge)", IDLE, id="a power of two that no float holds"),
        pytest.param("power_of_two(huge * huge)", IDLE, id="a power of two of infinity"),
        pytest.param("a / around", IDLE, id="a divisor whose bounds span 0"),
        pytest.param("a / up_to_0", IDLE, id="a divisor whose bounds end at 0"),
        pytest.param("around / first", IDLE, id="a negative dividend over a divisor that starts at 0"),
        pytest.param("around / around", IDLE, id="the same below and above"),
        pytest.param("below(a, a)", Unknown(Reason.INVALID), id="a value that is not below its limit"),
        pytest.param("below(text, 1)", Unknown(Reason.INVALID), id="a text is below nothing"),
        pytest.param("below(denied, 1)", DENIED, id="below of what is unknown"),
        pytest.param("below(a, denied)", DENIED, id="a limit that is unknown"),
        pytest.param("power(0 - a, 0.5)", IDLE, id="a root of a negative number"),
        pytest.param("power(huge, 2)", IDLE, id="a power that no float holds"),
        pytest.param("divisor(zero, 2)", IDLE, id="a divisor of nothing"),
        pytest.param("divisor(huge, 2)", IDLE, id="a divisor of what is no count"),
        pytest.param("text * 2", Unknown(Reason.INVALID), id="a text is no number"),
    ],
)
def test_unknown_with_its_reason(text: str, expected: Reading) -> None:
    bounded = {"up_to_0": Known(-0.5, -1.0, 0.0), "first": Known(0.6, 0.0, 1.0)}
    read = reads(a=6.0, zero=0.0, text="auto", denied=DENIED, huge=1e308, around=Known(0.5, -1.0, 1.0), **bounded)
    assert Formula(text).evaluate(read) == expected


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        pytest.param("p99 / p50", 2.5, 10, id="quotient: the ends crosswise"),
        pytest.param("p99 - p50", 1.5, 4.5, id="difference"),
        pytest.param("p99 * 2", 5, 10, id="with a number"),
        pytest.param("max(p99, 3)", 3, 5, id="max"),
        pytest.param("floor(p50 / 0.4)", 1, 2, id="floor"),
        pytest.param("p99 / first", 2.5, math.inf, id="a divisor whose bucket starts at 0"),
        pytest.param("known(missing, p99)", 2.5, 5, id="known"),
    ],
)
def test_bounds_are_carried(text: str, low: float, high: float) -> None:
    p99, p50, first = Known(4.0, 2.5, 5.0), Known(0.8, 0.5, 1.0), Known(0.6, 0.0, 1.0)
    found = Formula(text).evaluate(reads(p99=p99, p50=p50, first=first))
    assert isinstance(found, Known)
    assert found.bounds == (low, high)
    assert isinstance(found.value, float)
    assert low <= found.value <= high


def test_what_has_no_bounds_gets_none() -> None:
    assert Formula("a / 3").evaluate(reads(a=6.0)) == Known(2.0, None, None)


def test_names_are_told_once_in_order() -> None:
    assert Formula("b / (a + b) + known(c, a)").names == ("b", "a", "c")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("abs(a)", id="another function"),
        pytest.param("pow(a, b)", id="another function of two"),
        pytest.param("open('{file}', 'w')", id="a harmful function"),
        pytest.param("__import__('pathlib').Path('{file}').touch()", id="a harmful method"),
        pytest.param("a.real", id="attribute"),
        pytest.param("a[0]", id="subscript"),
        pytest.param("'text'", id="text"),
        pytest.param("True", id="boolean"),
        pytest.param("1j", id="complex"),
        pytest.param("a ** 9", id="power"),
        pytest.param("a % 2", id="modulo"),
        pytest.param("lambda: a", id="lambda"),
        pytest.param("(lambda: a)()", id="call of a lambda"),
        pytest.param("[a for a in b]", id="comprehension"),
        pytest.param("a if b else c", id="choice"),
        pytest.param("a > b", id="comparison"),
        pytest.param("a and b", id="and"),
        pytest.param("(a := 3)", id="walrus"),
        pytest.param("f'{{a}}'", id="f-string"),
        pytest.param("a; b", id="two statements"),
        pytest.param("floor()", id="too few operands"),
        pytest.param("floor(a, b)", id="too many operands"),
        pytest.param("min(a)", id="min of one"),
        pytest.param("max(*a, b)", id="star"),
        pytest.param("min(a, b, key=c)", id="keyword"),
        pytest.param("", id="nothing"),
        pytest.param("a * " + "9" * 400, id="a number of 400 digits"),
        pytest.param("a * 1e309", id="an infinite number"),
        pytest.param("a\0", id="null byte"),
        pytest.param("(" * 400 + "a" + ")" * 400, id="nested deeply"),
        pytest.param(" + ".join(["a"] * 1000), id="too long"),
    ],
)
def test_what_is_no_formula_is_refused_and_nothing_runs(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with pytest.raises(FormulaError):
        Formula(text.replace("{file}", str(file)))
    assert not file.exists()


def test_a_large_number_is_written_as_it_is_read() -> None:
    written = nodes.text(Formula("a * 1e30 + 12").root)
    assert parser.formula(written) == Formula("a * 1e30 + 12").root


def test_the_refusal_names_the_part() -> None:
    with pytest.raises(FormulaError, match=r"abs\(b\)"):
        Formula("a + abs(b)")


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        pytest.param("metric", "metrics", id="a signal alone"),
        pytest.param("metric * 2", "metrics", id="with a number"),
        pytest.param("2 * proc + 1", "proc", id="a number is from nowhere"),
        pytest.param("proc + other_proc", "proc", id="two of one place"),
        pytest.param("metric + proc", "computed", id="two of two places"),
        pytest.param("max(1, floor(proc / 2))", "proc", id="within functions"),
        pytest.param("floor(metric / proc) * 2", "computed", id="computed further"),
        pytest.param("known(missing, proc)", "proc", id="known: of the one it takes"),
        pytest.param("known(proc, metric)", "proc", id="known: not of the others"),
        pytest.param("known(missing, metric) + proc", "computed", id="known, computed further"),
        pytest.param("bounded / proc", "computed", id="with bounds, of two places"),
        pytest.param("bounded / 2", "metrics", id="with bounds"),
        pytest.param("power_of_two(proc)", "proc", id="of one operand"),
        pytest.param("known(missing, 1)", "", id="a number alone is from nowhere"),
        pytest.param("1 + 2", "", id="numbers only"),
    ],
)
def test_where_a_value_is_from(text: str, origin: str) -> None:
    read = reads(
        metric=6.0,
        proc=Known(4.0, origin="proc"),
        other_proc=Known(3.0, origin="proc"),
        bounded=Known(4.0, 2.5, 5.0),
    )
    found = Formula(text).evaluate(read)
    assert isinstance(found, Known)
    assert found.origin == origin


def test_equal_parts_are_one_object() -> None:
    """The rules name a signal a hundred times: they are kept, loaded and held once."""
    assert parser.formula("a / b") is parser.formula("a/b")
    both = parser.condition("a > 1 and b > 1")
    assert isinstance(both, nodes.And)
    assert both.parts[0] is parser.condition("a > 1")
    assert parser.formula("1") is not parser.formula("2")
