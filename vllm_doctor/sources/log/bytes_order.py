"""Which way the lines of a log run: what is exported from a store of logs has the newest first, mostly.

A log is read forward: one that runs backwards is turned round, where it is small enough to be held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

MOST_TURNED = 64 << 20
"""Bytes that are held, to be turned round."""
MOST_HELD = 400_000
"""Entries that are."""
_LEAST = 3
"""Steps back in time, without as many forward, that tell it."""
_WINDOW = 400
"""Characters of a line in which its time is looked for."""
_BLOCK = 1 << 18
_JUDGED, _MOST_FOLLOWING = 2000, 2000
_LONGEST = 1 << 20
_TURNED = "its newest lines stand first: it is read from its end"
TOO_LONG = (
    f"its newest lines stand first, and it is too long to be turned round ({MOST_TURNED >> 20} MiB): its order is"
    " reversed; turn it yourself: tac FILE | vllm-doctor -"
)

_TIME = re.compile(
    rb"(?:[0-9]{4}-|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) )"
    rb"([0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?)"
)


def is_newest_first(head: bytes) -> bool:
    """Whether the times of these lines go backwards."""
    lines = head[: _JUDGED * _WINDOW].split(b"\n")
    times = [found.groups() for line in lines if (found := _TIME.search(line, 0, _WINDOW))]
    back = sum(one > other for one, other in pairwise(times))
    forward = sum(one < other for one, other in pairwise(times))
    return back >= _LEAST and forward * 10 < back


def oldest_first(entries: Iterable[bytes], notes: list[str]) -> Iterator[bytes]:
    """Entries without their last line's end, as blocks of lines; turned round where the newest stand first."""
    held: list[bytes] = []
    size = 0
    rest = iter(entries)
    for entry in rest:
        held.append(entry)
        size += len(entry)
        if size > MOST_TURNED or len(held) > MOST_HELD:
            break
    is_whole = size <= MOST_TURNED and len(held) <= MOST_HELD
    if is_newest_first(b"\n".join(entry[:_WINDOW] for entry in held[:_JUDGED])):
        if is_whole:
            held.reverse()
        notes.append(_TURNED if is_whole else TOO_LONG)
    yield from _blocks(chain(held, rest))


def turned(blocks: Iterable[bytes], notes: list[str]) -> Iterator[bytes]:
    """The same of plain text, in which what has no time of its own belongs to the line above it."""
    return oldest_first(_with_what_follows(blocks), notes)


def _with_what_follows(blocks: Iterable[bytes]) -> Iterator[bytes]:
    entry: list[bytes] = []
    for line in _lines(blocks):
        if entry and (_TIME.search(line, 0, _WINDOW) or len(entry) >= _MOST_FOLLOWING):
            yield b"\n".join(entry)
            entry = []
        entry.append(line)
    if entry:
        yield b"\n".join(entry)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest


def _blocks(entries: Iterable[bytes]) -> Iterator[bytes]:
    """Of about one size: what is read is not the speed of single lines."""
    here: list[bytes] = []
    size = 0
    for entry in entries:
        here.append(entry)
        size += len(entry) + 1
        if size > _BLOCK:
            here.append(b"")
            yield b"\n".join(here)
            here, size = [], 0
    if here:
        here.append(b"")
        yield b"\n".join(here)
