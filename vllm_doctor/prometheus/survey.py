"""The signals of every vLLM engine that a Prometheus knows.

One instant query a signal, for all engines together; so many whether there is one engine or ten thousand.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, urlencode, urlsplit

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Bounded, Column, Known, Reading, Subject, Unknown, Values, project
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem
from vllm_doctor.model.snapshot import Evaluated
from vllm_doctor.prometheus import history, past, query
from vllm_doctor.prometheus.api import FEWER, ORIGIN, Api, Labels, Row, plain
from vllm_doctor.prometheus.engine_rows import EngineColumns, Question, is_rate
from vllm_doctor.prometheus.query import ENGINE, Matcher, Scope
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.signal import Signal, info
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.fetch import shown

WINDOW = 600.0
"""Seconds that are judged, unless the user says otherwise: often one scrape is made a minute, and rates need two."""
MAX_ENGINES = 50_000
_ALWAYS = ("cluster", "namespace", "pod", "container", "job", "instance")
"""Labels that are kept though all engines have the same: people, and other exporters, know the servers by them."""
_JOBS = 8
_NAMED = 3


@dataclass(frozen=True)
class Survey:
    """What a Prometheus told of its engines. `engines`: the labels of each, vLLM's own and those of its target.

    `columns`: by the names of signals; `labels`: which of an engine's labels a signal is of.
    """

    engines: tuple[Subject, ...]
    columns: Mapping[str, Column]
    labels: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, Reason]
    """Why an engine lacks a signal, unless one of the next two says so."""
    idle: Mapping[str, frozenset[int]]
    """The engines of which a signal is 0/0."""
    scrapes: Sequence[int]
    """How many of each engine lie in the window: with one, no rate is known."""
    window_s: float
    rates: frozenset[str]
    identity: tuple[str, ...]
    """The labels that tell servers apart, beside vLLM's own."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Who told a signal, where it was another exporter than vLLM's."""
    gone: tuple[Labels, ...] = ()
    """Engines that were there within the window, and are no more."""
    down: tuple[Labels, ...] = ()
    """Those of them whose server is still asked, and does not answer."""
    notes: tuple[str, ...] = ()
    is_partial: bool = False
    """The Prometheus warned when it listed the engines, or one of them could not be read: there may be more."""
    queries: int = 0
    seconds: float = 0.0
    """Time that was spent waiting for its answers."""
    scope: Scope = field(default_factory=Scope)
    """Of whom it was asked, and how."""

    def reason(self, signal: str, engine: int) -> Reason:
        """Why the signal of this engine is not known."""
        if engine in self.idle.get(signal, ()):
            return Reason.IDLE
        if signal in self.rates and self.scrapes[engine] < 2:
            return Reason.FIRST_SCRAPE
        return self.reasons.get(signal, Reason.ABSENT)

    def read(self, signal: str, engine: int) -> tuple[Subject, Reading]:
        """A signal of one engine, and the labels that the reading is of."""
        column = self.columns.get(signal, Unknown(Reason.ABSENT))
        value = column.each[engine] if isinstance(column, Values | Bounded) else column
        if value is None or isinstance(value, Unknown):
            return (), Unknown(self.reason(signal, engine))
        reading = value if isinstance(value, Known) else Known(value, origin=self.origins.get(signal, ORIGIN))
        return project(self.engines[engine], self.labels[signal]), reading

    def evaluated(self, engines: Sequence[int]) -> Evaluated:
        """The signals of some engines of one server."""
        readings: dict[str, dict[Subject, Reading]] = {}
        for name in self.columns:
            for engine in engines:
                key, reading = self.read(name, engine)
                named = key if isinstance(reading, Known) else self.engines[engine]
                readings.setdefault(name, {})[named] = reading
        subjects = tuple(self.engines[engine] for engine in engines)
        return Evaluated(
            subjects, readings, self.reasons, self.window_s, min(self.scrapes[engine] for engine in engines)
        )


def chosen(url: str) -> tuple[Matcher, ...]:
    """The labels that a prom+http URL asks for: ?pod=x&instance=y. Raises UsageError."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its own message may quote a password
        raise UsageError(f"not a URL: {shown(url)}; write prom+http://host:9090") from None
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
    except ValueError:
        raise UsageError(f"{shown(url)}: after ? write labels of the engine: ?pod=x&instance=y") from None
    for label, _ in pairs:
        if not label.isidentifier() or not label.isascii():
            raise UsageError(f"{shown(url)}: {label!r} is not a label; write ?pod=x&instance=y")
    return tuple(Matcher(label, "=", value) for label, value in pairs)


class Prometheus:
    """Every engine that one Prometheus knows. `clock` must not step."""

    def __init__(self, url: str, access: Access | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.api = Api(url, access, clock)
        self.target = self.api.target
        self._is_metricsql: bool | None = None

    def close(self) -> None:
        self.api.close()

    def survey(
        self,
        catalogue: Catalogue,
        matchers: tuple[Matcher, ...],
        seconds: float,
        at: float,
        deadline: float,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Survey:
        """Every engine that the matchers leave, over the `seconds` before `at` (POSIX).

        Raises SourceError for what is no Prometheus, or one without such engines.
        """
        queries, waited = self.api.queries, self.api.seconds
        self.api.warnings.clear()
        self.api.unread = 0
        engines, scope = self.scope(matchers, seconds, at, deadline)
        is_partial = bool(self.api.warnings or self.api.unread)
        found = EngineColumns(engines, scope)
        gone = self._gone(found, scope, at, deadline)
        down = self._down(gone, scope, at, deadline) if gone else ()
        asked = [*_asked(catalogue, scope), *_asked_of_exporters(catalogue, scope)]
        notes: list[str] = []
        for number, question in enumerate(asked):
            progress(number, len(asked))
            try:
                found.take(question, [self.api.rows(text, at, deadline) for text in question.texts])
            except SourceError as error:
                if error.kind != "refused":
                    raise
                notes.append(f"{', '.join(signal.name for signal in question.signals)} unknown: {error}")
                found.lack(question, Reason.INVALID)
        notes += [f"{self.target} warns: {warning}" for warning in self.api.warnings]
        if self.api.unread:
            notes.append(f"{self.target}: {self.api.unread:,} rows of its answers could not be read and were left out")
        notes += [*found.notes(), *_gone_notes(gone, down)]
        return Survey(
            engines=found.subjects,
            columns=found.columns,
            labels=found.labels,
            reasons=found.reasons,
            idle=found.idle,
            scrapes=found.scrapes,
            window_s=seconds,
            rates=frozenset(s.name for s in catalogue.signals.values() if is_rate(s)),
            identity=scope.identity,
            origins={s.name: s.exporter.origin for s in catalogue.signals.values() if s.exporter is not None},
            gone=gone,
            down=down,
            notes=tuple(dict.fromkeys(notes)),
            is_partial=is_partial,
            queries=self.api.queries - queries,
            seconds=self.api.seconds - waited,
            scope=scope,
        )

    def scope(
        self, matchers: tuple[Matcher, ...], seconds: float, at: float, deadline: float
    ) -> tuple[list[Labels], Scope]:
        """The engines that the matchers leave, and how they are asked of. Raises SourceError."""
        window = f"{max(1, round(seconds * 1000))}ms"
        return self._engines(Scope(matchers, (), window, query.NAMES), at, deadline)

    def _engines(self, scope: Scope, at: float, deadline: float) -> tuple[list[Labels], Scope]:
        """The engines, and the scope that tells them apart."""
        rows = self.api.rows(query.servers(scope), at, deadline)
        if not rows:
            raise self._nothing(scope, at, deadline)
        if len(rows) > MAX_ENGINES:
            raise SourceError(
                "too-large", f"{self.target} has {len(rows):,} engines, more than {MAX_ENGINES:,}: {FEWER}"
            )
        names, rows = _once(rows)
        identity = _identity(rows)
        engines: list[Labels] = [{n: v for n in (*ENGINE, *identity) if (v := row.labels.get(n))} for row in rows]
        twice = [labels for labels, count in Counter(tuple(e.items()) for e in engines).items() if count > 1]
        if twice:
            raise SourceError(
                "collision",
                f"{self.target} has {len(twice):,} engines whose labels are the same ({_said(dict(twice[0]))}):"
                " give each server labels of its own (instance), or leave out one kind with --select",
            )
        speaks = self._speaks_metricsql(at, deadline)
        return engines, Scope(scope.matchers, identity, scope.window, names or (query.VLLM,), is_metricsql=speaks)

    def _speaks_metricsql(self, at: float, deadline: float) -> bool:
        """Whether it is VictoriaMetrics: nobody else knows its functions."""
        if self._is_metricsql is None:
            try:
                self._is_metricsql = bool(self.api.rows(query.METRICSQL, at, deadline))
            except SourceError as error:
                if error.kind not in ("refused", "server-error"):
                    raise
                self._is_metricsql = False
        return self._is_metricsql

    def _nothing(self, scope: Scope, at: float, deadline: float) -> SourceError:
        """What is there instead of engines, in a sentence."""
        if scope.matchers:
            others = self.api.rows(f"count({query.servers(Scope((), (), scope.window, scope.names))})", at, deadline)
            if others:
                chosen = ", ".join(map(str, scope.matchers))
                return SourceError(
                    "no-vllm", f"{self.target} has {others[0].value:,.0f} vLLM engines, none of them with {chosen}"
                )
        jobs = self.api.rows("count by (job) (up)", at, deadline)
        if not jobs:
            return SourceError("no-vllm", f"{self.target} is empty: it has no series of any job at that time")
        named = sorted(jobs, key=lambda row: -row.value)
        told = ", ".join(f"{plain(row.labels.get('job', '')) or 'no name'} ({row.value:,.0f})" for row in named[:_JOBS])
        more = f" and {len(jobs) - _JOBS} more" if len(jobs) > _JOBS else ""
        return SourceError(
            "no-vllm",
            f"{self.target} has no series of vLLM (vllm:num_requests_running) at that time. Its jobs: {told}{more}."
            " Let it scrape /metrics of the vLLM servers, on their API's port",
        )

    def _gone(self, found: EngineColumns, scope: Scope, at: float, deadline: float) -> tuple[Labels, ...]:
        """The engines that the window has and its end has not; of the others, how often they were scraped."""
        text = query.text("min by ($engine) (count_over_time(vllm:num_requests_running[$window]))", scope)
        gone = []
        for _, engines, row in found.matched(self.api.rows(text, at, deadline)):
            if not engines:
                gone.append(row.labels)
            for engine in engines:
                found.scrapes[engine] = int(outside.number(row.value) or 0)
        return tuple(gone)

    def _down(self, gone: Sequence[Labels], scope: Scope, at: float, deadline: float) -> tuple[Labels, ...]:
        matchers = [str(matcher) for matcher in scope.matchers if matcher.label not in ENGINE]
        rows = self.api.rows(f"up{{{', '.join(matchers)}}} == 0", at, deadline)
        keys = {tuple(row.labels.get(label, "") for label in scope.identity) for row in rows}
        return tuple(labels for labels in gone if tuple(labels.get(label, "") for label in scope.identity) in keys)


def _once(rows: list[Row]) -> tuple[tuple[str, ...], list[Row]]:
    """By which names vLLM's metrics go here, and each engine once, where it is there under several."""
    names = tuple(name for name in query.NAMES if any(_is_named(row, name) for row in rows))
    if len(names) > 1 and len({_without_name(row.labels) for row in rows}) < len(rows):
        return names[:1], [row for row in rows if _is_named(row, names[0])]
    return names, rows


def _is_named(row: Row, name: str) -> bool:
    return row.labels.get("__name__", "").startswith(name)


def _identity(rows: Sequence[Row]) -> tuple[str, ...]:
    """The labels that tell the servers apart."""
    labels = {label for row in rows for label in row.labels if label.isidentifier() and label.isascii()}
    labels -= {*ENGINE, "__name__"}
    several = {label for label in labels if len({row.labels.get(label) for row in rows}) > 1}
    return (*(name for name in _ALWAYS if name in labels), *sorted(several - set(_ALWAYS)))


def _asked(catalogue: Catalogue, scope: Scope) -> list[Question]:
    found = []
    infos: dict[str, list[Signal]] = {}
    for signal in catalogue.signals.values():
        if {signal.name, signal.way_of} & catalogue.of_path_only:
            continue
        if signal.way == "promql":
            bounds = query.buckets(signal.definition, scope)
            texts = (query.text(signal.definition, scope), *((bounds,) if bounds else ()))
            found.append(Question((signal,), texts))
        elif signal.way == "present":
            found.append(Question((signal,), (query.present(signal.present, scope),)))
        elif signal.way == "info":
            infos.setdefault(info(signal.definition)[0], []).append(signal)
    for metric, signals in infos.items():
        labels = dict.fromkeys(info(signal.definition)[1] for signal in signals)
        found.append(Question(tuple(signals), (query.labels_of(metric, labels, scope),)))
    return found


def _asked_of_exporters(catalogue: Catalogue, scope: Scope) -> list[Question]:
    """What other exporters tell of these engines, as far as both have the same labels."""
    return [
        Question((signal,), (query.of_exporter(signal.exporter, scope),))
        for signal in catalogue.signals.values()
        if signal.exporter is not None and set(signal.exporter.labels) <= set(scope.identity)
    ]


def _without_name(labels: Labels) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != "__name__")


def _gone_notes(gone: Sequence[Labels], down: Sequence[Labels]) -> list[str]:
    others = [labels for labels in gone if labels not in down]
    notes = []
    if down:
        notes.append(f"gone, their servers do not answer (up is 0): {_some(down)}")
    if others:
        notes.append(f"there within the window, and gone: {_some(others)}")
    return notes


def _some(engines: Sequence[Labels]) -> str:
    more = f" and {len(engines) - _NAMED:,} more engines" if len(engines) > _NAMED else ""
    return "; ".join(map(_said, engines[:_NAMED])) + more


def _said(labels: Labels) -> str:
    return ", ".join(f"{name} {plain(value)}" for name, value in labels.items())


@dataclass(frozen=True)
class OneServer:
    """The engines of one server, out of a Prometheus. `wall` is POSIX time. To be asked once, or followed."""

    prometheus: Prometheus
    catalogue: Catalogue
    matchers: tuple[Matcher, ...]
    target: str
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def examine(self, seconds: float, deadline: float, with_past: bool = True) -> Observation:
        """What it tells of the `seconds` before now, and of the day before (`with_past`). Never raises for what it
        does: the error says it."""
        at = self.wall()
        try:
            survey = self.prometheus.survey(self.catalogue, self.matchers, seconds, at, deadline)
            self._check(survey)
        except SourceError as error:
            return Observation(
                SourceKind.PROMETHEUS, self.target, error=Problem(error.kind, str(error)), patient=self.target
            )
        evaluated, notes = survey.evaluated(range(len(survey.engines))), survey.notes
        if with_past and past.SIGNALS & self.catalogue.signals.keys():
            api = self.prometheus.api
            # What is asked last and adds least may not take all the time that is left.
            told = past.look(api, survey.engines, survey.scope, at, (self.clock() + deadline) / 2)
            evaluated = replace(evaluated, readings={**evaluated.readings, **told.readings})
            warned = [f"{self.prometheus.target} warns: {warning}" for warning in api.warnings]
            notes = tuple(dict.fromkeys((*notes, *warned, *told.notes)))
        facts: dict[str, Reading] = {"stats_published": Known(True, origin=ORIGIN)}
        return Observation(
            SourceKind.PROMETHEUS,
            self.target,
            facts=facts,
            notes=notes,
            patient=self.target,
            evaluated=evaluated,
        )

    def history(self, names: Collection[str], summed: Collection[str], deadline: float) -> dict[str, history.Points]:
        """How these signals went in the hour before now, over all engines; of what is not answered nothing."""
        at = self.wall()
        try:
            _, scope = self.prometheus.scope(self.matchers, WINDOW, at, deadline)
        except SourceError:
            return {}
        # An hour's step must hold two scrapes for a rate: often one is made a minute.
        over = replace(scope, window=f"{round(3 * history.STEP)}s")
        return history.look(self.prometheus.api, self.catalogue, names, summed, over, at, deadline)

    def _check(self, survey: Survey) -> None:
        servers = {project(engine, survey.identity) for engine in survey.engines}
        if len(servers) > 1:
            differ = [n for n in survey.identity if len({dict(server).get(n) for server in servers}) > 1]
            example = dict(sorted(servers)[0])
            asked = urlencode({label: example[label] for label in differ[-1:] if label in example})
            raise SourceError(
                "several",
                f"{self.target} is of {len(servers):,} servers: name one of them by its labels ({', '.join(differ)}):"
                f" ?{asked}; all of them: vllm-doctor fleet {shlex.quote(self.prometheus.target)}",
            )


class Followed:
    """A server in a Prometheus that is watched on and on: it knows nothing newer than its last scrape."""

    every = 15.0

    def __init__(
        self, server: OneServer, least: float, tracked: Collection[str] = (), summed: Collection[str] = ()
    ) -> None:
        """`tracked`: the signals of which the first look tells the hour before; `summed`: those that add up."""
        self._server, self._least = server, least
        self._tracked, self._summed = tracked, summed

    def look(self, seconds: float) -> Observation:
        """Once more; of at least the window that was asked for. A day does not change while one looks."""
        server, deadline = self._server, self._server.clock() + self.every
        seen = server.examine(max(seconds, self._least), deadline, with_past=False)
        if seen.error is not None or not self._tracked:
            return seen
        tracked, self._tracked = self._tracked, ()
        return replace(seen, history=server.history(tracked, self._summed, deadline))
