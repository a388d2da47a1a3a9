"""The functions of the language, and + - * /: what each computes, for one engine, for many, and in PromQL.

A function is added here and nowhere else: an entry of FUNCTIONS. There are two kinds.

    compute   numbers in, a number out. Unknown operands, texts, bounds and origins are the visitors' business.
    keeps     values in: whether the first of them is kept; where it is not, the result is unknown for a reason.

What is not a function but has a node of its own, because it does not read all of its operands or reads conditions:
known(a, b, …), where(condition, a), is_known(a), and `a if condition else b` (nodes.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason

MANY = 1000
"""More operands than a text can hold."""
_MAX_DIVIDED = 10_000

Ends = tuple[float, float]
"""The bounds of an operand; twice the value where it is exact."""


@dataclass(frozen=True, slots=True)
class Function:
    """`least` and `most`: how many operands. Exactly one of `compute` and `keeps` is given."""

    name: str
    least: int
    most: int
    says: str
    """What it gives, for who writes a signal."""
    compute: Callable[..., float] | None = None
    keeps: Callable[..., bool] | None = None
    otherwise: Reason = Reason.INVALID
    """Why the result is unknown where the value is not kept."""
    is_monotone: bool = True
    """In each operand. Of one that is not, and has a bounded operand, the result is unknown."""
    has_bounds: Callable[[Sequence[Ends]], bool] | None = None
    """Whether the result has bounds, given the operands'; None: always."""
    falls_with: frozenset[int] = frozenset()
    """The operands with which the result falls, counted from 0."""
    promql: Callable[[list[str]], str] | None = None
    """Written over operands that are written already; None: PromQL has no such function."""

    @property
    def carries_bounds(self) -> bool:
        """Whether the ends of the operands' bounds give the ends of the result's."""
        return self.compute is not None and self.is_monotone

    def takes(self, operands: int) -> bool:
        return self.least <= operands <= self.most


# ---- what they compute -----------------------------------------------------------------------------------------------


def _quotient(a: float, b: float) -> float:
    return a / b if b else (math.nan if a == 0 else math.inf)


def _quotient_has_bounds(ends: Sequence[Ends]) -> bool:
    """Not across a divisor of 0, unless all is at least 0."""
    (dividend, _), (divisor, divisor_high) = ends
    return not (divisor <= 0 <= divisor_high and min(divisor, dividend) < 0)


def _floor(a: float) -> float:
    return float(math.floor(a)) if math.isfinite(a) else a


def _ceil(a: float) -> float:
    return float(math.ceil(a)) if math.isfinite(a) else a


def _power_of_two(value: float) -> float:
    if not value < 2.0**1000:  # NaN too
        return math.inf if value > 0 else math.nan
    return 2.0 ** math.ceil(math.log2(value)) if value >= 1 else 1.0


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent) if base >= 0 else math.nan
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _divisor(of: float, least: float) -> float:
    """Of a number of GPUs: small, so that it is searched for. Monotone in `least` only; `of` is never bounded."""
    if not 1 <= of <= _MAX_DIVIDED or math.isnan(least):
        return math.nan
    return next((float(n) for n in range(1, int(of)) if n >= least and of % n == 0), of)


def _is_below(value: Value, limit: Value) -> bool:
    return not isinstance(value, str) and not isinstance(limit, str) and value < limit


# ---- how they are written in PromQL ----------------------------------------------------------------------------------


def _between(operator: str) -> Callable[[list[str]], str]:
    return lambda operands: f" {operator} ".join(operands)


def _extreme(clamp: str, first: str, then: str) -> Callable[[list[str]], str]:
    """max or min of each pair; neither where one is absent."""

    def write(operands: list[str]) -> str:
        result = operands[0]
        for operand in operands[1:]:
            if _is_number(operand) or _is_number(result):
                vector, bound = (result, operand) if _is_number(operand) else (operand, result)
                result = f"{clamp}({vector}, {bound})"
            else:
                result = f"({result} {first} {operand} or {operand} {then} {result})"
        return result

    return write


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) is not None


# ---- the table -------------------------------------------------------------------------------------------------------

_TABLE = (
    Function("+", 2, 2, "the sum", compute=lambda a, b: a + b, promql=_between("+")),
    Function("-", 2, 2, "the difference", lambda a, b: a - b, falls_with=frozenset({1}), promql=_between("-")),
    Function("*", 2, 2, "the product", lambda a, b: a * b, promql=_between("*")),
    Function(
        "/", 2, 2, "the quotient; x/0 and 0/0 are unknown: idle", _quotient,
        has_bounds=_quotient_has_bounds, falls_with=frozenset({1}), promql=_between("/"),
    ),
    Function("min", 2, MANY, "the least; unknown where one is", min, promql=_extreme("clamp_max", "<=", "<")),
    Function("max", 2, MANY, "the greatest; unknown where one is", max, promql=_extreme("clamp_min", ">=", ">")),
    Function("floor", 1, 1, "the whole number not above", _floor, promql=lambda of: f"floor({of[0]})"),
    Function("ceil", 1, 1, "the whole number not below", _ceil, promql=lambda of: f"ceil({of[0]})"),
    Function(
        "power_of_two", 1, 1, "the smallest power of two not below; at least 1", _power_of_two,
        promql=lambda of: f"2 ^ ceil(log2(clamp_min({of[0]}, 1)))",
    ),
    Function("power", 2, 2, "power(a, b): a to the b-th", _power),
    Function(
        "divisor", 2, 2,
        "divisor(of, least): the smallest divisor of a whole number that is not below; else the number itself",
        _divisor,
    ),
    Function(
        "seen", 1, 1,
        "the value where it is not 0: a line that stands in a log tells something, one that does not may tell nothing",
        keeps=bool, otherwise=Reason.NOT_IN_LOG, promql=lambda of: f"{of[0]} != 0",
    ),
    Function(
        "below", 2, 2, "below(a, limit): the value where it is below; invalid where it is not",
        keeps=_is_below, promql=_between("<"),
    ),
)  # fmt: skip

FUNCTIONS: dict[str, Function] = {function.name: function for function in _TABLE}
"""By name; + - * / too."""

ARITHMETIC = ("+", "-", "*", "/")
