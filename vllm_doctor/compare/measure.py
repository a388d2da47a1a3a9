"""What is measured of a whole server over a time, with its spread over parts of that time: measures.yaml."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from vllm_doctor.expr.promql_eval import Estimate, Expression, PromQLError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Measure, Trend
from vllm_doctor.model.window import Window
from vllm_doctor.rules import document, pickled
from vllm_doctor.rules.signal import UNITS

PATH = Path(__file__).with_name("measures.yaml")
LEAST_PARTS, MOST_PARTS = 4, 8
"""A time is cut into so many parts of about the same length, each at least from one scrape to the next.

Where LEAST_PARTS allow it, a part is as long as a request takes: clients that wait for one another come in bursts, and
parts of half a burst would tell of its phase.
"""
_DRAWN = ("tokens_out", "tokens_in", "running", "waiting", "kv_cache", "preemptions")
_MOST_POINTS = 240
_RAMP = 0.1
_IN_FLIGHT = ("vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass(frozen=True)
class Definition:
    """One entry of the file. `better`: "more", "less" or ""; `decides`: "throughput", "latency" or ""."""

    name: str
    says: str
    unit: str
    promql: str
    better: str
    decides: str
    load: bool
    whole: bool


@cache
def definitions() -> Mapping[str, Definition]:
    """The measures by name, in the order of the file. Raises DocumentError with the line."""
    return pickled.load(pickled.MEASURES, read)


def read(path: Path = PATH) -> dict[str, Definition]:
    """The same, from the file."""
    root = document.read(path)
    root.allow("measures")
    table = root.table("measures")
    found = {}
    for name in table:
        entry = table.table(name)
        entry.allow("says", "unit", "promql", "better", "decides", "load", "whole")
        found[name] = Definition(
            name,
            entry.text("says"),
            entry.one_of("unit", UNITS),
            entry.text("promql"),
            entry.one_of("better", ("more", "less", ""), ""),
            entry.one_of("decides", ("throughput", "latency", ""), ""),
            entry.get("load") is True,
            entry.get("whole") is True,
        )
        try:
            _expression(found[name].promql, 1.0)
        except PromQLError as error:
            entry.fail(str(error), "promql")
    return found


def metrics() -> frozenset[str]:
    """The metrics that the measures are made of."""
    return frozenset(name for d in definitions().values() for name in _expression(d.promql, 1.0).names)


def measured(window: Window) -> tuple[Measure, ...]:
    """The measures of these scrapes that are known; none of a single scrape.

    Where the load begins or ends in this time, what was idle is left out there, and a tenth of the rest, in which it
    grows or fades. Where there was no request at all, it is measured all the same.
    """
    window = _busy(window)
    if len(window.times) < 2:
        return ()
    parts = [window.part(first, last) for first, last in _cuts(window.times, _count(window))]
    return tuple(found for d in definitions().values() if (found := _measured(d, window, parts)) is not None)


def window_of(observations: Sequence[Observation]) -> Window | None:
    """The scrapes of the one server among these, or the statistics of the last run in its log; None: neither, or more.

    A log is a slow scrape; beside a server that answers it is not asked.
    """
    scraped = [o.window for o in observations if o.window.times]
    if scraped:
        return scraped[0] if len(scraped) == 1 else None
    runs = [run for o in observations for run in o.runs if len(run.rounds) > 1]
    return runs[-1].window(0, len(runs[-1].rounds)) if runs else None


def trends(window: Window) -> tuple[Trend, ...]:
    """Vital signs from scrape to scrape; of many scrapes, over several of them."""
    if len(window.times) < 2:
        return ()
    step = -(-len(window.times) // _MOST_POINTS)
    times = [*window.times[:-1:step], window.times[-1]]
    steps = [(last, window.part(first, last)) for first, last in pairwise(times)]
    found = []
    for name in _DRAWN:
        definition = definitions()[name]
        points = tuple((at - times[0], _value(definition, part)) for at, part in steps)
        if any(value is not None for _, value in points):
            found.append(Trend(name, definition.says, definition.unit, points))
    return tuple(found)


def _busy(window: Window) -> Window:
    """From the first to the last scrape at which requests were in flight, without the ramps."""
    at_work = sorted(
        {at for name in _IN_FLIGHT for points in window.series(name).values() for at, value in points if value > 0}
    )
    if len(at_work) < 2:
        return window
    first, last = at_work[0], at_work[-1]
    ramp = _RAMP * (last - first)
    first += ramp if first > window.times[0] else 0.0
    last -= ramp if last < window.times[-1] else 0.0
    part = window.part(first, last)
    return part if len(part.times) > 1 else window


def _measured(definition: Definition, window: Window, parts: list[Window]) -> Measure | None:
    value = _value(definition, window)
    if value is None:
        return None
    if isinstance(value, Estimate):
        return Measure(definition.name, float(value), value.low, value.high, 1, "bucket")
    if definition.whole:
        return Measure(definition.name, value, value, value, 1, "none")
    samples = [v for v in (_value(definition, part) for part in parts) if v is not None]
    if len(samples) < 2:
        return Measure(definition.name, value, value, value, 1, "none")
    return Measure.of(definition.name, value, samples, "parts")


def _value(definition: Definition, window: Window) -> float | None:
    """None: not known, or nothing happened."""
    vector, _ = _expression(definition.promql, window.seconds).evaluate(window)
    value = next(iter(vector.values()), None)
    if value is None or not (math.isfinite(value) or isinstance(value, Estimate)):
        return None
    return value


def _expression(promql: str, seconds: float) -> Expression:
    return _parsed(
        promql.replace("$window", "1s").replace("$seconds", f"{seconds:.6f}" if "$seconds" in promql else "")
    )


@cache
def _parsed(text: str) -> Expression:
    return Expression(text)


def _count(window: Window) -> int:
    """Into how many parts a time is cut."""
    request = _value(definitions()["request_time"], window)
    return max(LEAST_PARTS, min(MOST_PARTS, int(window.seconds / request))) if request else MOST_PARTS


def _cuts(times: list[float], most: int) -> list[tuple[float, float]]:
    """From when to when the parts are: at scrapes, as near as they come to equal lengths."""
    first, seconds = times[0], times[-1] - times[0]
    count = min(most, len(times) - 1)
    ends: list[float] = []
    for part in range(1, count + 1):
        wanted = first + seconds * part / count
        nearest = min(times, key=lambda at: abs(at - wanted))
        if nearest > (ends[-1] if ends else first):
            ends.append(nearest)
    return list(pairwise([first, *ends]))
