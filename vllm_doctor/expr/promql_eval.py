"""The subset of PromQL that a signal may use, evaluated over a Window.

Parsed by promql-parser, so a signal's text is real PromQL and may be asked of a Prometheus unchanged.
Differences from Prometheus, on purpose: a range is the whole window, and rates are not extrapolated to
its edges (two scrapes 3 s apart give exactly what happened between them).

Allowed: selectors with matchers; rate, increase, delta, changes, resets, avg/min/max/count/quantile_over_time,
histogram_quantile;
sum, min, max, avg, count by (...); + - * /; comparisons as filters; or, and, unless.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import promql_parser as ast

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.window import Labels, Point, Window, increase

Vector = dict[Labels, float]

_MAX_LENGTH = 4000


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*+`")
_OVERLONG = re.compile(r"(?i)(?:\boffset\b[\s+-]{0,99}|\[[^\[\]]{0,999}?)(?:nan|inf|\d{16}|[\d.]{1,15}e)")
"""A duration, or an offset, in seconds that no clock counts."""


class PromQLError(ValueError):
    """The text is not PromQL, or not in the subset."""


class Estimate(float):
    """A quantile: interpolated in its bucket as Prometheus does, and that bucket's bounds."""

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> Estimate:
        self = super().__new__(cls, value)
        self.low, self.high = low, high
        return self


@dataclass
class Trace:
    """What an evaluation met on the way, from which the reason of an empty result is told."""

    found_series: bool = False
    lacked_points: bool = False


def _quantile(q: float, values: list[float]) -> float:
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _rate(points: list[Point]) -> float:
    seconds = points[-1][0] - points[0][0]
    return increase(points) / seconds if seconds > 0 else math.nan


_OVER_TIME: dict[str, Callable[[list[Point]], float]] = {
    "rate": _rate,
    "increase": increase,
    "delta": lambda points: points[-1][1] - points[0][1],
    "changes": lambda points: float(sum(after != before for (_, before), (_, after) in pairwise(points))),
    "resets": lambda points: float(sum(after < before for (_, before), (_, after) in pairwise(points))),
    "avg_over_time": lambda points: sum(value for _, value in points) / len(points),
    "min_over_time": lambda points: min(value for _, value in points),
    "max_over_time": lambda points: max(value for _, value in points),
    "count_over_time": lambda points: float(len(points)),
}
_NEEDS_TWO = {"rate", "increase", "delta", "changes", "resets"}
_AGGREGATE: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "count": lambda values: float(len(values)),
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else (math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)),
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_MATCH: dict[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": lambda value, text: value == text,
    "MatchOp.NotEqual": lambda value, text: value != text,
    "MatchOp.Re": lambda value, text: _is_like(value, text),
    "MatchOp.NotRe": lambda value, text: not _is_like(value, text),
}
_REPEAT = re.compile(r"[*+{]")
_PATTERN_SECONDS = 1.0
"""Of processor time, for one pattern on one label."""


def _is_like(value: str, pattern: str) -> bool:
    """Whether a label matches. What repeats has a time limit: a pattern of a user's own cannot hang the doctor."""
    try:
        if not _REPEAT.search(pattern):
            return re.fullmatch(pattern, value) is not None
        import regex  # imported when first needed: no shipped signal has such a pattern

        return regex.fullmatch(pattern, value, timeout=_PATTERN_SECONDS) is not None
    except TimeoutError:
        raise UsageError(f"=~{pattern!r} takes longer than {_PATTERN_SECONDS:g} s on one label: simplify it") from None
    except Exception as error:  # re.error, or that of `regex`
        raise UsageError(f"=~{pattern!r} is no regular expression here: {error}") from None


def parsed(text: str) -> Any:
    """The tree of a query, of all of PromQL. Raises PromQLError."""
    if len(text) > _MAX_LENGTH:  # the parser recurses without a limit of its own
        raise PromQLError(f"longer than {_MAX_LENGTH} characters")
    if _OVERLONG.search(_QUOTED.sub("", text)):  # the parser panics, and says so on stderr
        raise PromQLError(f"no duration: {text}")
    try:
        return ast.parse(text)
    except (ValueError, OverflowError) as error:
        raise PromQLError(f"{error}: {text}") from None


class Expression:
    """One parsed and checked PromQL text.

    Raises PromQLError, with the offending part, where the text is not in the subset.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._root = parsed(text)
        try:
            self.names: tuple[str, ...] = tuple(dict.fromkeys(_check(self._root)))
        except RecursionError:
            raise PromQLError("nested too deeply") from None

    def evaluate(self, window: Window) -> tuple[Vector, Trace]:
        """The value for each label set, and what was met on the way. NaN: 0/0, nothing happened."""
        trace = Trace()
        result = _evaluate(self._root, window, trace)
        return ({(): result} if isinstance(result, float) else result), trace


def aggregated_by(text: str) -> tuple[str, ...]:
    """The labels of a query that is an aggregation by labels, of all of PromQL. Raises PromQLError."""
    root = parsed(text)
    if not isinstance(root, ast.AggregateExpr) or root.modifier is None or not _is_by(root.modifier):
        raise PromQLError(f"aggregate by the labels that it is joined by: max by (namespace, pod) (...): {text}")
    return tuple(root.modifier.labels)


def _check(node: Any) -> list[str]:
    """The metric names of an expression; PromQLError for what the subset lacks.

    Long because it has one short case for each kind of node, and so names the subset in one place; `_evaluate` too.
    """
    match node:
        case ast.NumberLiteral():
            return []
        case ast.ParenExpr():
            return _check(node.expr)
        case ast.VectorSelector() if node.name and node.offset is None and node.at is None:
            if node.matchers.or_matchers:
                raise PromQLError(f"`or` between matchers is not in the subset: {node.prettify()}")
            return [str(node.name)]
        case ast.Call() if node.func.name in _OVER_TIME and isinstance(node.args[0], ast.MatrixSelector):
            return _check(node.args[0].vector_selector)
        case ast.Call() if node.func.name in ("quantile_over_time", "histogram_quantile"):
            q, of = node.args
            if not isinstance(q, ast.NumberLiteral) or not 0 <= q.val <= 1:
                raise PromQLError(f"the quantile must be a number from 0 to 1: {node.prettify()}")
            if node.func.name == "histogram_quantile":
                return _check(of)
            if isinstance(of, ast.MatrixSelector):
                return _check(of.vector_selector)
            raise PromQLError(f"not in the subset: {node.prettify()}")
        case ast.AggregateExpr() if str(node.op) in _AGGREGATE and _is_by(node.modifier):
            return _check(node.expr)
        case ast.BinaryExpr() if str(node.op) in _ARITHMETIC.keys() | _COMPARE.keys() | {"or", "and", "unless"}:
            modifier = node.modifier
            if modifier is not None and (modifier.matching is not None or modifier.return_bool):
                raise PromQLError(f"on, ignoring, group_left and bool are not in the subset: {node.prettify()}")
            left = _check(node.lhs)
            if str(node.op) in _COMPARE and not left:
                raise PromQLError(f"write the number on the right: {node.prettify()}")
            return left + _check(node.rhs)
        case _:
            raise PromQLError(f"not in the subset: {node.prettify()}")


def _is_by(modifier: Any) -> bool:
    return modifier is None or str(modifier.type) == "AggModifierType.By"


def _selected(selector: Any, window: Window, trace: Trace) -> dict[Labels, list[Point]]:
    series = window.series(selector.name)
    matchers = selector.matchers.matchers
    if matchers:
        series = {labels: points for labels, points in series.items() if _matches(matchers, dict(labels))}
    if series:
        trace.found_series = True
    return dict(series)


def _matches(matchers: list[Any], labels: dict[str, str]) -> bool:
    return all(_MATCH[str(m.op)](labels.get(m.name, ""), m.value) for m in matchers)


def _evaluate(node: Any, window: Window, trace: Trace) -> float | Vector:
    match node:
        case ast.NumberLiteral():
            return float(node.val)
        case ast.ParenExpr():
            return _evaluate(node.expr, window, trace)
        case ast.VectorSelector():
            now = window.times[-1] if window.times else 0.0
            found = _selected(node, window, trace)
            return {labels: points[-1][1] for labels, points in found.items() if points[-1][0] == now}
        case ast.Call() if node.func.name == "histogram_quantile":
            return _histogram_quantile(node.args[0].val, _evaluate(node.args[1], window, trace))
        case ast.Call() if node.func.name == "quantile_over_time":
            q, ranged = node.args[0].val, _selected(node.args[1].vector_selector, window, trace)
            return {labels: _quantile(q, [value for _, value in points]) for labels, points in ranged.items()}
        case ast.Call():
            over, need = _OVER_TIME[node.func.name], 2 if node.func.name in _NEEDS_TWO else 1
            ranged = _selected(node.args[0].vector_selector, window, trace)
            if any(len(points) < need for points in ranged.values()):
                trace.lacked_points = True
            return {labels: over(points) for labels, points in ranged.items() if len(points) >= need}
        case ast.AggregateExpr():
            by = set(node.modifier.labels) if node.modifier else set()
            groups: dict[Labels, list[float]] = {}
            for labels, value in _vector(_evaluate(node.expr, window, trace)).items():
                groups.setdefault(tuple(pair for pair in labels if pair[0] in by), []).append(value)
            aggregate = _AGGREGATE[str(node.op)]
            return {labels: aggregate(values) for labels, values in groups.items()}
        case _:
            return _binary(str(node.op), _evaluate(node.lhs, window, trace), _evaluate(node.rhs, window, trace))


def _vector(value: float | Vector) -> Vector:
    return {(): value} if isinstance(value, float) else value


def _binary(op: str, left: float | Vector, right: float | Vector) -> float | Vector:
    if op in ("or", "and", "unless"):
        a, b = _vector(left), _vector(right)
        if op == "or":
            return {**b, **a}
        return {labels: value for labels, value in a.items() if (labels in b) == (op == "and")}
    if op in _COMPARE:
        holds = _COMPARE[op]
        if isinstance(right, float):
            return {labels: value for labels, value in _vector(left).items() if holds(value, right)}
        return {labels: v for labels, v in _vector(left).items() if labels in right and holds(v, right[labels])}
    compute = _ARITHMETIC[op]
    if isinstance(left, float) and isinstance(right, float):
        return compute(left, right)
    if isinstance(right, float):
        return {labels: compute(value, right) for labels, value in _vector(left).items()}
    if isinstance(left, float):
        return {labels: compute(left, value) for labels, value in right.items()}
    return {labels: compute(value, right[labels]) for labels, value in left.items() if labels in right}


def _histogram_quantile(q: float, buckets: float | Vector) -> Vector:
    """As Prometheus interpolates, with the bucket's bounds. An empty histogram is NaN: nothing happened."""
    histograms: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in _vector(buckets).items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        bound = dict(labels).get("le", "")
        try:
            histograms.setdefault(rest, []).append((float(bound), count))
        except ValueError:
            continue
    result: Vector = {}
    for labels, points in histograms.items():
        points.sort()
        bounds = [bound for bound, _ in points]
        counts: list[float] = []
        for _, count in points:  # scrapes of a live server may tear: buckets must not fall
            counts.append(max(count, counts[-1]) if counts else count)
        if len(points) < 2 or bounds[-1] != math.inf or not counts[-1] > 0:
            result[labels] = math.nan
            continue
        rank = q * counts[-1]
        place = min(bisect_left(counts, rank), len(points) - 1)
        while counts[place] == 0:  # rank 0: the first bucket that holds anything
            place += 1
        low = bounds[place - 1] if place else min(0.0, bounds[0])
        below = counts[place - 1] if place else 0.0
        high = bounds[place]
        inside = counts[place] - below
        value = low if high == math.inf else low + (high - low) * ((rank - below) / inside if inside else 1.0)
        result[labels] = Estimate(value, low, high)
    return result
