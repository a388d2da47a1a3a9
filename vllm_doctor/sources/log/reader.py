"""From the bytes of a log to what it says: each line of the table that stands in it, with its values, in order."""

from __future__ import annotations

import heapq
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from vllm_doctor.errors import SourceError
from vllm_doctor.log_lines import LogLine, LogLines
from vllm_doctor.signal import Value
from vllm_doctor.sources.log import arguments, record
from vllm_doctor.sources.log.blocks import Blocks
from vllm_doctor.sources.log.clock import Clock
from vllm_doctor.sources.log.record import Record
from vllm_doctor.sources.log.scan import Line, Scanner, Tally
from vllm_doctor.sources.log.tail import Tail

_TRACEBACK_BYTES = 16 * 1024
_HEAD = 4096
MOST_OF_LIVING = 256 * 1024 * 1024
"""Bytes of a living server's log: it is to be left in peace."""
_WRAPPED_BYTES = 12 * 1024
_WRAPPED_LINES = 150
_MAX_TEXT = 300
_MOST_CARRIED = 4 * 1024 * 1024
_JOURNAL_BYTES = re.compile(rb'("MESSAGE" ?: ?)\[([0-9, ]{1,1000000})\]')
_OF_TROUBLE = ("", "ERROR", "CRITICAL")
"""Levels at which an exception is one; in others a message may quote what a client sent."""
_REQUEST_LOGGERS = ("request_logger.py:", "logger.py:")
_REQUESTS = ("Received request", "Generated response")
_REQUEST_ENDS = re.compile(r"\b(?:params|lora_request|finish_reason): ")
"""What stands behind the prompt or the answer in a logged request."""
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]*\.)?(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Timeout|Died|Failed|Failure)\b(?:: .*)?$"
)
_VERDICTLESS = re.compile(
    r"[\w.]*(?:EngineDeadError|SystemExit|KeyboardInterrupt|CancelledError)\b|[\w.]+$"
    r"|.*(?:initialization failed|died unexpectedly|direct cause of)"
)
"""What tells that something ended, and not why; or an exception without a word."""


class Sighting(NamedTuple):
    """A line of the table in a log. `at`: POSIX seconds, None before the first time in the log.

    `cause`: the exception that the line holds or introduces. `stream` counts the files, `number` the lines in one.
    """

    at: float | None
    stream: int
    number: int
    origin: str
    process: str
    pid: int | None
    line: LogLine
    values: Mapping[str, Value]
    repeated: int = 1
    cause: str | None = None
    arguments: arguments.Arguments | None = None


class Reading:
    """One log being read. `path` None is standard input; `stream` numbers the logs that belong together.

    `until`, on time.monotonic: the log of a living server, which is followed until then, and of which only the end is
    read where it is long.

    Complete once `sightings` is exhausted.
    """

    def __init__(
        self, path: Path | None, stream: int, table: LogLines, scanner: Scanner, until: float | None = None
    ) -> None:
        self.name = str(path) if path is not None else "-"
        self.stream = stream
        self.tally = Tally()
        self.recognised = 0
        self.is_vllm = False
        """Whether a record of vLLM's was in it."""
        self.zoned = False
        """Whether its times are absolute; else they are the server's local ones, taken as they stand."""
        self.head: list[str] = []
        """Its first lines."""
        self.notes: list[str] = []
        self.shift = 0.0
        """Seconds to be added to all its times: which year it is, its end may tell."""
        self.may_be_empty = False
        self._path, self._table, self._scanner, self._until = path, table, scanner, until

    def sightings(self) -> Iterator[Sighting]:
        """The lines of the table, in order. Raises SourceError where the log cannot be read."""
        clock = Clock(_reference(self._path))
        at: float | None = None
        spoken = 0  # up to there it is what a client sent
        for line in self._scanner.lines(self._blocks(), self.tally):
            if line.offset < spoken:
                continue
            found = False
            records = record.records(line.raw)
            if records and _is_open_request(records[-1]):
                spoken = line.offset + len(line.raw) + len(_spoken(line))
            for place, this in enumerate(records):
                if this.stamp is not None:
                    at = clock.seconds(this.stamp)
                    self.zoned = self.zoned or this.stamp.offset is not None
                last = place == len(records) - 1
                for sighting in self._sighted(this, line, last, at):
                    found = True
                    self.is_vllm = self.is_vllm or bool(this.level)
                    yield sighting
            self.recognised += found
        self.shift = clock.shift()

    def _blocks(self) -> Iterator[bytes | memoryview]:
        for block in _readable(self._of_file()):
            if not self.head:
                self.head = [r.message for raw in bytes(block[:_HEAD]).split(b"\n")[:5] for r in record.records(raw)]
            yield block

    def _of_file(self) -> Iterator[bytes | memoryview]:
        source = Blocks(self._path)
        position = _end_of(self._path) if self._until is not None else 0
        try:
            if position:
                self.notes.append(f"only its last {MOST_OF_LIVING >> 20} MiB were read, as the server is alive")
            else:
                yield from source
                position = source.position
        except SourceError as error:
            if error.kind != "empty" or not self.may_be_empty:
                raise
            source.notes.append(str(error))
        self.notes += source.notes
        if self._until is not None and self._path is not None:
            yield from _followed(self._path, position, self._until)

    def _sighted(self, this: Record, line: Line, last: bool, at: float | None) -> Iterator[Sighting]:
        for entry in dict.fromkeys(entry for hit in line.hits for entry in self._table.of_find[hit]):
            if not (this.level in _OF_TROUBLE if entry.bare else this.level) or _is_of_a_request(this):
                continue
            message = this.message
            values = entry.values(message)
            if last and (values is None or entry.is_cut(values)):
                message = message + _wrapped(line)
                values = entry.values(message) or values
            if values is None:
                continue
            cause = str(values["error"]) if "error" in values else None
            if cause is None and entry.marks in ("error", "died"):
                cause = _exception(this, line)
            yield Sighting(
                at, self.stream, line.number, this.origin, this.process, this.pid, entry, values, this.repeated,
                cause[:_MAX_TEXT] if cause else None,
                arguments.parse(message.partition("args:")[2], not message.startswith("non-default"))
                if entry.marks == "arguments" else None,
            )  # fmt: skip


def _end_of(path: Path | None) -> int:
    """Where to begin with a log that is too long to be read beside a living server; 0 with one that is not."""
    return max(0, path.stat().st_size - MOST_OF_LIVING) if path is not None and path.is_file() else 0


def _followed(path: Path, position: int, until: float) -> Iterator[bytes]:
    """What stands in the log from there on, and what is written until that time; also across its rotation."""
    with closing(Tail(path, position)) as tail:
        while data := tail.read():
            yield data
        time.sleep(max(0.0, until - time.monotonic()))  # it is open, though it be renamed meanwhile
        while data := tail.read():
            yield data


def merged(groups: Sequence[Sequence[Reading]]) -> Iterator[Sighting]:
    """The sightings of several logs by time. Within a group one log follows the other; each keeps its order."""
    if len(groups) == 1:
        for reading in groups[0]:
            yield from reading.sightings()
        return

    def timed(place: int, group: Sequence[Reading]) -> Iterator[tuple[float, int, int, Sighting]]:
        latest, count = float("-inf"), 0
        for reading in group:
            for sighting in reading.sightings():
                latest = max(latest, sighting.at if sighting.at is not None else latest)
                yield latest, place, count, sighting
                count += 1

    for *_, sighting in heapq.merge(*(timed(*numbered) for numbered in enumerate(groups)), key=lambda item: item[:3]):
        yield sighting


def _is_of_a_request(this: Record) -> bool:
    """Whether the line goes on with what a client sent: vLLM repeats its prefix on each line of a logged prompt."""
    return this.source.startswith(_REQUEST_LOGGERS) and not this.message.startswith(_REQUESTS)


def _is_open_request(this: Record) -> bool:
    """Whether the record is a logged request that does not end on its line."""
    return (
        this.source.startswith(_REQUEST_LOGGERS)
        and this.message.startswith(_REQUESTS)
        and not _REQUEST_ENDS.search(this.message)
    )


def _spoken(line: Line) -> bytes:
    """What follows a request that does not end on its line, up to the next record."""
    following = line.following()
    end = 0
    for raw in following.splitlines(keepends=True):
        if _begins_record(record.records(raw)):
            break
        end += len(raw)
    return following[: end + 1]


def _begins_record(found: Sequence[Record]) -> bool:
    return bool(found) and (bool(found[0].level) or found[0].message.startswith("INFO: "))


def _readable(blocks: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The blocks, with the messages as text that `journalctl -o json` writes as arrays of bytes.

    It does so for what is not printable, such as colours. The scanner would find nothing in them.
    """
    first = next(blocks, None)
    if first is None:
        return
    if bytes(first[:1]) != b"{" or b'"__REALTIME_TIMESTAMP"' not in bytes(first[:_HEAD]):
        yield first
        yield from blocks
        return
    rest = b""
    for block in chain([first], blocks):
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


def _reference(path: Path | None) -> datetime:
    """By when the log was written: it holds no year."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC) if path is not None else datetime.now(UTC)
    except OSError:
        return datetime.now(UTC)


def _wrapped(line: Line) -> str:
    """What follows a line that a terminal broke, up to the next record."""
    joined = ""
    for raw in line.following(_WRAPPED_BYTES).split(b"\n")[:_WRAPPED_LINES]:
        following = record.records(raw)
        if not raw.strip() or not following or _begins_record(following):
            break
        joined += following[0].message
    return joined


def _exception(this: Record, line: Line) -> str | None:
    """The first exception of the traceback that follows, of the same process: of a chain, the one it began with."""
    weak: str | None = None
    traced = "Traceback" in this.message
    for raw in line.following(_TRACEBACK_BYTES).split(b"\n"):
        for following in record.records(raw):
            if following.process != this.process and following.level:
                continue
            text = following.message
            traced = traced or "Traceback (most" in text or text.lstrip().startswith("File ")
            found = _EXCEPTION.match(text) if traced else None
            if found is None:
                continue
            if not _VERDICTLESS.match(text):
                return text.strip()
            weak = weak or text.strip()
    return weak
