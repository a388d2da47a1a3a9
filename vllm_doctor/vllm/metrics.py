"""Which metrics a vLLM version shows, by the names they have on /metrics.

data/metrics.tsv: read from the sources of every release from 0.8.0 on; made by tests/lab/release. What a release
defines: some metrics are shown only where their feature is on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.vllm.flags import near
from vllm_doctor.vllm.release_table import History, Row

_METRICS = History(Path(__file__).parent / "data" / "metrics.tsv")
_KIND, _ENGINES, _NOTE = range(3)
_SERIES = re.compile(r"_(bucket|count|sum|created)$")
_TOTAL = "_total"


@dataclass(frozen=True)
class Metric:
    """A metric of one version.

    `name`: as on /metrics, a counter with its _total. `kind`: counter, gauge, histogram; None: the sources do not tell.
    `engines`: V0, V1. `is_hidden`: shown only with --show-hidden-metrics-for-version. `since`, `until` as of a flag.
    """

    name: str
    kind: str | None
    engines: tuple[str, ...]
    is_hidden: bool
    since: str
    until: str | None


def metric(version: str, name: str) -> Metric | None:
    """The metric of the version (as `flags.judged_as`), also by the name of one of its series; None: it has none."""
    place = _METRICS.judged_at(version)
    if place is None:
        return None
    for row in _rows(name):
        if row.is_at(place):
            return Metric(
                row.names[0],
                row.cell(_KIND) or None,
                tuple(row.cell(_ENGINES).split()),
                row.cell(_NOTE) == "hidden",
                *_METRICS.stretch(row.names[0], place),
            )
    return None


def spans(name: str) -> tuple[tuple[str, str], ...]:
    """From which release to which the metric is known, oldest first."""
    known = next(_rows(name), None)
    return _METRICS.spans(_METRICS.rows(known.names[0])) if known else ()


def nearest(version: str, name: str) -> list[str]:
    """At most three metrics of the version (as `flags.judged_as`) with much the same name, nearest first."""
    place = _METRICS.judged_at(version)
    return [] if place is None else near(name, (row.names[0] for row in _METRICS.rows_at(place)))


def _rows(name: str) -> Iterator[Row]:
    """The rows of a metric: by its name, as vLLM's sources have it without _total, or by a series of it."""
    for written in (name, name + _TOTAL, name.removesuffix(_TOTAL), _SERIES.sub("", name)):
        yield from _METRICS.rows(written)


def is_shown(name: str) -> bool:
    """Whether /metrics of any release has a series of this name: a counter with its _total, a histogram's _bucket."""
    series = _SERIES.search(name)
    if series is None:
        return any(row.cell(_KIND) != "histogram" for row in _METRICS.rows(name))
    kinds = {row.cell(_KIND) for row in _METRICS.rows(name[: series.start()])}
    return bool(kinds & {"histogram", ""}) or name in _METRICS.names()


def shown() -> Iterator[str]:
    """The name of every series, of all releases."""
    for name in _METRICS.names():
        if any(row.cell(_KIND) == "histogram" for row in _METRICS.rows(name)):
            yield from (f"{name}_{part}" for part in ("bucket", "count", "sum"))
        else:
            yield name
