"""New inputs out of known ones: bytes, numbers, words and lines changed, doubled, dropped, and taken from others."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

_DECODER = json.JSONDecoder()
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w:-]*|[^\s\w]")
_NUMBERS = (
    b"0", b"-0", b"-1", b"1e308", b"1e309", b"-1e308", b"1e-320", b"NaN", b"nan", b"Infinity", b"-inf", b"+Inf",
    b"9" * 20, b"9" * 400, b"9" * 5000, b"9223372036854775808", b"18446744073709551616", b"2147483648", b"0x1f",
    b"1_0", b"\xd9\xa3", b"1e400", b"4294967296", b"65536", b"253402300800", b"-62135596801", b"0.1e-400", b"1e",
    b".", b"\xc2\xb2",
)  # fmt: skip
_TOKENS = (
    b"\x1b[31m", b"\x1b]0;x\x07", b"\xc2\x9b2J", b"\x00", b"\r", b"\x7f", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xae",
    b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8", b"\x0b", b"\x0c", b"\x85", b"\xc2\x85", b"\x1c", b"\t",
    b"<script>fuzz()</script>", b"<img src=x onerror=fuzz()>", b"`id`", b"$(id)", b"'", b'"', b"\\", b"\\u0000",
    b"{{", b"}}", b"{0}", b"%s", b"[bold]", b"[/]", b"[link=x]", b"|", b"\n", b"\n\n", b" ", b":", b": ", b"- ", b"#",
    b"null", b"true", b"[]", b"{}", b"[[", b'{"', b"-", b"--", b"=", b"..", b"../", b"/", b"~", b"*", b"&a ", b"*a",
    b"!!", b"None", b"http://a@b", b"0:0:0", b"23:59:60", b"9999-12-31T23:59:59Z", b"0001-01-01", b"+14:00",
    b"1970-01-01T00:00:00Z",
)  # fmt: skip

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 10**400, 1e308, -1e308, float("nan"), float("inf"), 2**63, 0.5, "", "x", "NaN",
    "1e999", "\x1b[31m", "\ud800", "\x00", "9" * 400, [], {}, [[]], [None], {"": None}, ["a", 1], {"a": {}},
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "../x", "-", [1, 2, 3, 4],
)  # fmt: skip
"""In place of a part of a JSON document."""


class Mutation:
    """`tokens`: words of the language of these inputs."""

    def __init__(self, tokens: Sequence[bytes], seed: int, most: int) -> None:
        self._random = random.Random(seed)
        self._tokens = (*_TOKENS, *tokens)
        self._own = tokens or _TOKENS
        self._most = most

    def of(self, corpus: Sequence[bytes]) -> bytes:
        """One new input; often one change of a known one, seldom many."""
        pick = self._random
        data = pick.choice(corpus)
        for _ in range(1 + int(pick.expovariate(0.7))):
            data = (pick.random() < 0.3 and self._document(data)) or self._changed(data, corpus)
        return data[: self._most]

    def _document(self, data: bytes) -> bytes:
        """With another value, key or order in the JSON document that begins in its first lines; b"" without one."""
        start = data.find(b"{")
        if not 0 <= start < 100:
            return b""
        try:
            document, end = _DECODER.raw_decode(data[start:].decode())
        except (ValueError, RecursionError):
            return b""
        holders = [document]
        for holder in holders:  # which grows
            inner = holder.values() if isinstance(holder, dict) else holder
            holders += [value for value in inner if isinstance(value, dict | list) and value]
        pick = self._random
        holder = pick.choice(holders)
        if not holder:
            return b""
        key = pick.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match pick.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[pick.choice(("", "x", "\x1b", "__class__", "a" * 300))] = holder.pop(key)
            case 1 | 2:
                other = pick.choice(holders)
                holder[key] = pick.choice(list(other.values()) if isinstance(other, dict) else other or [None])
            case _:
                holder[key] = pick.choice(_VALUES)
        try:
            return data[:start] + json.dumps(document).encode() + data[start + end :]
        except (ValueError, RecursionError):  # it holds itself now
            return b""

    def _changed(self, data: bytes, corpus: Sequence[bytes]) -> bytes:
        pick = self._random
        match pick.randrange(12):
            case 0 if data:  # a bit
                at = pick.randrange(len(data))
                return data[:at] + bytes([data[at] ^ (1 << pick.randrange(8))]) + data[at + 1 :]
            case 1:  # a byte
                at = pick.randrange(len(data) + 1)
                return data[:at] + bytes([pick.randrange(256)]) + data[at + pick.randrange(2) :]
            case 2 | 3:  # a word
                at = pick.randrange(len(data) + 1)
                return data[:at] + pick.choice(self._own if pick.random() < 0.5 else self._tokens) + data[at:]
            case 4:  # a piece goes
                start, end = self._piece(data)
                return data[:start] + data[end:]
            case 5:  # a piece comes again
                start, end = self._piece(data)
                times = pick.choice((1, 1, 1, 2, 50))
                at = pick.choice((end, pick.randrange(len(data) + 1)))
                return data[:at] + data[start:end] * times + data[at:]
            case 6 | 7:  # a number
                return self._replaced(data, _NUMBER, _NUMBERS)
            case 8:  # a word for another
                return self._replaced(data, _WORD, self._tokens)
            case 9:  # a line
                lines = data.split(b"\n")
                at = pick.randrange(len(lines))
                other = pick.choice(pick.choice(corpus).split(b"\n"))
                lines[at : at + pick.randrange(2)] = [other] if pick.random() < 0.7 else []
                return b"\n".join(lines)
            case 10:  # the half of another
                other = pick.choice(corpus)
                return data[: pick.randrange(len(data) + 1)] + other[pick.randrange(len(other) + 1) :]
            case _:  # cut
                return data[: pick.randrange(len(data) + 1)]

    def _piece(self, data: bytes) -> tuple[int, int]:
        start = self._random.randrange(len(data) + 1)
        return start, min(len(data), start + int(self._random.expovariate(0.05)) + 1)

    def _replaced(self, data: bytes, what: re.Pattern[bytes], by: Sequence[bytes]) -> bytes:
        """The next match behind a place."""
        found = what.search(data, self._random.randrange(len(data) + 1)) or what.search(data)
        if found is None:
            return data
        return data[: found.start()] + self._random.choice(by) + data[found.end() :]
