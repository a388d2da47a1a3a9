"""What follows a line, and belongs to it: its rest where a terminal broke it, an exception, a client's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.sources.log import entry, entry_raised
from vllm_doctor.sources.log.bytes_scan import Line
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.text.redact import MASK

_TRACEBACK_BYTES = 16 * 1024
_TRACEBACK_STARTS = 40
"""Lines within which a traceback starts, among those of other processes."""
_WRAPPED_BYTES = 12 * 1024
_WRAPPED_LINES = 150
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]*\.)?(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Timeout|Died|Failed|Failure)\b(?:: .*)?$"
)
_VERDICTLESS = re.compile(
    r"[\w.]*(?:EngineDeadError|SystemExit|KeyboardInterrupt|CancelledError)\b|[\w.]+$"
    r"|.*(?:initialization failed|failed to start|died unexpectedly|direct cause of)"
)
"""What tells that something ended, and not why; or an exception without a word."""
_HEADING = re.compile(r"[\w.]*ValidationError: \d+ validation errors? for \w+$")
"""pydantic says on the next line what is wrong."""


def wrapped(line: Line) -> str:
    """What follows a line that a terminal broke, up to the next record."""
    joined = ""
    for raw in line.following(_WRAPPED_BYTES).split(b"\n")[:_WRAPPED_LINES]:
        following = entry.records(raw)
        if not raw.strip() or not following or _begins_record(following):
            break
        joined += following[0].message
    return joined


def exception(this: Record, line: Line, known: LogLines) -> str | None:
    """The first exception of the traceback that follows, of the same process: of a chain, the one it began with.

    Without its message where that may quote a request (`entry_raised`).
    """
    weak: str | None = None
    headed = ""
    first = entry_raised.frame_of(this.message.lstrip())
    is_engine = entry_raised.is_of_engine(first) if first is not None else None  # all frames so far are
    traced = "Traceback" in this.message or this.message.lstrip().startswith("File ")
    for place, raw in enumerate(line.following(_TRACEBACK_BYTES).split(b"\n")):
        if place == _TRACEBACK_STARTS and not traced:
            break
        for following in entry.records(raw):
            if following.process != this.process and following.level:
                continue
            text = following.message
            if headed:
                said = text.partition(" [type=")[0].strip()  # behind that stands what was given
                return f"{headed}: {said if is_engine else MASK}"
            if "Traceback (most" in text:
                is_engine = None
            elif (frame := entry_raised.frame_of(text.lstrip())) is not None:
                is_engine = is_engine is not False and entry_raised.is_of_engine(frame)
            traced = traced or "Traceback (most" in text or text.lstrip().startswith("File ")
            found = _EXCEPTION.match(text) if traced else None
            if found is None:
                continue
            if _HEADING.match(text):
                headed = text.strip()
                continue
            if not _VERDICTLESS.match(text):
                return entry_raised.shown(text.strip(), is_engine is True, known)
            weak = weak or entry_raised.shown(text.strip(), is_engine is True, known)
    return headed or weak


def spoken(line: Line) -> bytes:
    """What follows a request that does not end on its line, up to the next record."""
    following = line.following()
    end = 0
    for raw in following.splitlines(keepends=True):
        if _begins_record(entry.records(raw)):
            break
        end += len(raw)
    return following[: end + 1]


def _begins_record(found: Sequence[Record]) -> bool:
    return bool(found) and (bool(found[0].level) or found[0].message.startswith("INFO: "))
