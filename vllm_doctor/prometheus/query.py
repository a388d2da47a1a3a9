"""A signal's PromQL, as it is asked of a Prometheus, or written into a rule for one.

The catalogue writes a signal for one server: $engine, $model, $window, and `sum(...)` for all of the server. A
Prometheus holds many servers. So the parsed tree is printed anew, with

    the user's matchers           in each selector; those of engine and model_name only where a metric must have them
    the labels that tell servers  in each `by (...)`; an aggregation without one is by these alone: it means "of this
      apart (the scope's identity)  server"
    what is not vLLM's own        (process_cpu_seconds_total) only of targets that have a vLLM: `and on (...)`
    Ray's names                   ray_vllm_x beside, or instead of, vllm:x

What differs from a scrape of our own (promql.py), and by how much. With a sample each i seconds and a window of w:

    rate        The same for a series that fills the window: Prometheus extrapolates the growth from the first to the
                last sample, and divides by what it extrapolated to. One that began or ended in the window is divided
                by the whole window: lower by the share that it was there.
    increase    rate times w, so more than what was counted: at most by w / (w - 2.2 i); 1.04 for ten minutes at 10 s.
    near 0      a counter is extrapolated to 0 at most: a quantile of a few requests may lie one bucket beside.
    both        need two samples in the window, or there is no value: at least twice, better four times i.
    a counter   that first shows with a value was 0 before: neither sees that first growth.
    a gauge     without a window is at most five minutes old: a vanished engine stays so long, unless it went stale.

VictoriaMetrics reads the same text otherwise (MetricsQL). Its `increase` begins at 0 where a series begins in the
window, of some buckets of a histogram and not of others; so it is asked for `increase_prometheus`: what was counted,
neither more nor less. It leaves 0/0 out of a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser as ast

from vllm_doctor.expr.promql_eval import parsed
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.rules.signal import Exporter

ENGINE = ("engine", "model_name")
"""The labels by which vLLM itself tells engines apart."""

VLLM, RAY = "vllm:", "ray_vllm_"
"""How the names of vLLM's metrics begin: as it writes them, and as Ray exports them."""
NAMES = (VLLM, RAY, "ray_vllm:")

_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_IN_METRICSQL = {"increase": "increase_prometheus", "changes": "changes_prometheus"}
METRICSQL = "step()"
"""A query that only VictoriaMetrics answers."""
_SELECT = 'write it as PromQL has it: --select \'namespace="prod", pod=~"llama-.*"\''
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_WINDOW = re.compile(r"(\d+(ms|[smhdwy]))+|\$\w+")


@dataclass(frozen=True, slots=True)
class Matcher:
    """namespace="prod": `operator` is one of = != =~ !~; `value` as it is, not escaped."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{_quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Of which servers, over which time. Raises ValueError for what would not be PromQL.

    `matchers`: for every selector of a server's metrics. `identity`: the labels that tell servers apart (job,
    namespace, pod, instance), beside vLLM's own. `window`: 10m, or a placeholder: $__rate_interval. `names`: how vLLM's
    metrics begin there: VLLM, RAY or both.
    """

    matchers: tuple[Matcher, ...] = ()
    identity: tuple[str, ...] = ("job", "instance")
    window: str = "10m"
    names: tuple[str, ...] = (VLLM,)
    exported: frozenset[str] | None = None
    """The metrics that there are, by vLLM's names: of `x or y` only what is there is asked for. None: not known."""
    is_metricsql: bool = False
    """It is VictoriaMetrics that reads the queries."""

    def __post_init__(self) -> None:
        for label in self.identity:
            if not _LABEL.fullmatch(label):
                raise ValueError(f"not a label: {label!r}")
        if not _WINDOW.fullmatch(self.window):
            raise ValueError(f"not a window: {self.window!r}")
        if not self.names:
            raise ValueError("no names of metrics")


def matchers(text: str) -> tuple[Matcher, ...]:
    """The matchers of --select, with or without their braces. Raises UsageError."""
    inside = text.strip()
    if inside.startswith("{") and inside.endswith("}"):
        inside = inside[1:-1]
    try:
        found = parsed(f"{ENGINE_METRIC}{{{inside}}}")
    except ValueError as error:
        raise UsageError(f"--select {text}: {error}; {_SELECT}") from None
    if not isinstance(found, ast.VectorSelector) or found.offset or found.at or found.matchers.or_matchers:
        raise UsageError(f"--select {text}: not matchers of labels; {_SELECT}")
    if not found.matchers.matchers:
        raise UsageError(f"--select {text}: selects nothing; {_SELECT}")
    for matcher in found.matchers.matchers:
        if not _LABEL.fullmatch(matcher.name):
            raise UsageError(f"--select {text}: {matcher.name!r} is not a label; {_SELECT}")
    return tuple(_matcher(matcher) for matcher in found.matchers.matchers)


def of_exporter(exporter: Exporter, scope: Scope) -> str:
    """The query for a fact that another exporter tells, of what the engines of this scope run in."""
    asked = exporter.promql.replace("$window", scope.window)
    return f"({asked}) and on ({', '.join(exporter.labels)}) {servers(scope)}"


def exporter_metrics(exporter: Exporter) -> frozenset[str]:
    """The metrics that its query asks for."""
    found: list[Any] = []
    ast.walk(ast.parse(exporter.promql.replace("$window", "1s")), found.append)
    return frozenset(str(node.name) for node in found if isinstance(node, ast.VectorSelector))


def text(definition: str, scope: Scope) -> str:
    """A signal's `promql`, as a query of this scope. The definition is one that the catalogue has accepted."""
    return _written(_parsed(definition), scope)


def labels_of(metric: str, labels: Iterable[str], scope: Scope) -> str:
    """The query for some labels of an info metric; its value is the series' value.

    It, and that of `present`, may hold engines that the matchers leave out: `servers` tells which are meant.
    """
    return f"max by ({_listed((*ENGINE, *labels), scope.identity)}) ({_selector(metric, (), scope, False)})"


def present(metrics: Sequence[str], scope: Scope) -> str:
    """The query whose rows are the servers that have one of these metrics."""
    by = f"by ({', '.join(scope.identity)})"
    return " or ".join(f"count {by} ({_selector(metric, (), scope, False)})" for metric in metrics)


def servers(scope: Scope) -> str:
    """The selector of the engines themselves: one series of it is one engine."""
    return _selector(ENGINE_METRIC, (), scope)


def info_metric(metric: str, scope: Scope, *own: Matcher) -> str:
    """The selector of an info metric's series."""
    return _selector(metric, own, scope, False)


def quantile(definition: str) -> tuple[float, str] | None:
    """Which quantile it is, and the definition of its buckets; None for what is no quantile."""
    root = _parsed(definition)
    if not isinstance(root, ast.Call) or root.func.name != "histogram_quantile":
        return None
    return float(root.args[0].val), str(root.args[1].prettify())


def is_told(definition: str, scope: Scope) -> bool:
    """Whether what the definition needs is exported: of `x or y` one side."""
    return _is_told(_parsed(definition), scope)


def _is_told(node: Any, scope: Scope) -> bool:
    match node:
        case ast.VectorSelector():
            return scope.exported is None or node.name in scope.exported
        case ast.MatrixSelector():
            return _is_told(node.vector_selector, scope)
        case ast.ParenExpr() | ast.AggregateExpr():
            return _is_told(node.expr, scope)
        case ast.Call():
            return all(_is_told(argument, scope) for argument in node.args)
        case ast.BinaryExpr():
            sides = [_is_told(side, scope) for side in (node.lhs, node.rhs)]
            return any(sides) if str(node.op) == "or" else all(sides)
        case _:
            return True


_OF_TWO = frozenset(("rate", "increase", "changes", "resets"))


def needs_two_samples(definition: str) -> bool:
    """Whether the signal is made of rates, which one scrape cannot give."""
    return any(isinstance(node, ast.Call) and node.func.name in _OF_TWO for node in _nodes(definition))


def buckets(definition: str, scope: Scope) -> str | None:
    """The query for the bounds (le) of a quantile's buckets, and how many engines of a model have each.

    None for what is no quantile. A Prometheus tells of a quantile only where it guesses it in its bucket.
    """
    root = _parsed(definition)
    if not isinstance(root, ast.Call) or root.func.name != "histogram_quantile":
        return None
    metrics = [str(node.name) for node in _nodes(definition) if isinstance(node, ast.VectorSelector)]
    return " or ".join(f"count by (le, model_name) ({_selector(metric, (), scope)})" for metric in metrics)


def leaves_out(definition: str, scope: Scope) -> bool:
    """Whether an engine may be missing in the result though its metrics are there: it does not pass a comparison, or,
    of VictoriaMetrics, it is 0/0."""
    operators = {str(node.op) for node in _nodes(definition) if isinstance(node, ast.BinaryExpr)}
    is_quotient = "/" in operators or quantile(definition) is not None
    return bool(operators & _COMPARISONS) or (scope.is_metricsql and is_quotient)


_COMPARISONS = frozenset((">", ">=", "<", "<=", "==", "!="))


def _parsed(definition: str) -> Any:
    model = ", ".join(name for name in ENGINE if name != "engine")
    filled = definition.replace("$engine", ", ".join(ENGINE)).replace("$model", model)
    # The scope's own is written in place of it; what a Prometheus is asked of is recent.
    return ast.parse(filled.replace("$window", "1s").replace("$recent", "1s"))


def _nodes(definition: str) -> Iterator[Any]:
    found: list[Any] = []
    ast.walk(_parsed(definition), found.append)
    return iter(found)


def _written(node: Any, scope: Scope) -> str:
    """The expression as text. What no signal may hold (promql.Expression) does not come here."""
    match node:
        case ast.NumberLiteral():
            return f"{node.val:.15g}"
        case ast.ParenExpr():
            return f"({_written(node.expr, scope)})"
        case ast.VectorSelector():
            metric = str(node.name)
            return _of_vllm(metric, _selector(metric, map(_matcher, node.matchers.matchers), scope), scope)
        case ast.Call():
            ranged = node.args[-1]
            before = "".join(f"{_written(argument, scope)}, " for argument in node.args[:-1])
            if not isinstance(ranged, ast.MatrixSelector):
                return f"{node.func.name}({before}{_written(ranged, scope)})"
            of, metric = ranged.vector_selector, str(ranged.vector_selector.name)
            selected = _selector(metric, map(_matcher, of.matchers.matchers), scope)
            name = _IN_METRICSQL.get(node.func.name, node.func.name) if scope.is_metricsql else node.func.name
            return _of_vllm(metric, f"{name}({before}{selected}[{scope.window}])", scope)
        case ast.AggregateExpr():
            by = _listed(node.modifier.labels if node.modifier else (), scope.identity)
            return f"{node.op} by ({by}) ({_written(node.expr, scope)})"
        case ast.BinaryExpr() if str(node.op) == "or" and not (_is_told(node.lhs, scope) and _is_told(node.rhs, scope)):
            return _written(node.lhs if _is_told(node.lhs, scope) else node.rhs, scope)
        case ast.BinaryExpr():
            return f"{_written(node.lhs, scope)} {node.op} {_written(node.rhs, scope)}"
        case _:
            raise ValueError(f"not in the subset: {node.prettify()}")


def _selector(metric: str, own: Iterable[Matcher], scope: Scope, is_of_engine: bool = True) -> str:
    """`is_of_engine`: the metric has vLLM's own labels. cache_config_info has no model_name, for one."""
    is_vllm = metric.startswith(VLLM)
    added = [m for m in scope.matchers if m.label not in ENGINE or (is_vllm and is_of_engine)]
    written = [str(matcher) for matcher in (*own, *added)]
    name = metric
    if is_vllm:
        names = [prefix + metric.removeprefix(VLLM) for prefix in scope.names]
        name = names[0]
        if len(names) > 1:
            name, written = "", [f'__name__=~"{"|".join(names)}"', *written]
    return f"{name}{{{', '.join(written)}}}" if written else name


def _of_vllm(metric: str, expression: str, scope: Scope) -> str:
    """What any program may export, of those targets only that are vLLM servers."""
    if metric.startswith(VLLM):
        return expression
    return f"({expression} and on ({', '.join(scope.identity)}) {servers(scope)})"


def _matcher(matcher: Any) -> Matcher:
    return Matcher(matcher.name, _OPERATORS[str(matcher.op)], matcher.value)


def _listed(labels: Iterable[str], identity: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys((*labels, *identity)))


def _quoted(value: str) -> str:
    """A string as PromQL (Go) reads it. Control characters, also those that turn text around, are escaped."""
    found = []
    for character in value:
        if character in '"\\':
            found.append(f"\\{character}")
        elif character.isprintable():
            found.append(character)
        else:
            found.append(f"\\U{ord(character):08x}")
    return f'"{"".join(found)}"'
