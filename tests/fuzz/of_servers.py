"""Harnesses of what servers and a Prometheus answer, and of what is kept of it."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from functools import cache
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.harness import file_of, harness, seen, sign_of, text_of
from vllm_doctor.model.errors import DoctorError


@cache
def wanted() -> frozenset[str]:
    from tests.making import shipped_catalogue

    return shipped_catalogue().metrics


@harness(
    corpus.scrapes,
    'engine="0"',
    'model_name="m"',
    "vllm:",
    "ray_vllm_",
    "# TYPE ",
    'le="+Inf"',
    "} 1 ",
    " # {",
    weight=2,
)
def exposition(data: bytes) -> Hashable:
    """The text format, alone and as the second of two scrapes."""
    from vllm_doctor.sources.server import exposition

    heads: exposition.Heads = {}
    text = text_of(data)
    first = exposition.parse(text, wanted(), heads)
    again = exposition.parse(text, wanted(), heads)
    assert len(again.samples) >= len(first.samples) - first.refused_lines
    assert all(math.isfinite(sample.value) for sample in (*first.samples, *again.samples))
    return len(first.samples) // 8, first.is_metrics, first.has_vllm, min(first.refused_lines, 3)


def _answers() -> list[bytes]:
    cards = '{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "parent": null, "max_model_len": 4096}]}'
    head = f'{{"version": "0.11.0"}}\n{cards}\nMon, 23 Nov 2026 07:00:00 GMT\n'
    return [head.encode() + page for page in corpus.scrapes()]


@harness(_answers, '"version"', '"data"', '"id"', '"parent"', '"max_model_len"', "process_start_time_seconds")
def server(data: bytes) -> Hashable:
    """Two scrapes of a server, and what its /version and /v1/models answer."""
    from vllm_doctor.sources.server import exposition, scrapes
    from vllm_doctor.sources.server.server import _date

    version, models, date, page = [*data.split(b"\n", 3), b"", b"", b""][:4]
    told = []
    for text in (version, models):
        try:
            told.append(json.loads(text))
        except (ValueError, RecursionError):
            told.append({})
    read = exposition.parse(text_of(page), wanted() | {scrapes.START_TIME})
    half = exposition.parse(text_of(page[len(page) // 3 :]), wanted())
    identity = scrapes.identity("http://h:8000", read, *told)
    taken = [
        scrapes.Scrape(1.0, read, scrapes.started(read), _date({"date": date.decode("latin-1")})),
        scrapes.Scrape(3.0, half, scrapes.started(half), None),
    ]
    return seen(scrapes.seen("http://h:8000", taken, identity))


@harness(corpus.scrapes)
def saved_scrape(data: bytes) -> Hashable:
    """A file that may be a page."""
    from vllm_doctor.sources.server import saved_scrape

    path = file_of(data, "page.txt")
    return saved_scrape.is_page(path), seen(saved_scrape.examine(path, wanted()))


def states() -> list[bytes]:
    from vllm_doctor.sources.server import exposition, state
    from vllm_doctor.sources.server.scrapes import Scrape

    path = file_of(b"", "made.state")
    path.unlink()
    kept = state.State(path, lambda: 10.0, lambda: 1.79e9)
    for at, page in enumerate(corpus.scrapes()[:2]):
        kept.keep("http://h:8000", Scrape(4.0 * at, exposition.parse(page.decode(), wanted()), 1.7e9, None))
    return [path.read_bytes()]


@harness(states, '"servers":', '"at":', '"boot":', '"clock":', '"started":', '"samples":[')
def state(data: bytes) -> Hashable:
    """The state file of a hook; then it is written over."""
    from vllm_doctor.sources.server import exposition, state
    from vllm_doctor.sources.server.scrapes import Scrape

    path = file_of(data, "hook.state")
    kept = state.State(path, lambda: 20.0, lambda: 1.79e9 + 10)
    now = Scrape(19.0, exposition.parse(corpus.scrapes()[0].decode(), wanted()), 1.7e9, None)
    recalled = kept.recall("http://h:8000", now)
    return len(recalled.scrapes), str(recalled.reason), recalled.note[-20:], kept.keep("http://h:8000", now)[:40]


@harness(lambda: [b"http://user:pw@h:8000/prefix/metrics", b"prom+http://h/p?pod=x&instance=y", b"[::1]:8000", b"h:1"])
def urls(data: bytes) -> Hashable:
    """What a word on the command line may be as a URL."""
    from vllm_doctor.prometheus import api, survey
    from vllm_doctor.sources.server import fetch

    text = text_of(data)
    fetch.shown(text)
    signs: list[Hashable] = []
    for read in (fetch.base_of, api.address, survey.chosen):
        try:
            signs.append(str(type(read(text))))
        except DoctorError as error:
            signs.append(sign_of(error))
    return tuple(signs)


def prometheus_answers() -> list[bytes]:
    vector = {
        "status": "success",
        "data": {"resultType": "vector", "result": [
            {"metric": {"__name__": "vllm:num_requests_running", "job": "v", "instance": "h:1", "engine": "0",
                        "model_name": "m"}, "value": [1.79e9, "3"]},
            {"metric": {"job": "v", "instance": "h:2", "engine": "0", "model_name": "m"}, "value": [1.79e9, "NaN"]}]},
        "warnings": ["w"],
    }  # fmt: skip
    error = {"status": "error", "errorType": "bad_data", "error": "unknown function"}
    return [json.dumps(one).encode() for one in (vector, error)]


def prometheus_ranges() -> list[bytes]:
    points = [[1.79e9 + 300 * place, str(8 + place % 3)] for place in range(40)]
    labels = {"job": "v", "instance": "h:1", "engine": "0", "model_name": "m"}
    matrix = {
        "status": "success",
        "data": {"resultType": "matrix", "result": [{"metric": labels, "values": points}]},
    }
    return [json.dumps(matrix).encode()]


class _Answering:
    """In place of the connection to a Prometheus: it answers each query with the same bytes."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self._body, self._status = body, status

    def post(self, path: str, deadline: float, where: str | None = None, **parameters: Any) -> Any:
        from vllm_doctor.sources.server.fetch import Answer

        return Answer(self._status, {}, self._body, 0.0)

    get = post

    def close(self) -> None:
        pass


@harness(prometheus_answers, '"status":', '"success"', '"data":', '"result":', '"metric":', '"value":', '"warnings":')
def prometheus_answer(data: bytes) -> Hashable:
    """One answer of the API."""
    from vllm_doctor.prometheus.api import Api

    api = Api("http://h:9090", clock=lambda: 0.0)
    api.close()
    api._connection = _Answering(data, 400 if data[-1:] == b" " else 200)  # type: ignore[assignment]
    rows = api.rows("up", 1.79e9, 10.0)
    return len(rows), len(api.warnings)


@harness(prometheus_ranges, '"matrix"', '"values":', '"metric":', '"engine"', "NaN", "+Inf", "1e-300")
def prometheus_past(data: bytes) -> Hashable:
    """The same answer to each query for the day before."""
    from vllm_doctor.model.reading import Known
    from vllm_doctor.prometheus import past
    from vllm_doctor.prometheus.api import Api
    from vllm_doctor.prometheus.query import Scope

    api = Api("http://h:9090", clock=lambda: 0.0)
    api.close()
    api._connection = _Answering(data)  # type: ignore[assignment]
    engine = (("engine", "0"), ("instance", "h:1"), ("job", "v"), ("model_name", "m"))
    told = past.look(api, [engine], Scope(), 1.79e9, 10.0)
    known = [of[engine] for of in told.readings.values() if isinstance(of[engine], Known)]
    assert all(abs(float(one.value)) < float("inf") for one in known if isinstance(one, Known))
    return len(known), len(told.notes)


@harness(
    lambda: [b'job="a",pod=~"x.*"', b'{a!="b"}', b'a="b" or c="d"'], '=~"', '!~"', '="', ",", "{", "}", "offset 5m"
)
def matchers(data: bytes) -> Hashable:
    """--select."""
    from vllm_doctor.prometheus import query

    found = query.matchers(text_of(data))
    assert query.Scope(found, ("job",), "5m").matchers == found
    return len(found)
