"""The bytes of one log, as lines the scanner can read: also of one that is still written to."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.sources.log import bytes_document, bytes_order, bytes_wrapped
from vllm_doctor.sources.log.bytes_tail import Tail
from vllm_doctor.sources.log.bytes_unpacked import BLOCK, Block, Blocks, Rest, read

_HEAD = 4096
_LOOKED_AT = 64 * 1024


@dataclass(frozen=True)
class Held:
    """A log that a recording holds. `written`: when it was last written to, POSIX seconds."""

    name: str
    text: bytes = field(repr=False)
    written: float

    def __str__(self) -> str:
        return self.name


class Fetched(Held):
    """A log that is fetched when it is read, once: `fetch` gives its text, when it was last written to, and what is to
    be said of it. Raises SourceError."""

    _fetched: Callable[[], tuple[bytes, float, Sequence[str]]]

    def __init__(self, name: str, fetch: Callable[[], tuple[bytes, float, Sequence[str]]]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_fetched", cache(fetch))

    __hash__ = object.__hash__  # not by what is fetched
    __eq__ = object.__eq__
    __repr__ = Held.__str__

    @property
    def text(self) -> bytes:
        return self._fetched()[0]

    @property
    def written(self) -> float:
        return self._fetched()[1]

    @property
    def notes(self) -> Sequence[str]:
        return self._fetched()[2]


Origin = Path | ProcessLog | Held | None
"""Where a log is; None: standard input."""

MOST_OF_LIVING = 256 * 1024 * 1024
"""Bytes of a running server's log: it is to be left in peace."""
_MOST_CARRIED = 4 * 1024 * 1024
_JOURNAL_BYTES = re.compile(rb'("MESSAGE" ?: ?)\[([0-9, ]{1,1000000})\]')


def blocks(
    path: Origin,
    notes: list[str],
    until: float | None,
    may_be_empty: bool,
    reached: Callable[[int], object] = lambda at: None,
) -> Iterator[Block]:
    """The log's blocks; what must be said of it goes to `notes`, and how many bytes of its file were read to `reached`.
    Raises SourceError where it cannot be read.

    `until`, on time.monotonic: the log of a running server, which is followed until then, and of which only the end is
    read where it is long.
    """
    if isinstance(path, Held):
        return _readable(_of_text(path), notes)
    found = _of_file(path, notes, until, may_be_empty, reached)
    return _readable(found, notes) if until is None else _journal(found)


def _of_text(held: Held) -> Iterator[bytes]:
    """Raises SourceError where there is none."""
    if not held.text.strip():
        raise SourceError("empty", f"{held.name} is empty in the recording")
    for start in range(0, len(held.text), BLOCK):
        yield held.text[start : start + BLOCK]


def written_at(path: Origin, notes: list[str]) -> datetime:
    """By when the log was written: it holds no year. What must be said of that goes to `notes`."""
    try:
        written = path.written if isinstance(path, Held) else path.stat().st_mtime if path is not None else None
    except OSError:
        written = None
    if written is not None and outside.is_time(written):
        return outside.moment(written)
    if written is not None:
        notes.append("its file is dated outside of the years 1 to 9999: its lines are taken to be of the last year")
    return datetime.now(UTC)


def size_of(path: Origin) -> int | None:
    """Bytes of its file; None where that is not known: of a pipe."""
    if isinstance(path, Held):
        return None
    about = _about(path)
    return about.st_size if about is not None else None


def changed_at(path: Origin) -> float | None:
    """When the file was last written to, POSIX seconds; None where there is none."""
    if isinstance(path, Held):
        return path.written
    about = _about(path)
    return about.st_mtime if about is not None else None


def _of_file(
    path: Path | ProcessLog | None,
    notes: list[str],
    until: float | None,
    may_be_empty: bool,
    reached: Callable[[int], object],
) -> Iterator[Block]:
    source = Blocks(path, reached=reached)
    position = _end_of(path) if until is not None else 0
    try:
        if position:
            notes.append(f"only its last {MOST_OF_LIVING >> 20} MiB were read, as the server is alive")
        else:
            yield from source.with_rest()
            position = source.position
    except SourceError as error:
        if error.kind != "empty" or not may_be_empty:
            raise
        notes.append(str(error))
    notes += source.notes
    if until is not None and path is not None:
        yield from _followed(path, position, until)


def _end_of(path: Path | ProcessLog | None) -> int:
    """Where to begin with a log that is too long to be read beside a running server; 0 with one that is not."""
    about = _about(path)
    return max(0, about.st_size - MOST_OF_LIVING) if about is not None else 0


def _about(path: Path | ProcessLog | None) -> os.stat_result | None:
    """Of a regular file."""
    try:
        about = path.stat() if path is not None else None
    except OSError:
        return None
    return about if about is not None and stat.S_ISREG(about.st_mode) else None


def _followed(path: Path | ProcessLog, position: int, until: float) -> Iterator[bytes]:
    """What stands in the log from there on, and what is written until that time; also across its rotation."""
    with closing(Tail(path, position)) as tail:
        while data := tail.read():
            yield data
        time.sleep(max(0.0, until - time.monotonic()))  # it is open, though it be renamed meanwhile
        while data := tail.read():
            yield data


def _readable(blocks: Iterator[Block], notes: list[str]) -> Iterator[Block]:
    """The blocks as lines of a log, the oldest first: what was exported as a document or backwards is put right."""
    first = next(blocks, None)
    if first is None:
        return
    if not isinstance(first, Rest):
        head = bytes(first[:_LOOKED_AT])
        if bytes_document.is_one(head):
            whole = (bytes(block) for block in read(chain([first], blocks)))
            yield from bytes_order.oldest_first(bytes_document.entries(head, whole, notes), notes)
            return
        if bytes_order.is_newest_first(head):
            yield from bytes_order.turned((bytes(block) for block in read(chain([first], blocks))), notes)
            return
        if bytes_wrapped.is_broken(head):
            yield from bytes_wrapped.joined(head, (bytes(block) for block in read(chain([first], blocks))))
            return
    yield from _journal(chain([first], blocks))


def _journal(blocks: Iterator[Block]) -> Iterator[Block]:
    """The blocks, with the messages as text that `journalctl -o json` writes as arrays of bytes.

    It does so for what is not printable, such as colours. The scanner would find nothing in them.
    """
    first = next(blocks, None)
    if first is None:
        return
    if isinstance(first, Rest) or bytes(first[:1]) != b"{" or b'"__REALTIME_TIMESTAMP"' not in bytes(first[:_HEAD]):
        yield first
        yield from blocks
        return
    rest = b""
    for block in read(chain([first], blocks)):
        whole, newline, rest = (rest + bytes(block)).rpartition(b"\n")
        if newline or len(rest) > _MOST_CARRIED:
            yield _JOURNAL_BYTES.sub(_journal_text, whole + newline or rest)
            rest = rest if newline else b""
    if rest:
        yield _JOURNAL_BYTES.sub(_journal_text, rest)


def _journal_text(match: re.Match[bytes]) -> bytes:
    try:
        text = bytes(map(int, match[2].split(b","))).decode("utf-8", "replace")
    except ValueError:  # no bytes: 256 or more
        return match[0]
    return match[1] + json.dumps(text).encode()
