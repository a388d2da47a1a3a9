"""One raw line of a log, as it is found in the wild, and the records of vLLM in it.

A line is taken out of its wrappers, layer by layer, split where progress bars were drawn over each other, and split
where a record follows another without a line's end between them. What vLLM did not write is kept as it stands: what
it means is for others to say.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from vllm_doctor.sources.log.entry_clock import Stamp, iso_stamp, short_stamp
from vllm_doctor.sources.log.entry_wrapper import BLANK, LEVEL, PROCESS, Wrapping, peel, without_colours

MAX_LAYERS = 8
MAX_PIECES = 1024  # that one line may be drawn of; of more, those in the middle are left out


@dataclass(frozen=True, slots=True)
class Record:
    """What one program wrote at one time.

    `stamp`: the outermost wrapper's time, else vLLM's own, without a year. `process` and `pid`: as vLLM's prefix, or
    else Ray's, names it: "EngineCore_DP0", "Worker_TP0", "VllmWorker-0", "" and None without a prefix. `origin`: the
    container, pod, service or node that a wrapper names ("vllm-0/server", "vllm-1", "10.0.0.3"), or "".
    `level` is "" where the text is not one of vLLM's records: uvicorn's, progress bars, tracebacks, other programs'.
    `source`: "loggers.py:236" or "". `message` is free of colours; of foreign text it is all that the wrappers leave,
    with its indentation. `repeated`: how often Ray says it was written.
    """

    stamp: Stamp | None
    process: str
    pid: int | None
    origin: str
    level: str
    source: str
    message: str
    repeated: int = 1


# A line that nobody has wrapped: nearly all are, in the logs this was written for.
_PLAIN = re.compile(
    r"(?:\((?P<process>[A-Za-z][A-Za-z0-9_-]{0,60}) pid=(?P<pid>[0-9]{1,10})\) )?"
    rf"(?P<level>{LEVEL}) (?P<when>[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}) "
    r"\[?(?:[A-Za-z0-9_.-]{0,80}+/){0,20}+(?P<source>[A-Za-z0-9_.-]{1,80}+:[0-9]{1,6}+)\] ?"
    "(?P<message>[^\r\n\x1b\0]*+)[\r\n]*$"
)
# The same as others have it: with a year, without a source
_OURS = re.compile(
    rf"(?P<level>{LEVEL}) {{1,8}}(?P<when>(?P<year>[0-9]{{4}}-)?"
    r"[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)(?= |$)"
    r"(?P<place> {1,4}(?:\[(?:[^\s\]:/]{0,80}+/){0,20}+(?P<source>[^\s\]:/]{1,120}+:[0-9]{1,6}+)\]"
    r"|(?P<bare>[\w.-]{1,80}\.py:[0-9]{1,6})\]))? ?",
    re.ASCII,
)
# Formats of somebody's own: "INFO - vllm.engine.metrics - ", "[INFO] vllm.core: ", "INFO | vllm.core:log:236 - "
_SEPARATOR = r"[\s|\[\]:-]{1,10}"
_NAME = r"vllm(?:\.\w{1,60}){0,12}+(?::[\w<>]{1,60}(?=:))?"
_CUSTOM = re.compile(
    rf"[\s|\[-]{{0,5}}(?:(?P<first>{LEVEL}){_SEPARATOR}(?P<name>{_NAME})(?::(?P<line>[0-9]{{1,6}}))?"
    rf"|(?P<second_name>{_NAME})(?::(?P<second_line>[0-9]{{1,6}}))?{_SEPARATOR}(?P<second>{LEVEL}))(?:{_SEPARATOR}|$)"
    r"(?![0-9]{2}-[0-9]{2} )",  # "vllm.log:12:INFO 05-01 …" is what grep writes
    re.ASCII,
)
# Without a time: "[INFO] [loggers.py:236] "
_CUSTOM_PLACE = re.compile(
    rf"[\s|\[-]{{0,5}}(?P<level>{LEVEL})[\s\]:|-]{{1,10}}\[(?:[^\s\]:/]{{0,80}}+/){{0,20}}+"
    r"(?P<source>[\w.-]{1,80}\.py:[0-9]{1,6})\] ?",
    re.ASCII,
)

# What is left of "ERROR 06-30 13:53:19 [core.py:515] ValueError: …" where an excerpt begins within it
_CUT = re.compile(
    r"[\s.…]{0,5}(?:ERROR[^\[\]]{0,40} )?\[?(?:[^\s\]:/]{0,80}+/){0,20}+(?P<source>[\w.-]{1,80}\.py:[0-9]{1,6})\] "
    r"(?=[\w.]{0,100}(?:Error|Exception): )",
    re.ASCII,
)

# Chats and editors make a link of "loggers.py:236": it looks like a host
_LINKED = re.compile(r"\[\[([\w./-]{1,200}\.py:[0-9]{1,6})\]\(https?://[\w./-]{1,200}:[0-9]{1,6}/?\)\]", re.ASCII)

# "[rank3]:[E716 19:47:26.324588983 ProcessGroupNCCL.cpp:629] ": PyTorch's C++, month and day of which are not apart
_OF_TORCH = re.compile(
    r"(?:\[rank[0-9]{1,6}\]: ?)?\[[IWEF](?P<month>[0-9]{1,2})(?P<day>[0-9]{2}) "
    r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})\.[0-9]{1,9} [\w.]{1,80}:[0-9]{1,6}\]",
    re.ASCII,
)

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#34|#x27);")

_BARE = Wrapping()

_BREAK = re.compile(r"[\r\n]+")
_REPEATED = re.compile(r" ?\[repeated ([0-9]{1,9})x across cluster\](?: \(Ray deduplicates logs[^()]*\))?\s*$")


def records(raw: bytes) -> list[Record]:
    """The records in one line, in order; none in an empty one. Any bytes will do, and time is linear in their number.

    A line's own end may be there or not. A message cut short is given as far as it goes.
    """
    text = raw.decode("utf-8", "replace")
    if "&" in text and _ENTITY.search(text):  # a page's source
        text = html.unescape(text)
    found = _plain(text, _BARE)
    if found is None:
        text = _LINKED.sub(r"[\1]", text) if "](http" in text else text
        # logrotate's copytruncate leaves holes; PowerShell writes UTF-16, of which this leaves what is ASCII
        return _read(text.replace("\0", ""), Wrapping(), MAX_LAYERS)
    return [found]


def _plain(text: str, within: Wrapping) -> Record | None:
    match = _PLAIN.match(text)
    if match is None:
        return None
    process, pid, level, when, source, message = match.groups()
    if ".py:" in message or "[repeated " in message or "[0" in message or "INFO:  " in message:  # perhaps not plain
        return None
    stamp = within.stamp
    if stamp is None or stamp.month is None:
        stamp = short_stamp(when) or stamp
    if process is None:
        return Record(stamp, within.process, within.pid, within.origin, level, source, message)
    return Record(stamp, process, int(pid), within.origin, level, source, message)


def _read(text: str, within: Wrapping, layers: int) -> list[Record]:
    """The records in what a wrapper holds: it may be several lines, and the first one's prefix is for all."""
    text = without_colours(text)
    if "\r" not in text and "\n" not in text:
        return _read_line(text, within, layers)
    pieces = [piece for piece in _BREAK.split(text) if piece]
    if len(pieces) > MAX_PIECES:
        del pieces[MAX_PIECES // 2 : -MAX_PIECES // 2]
    found = []
    for piece in pieces:
        found += _read_line(piece, within, layers)
        within.level = within.source = ""
    return found


def _read_line(text: str, within: Wrapping, layers: int) -> list[Record]:
    while True:
        plain = _plain(text, within)
        if plain is not None:
            return [plain]
        begin = text.lstrip(BLANK)
        rest = peel(begin, within) if layers > 0 else None
        if rest is None:
            return list(_split(text, within))
        layers -= 1
        text = rest
        if begin[0] in '{"':  # only what was in JSON has lines and colours that were not seen yet
            return _read(text, within.copy(), layers)


def _split(text: str, within: Wrapping) -> Iterator[Record]:
    begin = len(text) - len(text.lstrip(BLANK))
    first = _ours(text, begin)
    if first is None:
        custom = _custom(text, within)
        if custom is not None:
            yield custom
            return
    cuts = list(_glued(text, first.end() if first else 0, first is not None))
    head = text[: cuts[0]].rstrip() if cuts else text
    if first is not None:
        yield _record(first, head[first.end() :], within)
    elif cuts and (prefix := _PREFIX.fullmatch(text, 0, cuts[0])):
        _note_prefix(prefix, within)
    elif head.strip(BLANK):
        yield _foreign(head, within)
    for cut, end in pairwise([*cuts, len(text)]):
        yield _glued_record(text[cut:end].rstrip() if end < len(text) else text[cut:], within)


def _ours(text: str, begin: int) -> re.Match[str] | None:
    match = _OURS.match(text, begin)
    # Ray writes "INFO 2025-06-01 10:00:00,123 serve 77 -- ": with a year it takes a source to be one of vLLM's
    return match if match and (match["place"] or not match["year"]) else None


def _record(match: re.Match[str], message: str, within: Wrapping) -> Record:
    written = match["when"]
    own = iso_stamp(written) if match["year"] else short_stamp(written)
    return _made(match["level"], match["source"] or match["bare"] or "", message, within, own)


def _foreign(text: str, within: Wrapping) -> Record:
    own = None
    # To the second, as vLLM's own times are: of one second the lines keep their order.
    if text[:1] == "[" and (torch := _OF_TORCH.match(text)):
        own = short_stamp(f"{int(torch['month']):02}-{torch['day']} {torch['time']}")
    return _made(within.level, within.source, text, within, own)


def _made(level: str, source: str, message: str, within: Wrapping, own: Stamp | None) -> Record:
    stamp = within.stamp
    if stamp is None or stamp.month is None:
        stamp = own or stamp
    repeated = 1
    if "[repeated " in message and (match := _REPEATED.search(message, max(0, len(message) - 400))):
        message, repeated = message[: match.start()], int(match[1])
    return Record(stamp, within.process, within.pid, within.origin, level, source, message, repeated)


def _custom(text: str, within: Wrapping) -> Record | None:
    match = _CUSTOM.match(text)
    if match is not None:
        name, line = match["name"] or match["second_name"], match["line"] or match["second_line"]
        source = f"{name.partition(':')[0].rpartition('.')[2]}.py:{line}" if line else ""
        return _made(match["first"] or match["second"], source, text[match.end() :], within, None)
    if match := _CUSTOM_PLACE.match(text):
        return _made(match["level"], match["source"], text[match.end() :], within, None)
    if match := _CUT.match(text):
        return _made("ERROR", match["source"], text[match.end() :], within, None)
    return None


# --- records that follow without a line's end -------------------------------------------------------------------------

# A record in full, or uvicorn's access line, after which no record could be told from its text
_GLUED = re.compile(
    rf"{LEVEL} [0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}} \[?[\w./-]{{1,200}}\.py:[0-9]{{1,6}}\] "
    r"|INFO:     (?=[0-9A-F.:\[]{3,40}:[0-9]{1,5} - \")",
    re.ASCII,
)
_PREFIXES = re.compile(r"(?:\([^()]{0,80}pid=[0-9]{1,10}[^()]{0,40}\) ){1,2}$")
_MAX_PREFIXES = 250
# Messages that hold what users wrote, which may be a log
_SPEECH = re.compile(r"Received request|Generated response|Added request|Error in (?:extracting|parsing)")
_SPEECH_IN_FOREIGN = re.compile(r"Received request |Generated response |\bprompt: ")
_NUMBERS = re.compile(r"(?:Engine [0-9]{3}: |[0-9]{1,4} Engines Aggregated: )?Avg prompt throughput: ")
_QUOTE = re.compile(r"(?<![\w\\])['\"`]")
_UNQUOTE = {quote: re.compile(rf"(?:[^{quote}\\]++|\\.)*+{quote}") for quote in "'\"`"}
# VLLM_LOGGING_PREFIX, `grep -n`, `srun -l` and their like: a few words that end as if something was to follow
_PREFIX = re.compile(
    r"[ \t]{0,4}(?:(?:[^\s\"'`%]{1,64}[ \t]{1,4}){1,3}|\[[^\[\]\"'`%]{1,64}\][ \t]?|[^\s\"'`%]{1,99}[:|>)\]-])"
)
# A name in one tells servers apart. A mere word does not, and numbers and times would tell lines apart.
_NAME_IN_PREFIX = re.compile(
    r"(?<=\[)[A-Za-z][\w./-]{1,98}(?=\])|[A-Za-z]{1,98}[0-9_./-][\w./-]{0,98}(?<=\w)", re.ASCII
)
_TIME_OF_DAY = re.compile(r"[0-9]:[0-9]{2}")


def _glued(text: str, begin: int, is_ours: bool) -> Iterator[int]:
    """Where records begin that follow what stands before `begin` or after it.

    What only looks like one, as part of a message, is left there: what is quoted, and all that follows a message of
    the kind that holds users' texts. A program whose line was not ended does not put a space either.
    """
    if text.find(".py:", begin) < 0 and text.find("INFO:  ", begin + 1) < 0:
        return
    if is_ours and _SPEECH.match(text, begin):
        return
    quoted = _quoted(text, begin)
    inside = next(quoted, None)
    may_space = not is_ours or _NUMBERS.match(text, begin) is not None
    least = begin
    for core in _GLUED.finditer(text, begin):
        before = _PREFIXES.search(text, max(least, core.start() - _MAX_PREFIXES), core.start())
        start = before.start() if before else core.start()
        while inside is not None and inside[1] <= start:
            inside = next(quoted, None)
        if inside is not None and inside[0] < start:
            continue
        if start <= begin and is_ours:  # a message that is itself a record: of a text that vLLM breaks into lines
            continue
        if start > least and not _may_begin(text, least, start, may_space):
            continue
        if start > least == 0 and not is_ours and not _may_precede(text, start):
            return
        yield start
        if _SPEECH.match(text, core.end()):
            return
        least = core.end()
        may_space = _NUMBERS.match(text, least) is not None


def _may_begin(text: str, least: int, start: int, may_space: bool) -> bool:
    """Whether a record can begin behind the text from `least` on: not after its own space or escaped newline."""
    if text[start - 1] in " \t" and not (may_space or text[least:start].isspace()):
        return False
    return text[start - 2 : start] != "\\n"


def _may_precede(text: str, end: int) -> bool:
    """Whether foreign text can have a record after it: not if it speaks of one."""
    if _SPEECH_IN_FOREIGN.search(text, 0, end):
        return False
    return text[end - 1] not in " \t" or _PREFIX.fullmatch(text, 0, end) is not None


def _quoted(text: str, begin: int) -> Iterator[tuple[int, int]]:
    """The spans in quotes. An apostrophe within a word is none; what is not closed reaches to the end."""
    while opening := _QUOTE.search(text, begin):
        closing = _UNQUOTE[opening[0]].match(text, opening.end())
        begin = closing.end() if closing else len(text)
        yield opening.start(), begin


def _glued_record(text: str, within: Wrapping) -> Record:
    """Its own prefix if it has one, else that of what it follows: a process writes its prefix once in a line."""
    own = within.copy()
    own.level = own.source = ""
    while PROCESS.match(text) and (rest := peel(text, own)) is not None:
        text = rest
    match = _ours(text, 0)
    return _foreign(text, own) if match is None else _record(match, text[match.end() :], own)


def _note_prefix(prefix: re.Match[str], within: Wrapping) -> None:
    name = _NAME_IN_PREFIX.search(prefix[0])
    if name is not None and not _TIME_OF_DAY.search(prefix[0]):
        within.set_origin(name[0])
