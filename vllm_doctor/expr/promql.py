"""What a node is in PromQL: series of which each engine has one row, all with the same labels.

So two series match one to one, and PromQL's `and`, `or` and comparisons are the doctor's own logic of three values: a
vector holds the engines of which something is known to be true; an engine of which it is false, or unknown, is not in
it. `truth` asks for one of the two, so that no absence is ever taken for a truth: `not` is the comparison turned
around, never `unless`. Only is_known asks for absence.

    a > 3 and b > 1          both known, both true
    a > 3 or b > 1           one is known and true; the other may be absent
    known(a, b)              a or b
    max(a, b)                a >= b or b > a: neither where one is absent
    where(a > 3, b)          b and a > 3
    b if a > 3 else c        b and a > 3 or c and a <= 3

Numbers that are not finite are unknown: absent. What is known within bounds is two series, compared by the end that
decides, so that nothing is claimed that its histogram does not show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.expr import nodes, scalar
from vllm_doctor.expr.functions import FUNCTIONS, Function
from vllm_doctor.expr.nodes import MIRRORED, OPPOSITE, Node, TruthNode, ValueNode
from vllm_doctor.model.reading import Known, Value

_NAME = re.compile(r"[a-zA-Z_:][\w:]*")
_JOINED = re.compile(" and | or | unless ")
_ENCLOSED = re.compile(r"\([^()]*\)")


@dataclass(frozen=True, slots=True)
class Series:
    """PromQL that gives a value for each engine of which it is known; two, where it is known within bounds only."""

    low: str
    high: str

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Constant:
    """Known for every engine when the PromQL is written."""

    value: Value


@dataclass(frozen=True)
class Missing:
    """Never known to a Prometheus: signal -> why."""

    because: Mapping[str, str]


Term = Series | Constant | Missing

Truth = bool | str
"""PromQL whose rows are the engines for which something holds; True: for every engine, False: for none, ever."""


class Writer:
    """`term` gives what stands for a signal; `everywhere` is a series that is 1 for each engine."""

    def __init__(self, term: Callable[[str], Term], everywhere: str) -> None:
        self._term, self._everywhere = term, everywhere

    def value(self, node: ValueNode) -> Term:
        match node:
            case nodes.Name(name):
                return self._term(name)
            case nodes.Number(value) | nodes.Literal(value):
                return Constant(value)
            case nodes.Arithmetic(left, sign, right):
                return _applied(FUNCTIONS[sign], [self.value(left), self.value(right)], node)
            case nodes.Call(function, arguments):
                return _applied(FUNCTIONS[function], [self.value(argument) for argument in arguments], node)
            case nodes.FirstKnown(ways):
                return self._first_known([self.value(way) for way in ways])
            case nodes.Where(condition, of):
                return self._where(node, self.truth(condition), self.value(of))
            case nodes.Choose():
                return self._chosen(node)
            case nodes.IsKnown(of):
                return self._known(self._side(of))

    def truth(self, node: TruthNode, wanted: bool = True) -> Truth:
        """Of which engines it is known to be true, or known to be false."""
        match node:
            case nodes.And(parts):
                truths = [self.truth(part, wanted) for part in parts]
                return both(truths) if wanted else either(truths)
            case nodes.Or(parts):
                truths = [self.truth(part, wanted) for part in parts]
                return either(truths) if wanted else both(truths)
            case nodes.Not(part):
                return self.truth(part, not wanted)
            case nodes.IsKnown(of):
                return self._is_known(self._side(of), wanted)
            case nodes.Compare(left, sign, right):
                return _compared(self._side(left), sign, self._side(right), wanted)

    def _side(self, node: ValueNode) -> Term:
        """What is compared, or asked for, is finite as a signal is."""
        term = self.value(node)
        if isinstance(node, nodes.Name) or not isinstance(term, Series):
            return term
        return Series(finite(term.low), finite(term.high))

    def _first_known(self, terms: Sequence[Term]) -> Term:
        """PromQL's `or`: of each engine the first that is there."""
        there = [term for term in terms if not isinstance(term, Missing)]
        if not there:
            return Missing(_because(terms))
        if len(there) == 1 or isinstance(there[0], Constant):
            return there[0]
        texts = []
        for term in there:
            if isinstance(term, Constant):  # what comes after it is not read
                if isinstance(term.value, str):
                    return Missing({"a text": "no number"})
                texts.append(self._constant(term))
                break
            if not term.is_exact:  # its bounds are there or not each by itself
                return Missing({"a quantile": "known within bounds only"})
            texts.append(operand(term.low))
        joined = " or ".join(texts)
        return Series(joined, joined)

    def _where(self, node: nodes.Where, holds: Truth, term: Term) -> Term:
        if isinstance(term, Missing) or holds is True:
            return term
        if holds is False:
            return Missing(self._undecided(node, node.condition))
        return self._only(node, term, holds)

    def _chosen(self, node: nodes.Choose) -> Term:
        """Each engine has at most one of the two: it is in one of the conditions, or in none."""
        branches = []
        for of, wanted in ((node.then, True), (node.otherwise, False)):
            holds, term = self.truth(node.condition, wanted), self.value(of)
            if holds is True:
                return term
            if holds is not False:
                branches.append(self._only(node, term, holds))
        there = [term for term in branches if isinstance(term, Series)]
        if not there:
            return Missing(_because(branches) or self._undecided(node, node.condition))
        return Series(_either(term.low for term in there), _either(term.high for term in there))

    def _only(self, node: Node, term: Term, holds: str) -> Term:
        """The term, of the engines for which it holds."""
        match term:
            case Missing():
                return term
            case Constant(str()):
                return Missing({nodes.text(node): "a text, and PromQL has numbers only"})
            case Constant():
                only = f"{self._constant(term)} and {operand(holds)}"
                return Series(only, only)
            case Series(low, high):
                return Series(f"{operand(low)} and {operand(holds)}", f"{operand(high)} and {operand(holds)}")

    def _known(self, term: Term) -> Term:
        if not isinstance(term, Series):
            return Constant(float(isinstance(term, Constant)))
        known = f"{operand(term.low)} * 0 + 1 or {self._everywhere} * 0"
        return Series(known, known)

    def _is_known(self, term: Term, wanted: bool) -> Truth:
        if not isinstance(term, Series):
            return isinstance(term, Constant) is wanted
        return term.low if wanted else f"{self._everywhere} unless {operand(term.low)}"

    def _constant(self, term: Constant) -> str:
        """A constant as a series: the same for each engine."""
        return f"{self._everywhere} * {number(float(term.value))}"

    def _undecided(self, node: Node, condition: TruthNode) -> Mapping[str, str]:
        """Why a condition is never known to hold."""
        return _because(map(self._term, nodes.names(condition))) or {nodes.text(node): "its condition never holds"}


def both(truths: Iterable[Truth]) -> Truth:
    """Where all of them hold."""
    parts = list(dict.fromkeys(truths))
    if False in parts:
        return False
    return _joined("and", parts)


def either(truths: Iterable[Truth]) -> Truth:
    """Where one of them holds."""
    parts = list(dict.fromkeys(truths))
    if True in parts:
        return True
    return _joined("or", parts)


def finite(expression: str) -> str:
    """Without what is no number: 0/0 and x/0 mean that nothing happened."""
    if not any(sign in expression for sign in ("/", "^", "histogram_quantile")):
        return expression
    return f"({expression}) > -Inf < Inf"


def number(value: float) -> str:
    """As PromQL reads it."""
    return f"{value:.15g}"


def operand(text: str) -> str:
    """The text as an operand: in parentheses, unless it holds together by itself."""
    return text if _NAME.fullmatch(text) or re.fullmatch(r"[\d.]+|\w+\([^()]*\)", text) else f"({text})"


def _joined(operator: str, parts: Iterable[Truth]) -> Truth:
    texts = [part for part in parts if isinstance(part, str)]
    if not texts:
        return operator == "and"
    if len(texts) == 1:
        return texts[0]
    return f" {operator} ".join(f"({t})" if _JOINED.search(t) and not _ENCLOSED.fullmatch(t) else t for t in texts)


def _either(texts: Iterable[str]) -> str:
    each = list(texts)
    return each[0] if len(each) == 1 else " or ".join(map(operand, each))


def _because(terms: Iterable[Term]) -> dict[str, str]:
    return {name: why for term in terms if isinstance(term, Missing) for name, why in term.because.items()}


def _applied(function: Function, terms: Sequence[Term], node: Node) -> Term:
    """A function on values; where they are bounded, on the ends that bound the result. All bounded ones are >= 0."""
    if missing := _because(terms):
        return Missing(missing)
    constants = [term for term in terms if isinstance(term, Constant)]
    if any(isinstance(term.value, str) for term in constants):
        return Missing({nodes.text(node): "computes with a text"})
    if len(constants) == len(terms):
        result = scalar.finite(scalar.apply(function, [Known(float(term.value)) for term in constants]))
        return Constant(result.value) if isinstance(result, Known) else Missing({nodes.text(node): "not a number"})
    lows, highs = [_end(term, False) for term in terms], [_end(term, True) for term in terms]
    for place in function.falls_with:
        lows[place], highs[place] = highs[place], lows[place]
    if function.promql is None or (lows != highs and not function.carries_bounds):
        return Missing({nodes.text(node): "cannot be written in PromQL"})
    return Series(function.promql(lows), function.promql(highs))


def _end(term: Term, is_high: bool) -> str:
    match term:
        case Series():
            return operand(term.high if is_high else term.low)
        case Constant(value):
            return number(float(value))
        case _:
            raise AssertionError("looked at before")


def _compared(a: Term, sign: str, b: Term, wanted: bool) -> Truth:
    """Of which engines `a sign b` is known to be true, or to be false, as `wanted`."""
    if isinstance(a, Missing) or isinstance(b, Missing):
        return False
    if isinstance(a, Constant) and isinstance(b, Constant):
        return scalar.compare(Known(a.value), sign, Known(b.value)) is wanted
    if isinstance(a, Constant):
        a, b, sign = b, a, MIRRORED[sign]
    assert isinstance(a, Series)
    if isinstance(b, Constant) and isinstance(b.value, str):  # a number is no text; which is greater is unknown
        return a.low if sign in ("==", "!=") and (sign == "!=") == wanted else False
    if not wanted:
        sign = OPPOSITE[sign]
    if isinstance(b, Constant):
        b = replace(a, low=number(float(b.value)), high=number(float(b.value)))
    if sign in ("==", "!="):
        return f"{operand(a.low)} {sign} {operand(b.low)}" if a.is_exact and b.is_exact else False
    # Above is what is above with its lower end: of a bucket that begins at the bound, all is above it.
    left, right = (a.low, b.high) if sign in (">", ">=") else (a.high, b.low)
    return f"{operand(left)} {sign} {operand(right)}"
