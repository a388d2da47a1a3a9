"""A Prometheus that is none: it evaluates queries over recorded scrapes, with the doctor's own PromQL.

It answers what vllm_doctor.sources.prometheus asks, no more; rates as the doctor computes them, without extrapolation.
tests/prometheus/test_real_prometheus.py asks a real one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from tests.making import shipped_catalogue
from tests.serving import Answer, Request, Route, recording
from vllm_doctor.expr.promql_eval import Expression
from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.model.window import Sample, Window
from vllm_doctor.prometheus.query import METRICSQL
from vllm_doctor.sources.server.exposition import parse

Target = Mapping[str, str]
AT = 1_700_000_000.0


@cache
def samples(name: str, scrapes: int = 25) -> tuple[tuple[float, tuple[Sample, ...]], ...]:
    """The scrapes of a recording, with the seconds since its begin."""
    taken = recording(name)
    pages = list(zip(taken.times, taken.pages, strict=True))[:scrapes]
    return tuple((at, parse(page.decode(), shipped_catalogue().metrics).samples) for at, page in pages)


def targets(count: int, first: int = 0, **more: str) -> list[Target]:
    """So many targets of one job."""
    return [{"job": "vllm", "instance": f"host-{number}:8000", **more} for number in range(first, first + count)]


class FakePrometheus:
    """`engines`: each target, and the recording that it replays. `ray`: with Ray's names."""

    def __init__(self, engines: Iterable[tuple[Target, str]], scrapes: int = 25, prefix: str = "vllm:") -> None:
        self.window = Window()
        self.prefix = prefix
        self.queries: list[dict[str, str]] = []
        self.up: list[tuple[Target, float]] = []
        self.warnings: list[str] = []
        self.others: dict[str, list[tuple[Target, float]]] = {}
        """What a query with such a text gives: series of other exporters."""
        replayed: dict[float, list[Sample]] = {}
        for target, name in engines:
            self.up.append((target, 1.0))
            taken = samples(name, scrapes)
            for place, (_, page) in enumerate(taken, scrapes - len(taken)):  # all end together
                labelled = [Sample(s.name, tuple(sorted((*s.labels, *target.items()))), s.value) for s in page]
                replayed.setdefault(float(place), []).extend(labelled)
        for at, together in sorted(replayed.items()):
            self.window.add(at, together)

    def lose(self, target: Target) -> None:
        """The target's last scrape failed."""
        now = self.window.times[-1]
        for series in self.window._series.values():
            for labels, points in series.items():
                if set(target.items()) <= set(labels) and points[-1][0] == now:
                    points.pop()
        self.up = [(t, 0.0 if t == target else value) for t, value in self.up]

    def routes(self) -> dict[str, Route]:
        return {"/api/v1/query": self.answer, "/api/v1/query_range": self.nothing_before}

    @staticmethod
    def nothing_before(_request: Request) -> Answer:
        """Of the day before it keeps nothing."""
        answer = {"status": "success", "data": {"resultType": "matrix", "result": []}}
        return Answer(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})

    def answer(self, request: Request) -> Answer:
        form = self._form(request)
        self.queries.append(form)
        if form["query"] == METRICSQL:
            return error(400, "bad_data", 'unknown function with name "step"')(request)
        return vector(self.result(form["query"]), self.warnings)

    def _form(self, request: Request) -> dict[str, str]:
        asked = parse_qs(request.body.decode() or request.path.partition("?")[2])
        return {name: values[0] for name, values in asked.items()}

    def result(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        if query == METRICSQL:
            return []
        if re.search(r"\b(container_|DCGM_)", query):
            return next((rows for part, rows in self.others.items() if part in query), [])
        if query.startswith("up") or "(up)" in query:
            if query == "count by (job) (up)":
                jobs = [target["job"] for target, _ in self.up]
                return [({"job": job}, float(jobs.count(job))) for job in dict.fromkeys(jobs)]
            return [({"__name__": "up", **target}, 0.0) for target, value in self.up if value == 0]
        if query.startswith("{__name__=~") or query.startswith("count({__name__=~"):
            matchers = re.sub(r'__name__=~"[^"]*"(, )?', "", query)
            asked = matchers.replace("{", f"{ENGINE_METRIC}{{").replace("{}", "")
            rows = [(dict(labels), value) for labels, value in Expression(asked).evaluate(self.window)[0].items()]
            name = {"__name__": self.prefix + ENGINE_METRIC.removeprefix("vllm:")}
            return [({**labels, **name} if labels else labels, value) for labels, value in rows]
        if "count_over_time" in query:
            inside = re.search(r"count_over_time\(([^[]+)\[", query)
            assert inside is not None
            selector = inside[1].replace(self.prefix, "vllm:", 1)
            counted = Expression(f"max_over_time({selector}[1m])").evaluate(self.window)[0]
            found = self.window.series(ENGINE_METRIC)
            return [(dict(labels), float(len(found[labels]))) for labels in counted]
        return self._rows(query)

    def _rows(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        plain = re.sub(r" and on \([^)]*\) [\w:]+(\{[^}]*\})?\)", ")", query)
        if self.prefix != "vllm:":
            assert "vllm:" not in plain, plain
            plain = re.sub(rf"\b{self.prefix}", "vllm:", plain)
        found, _ = Expression(plain).evaluate(self.window)
        return [(dict(labels), float(value)) for labels, value in found.items()]


def vector(rows: Iterable[tuple[Mapping[str, str], float]], warnings: Sequence[str] = ()) -> Answer:
    """The API's answer to an instant query."""
    result = [{"metric": dict(labels), "value": [AT, _text(value)]} for labels, value in rows]
    answer: dict[str, Any] = {"status": "success", "data": {"resultType": "vector", "result": result}}
    if warnings:
        answer["warnings"] = list(warnings)
    return Answer(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})


def error(status: int, kind: str, message: str) -> Callable[[Request], Answer]:
    """The API's answer to a query that it refuses."""
    body = json.dumps({"status": "error", "errorType": kind, "error": message}).encode()
    return lambda request: Answer(body, status, {"Content-Type": "application/json"})


def _text(value: float) -> str:
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))
