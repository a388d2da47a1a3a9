"""Rows of a query's result, sorted to the engines that they are of: a column for each signal.

A row is of the engines that have its labels: of one engine, of a model, of a server.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Unknown, Value, Values, project
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import query
from vllm_doctor.prometheus.api import ORIGIN, Labels, Row
from vllm_doctor.prometheus.query import ENGINE, Scope
from vllm_doctor.rules.signal import TEXTS, Signal, info, parsed

_LABELS = "VictoriaMetrics keeps 30 labels of a series unless it is started with -maxLabelsPerTimeseries=60"


class Matched(NamedTuple):
    """A row, with the engines that it is of; `shape`: by which of its labels."""

    shape: tuple[str, ...]
    engines: Sequence[int]
    row: Row


@dataclass(frozen=True)
class Question:
    """What is asked for one signal, or for several that stand in one row."""

    signals: tuple[Signal, ...]
    texts: tuple[str, ...]


class _Shape(NamedTuple):
    """The labels by which rows are of engines: how to read their values, and the engines by these."""

    labels: tuple[str, ...]
    values: Callable[[Labels], tuple[str, ...]]
    places: Mapping[tuple[str, ...], Sequence[int]]


class EngineColumns:
    """Rows, sorted to the engines that they are of."""

    def __init__(self, engines: Sequence[Labels], scope: Scope) -> None:
        self._engines, self._scope = engines, scope
        self._names = tuple(dict.fromkeys((*ENGINE, *scope.identity)))
        self._places: dict[tuple[Any, ...], _Shape] = {}
        """By the names of a row's labels."""
        self._common = {name for name in scope.identity if all(name in engine for engine in engines)}
        """The labels of a server that each engine has."""
        self._twice: Counter[str] = Counter()
        self._nameless: dict[str, str] = {}
        self.subjects = tuple(tuple(sorted(engine.items())) for engine in engines)
        self.columns: dict[str, Column] = {}
        self.labels: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, Reason] = {}
        self.idle: dict[str, frozenset[int]] = {}
        self.scrapes = [0] * len(engines)

    def matched(self, rows: Iterable[Row], of_servers: bool = True) -> list[Matched]:
        """The rows with the engines that each is of: all that have its labels, as far as engines have such labels.

        What is of fewer engines comes later. `of_servers`: an engine lacks what the row lacks of the identity.
        """
        found: list[Matched] = []
        shapes: set[tuple[str, ...]] = set()
        for row in rows:
            names = (of_servers, *row.labels)
            of = self._places.get(names)
            if of is None:
                of = self._places[names] = self._shape(row.labels, of_servers)
            labels, values, places = of
            shapes.add(labels)
            found.append(Matched(labels, places.get(values(row.labels), ()), row))
        if len(shapes) > 1:
            found.sort(key=lambda one: len(one.shape))
        return found

    def _shape(self, of: Labels, of_servers: bool) -> _Shape:
        """By which labels a row with such ones is of an engine, and the engines by their values."""
        own = self._scope.identity if of_servers else ()
        labels = tuple(name for name in self._names if name in of or name in own)

        def values(row: Labels) -> tuple[str, ...]:
            return tuple([row.get(name, "") for name in labels])

        places: dict[tuple[str, ...], list[int]] = {}
        for place, engine in enumerate(self._engines):
            places.setdefault(values(engine), []).append(place)
        # Much the faster one, of a hundred rows of each engine.
        is_whole = len(labels) > 1 and set(labels) <= of.keys()
        return _Shape(labels, itemgetter(*labels) if is_whole else values, dict(places))

    def take(self, question: Question, results: Sequence[list[Row]]) -> None:
        """The results of a question's texts as columns."""
        first = question.signals[0]
        rows = self.matched(results[0], of_servers=first.way != "fact")
        for signal in question.signals:
            shapes = dict.fromkeys(one.shape for one in rows)
            self.labels[signal.name] = tuple(dict.fromkeys(name for shape in shapes for name in shape))
        match first.way:
            case "fact":
                # Of what has only a part of the labels, nobody knows whose it is.
                wanted = set(first.exporter.labels if first.exporter else ())
                self._numbers(first, [one for one in rows if wanted <= set(one.shape)])
            case "promql" if len(results) > 1:
                self._quantile(first, rows, Buckets(results[1]))
            case "promql":
                self._numbers(first, rows)
            case "present":
                self._present(first, rows)
            case _:
                self._infos(question.signals, rows)

    def lack(self, question: Question, reason: Reason) -> None:
        for signal in question.signals:
            self.columns[signal.name] = Unknown(reason)
            self.reasons[signal.name] = reason
            self.labels[signal.name] = self._names

    def _numbers(self, signal: Signal, rows: Sequence[Matched]) -> None:
        values: list[Value | None] = [None] * len(self._engines)
        idle: set[int] = set()
        seen: set[int] = set()
        for _, engines, row in rows:
            if engines and id(engines) in seen:
                self._twice[signal.name] += 1
            seen.add(id(engines))
            is_number = math.isfinite(row.value)
            for engine in engines:
                values[engine] = row.value if is_number else None
                if not is_number:
                    idle.add(engine)
        if is_rate(signal):
            # VictoriaMetrics makes a rate of one scrape, and what was before the window.
            values = [None if count < 2 else value for value, count in zip(values, self.scrapes, strict=True)]
        self._keep(signal, Values(values), bool(rows))
        self._idle(signal, {engine for engine in idle if values[engine] is None})

    def _quantile(self, signal: Signal, rows: Sequence[Matched], buckets: Buckets) -> None:
        readings: list[Reading] = [Unknown(Reason.ABSENT)] * len(self._engines)
        idle: set[int] = set()
        for _, engines, row in rows:
            for engine in engines:
                if self.scrapes[engine] < 2:
                    continue
                if math.isfinite(row.value):
                    low, high = buckets.around(row.value, self._engines[engine].get("model_name", ""))
                    readings[engine] = Known(row.value, low, high, ORIGIN)
                else:
                    idle.add(engine)
        self._keep(signal, Bounded(readings), bool(rows or buckets))
        self._idle(signal, idle)

    def _idle(self, signal: Signal, engines: set[int]) -> None:
        if engines:
            self.idle[signal.name] = frozenset(engines)

    def _present(self, signal: Signal, rows: Sequence[Matched]) -> None:
        values: list[Value | None] = [False] * len(self._engines)
        for _, engines, _ in rows:
            for engine in engines:
                values[engine] = True
        self.columns[signal.name] = Values(values)

    def _infos(self, signals: Sequence[Signal], rows: Sequence[Matched]) -> None:
        newest: dict[int, Row] = {}
        metric = info(signals[0].definition)[0]
        for _, engines, row in rows:
            if not engines and (lost := self._common - row.labels.keys()):
                self._nameless[metric] = ", ".join(sorted(lost))
            for engine in engines:
                # Old label sets stay on the page: vLLM sets lora_requests_info to the time of its last change.
                if engine not in newest or row.value >= newest[engine].value:
                    newest[engine] = row
        for signal in signals:
            label = info(signal.definition)[1]
            values: list[Value | None] = [None] * len(self._engines)
            for engine, row in newest.items():
                text = row.labels.get(label)
                reading = parsed(text or "", signal) if text is not None or signal.none is not None else None
                values[engine] = reading.value if isinstance(reading, Known) else None
            self._keep(signal, Values(values, signal.unit in TEXTS), bool(rows))

    def _keep(self, signal: Signal, column: Values | Bounded, has_rows: bool) -> None:
        absent = Reason.ABSENT if signal.exporter is None else signal.reason
        if not has_rows:
            self.lack(Question((signal,), ()), absent)
            return
        self.columns[signal.name] = column
        is_left_out = signal.way == "promql" and query.leaves_out(signal.definition, self._scope)
        self.reasons[signal.name] = Reason.IDLE if is_left_out else absent

    def notes(self) -> list[str]:
        """What is odd about the engines' labels and their series."""
        notes = [f"{count:,} series of {name} came twice; the last was taken" for name, count in self._twice.items()]
        notes += [
            f"series of {metric} have lost {labels}, and their engine is unknown: {_LABELS}"
            for metric, labels in self._nameless.items()
        ]
        for label in self._names:
            if "replica" not in label.lower():
                continue
            alone = {project(subject, set(self._names) - {label}) for subject in self.subjects}
            if len(alone) <= len(self.subjects) / 2:
                notes.append(
                    f"every engine is there twice or more, distinguished by {label} alone: let the Prometheus"
                    f" deduplicate it, or --select one: --select '{label}=\"…\"'"
                )
        return notes


class Buckets:
    """The bounds of a histogram's buckets, by model: as far as all engines of the model have them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        counts: dict[str, dict[float, float]] = {}
        for row in rows:
            try:
                bound = float(row.labels.get("le", ""))
            except ValueError:
                continue
            if math.isfinite(bound):
                of = counts.setdefault(row.labels.get("model_name", ""), {})
                of[bound] = max(row.value, of.get(bound, 0.0))
        self._bounds = {
            model: sorted(bound for bound, count in of.items() if count == max(of.values()))
            for model, of in counts.items()
        }

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def around(self, value: float, model: str) -> tuple[float, float]:
        """The bucket that a quantile was guessed in. At the last bound it may lie above, too: there is no telling."""
        bounds = self._bounds.get(model, ())
        place = bisect_left(bounds, value)
        if not bounds:
            return min(0.0, value), math.inf
        low = bounds[place - 1] if place else min(0.0, value)
        return low, bounds[place] if value < bounds[-1] else math.inf


def is_rate(signal: Signal) -> bool:
    """Whether the signal needs two scrapes."""
    return signal.way == "promql" and query.needs_two_samples(signal.definition)
