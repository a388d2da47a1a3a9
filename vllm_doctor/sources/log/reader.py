"""From the bytes of a log to what it says: each line of the table that stands in it, with its values, in order."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from vllm_doctor.model.reading import Value
from vllm_doctor.rules.log_lines import PATTERN_SECONDS, LogLine, LogLines, shortened
from vllm_doctor.sources.log import bytes_stream, entry_arguments, entry_context
from vllm_doctor.sources.log import entry as record
from vllm_doctor.sources.log.bytes_scan import Line, Scanner, Tally
from vllm_doctor.sources.log.bytes_stream import Origin
from vllm_doctor.sources.log.bytes_unpacked import Block, Rest
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.sources.log.entry_clock import Beat, Clock

_HEAD = 4096
_LOOKED_AT, _MOST_LINES = 64 * 1024, 400
_TIME_OF_DAY = re.compile(rb"[0-9]{2}:[0-9]{2}:[0-9]{2}")
_FENCE = re.compile(rb"^[ >]{0,8}(?:```|~~~|</?details>)", re.MULTILINE)
_OF_VLLM = re.compile(r"APIServer|ApiServer|EngineCore|VllmWorker|Worker(?:_|$)")
"""The names of its processes."""
_OF_ENGINE = re.compile(r"EngineCore|VllmWorker|RayWorker|Worker(?:_|$)")
_LIST = " \t>*•-"
"""Before a line that was copied without what vLLM writes before it."""
_MAX_TEXT = 300
_MOST_HELD = 10_000
"""Lines without a time that are kept until the file tells its first."""
_SLOW_TIMES = 3
"""So often a pattern may take too long in one log, before its line is given up."""
_MOST_IN_VAIN = 256 * 1024
"""Characters; sentences that look like the beginning of a line are not joined for ever."""
_OF_TROUBLE = ("", "ERROR", "CRITICAL")
"""Levels at which an exception is one; in others a message may quote what a client sent."""
_LAST = 512
"""Bytes at a log's end, of which its last line is read."""
_TRACED = ("error", "died", "raised", "failed")
"""Marks of lines that hold or introduce an exception."""
_GOES_ON = re.compile(r"(?:\S{1,300}:\d{1,7}: )?\w{0,60}Warning: |.{0,2000}\bretrying\b")
"""Of a line that looks like an error, and of which it says itself that it is none that ends anything."""
_SPACES = re.compile(" {2,}")
_REQUEST_LOGGERS = ("request_logger.py:", "logger.py:")
_IMPORTING = ("__init__.py:", "importing.py:")
"""What prints as soon as a program imports vLLM."""
_REQUESTS = ("Received request", "Generated response")
_REQUEST_ENDS = re.compile(r"\b(?:params|lora_request|finish_reason): ")
"""What stands behind the prompt or the answer in a logged request."""


class Sighting(NamedTuple):
    """A line of the table in a log. `at`: POSIX seconds, None before the first time in the log.

    `cause`: the exception that the line holds or introduces, and `stage` where in a start that
    was raised, `part` in which part of the server. `stream` counts the files, `number` the lines in one; the
    latter is None where nobody asks, as it is dear to find out.
    """

    at: float | None
    stream: int
    number: int | None
    origin: str
    process: str
    pid: int | None
    line: LogLine
    values: Mapping[str, Value]
    repeated: int = 1
    cause: str | None = None
    stage: str | None = None
    arguments: entry_arguments.Arguments | None = None
    part: str | None = None


class Reading:
    """One log being read. `path` None is standard input; `group` numbers the logs that belong together.

    `until`, on time.monotonic: the log of a running server, which is followed until then, and of which only the end is
    read where it is long. `may_run_ahead`: whether a second thread may read it (`Scanner.lines`).

    Complete once `sightings` is exhausted.
    """

    def __init__(
        self,
        path: Origin,
        group: int,
        table: LogLines,
        scanner: Scanner,
        until: float | None = None,
        may_run_ahead: Callable[[], bool] = bool,
    ) -> None:
        self.name = str(path) if path is not None else "-"
        self.stream = group
        self.tally = Tally()
        self.position = 0
        """Bytes of its file that were read: fewer than those of the tally where it is packed."""
        self.recognised = 0
        self.is_vllm = False
        """Whether a record of vLLM's was in it."""
        self.zoned = False
        """Whether its times are absolute; else they are the server's local ones, taken as they stand."""
        self.is_quoted = False
        """Whether it stands in a text, between fences of Markdown: whoever wrote that chose where it ends."""
        self.head: list[str] = []
        """Its first lines."""
        self.notes: list[str] = []
        self.has_times_beside = False
        """Whether another file holds the times of the same program: then none are made up."""
        self.shift = 0.0
        """Seconds to be added to all its times: which year it is, its end may tell."""
        self.may_be_empty = False
        self.path, self._table, self._scanner, self._until = path, table, scanner, until
        self._may_run_ahead = may_run_ahead
        self._is_timeless = self._is_bare = False
        self._tail = b""
        self._too_slow: Counter[str] = Counter()
        """Ids of lines -> how often one of their patterns took too long."""
        self._joined_in_vain = 0
        """Characters of lines that were joined to one before them, and did not complete it."""

    def sightings(self) -> Iterator[Sighting]:
        """The lines of the table, in order. Raises SourceError where the log cannot be read."""
        clock = Clock(bytes_stream.written_at(self.path, self.notes))
        beat = Beat()
        at: float | None = None
        spoken = 0  # up to there it is what a client sent
        for line in self._scanner.lines(self._blocks(), self.tally, self._may_run_ahead):
            if line.offset < spoken:
                continue
            found = False
            records = record.records(line.raw)
            if any(this.source.startswith(_IMPORTING) for this in records) and entry_context.is_of_collect_env(line):
                continue
            if records and _is_open_request(records[-1]):
                spoken = line.offset + len(line.raw) + len(entry_context.spoken(line))
            for place, this in enumerate(records):
                if this.stamp is not None:
                    at = clock.seconds(this.stamp)
                    self.zoned = self.zoned or this.stamp.offset is not None
                last = place == len(records) - 1
                for sighting in self._sighted(this, line, last, at):
                    if at is None and self._is_timeless and not self.has_times_beside:
                        if sighting.line.samples:
                            said = sighting.values.get("engine")
                            beat.tick((sighting.origin, sighting.process, sighting.pid, sighting.line.id, said))
                        sighting = sighting._replace(at=beat.at)
                    found = True
                    self.is_vllm = (
                        self.is_vllm or bool(this.level) or "vllm" in this.message or bool(sighting.line.samples)
                    )
                    self.is_vllm = self.is_vllm or sighting.line.is_own or _OF_VLLM.match(this.process) is not None
                    yield sighting
            self.recognised += max(line.stands_for.values()) if found else 0
        word = self._tail.rstrip().rpartition(b"\n")[2]
        for this in record.records(word) if spoken <= self.tally.bytes_read - len(self._tail) else ():
            yield from self._sighted_last(this, at)
        self.shift = clock.shift()
        self.notes += [_slow(id, times) for id, times in self._too_slow.items()]

    def _reached(self, position: int) -> None:
        self.position = position

    def _blocks(self) -> Iterator[Block]:
        for block in bytes_stream.blocks(self.path, self.notes, self._until, self.may_be_empty, self._reached):
            if not self.head and not isinstance(block, Rest):
                head = bytes(block[:_LOOKED_AT])
                self.head = [r.message for raw in head[:_HEAD].split(b"\n")[:5] for r in record.records(raw)]
                self._is_timeless, self._is_bare = _lacks(head)
                self.is_quoted = _FENCE.search(head) is not None
            if not isinstance(block, Rest):
                self._tail = (self._tail + bytes(block[-_LAST:]))[-_LAST:]
            yield block

    def _sighted(self, this: Record, line: Line, last: bool, at: float | None) -> Iterator[Sighting]:
        entries = {entry: line.stands_for[hit] for hit in line.hits for entry in self._table.of_find[hit]}
        for entry, times in entries.items():
            message = this.message
            if self._is_bare and entry.samples and not this.level:
                message = message.lstrip(_LIST)
            elif not _may_be(entry, this) or _is_of_a_request(this):
                continue
            values = self._values(entry, message)
            if values is None and entry.samples and "  " in message:  # padded, by who pasted it
                values = self._values(entry, _SPACES.sub(" ", message))
            if last and (values is None or entry.is_cut(values)) and self._joined_in_vain < _MOST_IN_VAIN:
                rest = entry_context.wrapped(line)
                joined = self._values(entry, message + rest)
                self._joined_in_vain += len(rest) if joined is None else 0
                message, values = message + rest, joined or values
            elif last and values is not None and entry.marks in _TRACED and not entry.fields.keys() <= values.keys():
                rest = entry_context.broken_off(line)
                joined = self._values(entry, message + rest) if rest else None
                if joined is not None and len(joined) > len(values):
                    message, values = message + rest, joined
            if values is None or (entry.marks in ("error", "died") and _GOES_ON.match(message)):
                continue
            cause, stage = (str(values["error"]) if "error" in values else None), entry.stage
            part = None
            if cause is not None and cause.endswith(":"):
                cause = f"{cause} {entry_context.goes_on(this, line)}".rstrip()
            if cause is not None and entry.marks in _TRACED:
                where = entry_context.stack(this, line, self._table)
                stage, part = stage or where.stage, where.part
            elif entry.marks in _TRACED:
                raised = entry_context.exception(this, line, self._table)
                cause, stage = (raised.says, raised.stage or stage) if raised is not None else (None, stage)
                part = raised.part if raised is not None else None
                self.is_vllm = self.is_vllm or (raised is not None and raised.is_of_vllm)
            given = None
            if entry.marks == "arguments":
                given = _arguments(message, entry_context.wrapped(line) if last else "")
            yield Sighting(
                at=at,
                stream=self.stream,
                number=line.number if entry.marks in _TRACED else None,
                origin=this.origin,
                process=this.process,
                pid=this.pid,
                line=entry,
                values=values,
                repeated=this.repeated * times,
                cause=_shortened(cause) if cause else None,
                stage=stage,
                arguments=given,
                part=part,
            )

    def _sighted_last(self, this: Record, at: float | None) -> Iterator[Sighting]:
        """What only the last line of a log tells."""
        for entry in self._table.last if not this.level else ():
            values = self._values(entry, this.message.rstrip())
            if values is not None:
                cause = str(values["error"]) if "error" in values else None
                yield Sighting(
                    at, self.stream, None, this.origin, this.process, this.pid, entry, values, cause=cause
                )  # fmt: skip

    def _values(self, entry: LogLine, message: str) -> Mapping[str, Value] | None:
        """None also where a pattern takes too long: noted, and after a few times not tried again."""
        if self._too_slow[entry.id] >= _SLOW_TIMES:
            return None
        try:
            return entry.values(message)
        except TimeoutError:
            self._too_slow[entry.id] += 1
            return None


def _may_be(entry: LogLine, this: Record) -> bool:
    """Whether a record of that level, and of that process, can be this line: an exception without its traceback counts
    where the engine's own processes recorded it, in which no client has a word."""
    if entry.bare:
        return this.level in _OF_TROUBLE
    if entry.marks == "raised":
        return this.level in _OF_TROUBLE and _OF_ENGINE.match(this.process) is not None
    return bool(this.level)


def _is_of_vllm(this: Record, line: LogLine) -> bool:
    """Whether no other program writes this."""
    return bool(this.level or line.samples) or "vllm" in this.message or _OF_VLLM.match(this.process) is not None


def _lacks(head: bytes) -> tuple[bool, bool]:
    """Whether a log's beginning has no times, and whether it has no records of vLLM's either."""
    if _TIME_OF_DAY.search(head):
        return False, False
    found = [this for raw in head.split(b"\n")[:_MOST_LINES] for this in record.records(raw)]
    is_timeless = not any(this.stamp for this in found)
    return is_timeless, is_timeless and not any(this.level for this in found)


def _slow(id: str, times: int) -> str:
    how = f"{times} times" if times > 1 else "once"
    gave_up = ", and was not looked for after that" if times >= _SLOW_TIMES else ""
    return f"the pattern of the log line {id} took longer than {PATTERN_SECONDS:g} s {how}{gave_up}: simplify it"


def _shortened(cause: str) -> str:
    return cause if len(cause) < _MAX_TEXT else f"{shortened(cause)[: _MAX_TEXT - 1].rstrip()}…"


def _arguments(message: str, rest: str) -> entry_arguments.Arguments:
    """The arguments of a line, and of its `rest` where a terminal broke it: only with that they come to their end."""
    text, with_defaults = message.partition("args:")[2], not message.startswith("non-default")
    given = entry_arguments.parse(text, with_defaults)
    if given.whole or not rest:
        return given
    joined = entry_arguments.parse(text + rest, with_defaults)
    return joined if joined.whole else given


def merged(groups: Sequence[Sequence[Reading]]) -> Iterator[Sighting]:
    """The sightings of several logs by time. Within a group one log follows the other; each keeps its order.

    Of what one program wrote to two files (one stream) the times of the one tell when it was: what has none in the
    other comes with its first time, and where it has none at all, at the end.
    """
    if len(groups) == 1:
        for reading in groups[0]:
            yield from reading.sightings()
        return
    shared = Counter(group[0].stream for group in groups)

    def timed(place: int, group: Sequence[Reading]) -> Iterator[tuple[float, int, int, Sighting]]:
        latest, count = float("-inf"), 0
        held: list[Sighting] | None = [] if shared[group[0].stream] > 1 else None
        for sighting in chain.from_iterable(reading.sightings() for reading in group):
            latest = max(latest, sighting.at if sighting.at is not None else latest)
            if held is not None and latest == float("-inf") and len(held) < _MOST_HELD:
                held.append(sighting)
                continue
            for one in (*(held or ()), sighting):
                yield latest, place, count, one
                count += 1
            held = None
        for one in held or ():
            yield float("inf"), place, count, one
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
