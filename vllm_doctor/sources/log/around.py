"""The lines of a log around a time, for a person who wants to see what happened: without secrets and clients' words.

The log is read twice: for the times of its blocks, and then for the lines of one of them. So it may be of any length.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log import bytes_stream, entry, entry_redact
from vllm_doctor.sources.log.bytes_stream import Origin
from vllm_doctor.sources.log.bytes_unpacked import read
from vllm_doctor.sources.log.entry_clock import Clock, Stamp

BEFORE, AFTER = 15, 60
"""Lines that are shown."""
_READ_BEFORE = 300
"""Lines in which what a client sent may have begun."""
_LOOKED_AT = 60
"""Lines of a block in which its first time is looked for."""
_MAX_LINE = 4096


@dataclass(frozen=True)
class Around:
    """Lines of a log from the number `first` on; that of the time stands at `place` among them."""

    first: int
    lines: tuple[str, ...]
    place: int


def around(path: Origin, at: float, is_of_now: bool = False) -> Around | None:
    """The lines around a time, POSIX seconds on the log's own clock; `is_of_now`: on that of this host.

    None: the log has no times, or none that late. Raises SourceError where it cannot be read again.
    """
    if path is None:
        raise SourceError("not-found", "standard input cannot be read a second time")
    clock, starts, zoned = _clock(path), [], False
    for number, lines in _blocks(path):
        stamp = next(_stamps(lines[:_LOOKED_AT]), None)
        if stamp is not None:
            zoned = zoned or stamp.offset is not None
            starts.append((number, clock.seconds(stamp)))
    if not starts:
        return None
    if is_of_now and not zoned:
        at += time.localtime(at).tm_gmtoff
    shift = clock.shift()
    latest = list(accumulate((begun + shift for _, begun in starts), max))
    block = max(0, bisect_right(latest, at) - 1)
    since = starts[block][0] - _READ_BEFORE
    until = starts[block + 1][0] + AFTER if block + 1 < len(starts) else None
    return _found(list(_between(path, since, until)), _clock(path), shift, at)


def _clock(path: Origin) -> Clock:
    return Clock(bytes_stream.written_at(path, []))


def _found(numbered: Sequence[tuple[int, bytes]], clock: Clock, shift: float, at: float) -> Around | None:
    """Around the first line that is not before the time."""
    place, last = None, None
    for index, (_, raw) in enumerate(numbered):
        for stamp in _stamps([raw]):
            last = clock.seconds(stamp) + shift
            if last >= at - 0.5 and place is None:
                place = index
    if place is None:
        if last is None or last < at - 1:
            return None
        place = len(numbered) - 1
    begin, end = max(0, place - BEFORE), place + AFTER
    read_from = max(0, begin - _READ_BEFORE)
    texts = [raw[:_MAX_LINE].decode("utf-8", "replace") for _, raw in numbered[read_from:end]]
    return Around(numbered[begin][0], tuple(entry_redact.kept(texts)[begin - read_from :]), place - begin)


def _stamps(lines: Sequence[bytes]) -> Iterator[Stamp]:
    for raw in lines:
        for record in entry.records(raw[:_MAX_LINE]):
            if record.stamp is not None:
                yield record.stamp
                break


def _between(path: Origin, since: int, until: int | None) -> Iterator[tuple[int, bytes]]:
    """The lines from one number on up to another, each with its own."""
    for number, lines in _blocks(path):
        if until is not None and number > until:
            return
        if number + len(lines) < since:
            continue
        for place, raw in enumerate(lines, number):
            if place >= since and (until is None or place <= until):
                yield place, raw


def _blocks(path: Origin) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines, block by block, with the number of the first, from 1."""
    number, rest = 1, b""
    for block in read(bytes_stream.blocks(path, [], None, True)):
        *lines, rest = (rest + bytes(block)).split(b"\n")
        if lines:
            yield number, lines
            number += len(lines)
    if rest:
        yield number, [rest]
