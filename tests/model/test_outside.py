"""Numbers, times and documents from outside: what is none is refused, and nothing that passes can overflow."""

from __future__ import annotations

import ast
import math

import pytest

from tests.paths import PACKAGE
from vllm_doctor.model import outside

LONG = "9" * 400


@pytest.mark.parametrize(("told", "value"), [("1", 1.0), ("-2.5e3", -2500.0), (7, 7.0), (0.5, 0.5), ("1e30", 1e30)])
def test_a_number(told: object, value: float) -> None:
    assert outside.number(told) == value


@pytest.mark.parametrize(
    "told",
    [LONG, f"-{LONG}", "9" * 5000, int(LONG), 1e308, -1e31, "1e400", math.inf, -math.inf, math.nan, "NaN", "x", "",
     None, True, [1], {}, "²"],
)  # fmt: skip
def test_what_is_no_number(told: object) -> None:
    assert outside.number(told) is None


def test_a_document_holds_no_int_that_no_float_can_hold() -> None:
    assert outside.json(f'{{"a": {LONG}, "b": -{"9" * 5000}, "c": 12}}') == {"a": math.inf, "b": -math.inf, "c": 12}


def test_documents_that_are_none() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        outside.json("{")
    with pytest.raises(outside.DepthError):
        outside.json("[" * 100_000)


@pytest.mark.parametrize(
    ("seconds", "year", "is_time"),
    [(0.0, 1970, True), (1e300, 9999, False), (-1e300, 1, False), (math.inf, 9999, False), (math.nan, 1970, False)],
)
def test_a_moment_is_in_the_calendar(seconds: float, year: int, is_time: bool) -> None:
    assert outside.moment(seconds).year == year
    assert outside.is_time(seconds) is is_time


ALLOWED = {
    ("model/outside.py", "loads"),
    ("model/outside.py", "fromtimestamp"),
    ("sources/log/entry_wrapper.py", "loads"),  # of one text
    ("tui/app.py", "fromtimestamp"),  # of the doctor's own clock
    ("vllm/parser_dump.py", "loads"),  # an argument's type, in another Python
}


def test_there_is_one_way_in() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in {("json", "loads"), ("_json", "loads"), ("datetime", "fromtimestamp")}
    } - {("rules/pickled.py", "loads")}
    assert found == ALLOWED
