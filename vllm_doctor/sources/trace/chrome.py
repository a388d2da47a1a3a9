"""The events of a trace in Chrome's format, one by one: memory holds a part of the file, whatever its size.

Python's own scanner reads event by event out of a text that grows block by block. Measured on 200 MB (674,177 events):
1.8 s in 16 MB, where ijson's yajl2_c took 2.7 s; so no package is needed for it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log.bytes_unpacked import Blocks

_BLOCK = 1 << 20
_MOST_OF_ONE = 4 << 20
"""Characters of an event, or of a value beside the events: what is longer is left out."""
_MOST_BROKEN = 1000
"""Events that cannot be read before the rest is given up: to find the next one takes long."""
_NEXT = re.compile(r'\{\s*+"(?:ph|name|cat|pid|ts|args)"')
_BETWEEN = " \t\r\n,"
_KEPT = (
    "deviceProperties",
    "distributedInfo",
    "with_stack",
    "record_shapes",
    "profile_memory",
    "schemaVersion",
    "vllm_version",
)


class Trace:
    """`header` and `notes` are whole once `events` has ended. Raises SourceError: not-found, denied, unreadable,
    not-a-trace."""

    def __init__(self, path: Path | None) -> None:
        self.name = "standard input" if path is None else str(path)
        self.header: dict[str, Any] = {}
        self.notes: list[str] = []
        self.is_whole = True
        """Whether it was read to its end, without an event that is none."""
        self._blocks = Blocks(path, _BLOCK)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._broken = 0

    @property
    def position(self) -> int:
        """Bytes of the file that were read."""
        return self._blocks.position

    def events(self) -> Iterator[dict[str, Any]]:
        """In the file's order."""
        self._source = iter(self._blocks)
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._array()
        elif first == "{":
            self._at += 1
            yield from self._document()
        else:
            raise SourceError("not-a-trace", f"{self.name} is no trace: it begins neither with {{ nor with [")
        self._end()

    def _document(self) -> Iterator[dict[str, Any]]:
        while (sign := self._peek()) != "}":
            key = self._value() if sign == '"' else None
            if not isinstance(key, str) or self._peek() != ":":
                self._cut()
                return
            self._at += 1
            sign = self._peek()
            if key == "traceEvents" and sign == "[":
                self._at += 1
                yield from self._array()
                if not self.is_whole and not self._more():
                    return
                continue
            value = self._value()
            if value is None and sign != "n":
                self._cut()
                return
            if key in _KEPT:
                self.header[key] = value

    def _array(self) -> Iterator[dict[str, Any]]:
        scan, between = self._scan, _BETWEEN
        while True:
            text, at = self._text, self._at
            try:
                while text[at] in between:
                    at += 1
                if text[at] == "]":
                    self._at = at + 1
                    return
                event, after = scan(text, at)
                if after == len(text):  # a number may go on
                    raise IndexError
            except (IndexError, ValueError, RecursionError):
                self._at = at
                if len(text) - at < _MOST_OF_ONE and self._more():
                    continue
                if not self._skip():
                    self._cut()
                    return
                continue
            self._at = after
            if type(event) is dict:
                yield event

    def _value(self) -> Any:
        """The value that begins here, None where none can be read."""
        while True:
            try:
                value, after = self._scan(self._text, self._at)
                self._at = after
                return value
            except (IndexError, ValueError, RecursionError):
                if len(self._text) - self._at >= _MOST_OF_ONE or not self._more():
                    return None

    def _skip(self) -> bool:
        """Goes on to the next event, where this one is none; False: there is none, or too many were broken."""
        self._broken += 1
        self.is_whole = False
        if self._broken > _MOST_BROKEN:
            return False
        self._at += 1
        while (found := _NEXT.search(self._text, self._at)) is None:
            self._at = max(self._at, len(self._text) - 64)
            if not self._more():
                return False
        self._at = found.start()
        return True

    def _peek(self) -> str:
        """The next character that is no space and no comma; "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BETWEEN:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Another block, with what was read dropped; False at the end."""
        for block in self._source:
            more = self._decode(bytes(block))
            if more:
                self._text = self._text[self._at :] + more
                self._at = 0
                return True
        return False

    def _cut(self) -> None:
        self.is_whole = False

    def _end(self) -> None:
        self.notes += self._blocks.notes
        if self._broken > 1:
            self.notes.append(f"{self._broken - 1:,} events cannot be read, and are left out")
        if not self.is_whole and not self._blocks.notes:
            self.notes.append("it ends early, or is damaged: read as far as it goes")
