"""The HTTP API of a Prometheus: a query at a moment or over a time, and what it gives.

Also of Thanos, Mimir, Cortex and VictoriaMetrics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.fetch import Advice, Answer, Connection, base_of, shown

ORIGIN = "prometheus"
FEWER = "--select fewer engines: --select 'namespace=\"prod\"'"
_PATHS = ("/api/v1/query", "/api/v1", "/graph", "/query", "/targets", "/alerts")
_SLOW = "its queries take long: raise --timeout, or --select fewer engines, or a shorter --window"
_QUERY, _RANGE = "/api/v1/query", "/api/v1/query_range"
_SAID = 300
_LIMITS = ("too many samples", "limit", "-search.max")
"""By these an error tells that a result would be too large."""
_REPEATS = "error when executing query="

_ADVICE = Advice(
    late=f"{{where}} did not answer within {{seconds:.0f}} s: {_SLOW}",
    over=f"{{where}}: {_SLOW}",
    endless=f"{{where}}: the answer does not end: {_SLOW}",
    too_large=f"{{where}}: the answer is larger than 64 MB: {FEWER}",
    unreadable=("not-prometheus", "{where} is not a Prometheus: its answer cannot be read ({error})"),
)

Labels = Mapping[str, str]


class Row(NamedTuple):
    """One element of a query's result."""

    labels: Labels
    value: float


class Track(NamedTuple):
    """One element of a query's result over a time: its values by POSIX seconds, without those that are no number."""

    labels: Labels
    points: Mapping[float, float]


def address(url: str) -> str:
    """The base of the API: "http://h:9090/prefix" of what a browser shows. Raises UsageError."""
    base = base_of(url.removeprefix("prom+"))
    parts = urlsplit(base)
    path = parts.path
    for ending in _PATHS:
        path = path.removesuffix(ending)
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


class Api:
    """One Prometheus. `clock` must not step; `queries` and `seconds` count what was asked, and the time it took."""

    def __init__(self, url: str, access: Access | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.base = address(url)
        self.target = shown(self.base)
        self._connection = Connection(self.base, access or Access(), clock, _ADVICE, follows=False, is_patient=False)
        self._clock = clock
        self._gets = False
        self.warnings: dict[str, None] = {}
        self.queries, self.seconds = 0, 0.0
        self.unread = 0
        """Rows that were left out: not as they must be, or with a number that nothing has so many of."""

    def close(self) -> None:
        self._connection.close()

    def rows(self, text: str, at: float, deadline: float) -> list[Row]:
        """An instant query at a POSIX time, answered by `deadline` on the clock. Raises SourceError."""
        result = self._result(_QUERY, {"query": text, "time": f"{at:.3f}"}, "vector", deadline)
        rows = [row for row in map(_row, result) if row is not None]
        self.unread += len(result) - len(rows)
        return rows

    def tracks(self, text: str, first: float, last: float, step: float, deadline: float) -> list[Track]:
        """A query at each `step` from `first` to `last`, POSIX seconds, as `rows`. Raises SourceError."""
        form = {"query": text, "start": f"{first:.3f}", "end": f"{last:.3f}", "step": f"{step:.3f}"}
        result = self._result(_RANGE, form, "matrix", deadline)
        tracks = [track for track in map(_track, result) if track is not None]
        self.unread += len(result) - len(tracks)
        return tracks

    def _result(self, path: str, form: Mapping[str, str], kind: str, deadline: float) -> list[Any]:
        """What is asked for, as a list of elements of that kind of result."""
        begun = self._clock()
        try:
            answer = self._ask(path, form, deadline)
        finally:
            self.seconds += self._clock() - begun
        return self._read(answer.status, answer.body, path, kind)

    def _ask(self, path: str, asked: Mapping[str, str], deadline: float) -> Answer:
        """The query by POST; by GET where an old API, or a proxy, lets only GET through."""
        left = math.ceil(deadline - self._clock())
        if left > 0:
            self.queries += 1
        # nocache: VictoriaMetrics answers for the moment that is asked for, and not for 30 s before it.
        form = {**asked, "timeout": f"{max(1, left)}s", "nocache": "1"}
        if not self._gets:
            answer = self._connection.post(path, deadline, self.target, data=form)
            self._gets = answer.status == 405
        if self._gets:
            answer = self._connection.get(path, deadline, self.target, params=form)
        if answer.location:
            where = shown(answer.location)
            raise SourceError("redirect", f"{self.target} redirects to {where}: give that URL if you trust it")
        return answer

    def _read(self, status: int, body: bytes, path: str, kind: str) -> list[Any]:
        if status in (401, 403):
            raise SourceError(
                "denied",
                f"{self.target} answers {status}: give --token-file, --token-for {self.target}=FILE, --header,"
                " or http://USER:PASSWORD@host",
            )
        try:
            answer = outside.json(body)
        except ValueError:
            answer = None
        is_api = isinstance(answer, dict) and answer.get("status") in ("success", "error")
        if not is_api:
            raise _no_api(self.target, status, path)
        warnings = answer.get("warnings")
        for warning in warnings if isinstance(warnings, list) else ():
            if isinstance(warning, str) and len(self.warnings) < 20:
                self.warnings[plain(warning)] = None
        if answer["status"] == "error" or status != 200:
            raise _refused(self.target, status, str(answer.get("errorType", "")), str(answer.get("error", "")))
        data = answer.get("data")
        result = data.get("result") if isinstance(data, dict) and data.get("resultType") == kind else None
        if not isinstance(result, list):
            raise _not_prometheus(self.target, f"a query's answer is no {kind}")
        return result


def _row(element: Any) -> Row | None:
    """An element of a vector; None for one that is not as it must be."""
    try:
        labels, pair = element["metric"], element["value"]
        value = float(pair[1])  # NaN and infinity are values: 0/0, x/0
        "".join(labels.values())  # raises where one is no text
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    is_known = outside.number(value) is not None or not math.isfinite(value)
    return Row(labels, value) if isinstance(pair, list) and is_known else None


def _track(element: Any) -> Track | None:
    """An element of a matrix; None for one that is not as it must be."""
    try:
        labels = element["metric"]
        "".join(labels.values())
        told = {float(at): outside.number(float(value)) for at, value in element["values"]}
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return Track(labels, {at: value for at, value in told.items() if value is not None and math.isfinite(at)})


def plain(text: str) -> str:
    """One line of what a Prometheus or its labels say."""
    return " ".join(text.split())[:_SAID]


def _no_api(target: str, status: int, path: str) -> SourceError:
    if status == 404:
        asked = f"it answers 404 to {path}; is there a path before it? (http://host/prometheus)"
        return _not_prometheus(target, asked)
    if status in (503, 504):
        return SourceError("timeout", f"{target} answers {status}: {_SLOW}")
    if status >= 500:
        return SourceError("server-error", f"{target} answers {status}")
    return _not_prometheus(target, f"it answers {status} to {path}, and no JSON of that API")


def _not_prometheus(target: str, why: str) -> SourceError:
    return SourceError("not-prometheus", f"{target} is not a Prometheus: {why}")


def _refused(target: str, status: int, kind: str, error: str) -> SourceError:
    """Why a query was not answered, by the API's own word. `refused`: this query; other kinds: any would be."""
    # VictoriaMetrics writes the whole query before what is wrong.
    error = plain(error[-_SAID:] if error.startswith(_REPEATS) else error)
    if kind in ("timeout", "canceled") or status in (503, 504):
        return SourceError("timeout", f"{target} gave up ({status}: {error or kind}): {_SLOW}")
    if status >= 500 or kind in ("internal", "unavailable"):
        return SourceError("server-error", f"{target} answers {status}: {error or kind}")
    if any(word in error.lower() for word in _LIMITS):
        return SourceError("too-large", f"{target} refuses so large a result ({error}): {FEWER}")
    return SourceError("refused", f"{target} refuses the query ({status}: {error or kind})")
