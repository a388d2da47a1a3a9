"""Signals as series that a Prometheus records, and formulas and conditions as PromQL over them.

One recorded series is one engine: each of them has the same labels (the scope's identity, engine, model_name), also a
signal of the whole server or of all engines of a model. So two signals match one to one, and PromQL's `and`, `or` and
comparisons are the doctor's own logic of three values: a vector holds the engines of which something is known to be
true; an engine of which it is false, or unknown, is not in it. `holds` asks for one of the two, so that no absence is
ever taken for a truth: `not` is the comparison turned around, never `unless`.

    a > 3 and b > 1     both known, both true
    a > 3 or b > 1      one is known and true; the other may be absent
    known(a, b)         a or b
    max(a, b)           a >= b or b > a: neither where one is absent

Numbers that are not finite are unknown: recorded without them. A quantile is recorded as the bounds of its bucket, and
compared by the end that decides, so that nothing is claimed that its histogram does not tell.

What Prometheus cannot have (a flag, a fact of the host, a line of the log, a number that stands in a label) is missing,
with the reason; what is known when the rules are written (--goal, --slo) is a constant.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.expr.condition import Condition, compare
from vllm_doctor.expr.formula import Formula
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import query
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.signal import Exporter, Signal, info

PREFIX = "vllm_doctor:"
ENGINE = PREFIX + "engine"
"""The series that is 1 for each engine."""

_LOW, _HIGH, _RANK = ":low", ":high", ":rank"
_NAME = re.compile(PREFIX + r"\w+(?::\w+)?")
_JOINED = re.compile(" and | or ")
_ENCLOSED = re.compile(r"\([^()]*\)")
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}
_MIRROR = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}
_SIGN: dict[type[ast.cmpop], str] = {
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_OPERATOR: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_UNTOLD = {
    Reason.NOT_GIVEN: "not given: --slo ttft=2s --slo itl=50ms",
    Reason.NO_LOG: "stands in the server's log only",
    Reason.NOT_IN_COMMAND: "only of a command that is given as a text",
}
_NOT_IN_PROMETHEUS = {
    "fact": "seen on the server's host only",
    "flag": "a flag of the server's command line",
    "env": "a variable of the server's environment",
    "log": "stands in the server's log only",
    "info": "a text in a label, and PromQL compares values",
}


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
    """Known for every engine when the rules are written."""

    value: Value


@dataclass(frozen=True)
class Missing:
    """Never known to a Prometheus: signal -> why."""

    because: Mapping[str, str]


Term = Series | Constant | Missing

Truth = bool | str
"""PromQL whose rows are the engines for which something holds; True: for every engine, False: for none, ever."""


class Recorder:
    """The signals of a catalogue, as a Prometheus can record them.

    `scope`: the labels of a server there, the window, and the metrics that there are. `given`: what the user wants, by
    the name of its fact (goal, slo_ttft).
    """

    def __init__(self, catalogue: Catalogue, scope: query.Scope, given: Mapping[str, Value]) -> None:
        self.catalogue, self.scope, self._given = catalogue, scope, given
        self._terms: dict[str, Term] = {}
        self._rules: dict[str, str] = {ENGINE: f"group by ({self._labels(*query.ENGINE)}) ({query.servers(scope)})"}

    def term(self, name: str) -> Term:
        """What stands for a signal."""
        if name not in self._terms:
            self._terms[name] = self._found(self.catalogue.signals[name])
        return self._terms[name]

    def holds(self, condition: Condition, wanted: bool = True) -> Truth:
        """Of which engines the condition is known to be true, or known to be false."""
        return self._truth(ast.parse(condition.text.strip(), mode="eval").body, wanted)

    def lacking(self, name: str) -> dict[str, str]:
        """What of that which a signal is made of no Prometheus has: signal -> why."""
        terms = [self.term(behind) for behind in sorted(self.catalogue.behind([name]))]
        return {name: why for term in terms if isinstance(term, Missing) for name, why in term.because.items()}

    def rules(self, texts: Iterable[str]) -> dict[str, str]:
        """Record -> expression, of all that these PromQL texts name; each stands below what it uses."""
        needed: set[str] = set()
        wanted = [name for text in texts for name in _NAME.findall(text)]
        while wanted:
            name = wanted.pop()
            if name not in needed:
                needed.add(name)
                wanted += _NAME.findall(self._rules[name])
        return {name: expression for name, expression in self._rules.items() if name in needed}

    def _labels(self, *names: str) -> str:
        return ", ".join(dict.fromkeys((*names, *self.scope.identity)))

    def _is_exported(self, metric: str) -> bool:
        return self.scope.exported is None or metric in self.scope.exported

    def _is_joined(self, exporter: Exporter) -> bool:
        """Whether the engines have its labels, and it is there."""
        return {*exporter.labels} <= {*self.scope.identity} and all(
            map(self._is_exported, query.exporter_metrics(exporter))
        )

    # ---- signals ---------------------------------------------------------------------------------------------------

    def _found(self, signal: Signal) -> Term:
        if signal.name in self._given:
            return Constant(self._given[signal.name])
        match signal.way:
            case "promql":
                return self._measured(signal)
            case "present":
                return self._present(signal)
            case "info":
                return self._labelled(signal)
            case "formula":
                assert signal.formula is not None
                return self._computed(signal, signal.formula)
            case "fact" if signal.exporter is not None and self._is_joined(signal.exporter):
                # A server that is no pod has none of its labels; nor has, then, what runs beside it.
                of_pods = f'{ENGINE}{{{signal.exporter.labels[0]}!=""}}'
                asked = signal.exporter.promql.replace("$window", self.scope.window)
                on = ", ".join(signal.exporter.labels)
                record = self._record(signal.name, _finite(f"{of_pods} * on ({on}) group_left () ({asked})"))
                return Series(record, record)
            case way:
                return Missing({signal.name: _UNTOLD.get(signal.reason, _NOT_IN_PROMETHEUS[way])})

    def _record(self, name: str, expression: str) -> str:
        self._rules[PREFIX + name] = expression
        return PREFIX + name

    def _for_engines(self, definition: str, expression: str) -> str:
        """A value of a model, or of a server, for each engine of it."""
        if "$engine" in definition:
            return expression
        labels = self._labels("model_name") if "$model" in definition else self._labels()
        return f"{ENGINE} * on ({labels}) group_left () ({expression})"

    def _measured(self, signal: Signal) -> Term:
        definition = signal.definition
        if not query.is_told(definition, self.scope):
            return Missing({signal.name: "not exported here"})
        if (found := query.quantile(definition)) is not None:
            return self._quantile(signal.name, *found)
        expression = self._for_engines(definition, query.text(definition, self.scope))
        record = self._record(signal.name, _finite(expression))
        return Series(record, record)

    def _quantile(self, name: str, q: float, buckets: str) -> Series:
        """The bounds of the bucket that holds it, as `promql` has them: no bucket, no quantile.

        Each bucket is made 0 where its count is below the rank, else 1: then all that is counted lies in the one bucket
        that holds the quantile, and the quantiles near 0 and 1 of that are its ends. What lies in the last one, which
        has no end, has no upper bound.
        """
        asked = _operand(query.text(buckets, self.scope))
        finite = query.text(buckets.replace("_bucket[", '_bucket{le!="+Inf"}['), self.scope)
        each = self._labels(*query.ENGINE)
        rank = self._record(name + _RANK, f"{number(q)} * (max by ({each}) {asked} > 0)")
        reached = f"{asked} >= bool on ({each}) group_left () {rank}"
        low = self._record(name + _LOW, _finite(f"histogram_quantile(1e-9, {reached})"))
        bounded = f"max by ({each}) ({finite}) >= {rank}"
        high = self._record(name + _HIGH, _finite(f"histogram_quantile(1, {reached}) and {bounded}"))
        return Series(low, high)

    def _present(self, signal: Signal) -> Term:
        there = tuple(name for name in signal.present if self._is_exported(name))
        if not there:
            return Constant(False)
        by = self._labels()
        has = f"{ENGINE} * on ({by}) group_left () clamp_max({query.present(there, self.scope)}, 1)"
        record = self._record(signal.name, f"{has} or {ENGINE} * 0")
        return Series(record, record)

    def _labelled(self, signal: Signal) -> Term:
        """A flag or a number that stands in a label of an info metric, which has no model_name."""
        metric, label = info(signal.definition)
        if not self._is_exported(metric):
            return Missing({signal.name: "not exported here"})
        if signal.unit == "text" or signal.count:
            return Missing({signal.name: _NOT_IN_PROMETHEUS["info"]})
        by = self._labels("engine")
        if signal.unit == "flag":
            values = [self._where(metric, label, "True", 1), self._where(metric, label, "False", 0)]
        else:
            # PromQL makes a number of one label only: `le`. A histogram whose one bucket ends at the number, and holds
            # all that it counts, has it as its quantile.
            of = query.info_metric(metric, self.scope)
            ends = f'label_replace({of}, "le", "$1", "{label}", "(.*)") or label_replace({of}, "le", "+Inf", "", "")'
            values = [_finite(f"histogram_quantile(1, max by ({by}, le) ({ends}))")]
            if isinstance(signal.none, float):
                values.append(self._where(metric, label, "None|", signal.none))
        each = [f"{ENGINE} * on ({by}) group_left () ({value})" for value in values]
        record = self._record(signal.name, " or ".join(each))
        return Series(record, record)

    def _where(self, metric: str, label: str, texts: str, value: float) -> str:
        """The value for what has one of these texts in the label."""
        selected = query.info_metric(metric, self.scope, query.Matcher(label, "=~", texts))
        return f"group by ({self._labels('engine')}) ({selected}) * {number(value)}"

    # ---- formulas --------------------------------------------------------------------------------------------------

    def _computed(self, signal: Signal, formula: Formula) -> Term:
        term = self._compiled(ast.parse(formula.text.strip(), mode="eval").body)
        match term:
            case Missing():
                return term
            case Constant(float() as value) if not math.isfinite(value):
                return Missing({signal.name: "not a number"})
            case Constant():
                return term
            case Series() if term.is_exact:
                if _NAME.fullmatch(term.low):
                    return term
                record = self._record(signal.name, _finite(term.low))
                return Series(record, record)
            case _:
                low = self._record(signal.name + _LOW, _finite(term.low))
                return Series(low, self._record(signal.name + _HIGH, _finite(term.high)))

    def _compiled(self, node: ast.expr) -> Term:
        match node:
            case ast.Name(id=name):
                return self.term(name)
            case ast.Constant(value=int() | float() as value):
                return Constant(float(value))
            case ast.Call(func=ast.Name(id="known"), args=arguments):
                return _first_known([self._compiled(argument) for argument in arguments])
            case ast.BinOp(left=left, op=op, right=right):
                terms = [self._compiled(left), self._compiled(right)]
                return _applied(_OPERATOR[type(op)], terms, ast.unparse(node))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _applied(name, [self._compiled(argument) for argument in arguments], ast.unparse(node))
            case _:
                raise AssertionError("checked at parsing")

    # ---- conditions ------------------------------------------------------------------------------------------------

    def _truth(self, node: ast.expr, wanted: bool) -> Truth:
        match node:
            case ast.BoolOp(op=op, values=parts):
                truths = [self._truth(part, wanted) for part in parts]
                return both(truths) if isinstance(op, ast.And) == wanted else either(truths)
            case ast.UnaryOp(operand=operand):
                return self._truth(operand, not wanted)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _compared(self._side(left), _SIGN[type(op)], self._side(right), wanted)
            case _:
                raise AssertionError("checked at parsing")

    def _side(self, node: ast.expr) -> Term:
        if isinstance(node, ast.Name):
            return self.term(node.id)
        assert isinstance(node, ast.Constant)
        return Constant(node.value if isinstance(node.value, bool | str) else float(str(node.value)))


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


def _joined(operator: str, parts: Iterable[Truth]) -> Truth:
    texts = [part for part in parts if isinstance(part, str)]
    if not texts:
        return operator == "and"
    if len(texts) == 1:
        return texts[0]
    return f" {operator} ".join(f"({t})" if _JOINED.search(t) and not _ENCLOSED.fullmatch(t) else t for t in texts)


def _finite(expression: str) -> str:
    """Without what is no number: 0/0 and x/0 mean that nothing happened."""
    if not any(sign in expression for sign in ("/", "^", "histogram_quantile")):
        return expression
    return f"({expression}) > -Inf < Inf"


def number(value: float) -> str:
    """As PromQL reads it."""
    return f"{value:.15g}"


def _operand(text: str) -> str:
    return text if _NAME.fullmatch(text) or re.fullmatch(r"[\d.]+|\w+\([^()]*\)", text) else f"({text})"


def _first_known(terms: list[Term]) -> Term:
    """PromQL's `or`: of each engine the first that is there."""
    there = [term for term in terms if not isinstance(term, Missing)]
    if not there:
        return Missing({name: why for term in terms if isinstance(term, Missing) for name, why in term.because.items()})
    if len(there) == 1 or isinstance(there[0], Constant):
        return there[0]
    texts = []
    for term in there:
        if isinstance(term, Constant):  # what comes after it is not read
            if isinstance(term.value, str):
                return Missing({"a text": "no number"})
            texts.append(f"{ENGINE} * {number(float(term.value))}")
            break
        assert isinstance(term, Series)
        if not term.is_exact:  # its bounds are there or not each by itself
            return Missing({"a quantile": "known within bounds only"})
        texts.append(_operand(term.low))
    joined = " or ".join(texts)
    return Series(joined, joined)


def _applied(operation: str, terms: list[Term], text: str) -> Term:
    """Arithmetic on values; where they are bounded, on the ends that bound the result. All bounded ones are >= 0."""
    missing = {name: why for term in terms if isinstance(term, Missing) for name, why in term.because.items()}
    if missing:
        return Missing(missing)
    if any(isinstance(term, Constant) and isinstance(term.value, str) for term in terms):
        return Missing({text: "computes with a text"})
    if all(isinstance(term, Constant) for term in terms):
        values = {f"x{i}": term.value for i, term in enumerate(terms) if isinstance(term, Constant)}
        written = f"x0 {operation} x1" if operation in "+-*/" else f"{operation}({', '.join(values)})"
        result = Formula(written).evaluate(lambda name: Known(float(values[name])))
        return Constant(result.value) if isinstance(result, Known) else Missing({text: "not a number"})
    lows = [_end(term, False) for term in terms]
    highs = [_end(term, True) for term in terms]
    if operation in ("-", "/"):  # they fall with their second operand
        lows[1], highs[1] = highs[1], lows[1]
    write = _WRITERS.get(operation)
    if write is None or (operation not in _MONOTONE and lows != highs):
        return Missing({text: "cannot be written in PromQL"})
    return Series(write(lows), write(highs))


def _end(term: Term, is_high: bool) -> str:
    match term:
        case Series():
            return _operand(term.high if is_high else term.low)
        case Constant(value):
            return number(float(value))
        case _:
            raise AssertionError("looked at before")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) is not None


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


def _between(operator: str) -> Callable[[list[str]], str]:
    return lambda operands: f" {operator} ".join(operands)


_WRITERS: dict[str, Callable[[list[str]], str]] = {
    **{operator: _between(operator) for operator in "+-*/"},
    "max": _extreme("clamp_min", ">=", ">"),
    "min": _extreme("clamp_max", "<=", "<"),
    "floor": lambda operands: f"floor({operands[0]})",
    "ceil": lambda operands: f"ceil({operands[0]})",
    "power_of_two": lambda operands: f"2 ^ ceil(log2(clamp_min({operands[0]}, 1)))",
    "seen": lambda operands: f"{operands[0]} != 0",
    "below": lambda operands: f"{operands[0]} < {operands[1]}",
}
_MONOTONE = frozenset({"+", "-", "*", "/", "max", "min", "floor", "ceil", "power_of_two"})


def _compared(a: Term, sign: str, b: Term, wanted: bool) -> Truth:
    """Of which engines `a sign b` is known to be true, or to be false, as `wanted`."""
    if isinstance(a, Missing) or isinstance(b, Missing):
        return False
    if isinstance(a, Constant) and isinstance(b, Constant):
        return compare(_known(a), sign, _known(b)) is wanted
    if isinstance(a, Constant):
        a, b, sign = b, a, _MIRROR[sign]
    assert isinstance(a, Series)
    if isinstance(b, Constant) and isinstance(b.value, str):  # a number is no text; which is greater is not told
        return a.low if sign in ("==", "!=") and (sign == "!=") == wanted else False
    if not wanted:
        sign = _OPPOSITE[sign]
    if isinstance(b, Constant):
        b = replace(a, low=number(float(b.value)), high=number(float(b.value)))
    if sign in ("==", "!="):
        return f"{_operand(a.low)} {sign} {_operand(b.low)}" if a.is_exact and b.is_exact else False
    # Above is what is above with its lower end: of a bucket that begins at the bound, all is above it.
    left, right = (a.low, b.high) if sign in (">", ">=") else (a.high, b.low)
    return f"{_operand(left)} {sign} {_operand(right)}"


def _known(constant: Constant) -> Known:
    return Known(constant.value)
