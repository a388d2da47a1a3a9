"""The condition language of rules: comparisons of signals, joined by and, or, not.

Written as a Python expression, parsed with ast, never run by Python. Truth has three values in Kleene logic:
True, False and None (unknown). Each comparison met is kept, with what it saw: that is the evidence.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason

_MAX_LENGTH = 1000
_ORDER: dict[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
}
_EQUAL: dict[type[ast.cmpop], str] = {ast.Eq: "==", ast.NotEq: "!="}
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}
_MIRROR = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}


class ConditionError(ValueError):
    """The condition is not written in the condition language; says which part."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison, as seen. `than_signal` names the right side where it is a signal."""

    signal: str
    seen: Reading
    is_: str
    than: Reading
    than_signal: str | None
    holds: bool | None

    def unknowns(self) -> Iterator[tuple[str, Reason]]:
        """The signals without which it cannot be decided, and why."""
        if isinstance(self.seen, Unknown):
            yield self.signal, self.seen.reason
        if isinstance(self.than, Unknown) and self.than_signal is not None:
            yield self.than_signal, self.than.reason


class Condition:
    """One parsed condition. Raises ConditionError."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise ConditionError(f"longer than {_MAX_LENGTH} characters")
        try:
            self.root = ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:
            raise ConditionError(f"{error.msg} at column {error.offset}: {text}") from None
        except (ValueError, RecursionError, MemoryError):
            raise ConditionError("cannot be parsed: nested too deeply, or with a null byte") from None
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_check(self.root)))

    def judge(self, read: Callable[[str], Reading]) -> tuple[bool | None, list[Comparison]]:
        """Whether it holds, given how to read a signal, and every comparison with what it saw."""
        seen: list[Comparison] = []
        return _judge(self.root, read, seen, False), seen

    def above(self) -> Iterator[tuple[str, float]]:
        """What must lie above which number: ("kv_cache_usage", 0.9). Not what is negated."""
        yield from _above(self.root)


def _above(node: ast.expr) -> Iterator[tuple[str, float]]:
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _above(value)
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.Gt() | ast.GtE()],
            comparators=[ast.Constant(value=float() | int() as number)],
        ):
            yield name, float(number)


def _check(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _check(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _check(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _ORDER or type(op) in _EQUAL:
            names = [side.id for side in (left, right) if isinstance(side, ast.Name)]
            literals = [side for side in (left, right) if _is_literal(side)]
            if not names or len(names) + len(literals) != 2:
                raise ConditionError(f"compare a signal with a signal or a literal: {ast.unparse(node)}")
            yield from names
        case _:
            raise ConditionError(f"not part of the condition language: {ast.unparse(node)}")


def _is_literal(node: ast.expr) -> bool:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float | str | bool):
        return False
    return isinstance(node.value, str) or len(ast.unparse(node)) < 30


def _judge(node: ast.expr, read: Callable[[str], Reading], seen: list[Comparison], negated: bool) -> bool | None:
    match node:
        case ast.BoolOp(op=op, values=parts):
            results = [_judge(part, read, seen, negated) for part in parts]
            decisive = isinstance(op, ast.Or)
            if decisive in results:
                return decisive
            return None if None in results else not decisive
        case ast.UnaryOp(operand=operand):
            result = _judge(operand, read, seen, not negated)
            return None if result is None else not result
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(left, op, right, read, seen, negated)
        case _:
            raise AssertionError("checked at parsing")


def _compare(
    left: ast.expr,
    op: ast.cmpop,
    right: ast.expr,
    read: Callable[[str], Reading],
    seen: list[Comparison],
    negated: bool,
) -> bool | None:
    name, sign, than = sides(left, op, right)
    a = read(name)
    b, than_signal = (read(than), than) if isinstance(than, str) else (than, None)
    holds = compare(a, sign, b)
    # Evidence reads as what was found: `not (x > 3)` that holds is shown as x <= 3.
    shown = _OPPOSITE[sign] if negated else sign
    if holds is None and isinstance(a, Known) and isinstance(b, Known):
        a = Unknown(Reason.BETWEEN if a.bounds or b.bounds else Reason.INVALID)
    shown_holds = holds if not negated or holds is None else not holds
    seen.append(Comparison(name, a, shown, b, than_signal, shown_holds))
    return holds


def sides(left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[str, str, str | Known]:
    """A comparison, its signal on the left: the signal, the sign, and the other signal or the literal."""
    sign = _EQUAL.get(type(op)) or _ORDER[type(op)][0]
    if not isinstance(left, ast.Name):  # 3 < x is x > 3
        left, right, sign = right, left, _MIRROR[sign]
    assert isinstance(left, ast.Name)
    if isinstance(right, ast.Name):
        return left.id, sign, right.id
    assert isinstance(right, ast.Constant)
    return left.id, sign, Known(_literal(right.value))


def _literal(value: object) -> Value:
    if isinstance(value, bool | str):
        return value
    assert isinstance(value, int | float)
    return float(value)


def compare(a: Reading, sign: str, b: Reading) -> bool | None:
    """a sign b. Where a side is known only within bounds, the answer is unknown unless both ends agree."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return None
    if sign in ("==", "!="):
        if any(side.bounds and side.low != side.high for side in (a, b)):
            return None
        return (_comparable(a.value) == _comparable(b.value)) == (sign == "==")
    if isinstance(a.value, str) or isinstance(b.value, str):
        return None
    a_low, a_high = a.bounds or (float(a.value), float(a.value))
    b_low, b_high = b.bounds or (float(b.value), float(b.value))
    if sign in (">", "<="):
        # A bucket holds what is above its lower bound: a quantile in (2.5, 5] is certainly > 2.5.
        above = a_low > b_high or (a_low == b_high and a_low < a_high)
        below = a_high <= b_low
    else:
        above = a_low >= b_high
        below = a_high < b_low or (a_high == b_low and b_low < b_high)
    if above == below:
        return None
    return above == (sign in (">", ">="))


def _comparable(value: Value) -> Value:
    return value if isinstance(value, str | bool) else float(value)
