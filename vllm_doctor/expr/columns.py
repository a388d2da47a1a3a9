"""What a node gives for many engines at once: the same as one by one (scalar.py), in a hundredth of the time.

A column (model.reading) is a signal of all engines, and so is a truth. Why something is unknown is not carried: who
shows an engine reads it again, alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from vllm_doctor.expr import nodes, scalar
from vllm_doctor.expr.functions import FUNCTIONS, Function
from vllm_doctor.expr.nodes import TruthNode, ValueNode
from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Unknown, Value, Values
from vllm_doctor.model.reason import Reason

Truth = bool | None | list[bool | None]
"""Whether something holds: for all engines alike, or for each."""

_UNKNOWN = Unknown(Reason.ABSENT)
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class Engines:
    """`size` engines; `read` gives a signal's column."""

    def __init__(self, size: int, read: Callable[[str], Column]) -> None:
        self._size, self._read = size, read

    def value(self, node: ValueNode) -> Column:
        match node:
            case nodes.Name(name):
                return self._read(name)
            case nodes.Number(value) | nodes.Literal(value):
                return Known(value, origin="")
            case nodes.Arithmetic(left, sign, right):
                return self._applied(FUNCTIONS[sign], [self.value(left), self.value(right)])
            case nodes.Call(function, arguments):
                return self._applied(FUNCTIONS[function], [self.value(argument) for argument in arguments])
            case nodes.FirstKnown(ways):
                return self._first_known([self.value(way) for way in ways])
            case nodes.Where(condition, of):
                return self._where(self.truth(condition), self.value(of))
            case nodes.Choose(condition, then, otherwise):
                return self._chosen(self.truth(condition), self.value(then), self.value(otherwise))
            case nodes.IsKnown(of):
                known = _known(self._side(of))
                return (
                    Known(float(known), origin="") if isinstance(known, bool) else Values([float(one) for one in known])
                )

    def truth(self, node: TruthNode) -> Truth:
        match node:
            case nodes.Or(parts):
                return _joined([self.truth(part) for part in parts], True)
            case nodes.And(parts):
                return _joined([self.truth(part) for part in parts], False)
            case nodes.Not(part):
                return _not(self.truth(part))
            case nodes.IsKnown(of):
                known = _known(self._side(of))
                return known if isinstance(known, bool) else list(known)
            case nodes.Compare(left, sign, right):
                return self._compared(self._side(left), sign, self._side(right))

    # ---- values ------------------------------------------------------------------------------------------------------

    def _applied(self, function: Function, columns: Sequence[Column]) -> Column:
        if any(isinstance(column, Unknown) for column in columns):
            return _UNKNOWN
        alike = [column for column in columns if isinstance(column, Known)]
        if len(alike) == len(columns):
            return scalar.apply(function, alike)
        if function.compute is None:
            return self._kept(function, columns)
        if any(_is_bounded(column) for column in columns):
            return Bounded([scalar.apply(function, row) for row in self._rows(columns)])
        numbers = [_numbers(column) for column in columns]
        if any(isinstance(column, Unknown) for column in numbers):
            return _UNKNOWN
        return Values(_computed(function.compute, [values_of(column, self._size) for column in numbers]))

    def _kept(self, function: Function, columns: Sequence[Column]) -> Column:
        """The first of the columns, where it is kept."""
        assert function.keeps is not None
        first = columns[0]
        if _is_bounded(first):
            return Bounded([scalar.apply(function, row) for row in self._rows(columns)])
        each = zip(*(values_of(column, self._size) for column in columns), strict=True)
        kept = [None if None in row or not function.keeps(*row) else row[0] for row in each]
        return Values(kept, _has_text(first))

    def _first_known(self, columns: Sequence[Column]) -> Column:
        rest = [column for column in columns if not isinstance(column, Unknown)]
        if not rest:
            return _UNKNOWN
        if isinstance(rest[0], Known):
            return rest[0]
        if any(_is_bounded(column) for column in rest):
            return Bounded([next((r for r in row if isinstance(r, Known)), _UNKNOWN) for row in self._rows(rest)])
        found = values_of(rest[0], self._size)
        for column in rest[1:]:
            found = [
                other if value is None else value
                for value, other in zip(found, values_of(column, self._size), strict=True)
            ]
        return Values(list(found), any(map(_has_text, rest)))

    def _where(self, holds: Truth, column: Column) -> Column:
        if not isinstance(holds, list):
            return column if holds else _UNKNOWN
        return self._chosen(holds, column, _UNKNOWN)

    def _chosen(self, holds: Truth, then: Column, otherwise: Column) -> Column:
        if not isinstance(holds, list):
            return _UNKNOWN if holds is None else then if holds else otherwise
        if _is_bounded(then) or _is_bounded(otherwise):
            rows = zip(holds, self._readings(then), self._readings(otherwise), strict=True)
            return Bounded([_UNKNOWN if truth is None else one if truth else other for truth, one, other in rows])
        each = zip(holds, values_of(then, self._size), values_of(otherwise, self._size), strict=True)
        chosen = [None if truth is None else one if truth else other for truth, one, other in each]
        return Values(chosen, _has_text(then) or _has_text(otherwise))

    # ---- truths ------------------------------------------------------------------------------------------------------

    def _side(self, node: ValueNode) -> Column:
        """What is compared, or asked for, is finite as a signal is."""
        column = self.value(node)
        return column if isinstance(node, nodes.Name | nodes.Number | nodes.Literal) else finite(column)

    def _compared(self, a: Column, sign: str, b: Column) -> Truth:
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return None
        if isinstance(a, Known) and isinstance(b, Known):
            return scalar.compare(a, sign, b)
        has_order = not (_has_text(a) or _has_text(b))
        if _is_bounded(a) or _is_bounded(b) or not (has_order or sign in ("==", "!=")):
            return [scalar.compare(one, sign, other) for one, other in self._rows([a, b])]
        holds = _SIGNS[sign]
        if isinstance(b, Known):
            than = b.value
            return [None if value is None else holds(value, than) for value in values_of(a, self._size)]
        pairs = zip(values_of(a, self._size), values_of(b, self._size), strict=True)
        return [None if one is None or other is None else holds(one, other) for one, other in pairs]

    # ---- columns, engine by engine -----------------------------------------------------------------------------------

    def _rows(self, columns: Sequence[Column]) -> Iterable[tuple[Reading, ...]]:
        return zip(*(self._readings(column) for column in columns), strict=True)

    def _readings(self, column: Column) -> Iterable[Reading]:
        match column:
            case Values():
                return [_UNKNOWN if value is None else Known(value) for value in column.each]
            case Bounded():
                return column.each
            case _:
                return repeat(column, self._size)


def values_of(column: Column, size: int) -> Sequence[Any]:
    """The value of each of so many engines, without bounds; None: unknown."""
    match column:
        case Values():
            return column.each
        case Bounded():
            return [reading.value if isinstance(reading, Known) else None for reading in column.each]
        case Known():
            return [column.value] * size
        case Unknown():
            return [None] * size


def finite(column: Column) -> Column:
    """What is infinite, or not a number, is unknown at the end of a formula."""
    match column:
        case Values():
            return Values([None if _is_endless(value) else value for value in column.each], column.has_text)
        case Bounded():
            return Bounded([scalar.finite(reading) for reading in column.each])
        case _:
            return scalar.finite(column)


def _is_endless(value: Value | None) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _computed(compute: Callable[..., float], operands: Sequence[Iterable[Any]]) -> list[float | None]:
    match operands:
        case [only]:
            return [None if value is None else compute(value) for value in only]
        case [left, right]:
            pairs = zip(left, right, strict=True)
            return [None if one is None or other is None else compute(one, other) for one, other in pairs]
        case _:
            return [None if None in row else compute(*row) for row in zip(*operands, strict=True)]


def _is_bounded(column: Column) -> bool:
    return isinstance(column, Bounded) or (isinstance(column, Known) and column.bounds is not None)


def _has_text(column: Column) -> bool:
    match column:
        case Values():
            return column.has_text
        case Known():
            return isinstance(column.value, str)
        case _:
            return False


def _numbers(column: Column) -> Column:
    """The column with texts unknown: nothing is computed with them."""
    if not _has_text(column):
        return column
    if isinstance(column, Values):
        return Values([None if isinstance(value, str) else value for value in column.each])
    return _UNKNOWN


def _known(column: Column) -> bool | list[bool]:
    match column:
        case Values():
            return [value is not None for value in column.each]
        case Bounded():
            return [isinstance(reading, Known) for reading in column.each]
        case _:
            return isinstance(column, Known)


def _not(holds: Truth) -> Truth:
    if isinstance(holds, list):
        return [None if one is None else not one for one in holds]
    return None if holds is None else not holds


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
