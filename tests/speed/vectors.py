"""What a formula gives for many servers at once, as numpy arrays: the same as expr/scalar.py, fast enough to fit with.

An unknown number is NaN, and so is a truth that is unknown; an unknown text is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vllm_doctor.expr import nodes
from vllm_doctor.expr.functions import FUNCTIONS
from vllm_doctor.expr.nodes import TruthNode, ValueNode

Array = Any
"""numpy.ndarray of floats, or of objects where the signal is a text."""

_DIRECT: Mapping[str, Callable[..., Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "floor": np.floor,
    "ceil": np.ceil,
    "power": np.power,
}
_SIGNS: Mapping[str, Callable[[Array, Array], Array]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
}


class Vectors:
    """`size` servers. `formulas`: the signals that are computed; `leaves`: those that are given."""

    def __init__(self, size: int, formulas: Mapping[str, ValueNode], leaves: Mapping[str, Array]) -> None:
        self._size, self._formulas = size, formulas
        self._known: dict[str, Array] = dict(leaves)

    def read(self, name: str) -> Array:
        """A signal of all servers."""
        if name not in self._known:
            node = self._formulas.get(name)
            self._known[name] = np.full(self._size, np.nan) if node is None else self.value(node)
        return self._known[name]

    def value(self, node: ValueNode) -> Array:
        with np.errstate(all="ignore"):
            found = self._value(node)
            return np.where(np.isfinite(found), found, np.nan) if found.dtype != object else found

    def _value(self, node: ValueNode) -> Array:
        match node:
            case nodes.Name(name):
                return self.read(name)
            case nodes.Number(value):
                return np.full(self._size, value)
            case nodes.Literal(value):
                return np.full(self._size, value, dtype=object)
            case nodes.Arithmetic(left, sign, right):
                return _DIRECT[sign](self.value(left), self.value(right))
            case nodes.Call(function, arguments):
                return self._called(function, [self.value(argument) for argument in arguments])
            case nodes.FirstKnown(ways):
                found = self.value(ways[0])
                for way in ways[1:]:
                    found = np.where(_missing(found), self.value(way), found)
                return found
            case nodes.Where(condition, of):
                return np.where(self.truth(condition) == 1, self.value(of), np.nan)
            case nodes.Choose(condition, then, otherwise):
                holds = self.truth(condition)
                chosen = np.where(holds == 1, self.value(then), self.value(otherwise))
                return np.where(np.isnan(holds), np.nan, chosen)
            case nodes.IsKnown(of):
                return (~_missing(self.value(of))).astype(float)

    def _called(self, function: str, arguments: list[Array]) -> Array:
        if function in ("min", "max"):
            return (np.minimum if function == "min" else np.maximum).reduce(arguments)
        if function in _DIRECT:
            return _DIRECT[function](*arguments)
        made = FUNCTIONS[function]
        if made.keeps is not None:
            kept = [made.keeps(*row) for row in zip(*arguments, strict=True)]
            return np.where(kept, arguments[0], np.nan)
        assert made.compute is not None
        return np.array([made.compute(*row) for row in zip(*arguments, strict=True)])

    def truth(self, node: TruthNode) -> Array:
        """1, 0 or NaN for each."""
        match node:
            case nodes.Or(parts):
                return self._joined(parts, 1.0)
            case nodes.And(parts):
                return self._joined(parts, 0.0)
            case nodes.Not(part):
                return 1 - self.truth(part)
            case nodes.IsKnown():
                return self.value(node)
            case nodes.Compare(left, sign, right):
                one, other = self.value(left), self.value(right)
                unknown = _missing(one) | _missing(other)
                if sign in ("==", "!="):
                    same = np.array([a == b for a, b in zip(one, other, strict=True)])
                    return np.where(unknown, np.nan, (same if sign == "==" else ~same).astype(float))
                return np.where(unknown, np.nan, _SIGNS[sign](one, other).astype(float))

    def _joined(self, parts: Sequence[TruthNode], decides: float) -> Array:
        """Kleene's or (a 1 decides) and and (a 0 does): else unknown where one is."""
        truths = [self.truth(part) for part in parts]
        decided = np.logical_or.reduce([truth == decides for truth in truths])
        unknown = np.logical_or.reduce([np.isnan(truth) for truth in truths])
        return np.where(decided, decides, np.where(unknown, np.nan, 1 - decides))


def _missing(values: Array) -> Array:
    if values.dtype == object:
        return np.array([value is None or value != value for value in values])
    return np.isnan(values)
