from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import reads
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.parser import ConditionError
from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason

ABSENT = Unknown(Reason.ABSENT)
T, F, U = True, False, None
_SHOWS: dict[bool | None, Reading] = {T: Known(1.0), F: Known(0.0), U: ABSENT}


def holds(text: str, **values: Reading | Value) -> bool | None:
    return Condition(text).judge(reads(**values))[0]


def seen(text: str, **values: Reading | Value) -> list[Comparison]:
    return Condition(text).judge(reads(**values))[1]


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (T, T, T, T), (T, F, F, T), (T, U, U, T),
        (F, T, F, T), (F, F, F, F), (F, U, F, U),
        (U, T, U, T), (U, F, F, U), (U, U, U, U),
    ],
)  # fmt: skip
def test_kleene_and_or(a: bool | None, b: bool | None, both: bool | None, either: bool | None) -> None:
    assert holds("a > 0 and b > 0", a=_SHOWS[a], b=_SHOWS[b]) is both
    assert holds("a > 0 or b > 0", a=_SHOWS[a], b=_SHOWS[b]) is either
    # De Morgan: what negation does to the whole it does to the parts
    assert holds("not (a > 0 or b > 0)", a=_SHOWS[a], b=_SHOWS[b]) is holds(
        "not a > 0 and not b > 0", a=_SHOWS[a], b=_SHOWS[b]
    )


@pytest.mark.parametrize(("a", "negated"), [(T, F), (F, T), (U, U)])
def test_kleene_not(a: bool | None, negated: bool | None) -> None:
    assert holds("not a > 0", a=_SHOWS[a]) is negated
    assert holds("not not a > 0", a=_SHOWS[a]) is a


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 2", T), ("x > 3", F), ("x >= 3", T), ("x < 4", T), ("x < 3", F), ("x <= 3", T), ("x == 3", T),
        ("x != 3", F), ("x > y", F), ("y > x", T), ("x == y", F),
        ("2 < x", T), ("3 < x", F), ("3 <= x", T), ("4 > x", T), ("3 > x", F), ("3 >= x", T), ("3 == x", T),
        ("x > gone", U), ("gone > x", U), ("gone == x", U), ("gone != 3", U),
    ],
)  # fmt: skip
def test_comparisons(text: str, expected: bool | None) -> None:
    assert holds(text, x=3.0, y=5.0) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q > 2.5", T), ("q > 5", F), ("q > 3", U), ("q > 2", T), ("q > 6", F),
        ("q >= 2.5", T), ("q >= 5", U), ("q >= 5.1", F),
        ("q < 2.5", F), ("q < 5", U), ("q < 5.1", T), ("q < 3", U),
        ("q <= 2.5", F), ("q <= 5", T), ("q <= 3", U),
        ("3 < q", U), ("2.5 < q", T), ("q == 3", U), ("q != 3", U),
        ("3 == q", U), ("x == q", U), ("x != q", U), ("q == x", U), ("exact == x", T), ("x != exact", F),
        ("q > low", T), ("low < q", T), ("q > low and q > 3", U), ("q > same", U), ("not q > 5", T), ("not q > 3", U),
        ("top > 10", T), ("top > 100", U), ("top < 10", F),
    ],
)  # fmt: skip
def test_a_quantile_is_somewhere_above_the_low_end_of_its_bucket_up_to_the_high_end(
    text: str, expected: bool | None
) -> None:
    bucket, below, top = Known(4.0, 2.5, 5.0), Known(2.0, 1.0, 2.5), Known(10.0, 10.0, float("inf"))
    exact = Known(4.0, 4.0, 4.0)
    assert holds(text, q=bucket, low=below, same=bucket, top=top, x=4.0, exact=exact) is expected


def test_a_threshold_inside_the_bucket_is_told_as_that_reason() -> None:
    [comparison] = seen("q > 3", q=Known(4.0, 2.5, 5.0))
    assert comparison.seen == Unknown(Reason.BETWEEN)
    assert comparison.holds is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dtype == 'auto'", T), ("dtype != 'auto'", F), ("'fp8' == dtype", F), ("on == True", T), ("on == False", F),
        ("on != False", T), ("off == False", T), ("dtype > 3", U), ("dtype == 3", F), ("gone == 'auto'", U),
    ],
)  # fmt: skip
def test_texts_and_flags(text: str, expected: bool | None) -> None:
    assert holds(text, dtype="auto", on=True, off=False) is expected


def test_evidence_is_every_comparison_with_what_it_saw() -> None:
    assert seen("x > 2 and (y <= x or gone > 1)", x=3.0, y=5.0) == [
        Comparison("x", Known(3.0), ">", Known(2.0), None, True),
        Comparison("y", Known(5.0), "<=", Known(3.0), "x", False),
        Comparison("gone", ABSENT, ">", Known(1.0), None, None),
    ]


@pytest.mark.parametrize(
    ("text", "is_", "shown_holds"),
    [
        ("2 < x", ">", True),  # the signal is on the left
        ("3 >= x", "<=", True),
        ("not x > 4", "<=", True),  # what was found, not what was asked
        ("not x >= 4", "<", True),
        ("not x == 4", "!=", True),
        ("not 4 < x", "<=", True),
        ("not not x < 4", "<", True),
        ("not (x > 2 and gone > 3)", "<=", False),
    ],
)
def test_evidence_reads_as_what_was_found(text: str, is_: str, shown_holds: bool) -> None:
    comparison = seen(text, x=3.0)[0]
    assert (comparison.signal, comparison.is_, comparison.holds) == ("x", is_, shown_holds)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        pytest.param("x > gone", [("gone", Reason.ABSENT)], id="right"),
        pytest.param("x > wish", [("wish", Reason.NOT_GIVEN)], id="right, with its own reason"),
        pytest.param("wish > x", [("wish", Reason.NOT_GIVEN)], id="left"),
        pytest.param("gone > wish", [("gone", Reason.ABSENT), ("wish", Reason.NOT_GIVEN)], id="both"),
        pytest.param("3 > wish", [("wish", Reason.NOT_GIVEN)], id="with a number"),
        pytest.param("x > q", [("x", Reason.BETWEEN)], id="right, known within bounds only"),
        pytest.param("q > x", [("q", Reason.BETWEEN)], id="left, known within bounds only"),
        pytest.param("word > 3", [("word", Reason.INVALID)], id="a text has no order"),
        pytest.param("x > 2", [], id="neither"),
    ],
)
def test_the_signals_that_are_missing_are_named_and_why(text: str, missing: list[tuple[str, Reason]]) -> None:
    [comparison] = seen(text, x=3.0, wish=Unknown(Reason.NOT_GIVEN), q=Known(3.0, 2.5, 5.0), word="auto")
    assert list(comparison.unknowns()) == missing


def test_names_are_told_once_in_order() -> None:
    assert Condition("b > 1 and (a > b or not 2 < c) and a > 0").names == ("b", "a", "c")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x", id="a name alone"),
        pytest.param("True", id="a literal alone"),
        pytest.param("1 < 2", id="two literals"),
        pytest.param("x == None", id="none"),
        pytest.param("x == b'a'", id="bytes"),
        pytest.param("x > 1j", id="complex"),
        pytest.param("x + 1 > 2", id="arithmetic"),
        pytest.param("x > 2 * 3", id="arithmetic of literals"),
        pytest.param("1 < x < 3", id="chain"),
        pytest.param("x in y", id="in"),
        pytest.param("x is y", id="is"),
        pytest.param("x.real > 1", id="attribute"),
        pytest.param("x[0] > 1", id="subscript"),
        pytest.param("max(x, y) > 1", id="call"),
        pytest.param("open('{file}', 'w') == 1", id="a harmful call"),
        pytest.param("x > 1 or __import__('pathlib').Path('{file}').touch()", id="a harmful call behind or"),
        pytest.param("f'{{open(1)}}' == x", id="f-string"),
        pytest.param("(x := 3) > 1", id="walrus"),
        pytest.param("[x for x in y] == 1", id="comprehension"),
        pytest.param("(lambda: 1)() == x", id="lambda"),
        pytest.param("x > 1 if y > 1 else z > 1", id="choice"),
        pytest.param("x > 1; y > 1", id="two statements"),
        pytest.param("x = 1", id="assignment"),
        pytest.param("await x", id="await"),
        pytest.param("~x > 1", id="inversion"),
        pytest.param("", id="nothing"),
        pytest.param("x > ", id="half"),
        pytest.param("x > " + "9" * 400, id="a number of 400 digits"),
        pytest.param("x > 1e309", id="an infinite number"),
        pytest.param("x > 1\0", id="null byte"),
        pytest.param("(" * 10_000 + "x > 1" + ")" * 10_000, id="10 000 parentheses"),
        pytest.param("(" * 300 + "x > 1" + ")" * 300, id="300 parentheses"),
        pytest.param(" or ".join(["x > 1"] * 500), id="too long"),
    ],
)
def test_what_is_no_condition_is_refused_and_nothing_runs(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with pytest.raises(ConditionError):
        Condition(text.replace("{file}", str(file)))
    assert not file.exists()


def test_the_refusal_names_the_part() -> None:
    with pytest.raises(ConditionError, match=r"max\(y, 2\)"):
        Condition("x > 1 and max(y, 2) > 3")


def test_what_must_lie_above_a_number_can_be_asked() -> None:
    condition = Condition("(a > 0.9 or b >= 2) and c < 5 and not d > 7 and e > f")
    assert list(condition.above()) == [("a", 0.9), ("b", 2.0)]
