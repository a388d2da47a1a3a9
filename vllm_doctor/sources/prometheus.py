"""A Prometheus, by its HTTP API: the signals of every vLLM engine that it knows. Also Thanos, Mimir, VictoriaMetrics.

One instant query a signal, for all engines together; so many whether there is one engine or ten thousand. A row of a
result is of the engines that have its labels: of one engine, of a model, of a server.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import httpx

from vllm_doctor import query
from vllm_doctor.catalogue import Catalogue, Signal, info, parsed
from vllm_doctor.errors import SourceError, UsageError
from vllm_doctor.observation import Observation
from vllm_doctor.query import ENGINE, Matcher, Scope
from vllm_doctor.report import Problem
from vllm_doctor.signal import Bounded, Column, Known, Reading, Reason, Subject, Told, Unknown, Value, Values, project
from vllm_doctor.sources.access import Access
from vllm_doctor.sources.server import MAX_BODY, base_of, client, shown, unreachable

ORIGIN = "prometheus"
WINDOW = 600.0
"""Seconds that are judged, unless the user says otherwise: often one scrape is made a minute, and rates need two."""
MAX_ENGINES = 50_000
SCHEMES = ("prom+http://", "prom+https://")
_ALWAYS = ("cluster", "namespace", "pod", "container", "job", "instance")
"""Labels that are kept though all engines have the same: people, and other exporters, know the servers by them."""
_JOBS = 8
_NAMED = 3
_PATHS = ("/api/v1/query", "/api/v1", "/graph", "/query", "/targets", "/alerts")

Labels = Mapping[str, str]


class Row(NamedTuple):
    """One element of a query's result."""

    labels: Labels
    value: float


class _Matched(NamedTuple):
    """A row, with the engines that it is of; `shape`: by which of its labels."""

    shape: tuple[str, ...]
    engines: Sequence[int]
    row: Row


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
    """The Prometheus warned, when it listed the engines: there may be more."""
    queries: int = 0
    seconds: float = 0.0
    """Time that was spent waiting for its answers."""

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

    def told(self, engines: Sequence[int]) -> Told:
        """The signals of some engines of one server."""
        readings: dict[str, dict[Subject, Reading]] = {}
        for name in self.columns:
            for engine in engines:
                key, reading = self.read(name, engine)
                named = key if isinstance(reading, Known) else self.engines[engine]
                readings.setdefault(name, {})[named] = reading
        subjects = tuple(self.engines[engine] for engine in engines)
        return Told(subjects, readings, self.reasons, self.window_s, min(self.scrapes[engine] for engine in engines))


def address(url: str) -> str:
    """The base of the API: "http://h:9090/prefix" of what a browser shows. Raises UsageError."""
    base = base_of(url.removeprefix("prom+"))
    parts = urlsplit(base)
    path = parts.path
    for ending in _PATHS:
        path = path.removesuffix(ending)
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def chosen(url: str) -> tuple[Matcher, ...]:
    """The labels that a prom+http URL asks for: ?pod=x&instance=y. Raises UsageError."""
    parts = urlsplit(url)
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
    except ValueError:
        raise UsageError(f"{shown(url)}: after ? write labels of the engine: ?pod=x&instance=y") from None
    for label, _ in pairs:
        if not label.isidentifier() or not label.isascii():
            raise UsageError(f"{shown(url)}: {label!r} is not a label; write ?pod=x&instance=y")
    return tuple(Matcher(label, "=", value) for label, value in pairs)


class Prometheus:
    """One Prometheus. `clock` must not step."""

    def __init__(self, url: str, access: Access | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.base = address(url)
        self.target = shown(self.base)
        self._client = client(self.base, access or Access())
        self._clock = clock
        self._gets = False
        self._is_metricsql: bool | None = None
        self.warnings: dict[str, None] = {}
        self.queries, self.seconds = 0, 0.0

    def close(self) -> None:
        self._client.close()

    # ---- one query --------------------------------------------------------------------------------------------------

    def rows(self, text: str, at: float, deadline: float) -> list[Row]:
        """An instant query at a POSIX time, answered by `deadline` on the clock. Raises SourceError."""
        begun = self._clock()
        try:
            status, body = self._ask(text, at, deadline)
        finally:
            self.seconds += self._clock() - begun
        return self._read(status, body)

    def _ask(self, text: str, at: float, deadline: float) -> tuple[int, bytes]:
        left = deadline - self._clock()
        if left <= 0:
            raise SourceError("timeout", f"{self.target}: {_SLOW}")
        self.queries += 1
        # nocache: VictoriaMetrics answers for the moment that is asked for, and not for 30 s before it.
        form = {"query": text, "time": f"{at:.3f}", "timeout": f"{max(1, math.ceil(left))}s", "nocache": "1"}
        url = f"{self.base}/api/v1/query"
        for again in (True, True, False):
            asked: dict[str, Any] = {"params": form} if self._gets else {"data": form}
            try:
                with self._client.stream("GET" if self._gets else "POST", url, timeout=left, **asked) as response:
                    body = self._body(response, deadline)
            except httpx.TimeoutException:
                raise SourceError("timeout", f"{self.target} did not answer within {left:.0f} s: {_SLOW}") from None
            except httpx.TransportError as error:
                if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and again:
                    continue  # the kept connection was closed while we computed: once more, on a new one
                raise unreachable(self.target, error) from None
            except (httpx.DecodingError, httpx.InvalidURL, UnicodeError) as error:
                raise _not_prometheus(self.target, f"its answer cannot be read ({error})") from None
            if response.status_code == 405 and not self._gets:
                self._gets = True  # an old API, or a proxy that lets only GET through
                continue
            if response.is_redirect:
                where = shown(str(httpx.URL(url).join(response.headers.get("location", ""))))
                raise SourceError("redirect", f"{self.target} redirects to {where}: give that URL if you trust it")
            return response.status_code, body
        raise SourceError("server-error", f"{self.target} answers 405 to a query by POST and by GET")

    def _body(self, response: httpx.Response, deadline: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BODY:
                raise SourceError("too-large", f"{self.target}: an answer is larger than 64 MB: {_FEWER}")
            if self._clock() > deadline:
                raise SourceError("timeout", f"{self.target}: the answer does not end: {_SLOW}")
        return bytes(body)

    def _read(self, status: int, body: bytes) -> list[Row]:
        if status in (401, 403):
            raise SourceError(
                "denied", f"{self.target} answers {status}: give --token-file, --header, or http://USER:PASSWORD@host"
            )
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        is_api = isinstance(answer, dict) and answer.get("status") in ("success", "error")
        if not is_api:
            raise _no_api(self.target, status)
        for warning in answer.get("warnings") or ():
            if isinstance(warning, str) and len(self.warnings) < 20:
                self.warnings[_plain(warning)] = None
        if answer["status"] == "error" or status != 200:
            raise _refused(self.target, status, str(answer.get("errorType", "")), str(answer.get("error", "")))
        data = answer.get("data")
        result = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
        if not isinstance(result, list):
            raise _not_prometheus(self.target, "a query's answer is no vector")
        return [row for row in map(_row, result) if row is not None]

    # ---- all engines ------------------------------------------------------------------------------------------------

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
        queries, waited = self.queries, self.seconds
        self.warnings.clear()
        window = f"{max(1, round(seconds * 1000))}ms"
        engines, scope = self._engines(Scope(matchers, (), window, query.NAMES), at, deadline)
        is_partial = bool(self.warnings)
        found = _Columns(engines, scope)
        gone = self._gone(found, scope, at, deadline)
        down = self._down(gone, scope, at, deadline) if gone else ()
        asked = [*_asked(catalogue, scope), *_asked_of_exporters(catalogue, scope)]
        notes: list[str] = []
        for number, question in enumerate(asked):
            progress(number, len(asked))
            try:
                found.take(question, [self.rows(text, at, deadline) for text in question.texts])
            except SourceError as error:
                if error.kind != "refused":
                    raise
                notes.append(f"{', '.join(signal.name for signal in question.signals)} not told: {error}")
                found.lack(question, Reason.INVALID)
        notes += [f"{self.target} warns: {warning}" for warning in self.warnings]
        notes += [*found.notes(), *_gone_notes(gone, down)]
        return Survey(
            engines=found.subjects,
            columns=found.columns,
            labels=found.labels,
            reasons=found.reasons,
            idle=found.idle,
            scrapes=found.scrapes,
            window_s=seconds,
            rates=frozenset(s.name for s in catalogue.signals.values() if _is_rate(s)),
            identity=scope.identity,
            origins={s.name: s.exporter.origin for s in catalogue.signals.values() if s.exporter is not None},
            gone=gone,
            down=down,
            notes=tuple(dict.fromkeys(notes)),
            is_partial=is_partial,
            queries=self.queries - queries,
            seconds=self.seconds - waited,
        )

    def _engines(self, scope: Scope, at: float, deadline: float) -> tuple[list[Labels], Scope]:
        """The engines, and the scope that tells them apart."""
        rows = self.rows(query.servers(scope), at, deadline)
        if not rows:
            raise self._nothing(scope, at, deadline)
        if len(rows) > MAX_ENGINES:
            raise SourceError(
                "too-large", f"{self.target} has {len(rows):,} engines, more than {MAX_ENGINES:,}: {_FEWER}"
            )
        names = tuple(
            start for start in query.NAMES if any(row.labels.get("__name__", "").startswith(start) for row in rows)
        )
        if len(names) > 1 and len({_without_name(row.labels) for row in rows}) < len(rows):
            names = names[:1]  # each engine is there under both names
            rows = [row for row in rows if row.labels.get("__name__", "").startswith(names[0])]
        labels = {label for row in rows for label in row.labels if label.isidentifier() and label.isascii()}
        labels -= {*ENGINE, "__name__"}
        several = {label for label in labels if len({row.labels.get(label) for row in rows}) > 1}
        identity = (*(n for n in _ALWAYS if n in labels), *sorted(several - set(_ALWAYS)))
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
                self._is_metricsql = bool(self.rows(query.METRICSQL, at, deadline))
            except SourceError as error:
                if error.kind not in ("refused", "server-error"):
                    raise
                self._is_metricsql = False
        return self._is_metricsql

    def _nothing(self, scope: Scope, at: float, deadline: float) -> SourceError:
        """What is there instead of engines, in a sentence."""
        if scope.matchers:
            others = self.rows(f"count({query.servers(Scope((), (), scope.window, scope.names))})", at, deadline)
            if others:
                chosen = ", ".join(map(str, scope.matchers))
                return SourceError(
                    "no-vllm", f"{self.target} has {others[0].value:,.0f} vLLM engines, none of them with {chosen}"
                )
        jobs = self.rows("count by (job) (up)", at, deadline)
        if not jobs:
            return SourceError("no-vllm", f"{self.target} is empty: it has no series of any job at that time")
        named = sorted(jobs, key=lambda row: -row.value)
        told = ", ".join(
            f"{_plain(row.labels.get('job', '')) or 'no name'} ({row.value:,.0f})" for row in named[:_JOBS]
        )
        more = f" and {len(jobs) - _JOBS} more" if len(jobs) > _JOBS else ""
        return SourceError(
            "no-vllm",
            f"{self.target} has no series of vLLM (vllm:num_requests_running) at that time. Its jobs: {told}{more}."
            " Let it scrape /metrics of the vLLM servers, on their API's port",
        )

    def _gone(self, found: _Columns, scope: Scope, at: float, deadline: float) -> tuple[Labels, ...]:
        """The engines that the window has and its end has not; of the others, how often they were scraped."""
        text = query.text("min by ($engine) (count_over_time(vllm:num_requests_running[$window]))", scope)
        gone = []
        for _, engines, row in found.matched(self.rows(text, at, deadline)):
            if not engines:
                gone.append(row.labels)
            for engine in engines:
                found.scrapes[engine] = int(row.value)
        return tuple(gone)

    def _down(self, gone: Sequence[Labels], scope: Scope, at: float, deadline: float) -> tuple[Labels, ...]:
        matchers = [str(matcher) for matcher in scope.matchers if matcher.label not in ENGINE]
        rows = self.rows(f"up{{{', '.join(matchers)}}} == 0", at, deadline)
        keys = {tuple(row.labels.get(label, "") for label in scope.identity) for row in rows}
        return tuple(labels for labels in gone if tuple(labels.get(label, "") for label in scope.identity) in keys)


_SLOW = "its queries take long: raise --timeout, or --select fewer engines, or a shorter --window"
_FEWER = "--select fewer engines: --select 'namespace=\"prod\"'"
_SAID = 300
_LIMITS = ("too many samples", "limit", "-search.max")
"""By these an error tells that a result would be too large."""
_REPEATS = "error when executing query="
_LABELS = "VictoriaMetrics keeps 30 labels of a series unless it is started with -maxLabelsPerTimeseries=60"


@dataclass(frozen=True)
class _Question:
    """What is asked for one signal, or for several that stand in one row."""

    signals: tuple[Signal, ...]
    texts: tuple[str, ...]


def _asked(catalogue: Catalogue, scope: Scope) -> list[_Question]:
    found = []
    infos: dict[str, list[Signal]] = {}
    for signal in catalogue.signals.values():
        if signal.way == "promql":
            bounds = query.buckets(signal.definition, scope)
            texts = (query.text(signal.definition, scope), *((bounds,) if bounds else ()))
            found.append(_Question((signal,), texts))
        elif signal.way == "present":
            found.append(_Question((signal,), (query.present(signal.present, scope),)))
        elif signal.way == "info":
            infos.setdefault(info(signal.definition)[0], []).append(signal)
    for metric, signals in infos.items():
        labels = dict.fromkeys(info(signal.definition)[1] for signal in signals)
        found.append(_Question(tuple(signals), (query.labels_of(metric, labels, scope),)))
    return found


def _asked_of_exporters(catalogue: Catalogue, scope: Scope) -> list[_Question]:
    """What other exporters tell of these engines, as far as both have the same labels."""
    return [
        _Question((signal,), (query.of_exporter(signal.exporter, scope),))
        for signal in catalogue.signals.values()
        if signal.exporter is not None and set(signal.exporter.labels) <= set(scope.identity)
    ]


def _is_rate(signal: Signal) -> bool:
    return signal.way == "promql" and query.needs_two_samples(signal.definition)


class _Shape(NamedTuple):
    """The labels by which rows are of engines: how to read their values, and the engines by these."""

    labels: tuple[str, ...]
    values: Callable[[Labels], tuple[str, ...]]
    places: Mapping[tuple[str, ...], Sequence[int]]


class _Columns:
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

    def matched(self, rows: Iterable[Row], of_servers: bool = True) -> list[_Matched]:
        """The rows with the engines that each is of: all that have its labels, as far as engines have such labels.

        What is of fewer engines comes later. `of_servers`: an engine lacks what the row lacks of the identity.
        """
        found: list[_Matched] = []
        shapes: set[tuple[str, ...]] = set()
        for row in rows:
            names = (of_servers, *row.labels)
            of = self._places.get(names)
            if of is None:
                of = self._places[names] = self._shape(row.labels, of_servers)
            labels, values, places = of
            shapes.add(labels)
            found.append(_Matched(labels, places.get(values(row.labels), ()), row))
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

    def take(self, question: _Question, results: Sequence[list[Row]]) -> None:
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
                self._quantile(first, rows, _Buckets(results[1]))
            case "promql":
                self._numbers(first, rows)
            case "present":
                self._present(first, rows)
            case _:
                self._infos(question.signals, rows)

    def lack(self, question: _Question, reason: Reason) -> None:
        for signal in question.signals:
            self.columns[signal.name] = Unknown(reason)
            self.reasons[signal.name] = reason
            self.labels[signal.name] = self._names

    def _numbers(self, signal: Signal, rows: Sequence[_Matched]) -> None:
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
        if _is_rate(signal):
            # VictoriaMetrics makes a rate of one scrape, and what was before the window.
            values = [None if count < 2 else value for value, count in zip(values, self.scrapes, strict=True)]
        self._keep(signal, Values(values), bool(rows))
        self._idle(signal, {engine for engine in idle if values[engine] is None})

    def _quantile(self, signal: Signal, rows: Sequence[_Matched], buckets: _Buckets) -> None:
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

    def _present(self, signal: Signal, rows: Sequence[_Matched]) -> None:
        values: list[Value | None] = [False] * len(self._engines)
        for _, engines, _ in rows:
            for engine in engines:
                values[engine] = True
        self.columns[signal.name] = Values(values)

    def _infos(self, signals: Sequence[Signal], rows: Sequence[_Matched]) -> None:
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
            self._keep(signal, Values(values, signal.unit == "text"), bool(rows))

    def _keep(self, signal: Signal, column: Values | Bounded, has_rows: bool) -> None:
        absent = Reason.ABSENT if signal.exporter is None else signal.reason
        if not has_rows:
            self.lack(_Question((signal,), ()), absent)
            return
        self.columns[signal.name] = column
        is_left_out = signal.way == "promql" and query.leaves_out(signal.definition, self._scope)
        self.reasons[signal.name] = Reason.IDLE if is_left_out else absent

    def notes(self) -> list[str]:
        """What is odd about the engines' labels and their series."""
        notes = [f"{count:,} series of {name} came twice; the last was taken" for name, count in self._twice.items()]
        notes += [
            f"series of {metric} have lost {labels}, and nobody knows whose they are: {_LABELS}"
            for metric, labels in self._nameless.items()
        ]
        for label in self._names:
            if "replica" not in label.lower():
                continue
            alone = {project(subject, set(self._names) - {label}) for subject in self.subjects}
            if len(alone) <= len(self.subjects) / 2:
                notes.append(
                    f"every engine is there twice or more, told apart by {label} alone: let the Prometheus"
                    f" deduplicate it, or --select one: --select '{label}=\"…\"'"
                )
        return notes


class _Buckets:
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


def _row(element: Any) -> Row | None:
    """An element of a vector; None for one that is not as it must be."""
    try:
        labels, pair = element["metric"], element["value"]
        value = float(pair[1])
        "".join(labels.values())  # raises where one is no text
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return Row(labels, value) if isinstance(pair, list) else None


def _without_name(labels: Labels) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name != "__name__")


def _gone_notes(gone: Sequence[Labels], down: Sequence[Labels]) -> list[str]:
    others = [labels for labels in gone if labels not in down]
    notes = []
    if down:
        notes.append(f"gone, of servers that do not answer (up is 0): {_some(down)}")
    if others:
        notes.append(f"there within the window, and gone: {_some(others)}")
    return notes


def _some(engines: Sequence[Labels]) -> str:
    more = f" and {len(engines) - _NAMED:,} more engines" if len(engines) > _NAMED else ""
    return "; ".join(map(_said, engines[:_NAMED])) + more


def _said(labels: Labels) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in labels.items())


def _plain(text: str) -> str:
    return " ".join(text.split())[:_SAID]


def _no_api(target: str, status: int) -> SourceError:
    if status == 404:
        asked = "it answers 404 to /api/v1/query; is there a path before it? (http://host/prometheus)"
        return _not_prometheus(target, asked)
    if status in (503, 504):
        return SourceError("timeout", f"{target} answers {status}: {_SLOW}")
    if status >= 500:
        return SourceError("server-error", f"{target} answers {status}")
    return _not_prometheus(target, f"it answers {status} to /api/v1/query, and no JSON of that API")


def _not_prometheus(target: str, why: str) -> SourceError:
    return SourceError("not-prometheus", f"{target} is not a Prometheus: {why}")


def _refused(target: str, status: int, kind: str, error: str) -> SourceError:
    """Why a query was not answered, by the API's own word. `refused`: this query; other kinds: any would be."""
    # VictoriaMetrics writes the whole query before what is wrong.
    error = _plain(error[-_SAID:] if error.startswith(_REPEATS) else error)
    if kind in ("timeout", "canceled") or status in (503, 504):
        return SourceError("timeout", f"{target} gave up ({status}: {error or kind}): {_SLOW}")
    if status >= 500 or kind in ("internal", "unavailable"):
        return SourceError("server-error", f"{target} answers {status}: {error or kind}")
    if any(word in error.lower() for word in _LIMITS):
        return SourceError("too-large", f"{target} refuses so large a result ({error}): {_FEWER}")
    return SourceError("refused", f"{target} refuses the query ({status}: {error or kind})")


@dataclass(frozen=True)
class OneServer:
    """The engines of one server, out of a Prometheus. `wall` is POSIX time. To be asked once, or followed."""

    prometheus: Prometheus
    catalogue: Catalogue
    matchers: tuple[Matcher, ...]
    target: str
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def examine(self, seconds: float, deadline: float) -> Observation:
        """What it tells of the `seconds` before now. Never raises for what it does: the error says it."""
        try:
            survey = self.prometheus.survey(self.catalogue, self.matchers, seconds, self.wall(), deadline)
            self._check(survey)
        except SourceError as error:
            return Observation(ORIGIN, self.target, error=Problem(error.kind, str(error)), patient=self.target)
        told = survey.told(range(len(survey.engines)))
        facts: dict[str, Reading] = {"stats_published": Known(True, origin=ORIGIN)}
        return Observation(ORIGIN, self.target, facts=facts, notes=survey.notes, patient=self.target, told=told)

    def _check(self, survey: Survey) -> None:
        servers = {project(engine, survey.identity) for engine in survey.engines}
        if len(servers) > 1:
            differ = [n for n in survey.identity if len({dict(server).get(n) for server in servers}) > 1]
            example = dict(sorted(servers)[0])
            asked = urlencode({label: example[label] for label in differ[-1:] if label in example})
            raise SourceError(
                "several",
                f"{self.target} is of {len(servers):,} servers: name one of them by its labels ({', '.join(differ)}):"
                f" ?{asked}; all of them: vllm-doctor fleet {self.prometheus.target}",
            )


class Followed:
    """A server in a Prometheus that is watched on and on: it knows nothing newer than its last scrape."""

    every = 15.0

    def __init__(self, server: OneServer, least: float) -> None:
        self._server, self._least = server, least

    def look(self, seconds: float) -> Observation:
        """Once more; of at least the window that was asked for."""
        return self._server.examine(max(seconds, self._least), self._server.clock() + self.every)
