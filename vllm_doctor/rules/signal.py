"""A signal of the vocabulary: its name, its meaning, and the one way, or the ways in order, by which it is known.

    promql    evaluated over the scrapes; $engine is the labels that name an engine, $model the same
              without `engine`, $window the time range, $recent its last scrapes
    info      a label of an info metric, read as a value: metric{label}
    present   whether the server exports one of these metrics
    fact      what a source or the user knows: the version, the cores granted, an SLO
    flag      a flag of the server's command line; `none` is its value where it was not given
    env       a variable of the server's environment; `none` is its value where it is not set
    log       how often a line of rules/log-lines stands in the server's log, or a value of it: line, line.value;
              of several lines (a b c) the sum; line@serving: since the server was up; line@here: in the
              time that is judged; line@at: of a start, the seconds from the log's first line to when it was printed
    formula   computed from other signals; also a choice of several ways, or where it holds (signals_file.py)

A fact of the server's host may besides have an `exporter`: the series by which a Prometheus knows it, of a container or
a GPU. Its `promql` is evaluated there only, may be all of PromQL, and is aggregated by labels that an engine has too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.promql_eval import Expression, PromQLError
from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason

MEASURED = ("promql", "info", "present")
"""The ways of what stands on /metrics, and so in a Prometheus."""

WAYS = (*MEASURED, "fact", "flag", "env", "log", "formula")
BETWEEN = "__"
"""Between a signal and its way, where a way of several has a name of its own: max_num_seqs__flag."""
DEFAULT_IDENTITY = ("engine", "model_name")
UNITS = (
    "ratio", "share", "factor", "s", "1/s", "bytes", "tokens", "blocks", "requests", "engines",
    "adapters", "cores", "W", "MHz", "°C", "text", "words", "flag", "",
)  # fmt: skip
TEXTS = frozenset({"text", "words"})
"""Units of what is no number. `words`: each of them is one by itself, where it is quoted."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Another exporter that tells a fact: who it is, its query ($window is the range), and what it is aggregated by."""

    origin: str
    promql: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """One entry, or one of its ways: what it is called and what it means; `definition` is the text under its `way`."""

    name: str
    says: str
    unit: str
    way: str
    definition: str
    vital: str | None = None
    """Shown as a vital sign; how it adds up over engines: sum or max."""
    needed: bool = False
    """Without it there is no verdict."""
    target: str | None = None
    """For a target the user may give (an SLO): the signal that must stay below it."""
    none: Value | None = None
    count: bool = False
    reason: Reason = Reason.ABSENT
    present: tuple[str, ...] = ()
    formula: Formula | None = None
    exporter: Exporter | None = None
    written: tuple[str, ...] = ()
    """Its ways and conditions as the file has them, the first way first."""
    way_of: str | None = None
    """For one of several ways of a signal: that signal. Rules name that one only."""


def metrics(signal: Signal) -> Iterable[str]:
    """The metrics that it is made of."""
    match signal.way:
        case "promql":
            return expression(signal.definition).names
        case "present":
            return signal.present
        case "info":
            return (info(signal.definition)[0],)
        case _:
            return ()


def expression(definition: str, identity: tuple[str, ...] = DEFAULT_IDENTITY) -> Expression:
    """A signal's `promql`, where these labels name an engine. Raises PromQLError."""
    model = tuple(name for name in identity if name != "engine")
    text = definition.replace("$engine", ", ".join(identity)).replace("$model", ", ".join(model))
    # A window holds no points but its own, so a range takes them all, however long it says it is.
    return _expression(text.replace("$window", "1000ms").replace("$recent", "1000ms"))


@cache
def _expression(text: str) -> Expression:
    return Expression(text)


def info(definition: str) -> tuple[str, str]:
    """The metric and the label of an info signal: "metric{label}". Raises PromQLError."""
    match = re.fullmatch(r"([\w:]+)\{(\w+)\}", definition)
    if match is None:
        raise PromQLError(f"write an info signal as metric{{label}}: {definition}")
    return match[1], match[2]


def parsed(text: str, signal: Signal) -> Reading:
    """An info metric's label as the signal's value."""
    if signal.count:
        return Known(float(len([item for item in text.split(",") if item.strip()])))
    if text in ("None", ""):
        return Unknown(Reason.ABSENT) if signal.none is None else Known(signal.none)
    if signal.unit in TEXTS:
        return Known(text)
    if text in ("True", "False"):
        return Known(text == "True")
    value = outside.number(text)
    return Unknown(Reason.INVALID) if value is None else Known(value)
