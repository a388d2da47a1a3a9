"""A function of the language is an entry of one table, and then known to parser and visitors alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.making import reads
from vllm_doctor.expr import columns, parser, promql
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.functions import FUNCTIONS, Function
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.model.reading import Known, Unknown, Values
from vllm_doctor.model.reason import Reason


def halved(written: Callable[[list[str]], str] | None, is_monotone: bool = True) -> Function:
    return Function("halved", 1, 1, "half of it", lambda a: a / 2, is_monotone=is_monotone, promql=written)


def in_promql(text: str) -> promql.Term:
    writer = promql.Writer(lambda name: promql.Series(name, name), "engine")
    return writer.value(parser.formula(text))


def test_a_function_that_is_added_to_the_table_works_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormulaError):
        Formula("halved(a)")
    monkeypatch.setitem(FUNCTIONS, "halved", halved(lambda of: f"{of[0]} / 2"))
    assert Formula("halved(a) + 1").evaluate(reads(a=6.0)) == Known(4.0)
    assert Formula("halved(a)").evaluate(reads(a=Known(3.0, 2.0, 4.0))) == Known(1.5, 1.0, 2.0)
    engines = columns.Engines(3, {"a": Values([6.0, None, 1.0])}.__getitem__)
    assert engines.value(parser.formula("halved(a) + 1")) == Values([4.0, None, 1.5])
    assert in_promql("halved(a) + 1") == promql.Series("(a / 2) + 1", "(a / 2) + 1")
    with pytest.raises(FormulaError):
        Formula("halved(a, b)")


def test_a_function_may_have_no_promql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "halved", halved(None))
    assert in_promql("halved(a) + 1") == promql.Missing({"halved(a)": "cannot be written in PromQL"})
    assert in_promql("halved(3)") == promql.Constant(1.5)  # computed when the rules are written


def test_what_is_not_monotone_is_unknown_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "halved", halved(lambda of: f"{of[0]} / 2", is_monotone=False))
    assert Formula("halved(a)").evaluate(reads(a=Known(3.0, 2.0, 4.0))) == Unknown(Reason.BETWEEN)
    assert Formula("halved(a)").evaluate(reads(a=3.0)) == Known(1.5)


def test_a_function_may_keep_a_value_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    even = Function(
        "even", 1, 1, "", keeps=lambda a: a % 2 == 0, otherwise=Reason.IDLE, promql=lambda of: f"{of[0]} % 2 == 0"
    )
    monkeypatch.setitem(FUNCTIONS, "even", even)
    assert Formula("even(a)").evaluate(reads(a=4.0)) == Known(4.0)
    assert Formula("even(a)").evaluate(reads(a=3.0)) == Unknown(Reason.IDLE)
    engines = columns.Engines(3, {"a": Values([6.0, None, 1.0])}.__getitem__)
    assert engines.value(parser.formula("even(a)")) == Values([6.0, None, None])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda function: function.name)
def test_each_function_says_what_it_gives_and_is_of_one_kind(function: Function) -> None:
    assert function.says
    assert (function.compute is None) != (function.keeps is None)
