"""Of all lines of a log those that hold one of many literals, at about the speed of reading.

Hyperscan looks for all literals at once; Python sees only what is found. The blocks are
put together to windows of one size, so that how the bytes were divided cannot change the result, and memory is bounded
whatever comes:

    | behind | fresh: scanned now          | ahead |
             ^ scanned                     ^ upto    what lies ahead is scanned with the next window

Behind stands where the first line of a window begins, ahead where its last one ends, and what follows it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_doctor.sources.log import bytes_find

try:
    import hyperscan
except ImportError:  # no build for this machine: then a log takes longer
    hyperscan = None  # type: ignore[assignment]

LONGEST = 64 * 1024  # bytes of a line: of a longer one the part around a hit stands for it
FOLLOWING = 16 * 1024
FULL = 2_000  # hits of one literal, until it is common: then it is only sampled
LONGEST_LITERAL = 1024
_GROWTH = 400  # hits of a common literal that are given while the log grows e-fold
_FULL_COUNTED, _GROWTH_COUNTED = 500, 100  # the same, where what is left out is counted
_WINDOW = 1024 * 1024  # bytes scanned at once
_HALF = LONGEST // 2
_WASTED = 50_000  # hits of common literals passed over, which take as long as to compile a database without them


@dataclass(slots=True)
class Tally:
    """What was read so far: `bytes_read` and `lines_read` are of all lines, given or not.

    `one_in`: of a common literal that is not counted, by its number, now about one of so many hits is given.
    """

    bytes_read: int = 0
    lines_read: int = 0
    one_in: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    r"""A line that holds literals: `hits`, ascending. `raw` is without \n or \r\n and at most LONGEST bytes.

    `offset` is where `raw` stands in the stream, in bytes. `stands_for`: for each, the number of lines with it for
    which this one is given.
    """

    offset: int
    raw: bytes
    hits: tuple[int, ...]
    stands_for: Mapping[int, int]
    _stream: _Stream
    _begin: int
    _after: int

    @property
    def number(self) -> int:
        """The line's, from 1. Only until the next line is asked for: ValueError afterwards."""
        return self._stream.number(self, self._begin)

    def following(self, limit: int = FOLLOWING) -> bytes:
        """What comes after the line (after `raw`, where that is a part), at most FOLLOWING bytes.

        Only until the next line is asked for: ValueError afterwards.
        """
        return self._stream.following(self, self._after, min(limit, FOLLOWING))


class Scanner:
    """Looks for literals: not empty, without NUL and newline, at most LONGEST_LITERAL bytes; else ValueError.

    `uncounted`: a literal whose hits need not be counted -> the one of its kind that is looked for once that is common.
    """

    def __init__(self, literals: Sequence[bytes], uncounted: Mapping[int, int] | None = None) -> None:
        for literal in literals:
            # The binding ends a literal at its first NUL.
            if not 0 < len(literal) <= LONGEST_LITERAL or b"\0" in literal or b"\n" in literal:
                raise ValueError(f"{literal[:80]!r} is nothing to look for in a line")
        self.literals = tuple(literals)
        self.uncounted = dict(uncounted or {})
        self.overlap = max(map(len, literals), default=1) - 1
        self._database: tuple[frozenset[int], hyperscan.Database | _Found | None] = (
            frozenset(),
            self._compiled(frozenset()),
        )
        self.tally = Tally()

    def lines(self, blocks: Iterable[bytes | bytearray | memoryview], tally: Tally | None = None) -> Iterator[Line]:
        """The lines with a hit, each once, in order. They are told in `tally`, which grows as they are taken.

        A literal with many hits is common: from then on a sample of them is given, by chance which is the same each
        time, and fewer and fewer, so that about 10,000 are the most however long the log is.
        A tally of its own is for logs read in turns; without one, the scanner's `tally` is set anew.
        """
        if tally is None:
            self.tally = tally = Tally()
        return _Stream(self, tally).lines(blocks)

    def database(self, without: frozenset[int]) -> hyperscan.Database | _Found | None:
        """Of all literals but these; None where no literal is left."""
        if self._database[0] != without:
            self._database = (without, self._compiled(without))
        return self._database[1]

    def _compiled(self, without: frozenset[int]) -> hyperscan.Database | _Found | None:
        ids = [literal for literal in range(len(self.literals)) if literal not in without]
        if not ids:
            return None
        if hyperscan is None:
            return _Found(bytes_find.finder(self.literals, ids))
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=[self.literals[literal] for literal in ids],
            ids=ids,
            elements=len(ids),
            flags=[0] * len(ids),
            literal=True,
        )
        return database


@dataclass(frozen=True)
class _Found:
    """In place of a database of Hyperscan."""

    find: bytes_find.Find

    def scan(self, data: memoryview, on_match: Callable[[int, int, int, int, object], None]) -> None:
        for end, literal in self.find(bytes(data), 0, len(data)):
            on_match(literal, 0, end, 0, None)


class _Hits:
    """The hits in one stream, window by window, and which of them are given.

    A place is written as one number: where the hit ends * (number of literals) + literal.
    """

    def __init__(self, scanner: Scanner, tally: Tally) -> None:
        self._scanner = scanner
        self._one_in = tally.one_in
        self._hits = [0] * len(scanner.literals)
        self._due: list[float] = [0] * len(scanner.literals)  # the number of the hit that is given next; 0: each is
        self._given = [0] * len(scanner.literals)  # of a common literal, the number of the one given last
        self.common: dict[int, float] = {}  # literal -> hits per byte, when it became so
        self._database = scanner.database(frozenset())
        self._wasted = 0  # hits that nobody asked for, before this database
        self._chance = random.Random(0)

    def given(self, window: bytearray, start: int, stop: int, offset: int) -> dict[int, int]:
        """The places in window[start:stop] that are given, ascending; with each, for how many hits it stands.

        `offset` is the window's in the stream.
        """
        found: dict[int, int] = {}
        literals, hits, due, next_of = len(self._hits), self._hits, self._due, self._next
        begin = max(0, start - self._scanner.overlap)
        known = start - begin

        # Hyperscan comes here for each hit: nothing else in Python is run so often.
        def on_match(literal: int, _from: int, end: int, _flags: int, _context: object) -> None:
            if end > known:  # else it ends in what was scanned before
                seen = hits[literal] = hits[literal] + 1
                if seen >= due[literal]:
                    found[(begin + end) * literals + literal] = next_of(literal, seen) if seen > _FULL_COUNTED else 1

        if self._database is not None and stop > start:
            self._database.scan(memoryview(window)[begin:stop], on_match)  # type: ignore[type-var] # takes any buffer
        share = _GROWTH * (stop - start) / max(1, offset + stop)
        found |= dict.fromkeys(self._sampled(window, start, stop, share), 1)
        for literal, leader in self._scanner.uncounted.items():
            if hits[literal] > FULL and literal not in self.common:
                self.common[literal] = hits[literal] / (offset + stop)
                due[literal] = math.inf
                self._thin(found, literal, self._whole(share) if literal == leader or hits[leader] <= FULL else 0)
        self._without_passed()
        return dict(sorted(found.items()))

    def _next(self, literal: int, seen: int) -> int:
        """This hit of a counted literal is given: for how many it stands. Sets which one is the next."""
        if literal in self._scanner.uncounted:
            return 1
        before = self._given[literal] or _FULL_COUNTED
        self.common.setdefault(literal, 0.0)
        self._given[literal] = seen
        self._due[literal] = seen + 1 + int(self._chance.random() * 2 * seen / _GROWTH_COUNTED)
        return seen - before

    def _thin(self, found: dict[int, int], literal: int, kept: int) -> None:
        """Of what is beyond FULL of this literal only so many."""
        places = sorted(place for place in found if place % len(self._hits) == literal)
        more = places[FULL - self._hits[literal] :] if self._hits[literal] - len(places) < FULL else places
        for place in more if kept >= len(more) else self._chance.sample(more, len(more) - kept):
            del found[place]

    def _sampled(self, window: bytearray, start: int, stop: int, share: float) -> Iterator[int]:
        """Of each common literal that is not counted the next hit after some places, chosen by chance.

        Of one kind only the leader, if that is common: where it is not, its lines are broken, and the other finds them.
        """
        for literal, density in self.common.items():
            leader = self._scanner.uncounted.get(literal)
            if leader is not None and (leader == literal or leader not in self.common) and share:
                text = self._scanner.literals[literal]
                low = max(0, start - len(text) + 1)
                for _ in range(self._whole(share)):
                    at = window.find(text, self._chance.randrange(low, stop), stop)
                    if at >= 0:
                        yield (at + len(text)) * len(self._hits) + literal
                self._one_in[literal] = max(1, round(density * (stop - start) / share))

    def _without_passed(self) -> None:
        """Take a database without the literals that are no more asked for, once it would have paid."""
        passed = frozenset(self._scanner.uncounted) & self.common.keys()
        if sum(self._hits[literal] for literal in passed) - self._wasted > _WASTED:
            self._wasted = sum(self._hits[literal] for literal in passed)
            self._database = self._scanner.database(passed)

    def _whole(self, number: float) -> int:
        """That number as an average of whole ones."""
        return int(number) + (self._chance.random() < number % 1)


class _Stream:
    """The window that moves over a stream, and the line in it whose hits may not all be known yet."""

    def __init__(self, scanner: Scanner, tally: Tally) -> None:
        self._scanner = scanner
        self._tally = tally
        self._hits = _Hits(scanner, tally)
        self._buffer = bytearray(LONGEST + _WINDOW + LONGEST)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._offset = 0  # of the buffer's first byte
        self._scanned = 0
        self._whole = False  # whether the stream ends with the buffer
        # The pending line: where its first hit ends, where itself, and its literals, none when it has been given.
        self._first, self._end = 0, -1
        self._literals: dict[int, int] = {}  # with the number of hits for which each stands
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
        number_of_literals = len(self._scanner.literals)
        for place, number in self._hits.given(self._buffer, self._scanned, upto, self._offset).items():
            at, literal = divmod(place, number_of_literals)
            if at > end:
                if literals:
                    yield self._line(first, end, literals)
                first, literals = at, {literal: number}
                end = self._buffer.find(b"\n", at, at + _HALF)
                if end < 0:
                    end = self._far_end(at)
            else:
                literals[literal] = max(number, literals.get(literal, 1))
        if literals and (end <= upto or self._whole):
            yield self._line(first, end, literals)
            literals = {}
        self._first, self._end, self._literals = first, end, literals
        self._tally.lines_read += self._buffer.count(b"\n", self._scanned, upto)
        self._scanned = upto
        self._tally.bytes_read = self._offset + upto

    def number(self, line: Line, begin: int) -> int:
        self._check(line)
        if begin < self._scanned:
            return self._tally.lines_read - self._buffer.count(b"\n", begin, self._scanned) + 1
        return self._tally.lines_read + self._buffer.count(b"\n", self._scanned, begin) + 1

    def following(self, line: Line, after: int, limit: int) -> bytes:
        self._check(line)
        return bytes(self._view[after : min(after + limit, self._filled)])

    def _check(self, line: Line) -> None:
        if line is not self._current:
            raise ValueError("another line has been asked for: what stands around this one may be gone")

    def _line(self, first: int, end: int, literals: dict[int, int]) -> Line:
        begin = self._line_begin(first)
        if begin is None or end - begin > LONGEST:
            begin = max(begin or 0, first - _HALF)
        raw = self._view[begin:end].tobytes()
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        after = end + (end < self._filled and self._buffer[end] == 0x0A)
        for literal in self._hits.common:  # of which a hit may stand here that is not in the sample
            if literal not in literals and self._scanner.literals[literal] in raw:
                literals[literal] = 1
        line = Line(self._offset + begin, raw, tuple(sorted(literals)), literals, self, begin, after)
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

    def _move(self, by: int) -> None:
        self._current = None
        kept = self._filled - by
        self._view[:kept] = self._view[by : self._filled]
        self._filled = kept
        self._offset += by
        self._scanned -= by
        self._first -= by
        self._end = max(-1, self._end - by)
