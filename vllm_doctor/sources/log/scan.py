"""Of all lines of a log those that hold one of many literals, at about the speed of reading.

Hyperscan looks for all literals at once; Python sees only what it finds. The blocks are put together to windows of one
size, so that how the bytes were divided cannot change the result, and memory is bounded whatever comes:

    | behind | fresh: scanned now          | ahead |
             ^ scanned                     ^ upto    what lies ahead is scanned with the next window

Behind stands where the first line of a window begins, ahead where its last one ends, and what follows it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import hyperscan

LONGEST = 64 * 1024  # bytes of a line: of a longer one the part around a hit stands for it
FOLLOWING = 16 * 1024
FULL = 2_000  # hits of one literal, until they are thinned
LONGEST_LITERAL = 1024
_LEVEL = 512  # hits of a literal that are given until their share is halved again
_WINDOW = 256 * 1024  # bytes scanned at once: with what is around them they fit into a core's cache
_HALF = LONGEST // 2


@dataclass(slots=True)
class Tally:
    """What was read so far: `bytes_read` and `lines_read` are of all lines, given or not.

    `hits[i]`: how often literal i stands in it, exactly.
    `thinned`: literal i -> 2^k, where now only about one of 2^k of its hits is given.
    """

    hits: list[int] = field(default_factory=list)
    bytes_read: int = 0
    lines_read: int = 0
    thinned: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    r"""A line that holds literals: `hits`, ascending. `raw` is without \n or \r\n and at most LONGEST bytes.

    `offset` is where `raw` stands in the stream, in bytes; `number` is the line's, from 1.
    """

    offset: int
    raw: bytes
    hits: tuple[int, ...]
    number: int
    _stream: _Stream
    _after: int

    def following(self, limit: int = FOLLOWING) -> bytes:
        """What comes after the line (after `raw`, where that is a part), at most FOLLOWING bytes.

        Only until the next line is asked for: ValueError afterwards.
        """
        return self._stream.following(self, self._after, min(limit, FOLLOWING))


class Scanner:
    """Looks for literals: not empty, without NUL and newline, at most LONGEST_LITERAL bytes; else ValueError."""

    def __init__(self, literals: Sequence[bytes]) -> None:
        for literal in literals:
            # The binding ends a literal at its first NUL.
            if not 0 < len(literal) <= LONGEST_LITERAL or b"\0" in literal or b"\n" in literal:
                raise ValueError(f"{literal[:80]!r} is nothing to look for in a line")
        self.literals = tuple(literals)
        self._count = len(literals)
        self._overlap = max(map(len, literals), default=1) - 1
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        if literals:
            self._database.compile(
                expressions=list(literals),
                ids=list(range(self._count)),
                elements=self._count,
                flags=[0] * self._count,
                literal=True,
            )
        self.tally = Tally([0] * self._count)

    def lines(self, blocks: Iterable[bytes | bytearray | memoryview], tally: Tally | None = None) -> Iterator[Line]:
        """The lines with a hit, each once, in order. They are told in `tally`, which grows as they are taken.

        Of a literal the first FULL hits are given, then fewer and fewer, so that about 10,000 are the most however
        long the log is; by chance, which is the same each time, and not each so many'th: engines write in turns.
        A line is given if one of its literals is due.
        A tally of its own is for logs read in turns; without one, the scanner's `tally` is set anew.
        """
        if tally is None:
            self.tally = tally = Tally()
        tally.hits = [0] * self._count
        return _Stream(self, tally).lines(blocks)

    def due(self, data: memoryview, start: int, stop: int, thinning: _Thinning) -> list[int]:
        """Where in data[start:stop] literals end that are due, ascending: end * (number of literals) + literal."""
        found: list[int] = []
        append, count, hits, due, given = found.append, self._count, thinning.hits, thinning.due, thinning.given
        begin = max(0, start - self._overlap)
        known = start - begin

        # Hyperscan comes here for each hit: nothing else in Python is run so often.
        def on_match(literal: int, _from: int, end: int, _flags: int, _context: object) -> None:
            if end > known:  # else it ends in what was scanned before
                seen = hits[literal] = hits[literal] + 1
                if seen >= due[literal]:
                    append((begin + end) * count + literal)
                    if seen >= FULL:
                        given(literal)

        if count and stop > start:
            self._database.scan(data[begin:stop], on_match)  # type: ignore[type-var] # takes any buffer
            found.sort()
        return found


class _Thinning:
    """Which of the hits are given. `due[i]`: of literal i the one of this number, or the next."""

    def __init__(self, tally: Tally) -> None:
        self.hits = tally.hits
        self.due = [0] * len(tally.hits)
        self._until = [FULL] * len(tally.hits)  # the number at which the next level begins
        self._shares = tally.thinned
        self._random = random.Random(0).random

    def given(self, literal: int) -> None:
        """A hit of this literal is given, and the first FULL were."""
        share = self._shares.get(literal, 1)
        if self.hits[literal] >= self._until[literal]:
            self._shares[literal] = share = share * 2
            self._until[literal] += _LEVEL * share
        self.due[literal] = self.hits[literal] + 1 + int(self._random() * (2 * share - 1))


class _Stream:
    """The window that moves over a stream, and the line in it whose hits may not all be known yet."""

    def __init__(self, scanner: Scanner, tally: Tally) -> None:
        self._scanner = scanner
        self._tally = tally
        self._thinning = _Thinning(tally)
        self._buffer = bytearray(LONGEST + _WINDOW + LONGEST)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._offset = 0  # of the buffer's first byte
        self._scanned = 0
        self._counted = 0  # up to where newlines are in lines_read
        self._whole = False  # whether the stream ends with the buffer
        # The pending line: where its first hit ends, where itself, and its literals, none when it has been given.
        self._first, self._end = 0, -1
        self._literals: list[int] = []
        self._current: Line | None = None

    def lines(self, blocks: Iterable[bytes | bytearray | memoryview]) -> Iterator[Line]:
        size = len(self._buffer)
        for block in blocks:
            rest = memoryview(block)
            while rest:
                taken = min(len(rest), size - self._filled)
                self._view[self._filled : self._filled + taken] = rest[:taken]
                self._filled += taken
                rest = rest[taken:]
                if self._filled == size:
                    yield from self._given(size - LONGEST)
                    self._move(size - 2 * LONGEST)
        self._whole = True
        self._buffer = self._buffer[: self._filled]  # what was behind is no part of the stream
        self._view = memoryview(self._buffer)
        yield from self._given(self._filled)
        if self._offset + self._filled:
            self._tally.bytes_read = self._offset + self._filled
            self._tally.lines_read += not self._buffer.endswith(b"\n")

    def _given(self, upto: int) -> Iterator[Line]:
        """The lines due whose last hit is known to end by `upto`."""
        first, end, literals = self._first, self._end, self._literals
        for place in self._scanner.due(self._view, self._scanned, upto, self._thinning):
            at, literal = divmod(place, len(self._tally.hits))
            if at > end:
                if literals:
                    yield self._line(first, end, literals)
                first, literals = at, [literal]
                end = self._buffer.find(b"\n", at, at + _HALF)
                if end < 0:
                    end = self._far_end(at)
            elif literal not in literals:
                literals.append(literal)
        if literals and (end <= upto or self._whole):
            yield self._line(first, end, literals)
            literals = []
        self._first, self._end, self._literals = first, end, literals
        self._scanned = upto
        self._count_to(upto)
        self._tally.bytes_read = self._offset + upto

    def following(self, line: Line, after: int, limit: int) -> bytes:
        if line is not self._current:
            raise ValueError("another line has been asked for: what follows this one may be gone")
        return bytes(self._view[after : min(after + limit, self._filled)])

    def _line(self, first: int, end: int, literals: list[int]) -> Line:
        begin = self._line_begin(first)
        if begin is None or end - begin > LONGEST:
            begin = max(begin or 0, first - _HALF)
        self._count_to(begin)  # back, where the window moved within the line: no newline lies between
        raw = self._view[begin:end].tobytes()
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        after = end + (end < self._filled and self._buffer[end] == 0x0A)
        for literal in self._tally.thinned:  # of which a hit may stand here that was not due
            if literal not in literals and self._scanner.literals[literal] in raw:
                literals.append(literal)
        literals.sort()
        line = Line(self._offset + begin, raw, tuple(literals), self._tally.lines_read + 1, self, after)
        self._current = line
        return line

    def _far_end(self, at: int) -> int:
        """Where the line of a hit, or the part around it, ends, if not within _HALF of the hit's end."""
        end = self._buffer.find(b"\n", at, at + LONGEST)
        if end < 0 and self._whole:
            end = self._filled
        begin = self._line_begin(at)
        if end >= 0 and begin is not None and end - begin <= LONGEST:
            return end
        return min(at + _HALF, self._filled)

    def _line_begin(self, at: int) -> int | None:
        """Where the line of a hit begins; None if more than LONGEST before the hit's end."""
        low = max(0, at - LONGEST - 1)
        found = self._buffer.rfind(b"\n", low, at)
        return found + 1 if found >= 0 or low == 0 else None

    def _count_to(self, position: int) -> None:
        self._tally.lines_read += self._buffer.count(b"\n", self._counted, position)
        self._counted = position

    def _move(self, by: int) -> None:
        self._current = None
        kept = self._filled - by
        self._view[:kept] = self._view[by : self._filled]
        self._filled = kept
        self._offset += by
        self._scanned -= by
        self._counted -= by
        self._first -= by
        self._end = max(-1, self._end - by)
