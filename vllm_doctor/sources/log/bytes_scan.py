"""Of all lines of a log those that hold one of many literals, at about the speed of reading.

Python sees only what is found. What is given does not depend on how the bytes were divided, nor on the number of
threads: one prepares windows of the stream with their hits (`bytes_windows`), and what is decided is decided here, hit
by hit, in their order.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_doctor.sources.log import bytes_literals, bytes_windows
from vllm_doctor.sources.log.bytes_find import Find
from vllm_doctor.sources.log.bytes_unpacked import Block
from vllm_doctor.sources.log.bytes_windows import Window, Windows

LONGEST = 64 * 1024  # bytes of a line: of a longer one the part around a hit stands for it
FOLLOWING = 48 * 1024
FULL = 4_000  # hits of one literal, until it is common: then it is only sampled
_GROWTH = 350  # hits of a common literal that are given while the log grows e-fold
_FULL_COUNTED, _GROWTH_COUNTED = 500, 100  # the same, where what is left out is counted
_WINDOW = 1024 * 1024  # bytes in which the hits are decided on at once
_HALF = LONGEST // 2
_WASTED = 50_000  # hits of common literals, which take as long as to compile a finder without them
_BUSY = 10  # of which those that make a tenth have a finder of their own
_AHEAD_FROM = 8 * 1024 * 1024  # bytes: a short log is read before a second thread is of use
_PIECE = 64 * 1024  # bytes in which newlines are counted, until the other thread may have Python's lock
_STEPS_AHEAD = 4  # windows: with fewer, the threads wait for each other (for Python's lock)


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
    """Looks for literals: not empty, without NUL and newline, at most 1024 bytes; else ValueError.

    `uncounted`: a literal whose hits need not be counted -> the one of its kind that is looked for once that is common.
    `is_kept`: they are the shipped ones, of which more is known (`bytes_literals`).
    """

    def __init__(
        self, literals: Sequence[bytes], uncounted: Mapping[int, int] | None = None, is_kept: bool = False
    ) -> None:
        bytes_literals.check(literals)
        self.literals = tuple(literals)
        self.uncounted = dict(uncounted or {})
        all_of_them = bytes_literals.kept_finder if is_kept else bytes_literals.finder
        self._finder: tuple[frozenset[int], Find] = (frozenset(), all_of_them(self.literals))
        self.tally = Tally()

    def lines(
        self,
        blocks: Iterable[Block],
        tally: Tally | None = None,
        may_run_ahead: Callable[[], bool] = bool,
    ) -> Iterator[Line]:
        """The lines with a hit, each once, in order. They are told in `tally`, which grows as they are taken.

        A literal with many hits is common: from then on a sample of them is given, by chance which is the same each
        time, and fewer and fewer, so that about 10,000 are the most however long the log is.
        A tally of its own is for logs read in turns; without one, the scanner's `tally` is set anew.
        `may_run_ahead` is asked now and then, in a long log, whether a second thread may ask for the blocks from now on
        and look through them. Then no other log may be read by this scanner before the end of this one.
        """
        if tally is None:
            self.tally = tally = Tally()
        return _Stream(self, tally).lines(blocks, may_run_ahead)

    def finder(self, without: frozenset[int]) -> Find:
        """Of all literals but these."""
        if self._finder[0] != without:
            self._finder = without, bytes_literals.finder(self.literals, without)
        return self._finder[1]


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
        self.is_alone = True
        """Whether one thread does all: then a hit costs the same wherever it is found."""
        self.apart: frozenset[int] = frozenset()
        """Common literals of too many hits to be looked for with the others."""
        self._hits_before = self._hits.copy()  # when they were last chosen
        self._busy: tuple[frozenset[int], Find] = (frozenset(), bytes_literals.finder(()))
        self._chance = random.Random(0)

    def given(self, window: Window, hits: Sequence[tuple[int, int]], start: int, stop: int) -> dict[int, int]:
        """The places in buffer[start:stop] that are given, ascending; with each, for how many hits it stands.

        `hits`: those in there that are known.
        """
        found: dict[int, int] = {}
        literals, seen_of, due, next_of = len(self._hits), self._hits, self._due, self._next
        for end, literal in self._with_busy(window, hits, start, stop):
            seen = seen_of[literal] = seen_of[literal] + 1
            if seen >= due[literal]:
                found[end * literals + literal] = next_of(literal, seen) if seen > _FULL_COUNTED else 1

        after = window.offset + stop
        share = _GROWTH * (stop - start) / max(1, after)
        found |= dict.fromkeys(self._sampled(window.buffer, start, stop, share), 1)
        for literal, leader in self._scanner.uncounted.items():
            if seen_of[literal] > FULL and literal not in self.common:
                self.common[literal] = seen_of[literal] / after
                due[literal] = math.inf
                self._thin(found, literal, self._whole(share) if literal == leader or seen_of[leader] <= FULL else 0)
        self._set_apart()
        return dict(sorted(found.items()))

    def _with_busy(
        self, window: Window, hits: Sequence[tuple[int, int]], start: int, stop: int
    ) -> Sequence[tuple[int, int]]:
        """The hits, with those of counted literals that were not looked for with the others."""
        if self._busy[0] != window.without:
            left_out = window.without - self._scanner.uncounted.keys()
            others = frozenset(range(len(self._hits))) - left_out
            self._busy = window.without, bytes_literals.finder(self._scanner.literals, others)
        busy = self._busy[1](window.buffer, start, stop)
        return sorted([*hits, *busy], key=lambda hit: hit[0]) if busy else hits

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

    def _set_apart(self) -> None:
        """Choose those with many hits, once that pays: what is not counted, and what else holds up a second thread.

        For each hit that would need Python's lock, which this thread holds. What is counted is looked for here then.
        """
        choice = self._scanner.uncounted.keys() & self.common if self.is_alone else self.common
        since = {literal: self._hits[literal] - self._hits_before[literal] for literal in choice}
        if sum(since.values()) > _WASTED:
            self.apart |= {literal for literal, hits in since.items() if hits > _WASTED / _BUSY}
            self._hits_before = self._hits.copy()

    def _whole(self, number: float) -> int:
        """That number as an average of whole ones."""
        return int(number) + (self._chance.random() < number % 1)


class _Stream:
    """The window that moves over a stream, and the line in it whose hits may not all be known yet."""

    def __init__(self, scanner: Scanner, tally: Tally) -> None:
        self._scanner = scanner
        self._tally = tally
        self._hits = _Hits(scanner, tally)
        self._buffer = bytearray()
        self._offset = 0  # of the buffer's first byte
        self._scanned = 0
        self._whole = False  # whether all of the stream is decided on
        # The pending line: where its first hit ends, where itself, and its literals, none when it has been given.
        self._first, self._end = 0, -1
        self._literals: dict[int, int] = {}  # with the number of hits for which each stands
        self._current: Line | None = None

    def lines(self, blocks: Iterable[Block], may_run_ahead: Callable[[], bool]) -> Iterator[Line]:
        windows = Windows(blocks, self._scanner.finder, LONGEST, _WINDOW)
        each = windows.each()
        try:
            while (window := next(each, None)) is not None:
                self._enter(window)
                for upto in self._steps(window):
                    yield from self._given(window, upto)
                    windows.without = self._hits.apart
                if windows.buffers == 1 and self._tally.bytes_read >= _AHEAD_FROM and may_run_ahead():
                    windows.buffers, windows.steps = bytes_windows.BUFFERS, _STEPS_AHEAD
                    self._hits.is_alone = False
                    each = bytes_windows.ahead(each)
        finally:
            each.close()
        if self._tally.bytes_read:
            self._tally.lines_read += not self._buffer.endswith(b"\n")

    def _enter(self, window: Window) -> None:
        by = window.offset - self._offset
        self._buffer, self._offset = window.buffer, window.offset
        self._scanned -= by
        self._first -= by
        self._end = max(-1, self._end - by)
        self._current = None

    def _steps(self, window: Window) -> Iterator[int]:
        """The places up to which is decided at once: the same, however many a window holds."""
        yield from range(LONGEST + _WINDOW, len(window.buffer) - LONGEST + 1, _WINDOW)
        if window.is_last:
            yield window.stop

    def _given(self, window: Window, upto: int) -> Iterator[Line]:
        """The lines due whose last hit is known to end by `upto`."""
        self._whole = window.is_last and upto == window.stop
        first, end, literals = self._first, self._end, self._literals
        number_of_literals = len(self._scanner.literals)
        known = window.hits[bisect_left(window.hits, (self._scanned + 1,)) : bisect_left(window.hits, (upto + 1,))]
        for place, number in self._hits.given(window, known, self._scanned, upto).items():
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
        for at in range(self._scanned, upto, _PIECE):
            self._tally.lines_read += self._buffer.count(b"\n", at, min(at + _PIECE, upto))
        self._scanned = upto
        self._tally.bytes_read = self._offset + upto

    def number(self, line: Line, begin: int) -> int:
        self._check(line)
        if begin < self._scanned:
            return self._tally.lines_read - self._buffer.count(b"\n", begin, self._scanned) + 1
        return self._tally.lines_read + self._buffer.count(b"\n", self._scanned, begin) + 1

    def following(self, line: Line, after: int, limit: int) -> bytes:
        self._check(line)
        return bytes(self._buffer[after : after + limit])

    def _check(self, line: Line) -> None:
        if line is not self._current:
            raise ValueError("another line has been asked for: what stands around this one may be gone")

    def _line(self, first: int, end: int, literals: dict[int, int]) -> Line:
        begin = self._line_begin(first)
        if begin is None or end - begin > LONGEST:
            begin = max(begin or 0, first - _HALF)
        raw = bytes(self._buffer[begin:end])
        if raw.endswith(b"\r"):
            raw = raw[:-1]
        after = end + (end < len(self._buffer) and self._buffer[end] == 0x0A)
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
            end = len(self._buffer)
        begin = self._line_begin(at)
        if end >= 0 and begin is not None and end - begin <= LONGEST:
            return end
        return min(at + _HALF, len(self._buffer))

    def _line_begin(self, at: int) -> int | None:
        """Where the line of a hit begins; None if more than LONGEST before the hit's end."""
        low = max(0, at - LONGEST - 1)
        found = self._buffer.rfind(b"\n", low, at)
        return found + 1 if found >= 0 or low == 0 else None
