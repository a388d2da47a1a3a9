"""Formulas and conditions over many engines at once: the same answers as one by one, in a hundredth of the time.

A column (signal.Column) is a signal of all engines. Why something is unknown is not carried: who shows an engine
reads it again, alone.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from vllm_doctor.expr import condition, formula
from vllm_doctor.expr.condition import Condition
from vllm_doctor.model.kinds import SEVERITIES, Severity, State
from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Unknown, Value, Values
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule

_UNKNOWN = Unknown(Reason.ABSENT)


Truth = bool | None | list[bool | None]
"""Whether something holds: for all engines alike, or for each."""

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class Columns:
    """The signals of `size` engines. `read`: the column of a signal that is no formula."""

    def __init__(self, size: int, catalogue: Catalogue, read: Callable[[str], Column]) -> None:
        self._size, self._catalogue, self._given = size, catalogue, read
        self._known: dict[str, Column] = {}

    def read(self, name: str) -> Column:
        """A signal's column; of a formula it is computed once."""
        if name not in self._known:
            of = self._catalogue.signals[name].formula
            self._known[name] = self._given(name) if of is None else _finite(self._compute(of.root))
        return self._known[name]

    def holds(self, wanted: Condition) -> Truth:
        """Whether the condition holds, in three values."""
        return self._judge(wanted.root)

    def states(self, rule: Rule) -> list[State]:
        """The rule's state for each engine."""
        applies = self.holds(rule.applies) if rule.applies is not None else True
        named = [severity for severity in SEVERITIES if severity in rule.when]
        if applies is None or applies is False:
            return [State.UNKNOWN if applies is None else State.NOT_APPLICABLE] * self._size
        columns = [self.holds(rule.when[severity]) for severity in named]
        if not any(isinstance(truth, list) for truth in (applies, *columns)):
            return [_state(True, columns, named)] * self._size
        rows = zip(self._each(applies), *map(self._each, columns), strict=True)
        return [_state(concerned, row, named) for concerned, *row in rows]

    def _each(self, truth: Truth) -> Iterable[bool | None]:
        return truth if isinstance(truth, list) else repeat(truth, self._size)

    # ---- arithmetic -------------------------------------------------------------------------------------------------

    def _compute(self, node: ast.expr) -> Column:
        match node:
            case ast.Name(id=name):
                return self.read(name)
            case ast.Constant(value=value):
                assert isinstance(value, int | float)
                return Known(float(value), origin="")
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(formula.operator(op), [self._compute(left), self._compute(right)])
            case ast.Call(func=ast.Name(id="known"), args=arguments):
                return self._first_known([self._compute(argument) for argument in arguments])
            case ast.Call(func=ast.Name(id="seen"), args=[argument]):
                return _seen(self._compute(argument))
            case ast.Call(func=ast.Name(id="below"), args=[value, limit]):
                return self._below(self._compute(value), self._compute(limit))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _combined(formula.called(name), [self._compute(argument) for argument in arguments])
            case _:
                raise AssertionError("checked at parsing")

    def _first_known(self, columns: Sequence[Column]) -> Column:
        rest = [column for column in columns if not isinstance(column, Unknown)]
        if not rest:
            return _UNKNOWN
        if isinstance(rest[0], Known):
            return rest[0]
        if any(isinstance(column, Bounded) for column in rest):
            rows = zip(*(self._readings(column) for column in rest), strict=True)
            return Bounded([next((r for r in row if isinstance(r, Known)), _UNKNOWN) for row in rows])
        found = list(rest[0].each) if isinstance(rest[0], Values) else []
        texts = any(
            c.has_text if isinstance(c, Values) else isinstance(c.value, str)
            for c in rest
            if not isinstance(c, Bounded)
        )
        for column in rest[1:]:
            if isinstance(column, Known):
                return Values([column.value if value is None else value for value in found], texts)
            assert isinstance(column, Values)
            found = [other if value is None else value for value, other in zip(found, column.each, strict=True)]
        return Values(found, texts)

    def _below(self, column: Column, limit: Column) -> Column:
        if isinstance(column, Unknown) or isinstance(limit, Unknown):
            return _UNKNOWN
        if isinstance(column, Known) and isinstance(limit, Known):
            return formula.below(column, limit)
        rows = zip(self._readings(column), self._readings(limit), strict=True)
        found = [formula.below(one, other) for one, other in rows]
        if isinstance(column, Bounded):
            return Bounded(found)
        return Values([reading.value if isinstance(reading, Known) else None for reading in found])

    def _readings(self, column: Column) -> Iterable[Reading]:
        return _readings(column, self._size)

    # ---- truth ------------------------------------------------------------------------------------------------------

    def _judge(self, node: ast.expr) -> Truth:
        match node:
            case ast.BoolOp(op=op, values=parts):
                return _joined([self._judge(part) for part in parts], isinstance(op, ast.Or))
            case ast.UnaryOp(operand=operand):
                truth = self._judge(operand)
                if isinstance(truth, list):
                    return [None if one is None else not one for one in truth]
                return None if truth is None else not truth
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                name, sign, than = condition.sides(left, op, right)
                return self._compared(self.read(name), sign, self.read(than) if isinstance(than, str) else than)
            case _:
                raise AssertionError("checked at parsing")

    def _compared(self, a: Column, sign: str, b: Column) -> Truth:
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return None
        if isinstance(a, Known) and isinstance(b, Known):
            return condition.compare(a, sign, b)
        if isinstance(a, Values) and isinstance(b, Values | Known) and not (isinstance(b, Known) and b.bounds):
            holds = _SIGNS[sign]
            if isinstance(b, Known):
                if sign in ("==", "!=") or not isinstance(b.value, str):
                    than = b.value
                    if not a.has_text or sign in ("==", "!="):
                        return [None if value is None else holds(value, than) for value in a.each]
            elif sign in ("==", "!=") or not (a.has_text or b.has_text):
                pairs = zip(a.each, b.each, strict=True)
                return [None if one is None or other is None else holds(one, other) for one, other in pairs]
        readings = zip(self._readings(a), self._readings(b), strict=True)
        return [condition.compare(one, sign, other) for one, other in readings]


def _state(concerned: bool | None, row: Sequence[Truth], named: Sequence[Severity]) -> State:
    """A rule's state, by whether it applies and which of its conditions hold, the severest first."""
    if concerned is None:
        return State.UNKNOWN
    if not concerned:
        return State.NOT_APPLICABLE
    if True in row:
        return State(named[row.index(True)])
    return State.UNKNOWN if None in row else State.OK


def _joined(parts: Sequence[Truth], decisive: bool) -> Truth:
    """Or, where True decides; and, where False does."""
    alike = [part for part in parts if not isinstance(part, list)]
    if decisive in alike:
        return decisive
    each = [part for part in parts if isinstance(part, list)]
    if not each:
        return None if None in alike else not decisive
    if None in alike:
        return [decisive if decisive in row else None for row in zip(*each, strict=True)]
    return [decisive if decisive in row else None if None in row else not decisive for row in zip(*each, strict=True)]


def _seen(column: Column) -> Column:
    match column:
        case Values():
            return Values([value or None for value in column.each], column.has_text)
        case Bounded():
            return Bounded([formula.seen(reading) for reading in column.each])
        case _:
            return formula.seen(column)


def _combined(compute: Callable[..., float], columns: Sequence[Column]) -> Column:
    if any(isinstance(column, Unknown) for column in columns):
        return _UNKNOWN
    if all(isinstance(column, Known) for column in columns):
        return formula.combine(compute, [column for column in columns if isinstance(column, Known)])
    size = next(len(column.each) for column in columns if not isinstance(column, Known | Unknown))
    if any(isinstance(column, Bounded) or (isinstance(column, Known) and column.bounds) for column in columns):
        rows = zip(*(_readings(column, size) for column in columns), strict=True)
        return Bounded([formula.combine(compute, list(row)) for row in rows])
    if any(isinstance(c, Known) and isinstance(c.value, str) for c in columns):
        return _UNKNOWN
    if any(isinstance(c, Values) and c.has_text for c in columns):
        columns = [_numbers(column) for column in columns]
    lists = [repeat(column.value, size) if isinstance(column, Known) else _list(column) for column in columns]
    if len(lists) == 1:
        return Values([None if value is None else compute(value) for value in lists[0]])
    if len(lists) == 2:
        pairs = zip(*lists, strict=True)
        return Values([None if one is None or other is None else compute(one, other) for one, other in pairs])
    return Values([None if None in row else compute(*row) for row in zip(*lists, strict=True)])


def _list(column: Column) -> Iterable[Any]:
    assert isinstance(column, Values)
    return column.each


def _numbers(column: Column) -> Column:
    if isinstance(column, Values):
        return Values([None if isinstance(value, str) else value for value in column.each])
    return column


def _readings(column: Column, size: int) -> Iterable[Reading]:
    match column:
        case Values():
            return [_UNKNOWN if value is None else Known(value) for value in column.each]
        case Bounded():
            return column.each
        case _:
            return repeat(column, size)


def _finite(column: Column) -> Column:
    """What is infinite, or not a number, is unknown at the end of a formula."""
    match column:
        case Values():
            return Values([None if _is_endless(value) else value for value in column.each], column.has_text)
        case Bounded():
            return Bounded([_finite_reading(reading) for reading in column.each])
        case _:
            return _finite_reading(column)


def _is_endless(value: Value | None) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _finite_reading(reading: Reading) -> Reading:
    if isinstance(reading, Known) and isinstance(reading.value, float) and not math.isfinite(reading.value):
        return _UNKNOWN
    return reading
