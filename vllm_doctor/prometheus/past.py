"""What a Prometheus keeps of the day before, of the engines of one server: the same load, early and late (model/drift).

A moment is a step of five minutes, a mean over it. Such a mean is of one load only where the batch is steady: the time
per token is not proportional to the batch, so a batch that swings gets fewer tokens than a steady one of its mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_doctor.model import drift
from vllm_doctor.model.drift import Moment
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Reading, Subject, Unknown, project
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import query
from vllm_doctor.prometheus.api import ORIGIN, Api, Track
from vllm_doctor.prometheus.query import Scope

SIGNALS = frozenset(drift.UNTOLD)
"""What it tells; where nobody wants any of it, nothing is asked."""
STEP, SECONDS = 300, 86400
_ASKED = {
    "running": "sum by ($engine) (avg_over_time(vllm:num_requests_running[$window]))",
    "swing": "sum by ($engine) (stddev_over_time(vllm:num_requests_running[$window]))",
    "tokens": "sum by ($engine) (rate(vllm:generation_tokens_total[$window]))",
    "prompts": (
        'sum by ($engine) (rate(vllm:prompt_tokens_by_source_total{source="local_compute"}[$window]))'
        " or sum by ($engine) (rate(vllm:prompt_tokens_total[$window]))"
    ),
    "used": (
        "max by ($engine) (avg_over_time(vllm:kv_cache_usage_perc[$window])"
        " or avg_over_time(vllm:gpu_cache_usage_perc[$window]))"
    ),
    "resets": "sum by ($engine) (resets(vllm:generation_tokens_total[$window]))",
    "served": "sum by ($engine) (vllm:request_success_total)",
    "started": "max(process_start_time_seconds)",
    "memory": "max(process_resident_memory_bytes)",
}
_STEADY = 0.25
"""Standard deviation of the running requests over their mean. The time per token of a batch that swings so much is off
by its square at most, a sixteenth."""
_GAP = 1.5
"""Steps without a value, after which nobody knows what was in between."""
_REASONS = {"timeout": Reason.TIMEOUT, "denied": Reason.DENIED}

_Points = Mapping[float, float]


@dataclass(frozen=True)
class Past:
    """`readings`: by signal and engine."""

    readings: Mapping[str, Mapping[Subject, Reading]]
    notes: tuple[str, ...] = ()


def look(api: Api, engines: Sequence[Subject], scope: Scope, at: float, deadline: float) -> Past:
    """Of the day before `at` (POSIX seconds). Never raises: a Prometheus that does not answer leaves it unknown."""
    over = Scope(
        scope.matchers, scope.identity, f"{STEP}s", scope.names, scope.exported, is_metricsql=scope.is_metricsql
    )
    told: dict[str, dict[Subject, _Points]] = {}
    try:
        for name, definition in _ASKED.items():
            tracks = api.tracks(query.text(definition, over), at - SECONDS + STEP, at, STEP, deadline)
            told[name] = _by_engine(tracks, engines)
    except SourceError as error:
        lack = Unknown(_REASONS.get(error.kind, Reason.UNREACHABLE))
        return Past(
            {name: dict.fromkeys(engines, lack) for name in drift.UNTOLD}, (f"of the day before nothing: {error}",)
        )
    readings: dict[str, dict[Subject, Reading]] = {}
    for engine in engines:
        found = drift.facts(moments({name: of.get(engine, {}) for name, of in told.items()}), ORIGIN)
        for name, reading in (drift.UNTOLD | found).items():
            readings.setdefault(name, {})[engine] = reading
    return Past(readings)


def moments(told: Mapping[str, _Points]) -> list[Moment]:
    """The moments of one engine in which its batch was steady, since its last start."""
    since = _last_start(told)
    return [
        Moment(
            at,
            running / tokens,
            running,
            told["used"][at],
            told["prompts"][at] / tokens,
            told["memory"].get(at),
            told["served"].get(at),
        )
        for at, running in told["running"].items()
        if at > since
        and running > 0
        and (tokens := told["tokens"].get(at, 0.0)) > 0
        and told["swing"].get(at, math.inf) <= _STEADY * running
        and at in told["used"]
        and at in told["prompts"]
    ]


def _last_start(told: Mapping[str, _Points]) -> float:
    """The end of the step in which it was started last; of the first step, in which it may have been, at least.

    Its page tells since when its process runs, unless there are several API servers; then its counters tell, unless
    nobody looked.
    """
    since = min(told["running"], default=math.inf)
    for before, here in pairwise(sorted(told["running"])):
        was, now = told["started"].get(before), told["started"].get(here)
        if was is not None and now is not None:
            again = was != now
        else:
            again = here - before > _GAP * STEP or told["resets"].get(here, 0.0) > 0
        since = here if again else since
    return since


def _by_engine(tracks: Sequence[Track], engines: Sequence[Subject]) -> dict[Subject, _Points]:
    """The points of each engine: of a row that has its labels, or those of its server."""
    found: dict[Subject, _Points] = {}
    places: dict[tuple[str, ...], dict[Subject, list[Subject]]] = {}
    for track in tracks:
        names = tuple(sorted(track.labels))
        if names not in places:
            of = places[names] = {}
            for engine in engines:
                of.setdefault(project(engine, names), []).append(engine)
        for engine in places[names].get(tuple((name, track.labels[name]) for name in names), ()):
            found[engine] = track.points
    return found
