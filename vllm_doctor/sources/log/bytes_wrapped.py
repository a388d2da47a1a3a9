"""Lines that were broken to a width between words, put together again: as mail, Markdown and rich's logging break them.

What a terminal breaks at its last column is none of these: its pieces are put together where a line needs them
(`entry_context.wrapped`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

_LEVEL = rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_SPACE = rb"(?:[ \t]{1,20}|[ \t\r]{0,4}\n[ \t>]{0,60})"
_WORDS = (b"Avg", b"prompt", b"throughput:", rb"[0-9.]{1,20}", b"tokens/s,", b"Avg", b"generation", b"throughput:")
_STATISTICS = re.compile(_SPACE.join(_WORDS))
_BETWEEN_WORDS = re.compile(rb"[^ \t\r\n]\r?\n>? ?[^ \t\r\n]")
_RICH = re.compile(
    rb"(?:\[(?:(?P<month>[0-9]{2})/(?P<day>[0-9]{2})/(?P<year>[0-9]{2}) )?(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})\]"
    rb"|[ ]{10,24})[ ]{1,4}(?P<level>" + _LEVEL + rb")[ ]{1,8}(?P<said>[^ \r\n][^\r\n]{0,4000}+)"
)
_COLUMN = re.compile(rb"[ ]{1,200}([\w.-]{1,80}\.py:[0-9]{1,6})[ \t\r]{0,200}$")
"""rich's, at the right: where the line was logged."""
_BEGIN = re.compile(
    rb"[ \t>]{0,20}(?:\([^()\n]{0,80}pid=[0-9]{1,10}[^()\n]{0,60}\) ){0,2}(?:" + _LEVEL + rb"\b|```|~~~)"
)
_MOST_JOINED = 150


def is_broken(head: bytes) -> bool:
    """Whether statistics, which every log has, stand broken between words in a log's beginning."""
    return _is_rich(head) or any(_BETWEEN_WORDS.search(found[0]) for found in _STATISTICS.finditer(head))


def _is_rich(head: bytes) -> bool:
    return any(found["time"] and _COLUMN.search(found["said"]) for line in _few(head) if (found := _RICH.match(line)))


def _few(head: bytes) -> list[bytes]:
    return head.split(b"\n")[:200]


def joined(head: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that were broken, as blocks."""
    width = _width(head)
    here: list[bytes] = []
    time = b""
    for line in _lines(blocks):
        rich = _RICH.match(line)
        if rich is not None:
            time = _time(rich) or time
            line = _plain(rich, time)
        elif here and line.strip() and not _BEGIN.match(line) and len(here) < _MOST_JOINED:
            here.append(b"" if len(here[-1]) == width else b" ")
            here.append(line.lstrip(b" \t>").rstrip())
            continue
        if here:
            yield b"".join(here) + b"\n"
        is_record = rich is not None or _BEGIN.match(line) is not None
        here = [line.rstrip()] if is_record else []
        if not is_record:
            yield line + b"\n"
    if here:
        yield b"".join(here)


def _width(head: bytes) -> int:
    """The column at which a terminal broke lines, wherever in a word that is; -1 where they end behind words."""
    broken = [
        line for line, after in pairwise(_few(head)) if _BEGIN.match(line) and after.strip() and not _BEGIN.match(after)
    ]
    is_terminal = len({len(line) for line in broken}) == 1 and len({line[-8:] for line in broken}) > 1
    return len(broken[0]) if is_terminal else -1


def _time(rich: re.Match[bytes]) -> bytes:
    if not rich["time"]:
        return b""  # of the line above
    date = b"20%b-%b-%b " % (rich["year"], rich["month"], rich["day"]) if rich["year"] else b""
    return date + rich["time"] if date else b"[%b]" % rich["time"]


def _plain(rich: re.Match[bytes], time: bytes) -> bytes:
    """As Python's own logging would have it."""
    column = _COLUMN.search(rich["said"])
    said = rich["said"][: column.start()] if column is not None else rich["said"].rstrip()
    place = b" [%b]" % column[1] if column is not None else b""
    return b"%b %b%b %b" % (time, rich["level"], place, said)


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > 1 << 20:
            yield rest
            rest = b""
    if rest:
        yield rest
