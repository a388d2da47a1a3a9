"""Arithmetic over signals: how a value is computed from others.

Written as a Python expression, parsed with ast, never run by Python: names of signals, numbers, + - * /,
and floor, ceil, min, max, power_of_two (the smallest power of two not below), known (the first that is known),
seen (the value where it is not 0: a line that stands in a log tells something, one that does not may tell nothing),
power(a, b), divisor(of, least) (the smallest divisor of a whole number that is not below; the number itself where there
is none), below(a, limit) (the value where it is below; invalid where it is not: there the formula does not hold).
Unknown operands make the result unknown; bounds (of a quantile) are carried through.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

_MAX_LENGTH = 1000
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b if b else (math.nan if a == 0 else math.inf),
}


def _power_of_two(value: float) -> float:
    if not value < 2.0**1000:  # NaN too
        return math.inf if value > 0 else math.nan
    return 2.0 ** math.ceil(math.log2(value)) if value >= 1 else 1.0


_ONE: dict[str, Callable[[float], float]] = {
    "floor": lambda a: float(math.floor(a)) if math.isfinite(a) else a,
    "ceil": lambda a: float(math.ceil(a)) if math.isfinite(a) else a,
    "power_of_two": _power_of_two,
}
_MANY: dict[str, Callable[..., float]] = {"min": min, "max": max}


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent) if base >= 0 else math.nan
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _divisor(of: float, least: float) -> float:
    """Of a number of GPUs: small, so that it is searched for."""
    if not 1 <= of <= _MAX_DIVIDED or math.isnan(least):
        return math.nan
    return next((float(n) for n in range(1, int(of)) if n >= least and of % n == 0), of)


_MAX_DIVIDED = 10_000
_TWO: dict[str, Callable[[float, float], float]] = {"power": _power, "divisor": _divisor}


_Compute = Callable[[Callable[[str], Reading]], Reading]


class FormulaError(ValueError):
    """The text is not a formula."""


class Formula:
    """One parsed formula. Raises FormulaError, with the offending part."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _MAX_LENGTH:
            raise FormulaError(f"longer than {_MAX_LENGTH} characters")
        try:
            self.root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise FormulaError(f"not a formula: {text}") from None
        self.names: tuple[str, ...] = tuple(dict.fromkeys(_check(self.root)))
        self._compute: _Compute | None = None

    def evaluate(self, read: Callable[[str], Reading]) -> Reading:
        """The value, given how to read a signal. 0/0 and x/0 are unknown: idle."""
        if self._compute is None:  # many are never asked for
            self._compute = _compiled(self.root)
        result = self._compute(read)
        if isinstance(result, Known) and isinstance(result.value, float) and not math.isfinite(result.value):
            return Unknown(Reason.IDLE)
        return result


def _check(node: ast.expr) -> list[str]:
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float()) if len(ast.unparse(node)) < 30:
            return []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _check(left) + _check(right)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _ONE or name == "seen":
            return _check(argument)
        case ast.Call(func=ast.Name(id=name), args=[one, other], keywords=[]) if name in _TWO or name == "below":
            return _check(one) + _check(other)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if (
            name in _MANY or name == "known"
        ):
            return [found for argument in arguments for found in _check(argument)]
        case _:
            pass
    raise FormulaError(f"not part of a formula: {ast.unparse(node)}")


def _compiled(node: ast.expr) -> _Compute:
    """The expression as a function: a log is judged at many moments, and walking the tree each time is slow."""
    match node:
        case ast.Name(id=name):
            return lambda read: read(name)
        case ast.Constant(value=value):
            assert isinstance(value, int | float)
            constant = Known(float(value), origin="")
            return lambda _: constant
        case ast.BinOp(left=left, op=op, right=right):
            return _of(operator(op), [_compiled(left), _compiled(right)])
        case ast.Call(func=ast.Name(id="known"), args=arguments):
            return _first_known([_compiled(argument) for argument in arguments])
        case ast.Call(func=ast.Name(id="seen"), args=[argument]):
            return _not_zero(_compiled(argument))
        case ast.Call(func=ast.Name(id="below"), args=[value, limit]):
            return _below(_compiled(value), _compiled(limit))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _of(called(name), [_compiled(argument) for argument in arguments])
        case _:
            raise AssertionError("checked at parsing")


def operator(op: ast.operator) -> Callable[..., float]:
    """What + - * and / compute; x/0 is infinite, 0/0 not a number."""
    return _OPERATORS[type(op)]


def called(name: str) -> Callable[..., float]:
    """What a function of a formula computes; not known, seen and below, which choose."""
    return _ONE.get(name) or _TWO.get(name) or _MANY[name]


def _of(compute: Callable[..., float], operands: list[_Compute]) -> _Compute:
    return lambda read: combine(compute, [operand(read) for operand in operands])


def _first_known(operands: list[_Compute]) -> _Compute:
    """What comes after the first known one is not read."""

    def choose(read: Callable[[str], Reading]) -> Reading:
        first = operands[0](read)
        if isinstance(first, Known):
            return first
        return next((r for operand in operands[1:] if isinstance(r := operand(read), Known)), first)

    return choose


def _not_zero(operand: _Compute) -> _Compute:
    return lambda read: seen(operand(read))


def seen(reading: Reading) -> Reading:
    """The value where it is not 0."""
    return Unknown(Reason.NOT_IN_LOG) if isinstance(reading, Known) and not reading.value else reading


def _below(operand: _Compute, limit: _Compute) -> _Compute:
    return lambda read: below(operand(read), limit(read))


def below(reading: Reading, limit: Reading) -> Reading:
    """The value where it is below."""
    for unknown in (reading, limit):
        if isinstance(unknown, Unknown):
            return unknown
    assert isinstance(reading, Known)
    assert isinstance(limit, Known)
    if isinstance(reading.value, str) or isinstance(limit.value, str) or not reading.value < limit.value:
        return Unknown(Reason.INVALID)
    return reading


def combine(compute: Callable[..., float], readings: list[Reading]) -> Reading:
    """Compute on the values, and on the ends of their bounds: each of our operations is monotone in each operand
    (but divisor in its first, which is never bounded)."""
    values: list[float] = []
    origin, bounded = "", False
    for reading in readings:
        if isinstance(reading, Unknown):
            return reading
        if isinstance(reading.value, str):
            return Unknown(Reason.INVALID)
        values.append(float(reading.value))
        bounded = bounded or reading.low != reading.high
        # A value is from where its operands are, or "computed" from several places; numbers are from nowhere.
        if reading.origin and reading.origin != origin:
            origin = "computed" if origin else reading.origin
    result = compute(*values)
    if not bounded:
        return Known(result, origin=origin)
    ends = [r.bounds or (v, v) for r, v in zip(readings, values, strict=True) if isinstance(r, Known)]
    if compute is _OPERATORS[ast.Div] and ends[1][0] <= 0 <= ends[1][1] and min(ends[1][0], ends[0][0]) < 0:
        return Unknown(Reason.IDLE)  # the quotient has no bounds
    corners = [compute(*corner) for corner in _corners(ends)]
    usable = [corner for corner in corners if not math.isnan(corner)]
    if not usable:
        return Unknown(Reason.IDLE)
    return Known(result if math.isfinite(result) else min(usable), min(usable), max(usable), origin)


def _corners(ends: list[tuple[float, float]]) -> list[list[float]]:
    corners: list[list[float]] = [[]]
    for low, high in ends:
        corners = [[*corner, end] for corner in corners for end in dict.fromkeys((low, high))]
    return corners
