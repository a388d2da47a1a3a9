"""Signals as series that a Prometheus records, and formulas and conditions as PromQL over them.

One recorded series is one engine: each of them has the same labels (the scope's identity, engine, model_name), also a
signal of the whole server or of all engines of a model. How formulas and conditions are written over them:
expr/promql.py. A quantile is recorded as the bounds of its bucket.

What Prometheus cannot have (a flag, a fact of the host, a line of the log, a number that stands in a label) is missing,
with the reason; what is known when the rules are written (--goal, --slo) is a constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.promql import Constant, Missing, Series, Term, Truth, Writer, finite, number, operand
from vllm_doctor.model.reading import Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import query
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.signal import BETWEEN, TEXTS, Exporter, Signal, info

PREFIX = "vllm_doctor:"
ENGINE = PREFIX + "engine"
"""The series that is 1 for each engine."""

_LOW, _HIGH, _RANK = ":low", ":high", ":rank"
_NAME = re.compile(PREFIX + r"\w+(?::\w+)?")
_UNTOLD = {
    Reason.NOT_GIVEN: "not given: --slo ttft=2s --slo itl=50ms",
    Reason.NO_LOG: "stands in the server's log only",
    Reason.NOT_IN_COMMAND: "only of a command that is given as a text",
}
_NOT_IN_PROMETHEUS = {
    "fact": "visible on the server's host only",
    "flag": "a flag of the server's command line",
    "env": "a variable of the server's environment",
    "log": "stands in the server's log only",
    "info": "a text in a label, and PromQL compares values",
}


class Recorder:
    """The signals of a catalogue, as a Prometheus can record them.

    `scope`: the labels of a server there, the window, and the metrics that there are. `given`: what the user wants, by
    the name of its fact (goal, slo_ttft).
    """

    def __init__(self, catalogue: Catalogue, scope: query.Scope, given: Mapping[str, Value]) -> None:
        self.catalogue, self.scope, self._given = catalogue, scope, given
        self._terms: dict[str, Term] = {}
        self._writer = Writer(self.term, ENGINE)
        self._rules: dict[str, str] = {ENGINE: f"group by ({self._labels(*query.ENGINE)}) ({query.servers(scope)})"}

    def term(self, name: str) -> Term:
        """What stands for a signal."""
        if name not in self._terms:
            self._terms[name] = self._found(self.catalogue.signals[name])
        return self._terms[name]

    def holds(self, condition: Condition, wanted: bool = True) -> Truth:
        """Of which engines the condition is known to be true, or known to be false."""
        return self._writer.truth(condition.root, wanted)

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
                record = self._record(signal.name, finite(f"{of_pods} * on ({on}) group_left () ({asked})"))
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
        record = self._record(signal.name, finite(expression))
        return Series(record, record)

    def _quantile(self, name: str, q: float, buckets: str) -> Series:
        """The bounds of the bucket that holds it, as `promql` has them: no bucket, no quantile.

        Each bucket is made 0 where its count is below the rank, else 1: then all that is counted lies in the one bucket
        that holds the quantile, and the quantiles near 0 and 1 of that are its ends. What lies in the last one, which
        has no end, has no upper bound.
        """
        asked = operand(query.text(buckets, self.scope))
        ended = query.text(buckets.replace("_bucket[", '_bucket{le!="+Inf"}['), self.scope)
        each = self._labels(*query.ENGINE)
        rank = self._record(name + _RANK, f"{number(q)} * (max by ({each}) {asked} > 0)")
        reached = f"{asked} >= bool on ({each}) group_left () {rank}"
        low = self._record(name + _LOW, finite(f"histogram_quantile(1e-9, {reached})"))
        bounded = f"max by ({each}) ({ended}) >= {rank}"
        high = self._record(name + _HIGH, finite(f"histogram_quantile(1, {reached}) and {bounded}"))
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
        if signal.unit in TEXTS or signal.count:
            return Missing({signal.name: _NOT_IN_PROMETHEUS["info"]})
        by = self._labels("engine")
        if signal.unit == "flag":
            values = [self._where(metric, label, "True", 1), self._where(metric, label, "False", 0)]
        else:
            # PromQL makes a number of one label only: `le`. A histogram whose one bucket ends at the number, and holds
            # all that it counts, has it as its quantile.
            of = query.info_metric(metric, self.scope)
            ends = f'label_replace({of}, "le", "$1", "{label}", "(.*)") or label_replace({of}, "le", "+Inf", "", "")'
            values = [finite(f"histogram_quantile(1, max by ({by}, le) ({ends}))")]
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
        term = self._writer.value(formula.root)
        match term:
            case Missing():
                return term
            case Constant(float() as value) if not math.isfinite(value):
                return Missing({signal.name: "not a number"})
            case Constant():
                return term
            case Series() if term.is_exact:
                if _NAME.fullmatch(term.low):
                    return self._only_way(signal, term)
                record = self._record(signal.name, finite(term.low))
                return Series(record, record)
            case _:
                low = self._record(signal.name + _LOW, finite(term.low))
                return Series(low, self._record(signal.name + _HIGH, finite(term.high)))

    def _only_way(self, signal: Signal, term: Series) -> Series:
        """Of several ways of a signal the one that a Prometheus has is recorded as the signal."""
        if not term.low.startswith(PREFIX + signal.name + BETWEEN):
            return term
        record = self._record(signal.name, self._rules.pop(term.low))
        only = self._terms[term.low.removeprefix(PREFIX)] = Series(record, record)
        return only
