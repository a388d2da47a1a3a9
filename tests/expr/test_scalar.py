"""Values that are chosen: where, if and else, is_known; known is in test_formula.py."""

from __future__ import annotations

import pytest

from tests.making import reads
from vllm_doctor.expr import nodes
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

DENIED, ABSENT = Unknown(Reason.DENIED), Unknown(Reason.ABSENT)
INVALID, BETWEEN, IDLE = Unknown(Reason.INVALID), Unknown(Reason.BETWEEN), Unknown(Reason.IDLE)


def found(text: str) -> Reading:
    bounded, of_process = Known(4.0, 2.5, 5.0), Known(3.0, origin="proc")
    given = reads(a=6.0, b=4.0, zero=0.0, denied=DENIED, on=True, word="auto", p99=bounded, p=of_process)
    return Formula(text).evaluate(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where(a > b, b)", Known(4.0)),
        ("where(a > b, b) + 1", Known(5.0)),
        ("where(word == 'auto', b)", Known(4.0)),
        ("where(on == True, b)", Known(4.0)),
        ("where(a + b > 9, b)", Known(4.0)),
        ("where(p99 > 2, p99)", Known(4.0, 2.5, 5.0)),
        ("where(a > 7, b)", INVALID),
        ("where(missing > 7, b)", ABSENT),
        ("where(a > 7 or denied > 1, b)", DENIED),
        ("where(p99 > 3, b)", BETWEEN),
        ("where(word > 3, b)", INVALID),
        ("where(a / zero > 1, b)", IDLE),
        ("where(missing > 1, denied)", DENIED),
        ("where(a > 7, denied)", DENIED),
        ("known(where(a > 7, b), a)", Known(6.0)),
        ("b if a > b else a", Known(4.0)),
        ("b if a < b else a", Known(6.0)),
        ("denied if a < b else a", Known(6.0)),
        ("denied if a > b else a", DENIED),
        ("b if missing > 1 else a", ABSENT),
        ("1 if a < b else 2 if zero > 0 else 3", Known(3.0)),
        ("b if is_known(denied) or not is_known(a) else a", Known(6.0)),
        ("is_known(a)", Known(1.0)),
        ("is_known(denied)", Known(0.0)),
        ("is_known(a / zero)", Known(0.0)),
        ("is_known(a) + is_known(missing)", Known(1.0)),
    ],
)
def test_values_are_chosen_by_conditions(text: str, expected: Reading) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("where(p > 1, p)", "proc"),
        ("where(p > 1, 5)", "proc"),
        ("where(p > 1, a)", "computed"),
        ("p if p > 1 else a", "proc"),
        ("a if p < 1 else p", "proc"),
        ("a if p > 1 else p", "computed"),
        ("is_known(p)", "proc"),
        ("is_known(missing)", ""),
    ],
)
def test_a_chosen_value_is_from_where_the_condition_is_too(text: str, origin: str) -> None:
    reading = found(text)
    assert isinstance(reading, Known)
    assert reading.origin == origin


def test_a_formula_may_be_made_of_nodes() -> None:
    condition = nodes.Compare(nodes.Name("a"), ">", nodes.Number(5.0))
    formula = Formula(nodes.Where(condition, nodes.FirstKnown((nodes.Name("missing"), nodes.Name("b")))))
    assert formula.text == "where(a > 5, known(missing, b))"
    assert formula.names == ("a", "missing", "b")
    assert formula.evaluate(reads(a=6.0, b=4.0)) == Known(4.0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("where(a, b)", id="a condition that is a value"),
        pytest.param("where(a > 1)", id="where of what"),
        pytest.param("where(a > 1, b, c)", id="where of two"),
        pytest.param("where(a > 1, b > 1)", id="a value that is a condition"),
        pytest.param("where(1 < 2, b)", id="nothing of a signal compared"),
        pytest.param("where(1 < a < 3, b)", id="chain"),
        pytest.param("where(a in b, b)", id="in"),
        pytest.param("a if not b else c", id="not of a value"),
        pytest.param("a if b > 'x' + 'y' else c", id="a text computed with"),
        pytest.param("'x' if a > 1 else b", id="a text chosen"),
        pytest.param("is_known()", id="is_known of nothing"),
        pytest.param("is_known(a, b)", id="is_known of two"),
        pytest.param("known(a)", id="known of one"),
    ],
)
def test_what_is_no_choice_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        Formula(text)
