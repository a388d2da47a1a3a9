"""Where the time of a request goes on its way through gateway, router and servers: a sentence, and a row a hop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from vllm_doctor.model.path import HopSeen, PathSeen
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import IN_SHORT, Reason
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Labelled, Span, Table, Words, joined, rule
from vllm_doctor.text import words

_LEAST = 0.01
"""Share of the request's time below which a hop is no row for a reader in a hurry."""
_HEAD = ("hop", "a request", "share", "how it is known")
"""A finding's own sentence says how the hop that it names is known."""


def path(report: Report, whole: bool) -> tuple[Labelled, ...]:
    """Nothing where one server was looked at, or several side by side."""
    seen = report.path
    if seen is None:
        return ()
    width = len(_HEAD) if whole else len(_HEAD) - 1
    rows = tuple(tuple(row[:width]) for row in _rows(seen, whole))
    notes = () if whole else tuple(f"{hop.says} is not known: {hop.by}" for hop in seen.hops if _is_unknown(hop))
    table = (Table(_HEAD[:width], rows, frozenset({1, 2}), notes),) if rows else ()
    return (Labelled("Path", (*_way(seen), f": {_total(seen)}", *_blamed(seen)), table),)


def _way(seen: PathSeen) -> tuple[Span, ...]:
    parts: list[Words] = []
    for role, of_role in groupby(seen.sources, key=lambda source: source.role):
        sources = list(of_role)
        names = list(dict.fromkeys(source.product for source in sources if source.product))
        count = f"{len(sources)} × " if len(sources) > 1 else ""
        parts.append(f"{count}{', '.join(names) or role}")
    return joined(parts, " → ")


def _total(seen: PathSeen) -> str:
    if not isinstance(seen.total, Known):
        return f"its time is not known ({IN_SHORT[seen.total]})"
    many = f", the mean of {words.number(seen.requests, 'requests')} requests" if seen.requests is not None else ""
    return f"a request takes {words.number(float(seen.total.value), 's')}{many}"


def _blamed(seen: PathSeen) -> Iterator[str]:
    for hop in seen.blamed[:1]:
        yield f"; most to gain: {hop.says}, {_time(hop)}"


def _rows(seen: PathSeen, whole: bool) -> Iterator[list[Words]]:
    for hop in seen.hops:
        is_small = hop.blamed is None and hop.share is not None and hop.share < _LEAST
        if is_small and not whole:
            continue
        says: Words = (hop.says, " ", rule(hop.blamed)) if hop.blamed is not None else hop.says
        yield [says, _time(hop), _share(hop), hop.by]
    if seen.rest is not None and isinstance(seen.total, Known) and (whole or _is_much(seen)):
        total = float(seen.total.value)
        yield ["in none of them", words.number(seen.rest, "s"), words.number(seen.rest / total, "share"), ""]


def _is_unknown(hop: HopSeen) -> bool:
    return isinstance(hop.seen, Reason) and bool(hop.by)


def _is_much(seen: PathSeen) -> bool:
    return isinstance(seen.total, Known) and abs(seen.rest or 0.0) >= _LEAST * float(seen.total.value)


def _time(hop: HopSeen) -> str:
    if isinstance(hop.seen, Reason):
        return f"? ({IN_SHORT[hop.seen]})"
    return words.number(float(hop.seen.value), "s")


def _share(hop: HopSeen) -> str:
    return words.number(hop.share, "share") if hop.share is not None else ""
