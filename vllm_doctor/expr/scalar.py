"""What a node gives for one engine: a reading, or a truth of three values with the comparisons that decided it.

Nodes become functions, once: a log is judged at many moments, and walking the nodes each time is slow.

Truth is Kleene's: True, False and None (unknown). Unknown operands make a value unknown, for the reason of the first of
them; bounds (of a quantile) are carried through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.expr import nodes
from vllm_doctor.expr.functions import FUNCTIONS, Ends, Function
from vllm_doctor.expr.nodes import OPPOSITE, TruthNode, ValueNode
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason

Read = Callable[[str], Reading]
"""How to read a signal."""


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


Compute = Callable[[Read], Reading]
Judge = Callable[[Read, list[Comparison]], bool | None]
"""Whether it holds; every comparison that is met is added to the list."""


# ---- values ----------------------------------------------------------------------------------------------------------


def value(node: ValueNode) -> Compute:
    """The node as a function from signals to a reading."""
    match node:
        case nodes.Name(name):
            return lambda read: read(name)
        case nodes.Number(number):
            return _constant(Known(number, origin=""))
        case nodes.Literal(literal):
            return _constant(Known(literal, origin=""))
        case nodes.Arithmetic(left, sign, right):
            return _applied(FUNCTIONS[sign], [value(left), value(right)])
        case nodes.Call(function, arguments):
            return _applied(FUNCTIONS[function], [value(argument) for argument in arguments])
        case nodes.FirstKnown(ways):
            return _first_known([value(way) for way in ways])
        case nodes.Where(condition, of):
            return _where(truth(condition), value(of))
        case nodes.Choose(condition, then, otherwise):
            return _choose(truth(condition), value(then), value(otherwise))
        case nodes.IsKnown(of):
            return _is_known(_side(of))


def finite(reading: Reading) -> Reading:
    """What is infinite, or not a number, is unknown at the end of a formula: x/0 and 0/0, idle."""
    if isinstance(reading, Known) and isinstance(reading.value, float) and not math.isfinite(reading.value):
        return Unknown(Reason.IDLE)
    return reading


def _constant(known: Known) -> Compute:
    return lambda _: known


def _applied(function: Function, operands: list[Compute]) -> Compute:
    match operands:
        case [one]:
            return lambda read: apply(function, (one(read),))
        case [one, other]:
            return lambda read: apply(function, (one(read), other(read)))
        case _:
            return lambda read: apply(function, [operand(read) for operand in operands])


def _first_known(ways: list[Compute]) -> Compute:
    """What comes after the first known one is not read."""
    first, *others = ways

    def choose(read: Read) -> Reading:
        reading = first(read)
        if isinstance(reading, Known):
            return reading
        return next((r for way in others if isinstance(r := way(read), Known)), reading)

    return choose


def _where(judge: Judge, of: Compute) -> Compute:
    """Unknown for the value's own reason first, then for the condition's."""

    def compute(read: Read) -> Reading:
        reading = of(read)
        if isinstance(reading, Unknown):
            return reading
        met: list[Comparison] = []
        holds = judge(read, met)
        return _also_from(reading, met) if holds else Unknown(_undecided(met) if holds is None else Reason.INVALID)

    return compute


def _choose(judge: Judge, then: Compute, otherwise: Compute) -> Compute:
    def compute(read: Read) -> Reading:
        met: list[Comparison] = []
        holds = judge(read, met)
        return Unknown(_undecided(met)) if holds is None else _also_from((then if holds else otherwise)(read), met)

    return compute


def _is_known(of: Compute) -> Compute:
    def compute(read: Read) -> Reading:
        reading = of(read)
        return Known(1.0, origin=reading.origin) if isinstance(reading, Known) else Known(0.0, origin="")

    return compute


def _undecided(met: Sequence[Comparison]) -> Reason:
    """The first reason for which a condition is unknown."""
    return next(reason for one in met if one.holds is None for _, reason in one.unknowns())


def _also_from(reading: Reading, met: Sequence[Comparison]) -> Reading:
    """A value that was chosen is from where the comparisons are, too."""
    if isinstance(reading, Unknown):
        return reading
    origin = reading.origin
    for comparison in met:
        origin = _joined_origin(origin, comparison.seen)
        if comparison.than_signal is not None:
            origin = _joined_origin(origin, comparison.than)
    return reading if origin == reading.origin else replace(reading, origin=origin)


def _joined_origin(origin: str, reading: Reading) -> str:
    """A value is from where its operands are, or "computed" from several places; numbers are from nowhere."""
    if isinstance(reading, Unknown) or not reading.origin or reading.origin == origin:
        return origin
    return "computed" if origin else reading.origin


# ---- functions on readings -------------------------------------------------------------------------------------------


def apply(function: Function, readings: Sequence[Reading]) -> Reading:
    """A function, and + - * /, on what is known, unknown, or known within bounds."""
    if function.compute is None:
        return _kept(function, readings)
    values: list[float] = []
    origin, bounded = "", False
    for reading in readings:
        if isinstance(reading, Unknown):
            return reading
        if isinstance(reading.value, str):
            return Unknown(Reason.INVALID)
        values.append(float(reading.value))
        bounded = bounded or reading.low != reading.high
        if reading.origin and reading.origin != origin:
            origin = "computed" if origin else reading.origin
    result = function.compute(*values)
    if not bounded:
        return Known(result, origin=origin)
    ends = [r.bounds or (v, v) for r, v in zip(readings, values, strict=True) if isinstance(r, Known)]
    return _bounded(function, result, ends, origin)


def _kept(function: Function, readings: Sequence[Reading]) -> Reading:
    assert function.keeps is not None
    values: list[Value] = []
    for reading in readings:
        if isinstance(reading, Unknown):
            return reading
        values.append(reading.value)
    return readings[0] if function.keeps(*values) else Unknown(function.otherwise)


def _bounded(function: Function, result: float, ends: Sequence[Ends], origin: str) -> Reading:
    """The result with its bounds: what the function gives on the ends of its operands' bounds."""
    assert function.compute is not None
    if not function.is_monotone:
        return Unknown(Reason.BETWEEN)
    if function.has_bounds is not None and not function.has_bounds(ends):
        return Unknown(Reason.IDLE)
    corners = [function.compute(*corner) for corner in _corners(ends)]
    usable = [corner for corner in corners if not math.isnan(corner)]
    if not usable:
        return Unknown(Reason.IDLE)
    return Known(result if math.isfinite(result) else min(usable), min(usable), max(usable), origin)


def _corners(ends: Sequence[Ends]) -> list[list[float]]:
    corners: list[list[float]] = [[]]
    for low, high in ends:
        corners = [[*corner, end] for corner in corners for end in dict.fromkeys((low, high))]
    return corners


# ---- truths ----------------------------------------------------------------------------------------------------------


def truth(node: TruthNode, negated: bool = False) -> Judge:
    """The node as a function from signals to a truth.

    Evidence reads as what was found: `negated`, as below a `not`, shows x > 3 that does not hold as x <= 3.
    """
    match node:
        case nodes.Or(parts):
            return _joined([truth(part, negated) for part in parts], True)
        case nodes.And(parts):
            return _joined([truth(part, negated) for part in parts], False)
        case nodes.Not(part):
            return _not(truth(part, not negated))
        case nodes.IsKnown(of):
            return _knows(_side(of))
        case nodes.Compare(left, sign, right):
            return _compared(left, sign, right, negated)


def _joined(parts: list[Judge], decisive: bool) -> Judge:
    """Or, where True decides; and, where False does. All are asked: all are evidence."""

    def judge(read: Read, met: list[Comparison]) -> bool | None:
        results = [part(read, met) for part in parts]
        if decisive in results:
            return decisive
        return None if None in results else not decisive

    return judge


def _not(part: Judge) -> Judge:
    def judge(read: Read, met: list[Comparison]) -> bool | None:
        result = part(read, met)
        return None if result is None else not result

    return judge


def _knows(of: Compute) -> Judge:
    return lambda read, _: isinstance(of(read), Known)


def _compared(left: ValueNode, sign: str, right: ValueNode, negated: bool) -> Judge:
    shown = OPPOSITE[sign] if negated else sign
    one, name = _side(left), nodes.text(left)
    if isinstance(right, nodes.Number | nodes.Literal):
        other, than_signal = _constant(Known(right.value)), None
    else:
        other, than_signal = _side(right), nodes.text(right)

    def judge(read: Read, met: list[Comparison]) -> bool | None:
        a, b = one(read), other(read)
        holds = compare(a, sign, b)
        if holds is None and isinstance(a, Known) and isinstance(b, Known):
            a = Unknown(Reason.BETWEEN if a.bounds or b.bounds else Reason.INVALID)
        met.append(Comparison(name, a, shown, b, than_signal, holds if not negated or holds is None else not holds))
        return holds

    return judge


def _side(node: ValueNode) -> Compute:
    """What is compared, or asked for, is finite as a signal is."""
    compute = value(node)
    return compute if isinstance(node, nodes.Name) else lambda read: finite(compute(read))


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
