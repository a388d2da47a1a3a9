"""What follows a line, and belongs to it: its rest where a terminal broke it, an exception, a client's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_doctor.rules.log_lines import LogLines
from vllm_doctor.sources.log import entry, entry_raised
from vllm_doctor.sources.log.bytes_scan import Line
from vllm_doctor.sources.log.entry import Record
from vllm_doctor.text.redact import MASK

_TRACEBACK_BYTES = 48 * 1024
"""Of eight workers that write at the same time, each with a record for a line."""
_TRACEBACK_STARTS = 40
"""Lines within which a traceback starts, among those of other processes."""
_CHAINED_WITHIN = 12
"""Lines of one process between an exception, whose message has several, and the word that another one followed."""
_WRAPPED_BYTES = 12 * 1024
_WRAPPED_LINES = 150
_COLUMNS = 78
"""No terminal, and no page, breaks lines before."""
_EXCEPTION = re.compile(
    r"(?:(?:[A-Za-z_][\w.]*\.)?(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Timeout|Died|Failed|Failure|Unsupported)\b"
    r"|(?:[a-z_]\w*\.)+[A-Z]\w*)(?:: .*)?$"
)
_VERDICTLESS = re.compile(
    r"[\w.]*(?:EngineDeadError|SystemExit|KeyboardInterrupt|CancelledError|ExceptionGroup|CalledProcessError)\b|[\w.]+$"
    r"|[\w.]+: (?:cancelled|None)?$"
    r"|.*(?:initialization failed|failed to start|died unexpectedly|direct cause of|new thread at interpreter shutdown"
    r"|failed in the TorchScript interpreter|Error raised in subprocess|failed to be inspected"
    r"|returned non-zero exit status|Failed core proc)"
)
"""What tells that something ended, and not why; or an exception without a word."""
_LOOKUP = re.compile(
    r"[\w.]{0,100}(?:Key|Index|Attribute|Lookup|ModuleNotFound|Unicode|JSONDecode|HTTP|StopIteration)\w{0,40}: "
)
"""What often is only how another way was tried, and an exception that says more was raised instead."""
_WORDS = 5
"""Of an exception that says more."""
_OPEN = re.compile(r".{8,}(?::|Reasons?:)\s*$")
"""A message that goes on in the next line."""
_OPEN_WITHIN = 2
"""Lines within which it does, an empty one among them."""
_STACK = "(most recent call first):"
_STACK_WITHIN = 24
"""Lines of one process within which it begins: of registers, and of libraries below Python."""
_MOST_FRAMES = 100
_NO_COMMA = re.compile(r'(", line \d{1,9}) in ')
"""In a stack of the faulthandler's, unlike in a traceback."""
_BEFORE_COLLECT_ENV = 400
"""Bytes: a warning or two may stand between."""
_MARGIN = re.compile(r"\s{0,40}[|+](?:-[+-]{0,99})?(?: \d{1,4} -+)? ?")
"""Of an ExceptionGroup."""
_CHAIN = ("During handling of the above", "The above exception was")
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


def broken_off(line: Line) -> str:
    """What follows a line that a terminal's column cut: each line but the last is as long as the first."""
    width, joined = len(line.raw.rstrip(b"\r")), ""
    for raw in line.following(_WRAPPED_BYTES).split(b"\n")[:_WRAPPED_LINES] if width >= _COLUMNS else ():
        raw = raw.rstrip(b"\r")
        found = entry.records(raw)
        if not raw.strip() or len(raw) > width or not found or found[0].process or _begins_record(found):
            break
        if raw.lstrip(b" >").startswith((b"```", b"~~~")):
            break
        joined += found[0].message
        if len(raw) < width:
            break
    return joined


def goes_on(this: Record, line: Line) -> str:
    """The next line of the same process: a message that ends with a colon says there what it means."""
    for raw in line.following(_WRAPPED_BYTES).split(b"\n")[:_TRACEBACK_STARTS]:
        for following in entry.records(raw):
            if not _is_of_another(this, following) and following.message.strip():
                return following.message.strip()
    return ""


def is_of_collect_env(line: Line) -> bool:
    """Whether a line is what collect-env printed when it imported vLLM, and no server's."""
    return b"Collecting environment information..." in line.following(_WRAPPED_BYTES)[:_BEFORE_COLLECT_ENV]


class Where(NamedTuple):
    """Of frames: in which stage of a start they are, and of what part of the server."""

    stage: str | None = None
    part: str | None = None


def stack(this: Record, line: Line, known: LogLines) -> Where:
    """Where a process was that was ended from below Python: by the stack that Python's faulthandler then prints, the
    innermost frame first."""
    frames: list[str] = []
    begun, seen = False, 0
    below = line.following(_TRACEBACK_BYTES)
    for raw in below.split(b"\n") if _STACK.encode() in below else ():
        for following in entry.records(raw):
            if _is_of_another(this, following):
                continue
            words, seen = following.message.strip(), seen + 1
            if begun and not words.startswith("File "):
                break
            if begun:
                frames.append(_NO_COMMA.sub(r"\1, in ", words))
            begun = begun or (words.endswith(_STACK) and not words.startswith("Traceback"))
        else:
            if begun or seen <= _STACK_WITHIN:
                continue
        break
    found = _Frames(known)
    for frame in reversed(frames[:_MOST_FRAMES]):
        found.add(frame)
    return Where(found.stage, found.part)


class Raised(NamedTuple):
    """The exception of a traceback: `says` the last line of it, `stage` in which part of a start its frames are.

    `is_weak`: it tells that something ended, and not why. `is_of_vllm`: a frame of it is in vLLM. `part`: of what of
    the server the frames are, where the table names it.
    """

    says: str
    stage: str | None
    is_weak: bool = False
    is_of_vllm: bool = False
    part: str | None = None


def exception(this: Record, line: Line, known: LogLines) -> Raised | None:
    """Why a process failed, by the traceback that follows: of a chain the exception that it began with, unless that was
    only how another way was tried, or the rules know a later one.

    Without its message where that may quote a request (`entry_raised`).
    """
    found = list(_tracebacks(this, line, known))
    strong = [one for one in found if not one.is_weak]
    if not strong:
        return found[0] if found else None
    chosen = next((one for one in strong if entry_raised.knows(one.says, known)), strong[0])
    if chosen is strong[0] and _LOOKUP.match(chosen.says):
        more = (one for one in strong[1:] if not _LOOKUP.match(one.says) and len(one.says.split()) > _WORDS)
        chosen = next(more, chosen)
    by_nearness = (chosen, *strong[strong.index(chosen) :], *strong)
    stage = next((one.stage for one in by_nearness if one.stage is not None), None)
    part = next((one.part for one in by_nearness if one.part is not None), None)
    return Raised(chosen.says, stage, is_of_vllm=any(one.is_of_vllm for one in found), part=part)


def _tracebacks(this: Record, line: Line, known: LogLines) -> Iterator[Raised]:
    """The exceptions of one chain, each with where it was raised; of one that says nothing also what comes after it."""
    traced = "Traceback" in this.message or this.message.lstrip().startswith("File ")
    frames = _Frames(known)
    frames.add(this.message)
    says, headed, since = "", "", 0

    def told() -> Raised:
        bare = f"{says} in {frames.last}" if frames.last and re.fullmatch(r"[\w.]+:?", says) else says
        is_weak = _VERDICTLESS.match(says) is not None
        says_shown = entry_raised.shown(bare, frames.are_no_clients, known)
        return Raised(says_shown, frames.stage, is_weak, frames.is_of_vllm, frames.part)

    for place, raw in enumerate(line.following(_TRACEBACK_BYTES).split(b"\n")):
        if place == _TRACEBACK_STARTS and not traced:
            return
        for following in entry.records(raw):
            if _is_of_another(this, following):
                continue
            text = _unmargined(following.message)
            if headed:
                said = text.partition(" [type=")[0].strip()  # behind that stands what was given
                yield Raised(f"{headed}: {said if frames.are_no_clients else MASK}", frames.stage)
                headed = ""
                continue
            begins = "Traceback " in text and "(most recent call last)" in text
            if says:
                since += 1
                chained = text.startswith(_CHAIN)
                if _OPEN.match(says) and since <= _OPEN_WITHIN and text.strip() and not (begins or chained):
                    says = f"{says.rstrip()} {text.strip()}"
                    continue
                if chained or begins or since > _CHAINED_WITHIN or following.level in _TELLING:
                    yield told()
                    if not chained and not _VERDICTLESS.match(says):
                        return
                    says = ""
            if begins:
                traced, since = True, 0
                frames = _Frames(known)
            elif frames.add(text):
                traced = True
            elif traced and not says and _EXCEPTION.match(text):
                says, since = text.strip(), 0
                if _HEADING.match(text):
                    headed, says = says, ""
    if says:
        yield told()
    elif headed:
        yield Raised(headed, frames.stage)


_TELLING = ("INFO", "WARNING", "DEBUG")


class _Frames:
    """The frames of one traceback. `is_engine`: whether all are the engine's; None without one. `stage`: of a start;
    the innermost that tells one, but what runs requests runs no start. `part`: of the server, the innermost that is
    named. `last`: the innermost. `is_start`: one makes the engine."""

    def __init__(self, known: LogLines) -> None:
        self._known = known
        self.is_engine: bool | None = None
        self.is_start = False
        self.is_of_vllm = False
        self.stage: str | None = None
        self.part: str | None = None
        self.last = ""

    @property
    def are_no_clients(self) -> bool:
        """Whether no request can be quoted in what was raised there: nobody reads one in the engine, or in a start."""
        return self.is_engine is True or self.is_start or self.stage not in (None, "serving")

    def add(self, text: str) -> bool:
        """Whether the line is one."""
        words = text.lstrip()
        found = entry_raised.frame_of(words)
        if found is None:
            return False
        self.is_engine = self.is_engine is not False and entry_raised.is_of_engine(found)
        self.is_start = self.is_start or entry_raised.is_of_start(found)
        self.is_of_vllm = self.is_of_vllm or "/vllm/" in found["path"]
        name, function = found["path"].rpartition("/")[2], found["function"]
        self.last = f"{name}, {function}" if function else name
        known = [one for one in self._known.frames if one.values(words) is not None]
        self.part = next((one.part for one in known if one.part is not None), self.part)
        if self.stage != "serving":
            self.stage = next((one.stage for one in known if one.stage is not None), self.stage)
        return True


def _is_of_another(this: Record, following: Record) -> bool:
    """Whether a line is another process's. One without any prefix may be of this."""
    if following.process or following.level:
        return (following.process, following.pid) != (this.process, this.pid)
    return False


def _unmargined(text: str) -> str:
    margin = _MARGIN.match(text)
    return text[margin.end() :] if margin else text


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
