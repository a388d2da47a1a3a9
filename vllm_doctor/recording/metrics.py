"""metrics.prom.zst of a recording: a server's answers of /metrics as they came, one after the other, packed by zstd.

    # at SECONDS [clock SECONDS] [torn]
    the answer, in the text format of Prometheus
    # at SECONDS ...

Reader and writer hold one answer at a time, and the packed bytes: unpacked, a long recording is larger than memory.
"""

from __future__ import annotations

import bisect
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording.archive import KIND, MAX_BYTES
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import Heads, parse
from vllm_doctor.sources.server.scrapes import Scrape

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FILE = "metrics.prom.zst"
PLAIN = FILE.removesuffix(".zst")
"""Its name once it was unpacked by hand."""
MAX_SCRAPES = 100_000
_MAX_TEXT = 4 << 30
"""Bytes of all answers of a recording, unpacked: they are read through, a piece at a time, within seconds."""
_MAX_ANSWER = 128 << 20
"""Bytes of one: a server may answer half of that, and what is masked in it grows."""
_MAX_READ = 64 << 20
"""Characters of answers that are parsed: of large ones fewer are judged."""
_MAX_PAGES = MAX_BYTES
_PIECE = 1 << 20
_MARK = "# at "
_BETWEEN = b"\n" + _MARK.encode()
_HEADING = re.compile(rb"# at (\d{1,9}(?:\.\d{1,6})?)(?: clock (\d{1,12}))?( torn)?")
_LEVEL = 9
"""Of zstd: 12 takes three times the memory for 5 % less, 19 thirty times the CPU for 8 % less."""
_WINDOW_LOG = 25
"""So far back zstd finds what stood there before, as a power of two: over 32 MiB, the answer before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `at`: seconds after the start; `clock`: the server's own, POSIX seconds; `size`: about, in bytes.

    `text` is only to be called until the next answer is asked for.
    """

    at: float
    clock: float | None
    size: int
    text: Callable[[], str]


@dataclass(frozen=True)
class Metrics:
    """The answers of one server. `answers` goes through them from the first on; it raises SourceError at damage."""

    answers: Callable[[], Iterator[Answer]]

    @cached_property
    def _index(self) -> tuple[tuple[float, int], ...]:
        return tuple((answer.at, answer.size) for answer in self.answers())

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Seconds after the start of the recording."""
        return tuple(at for at, _ in self._index)

    @cached_property
    def pages(self) -> tuple[bytes, ...]:
        """All answers. Raises SourceError where they are too large to be held at once."""
        found, size = [], 0
        for answer in self.answers():
            found.append(answer.text().encode())
            size += len(found[-1])
            if size > _MAX_PAGES:
                raise SourceError(KIND, f"its answers are larger than {_MAX_PAGES >> 20} MiB")
        return tuple(found)

    def scrapes(self, wanted: frozenset[str], most: int, until: float | None = None) -> Iterator[Scrape]:
        """At most so many of them, evenly in time, up to `until`."""
        return self._read(self._chosen(most, until), wanted)

    def pairs(self, wanted: frozenset[str], most: int, seconds: float) -> Iterator[tuple[Scrape, Scrape]]:
        """At most so many pairs of scrapes that lie about so many seconds apart, evenly in time."""
        found: dict[int, int] = {}
        for first in sorted(self._chosen(most, None)):
            second = bisect.bisect_left(self.times, self.times[first] + seconds)
            if second < len(self.times) and self.times[second] - self.times[first] <= 2 * seconds:
                found[first] = second
        waiting: dict[int, list[Scrape]] = {}
        numbers = sorted({*found, *found.values()})
        for number, scrape in zip(numbers, self._read(frozenset(numbers), wanted), strict=True):
            for before in waiting.pop(number, ()):
                yield before, scrape
            if number in found:
                waiting.setdefault(found[number], []).append(scrape)

    def _read(self, chosen: frozenset[int], wanted: frozenset[str]) -> Iterator[Scrape]:
        heads: Heads = {}
        wanted |= {scrapes.START_TIME}
        for number, answer in enumerate(self.answers()):
            if number in chosen:
                page = parse(answer.text(), wanted, heads)
                yield Scrape(answer.at, page, scrapes.started(page), answer.clock)

    def _chosen(self, most: int, until: float | None) -> frozenset[int]:
        count = len(self.times) if until is None else bisect.bisect_right(self.times, until)
        largest = max((size for _, size in self._index), default=0)
        most = min(most, max(2, _MAX_READ // max(1, largest)))
        if count <= most:
            return frozenset(range(count))
        return frozenset(round(place * (count - 1) / (most - 1)) for place in range(most))


def of_file(body: bytes, name: str, is_packed: bool = True, servers: int = 1) -> Metrics:
    """The answers in metrics.prom.zst, or unpacked in metrics.prom. `name` is for messages; `servers` share what a
    recording may hold.
    """
    return Metrics(partial(_answers, body, name, is_packed, _MAX_TEXT // servers))


def _answers(body: bytes, name: str, is_packed: bool, most: int) -> Iterator[Answer]:
    last = -math.inf
    pieces = _unpacked(body, name, most) if is_packed else iter([body])
    for number, part in enumerate(_parted(pieces, name), 1):
        heading, _, text = part.partition(b"\n")
        match = _HEADING.fullmatch(heading)
        if match is None:
            shown = ascii(heading[:60].decode("utf-8", "replace"))
            raise _wrong(name, number, f"{shown} does not begin a scrape")
        at = float(match[1])
        if at <= last:
            raise _wrong(name, number, "its time is not after the one before")
        if number > MAX_SCRAPES:
            raise _wrong(name, number, f"more than {MAX_SCRAPES:,} scrapes")
        last = at
        text = text[:-1] if match[3] else text
        yield Answer(at, float(match[2]) if match[2] else None, len(text), partial(text.decode, "utf-8", "replace"))


def _parted(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Heading and answer, one after the other."""
    held, number = bytearray(), 0
    for piece in pieces:
        searched = max(0, len(held) - len(_BETWEEN))
        held += piece
        begin = 0
        while (end := held.find(_BETWEEN, max(begin, searched))) >= 0:
            yield bytes(held[begin : end + 1])
            begin, number = end + 1, number + 1
        del held[:begin]
        if len(held) > _MAX_ANSWER:
            raise _wrong(name, number + 1, f"it is larger than {_MAX_ANSWER >> 20} MiB: vllm-doctor did not write it")
    if held:
        yield bytes(held)


def _unpacked(body: bytes, name: str, most: int) -> Iterator[bytes]:
    """The text of one frame of zstd, piece by piece."""
    frame = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
    taken = given = 0
    while not frame.eof:
        data = b""
        if frame.needs_input:
            data = body[taken : taken + _PIECE]
            if not data:
                raise SourceError(KIND, f"{name} ends early: copy it again")
            taken += len(data)
        try:
            piece = frame.decompress(data, _PIECE)
        except zstd.ZstdError as error:
            raise SourceError(KIND, f"{name} is damaged ({error}): copy it again") from None
        given += len(piece)
        if given > most:
            raise SourceError(KIND, f"{name} unpacks to more than {most >> 20:,} MiB: no recording is so large")
        yield piece
    if frame.unused_data or taken < len(body):
        raise SourceError(KIND, f"{name} goes on behind its end: vllm-doctor did not write it")


def _wrong(name: str, number: int, what: str) -> SourceError:
    return SourceError(KIND, f"{name}, answer {number:,}: {what}")


class MetricsWriter:
    """metrics.prom.zst while it is written. `mask` is applied to each line that is new; `servers` are recorded."""

    def __init__(self, mask: Callable[[str], str] = str, servers: int = 1) -> None:
        self._mask = mask
        parameter = zstd.CompressionParameter
        self._frame = zstd.ZstdCompressor(
            options={parameter.compression_level: _LEVEL, parameter.window_log: _WINDOW_LOG, parameter.checksum_flag: 1}
        )
        self._packed = bytearray()
        self._before: list[str] = []
        self._masked: list[str] = []
        self._most_text, self._most_packed = _MAX_TEXT // 2 // servers, MAX_BYTES // 2 // servers
        self._size = 0
        self.count = 0
        self._last = -math.inf

    @property
    def is_full(self) -> bool:
        """Whether one more answer might make it larger than what is read again."""
        return self._size > self._most_text or len(self._packed) > self._most_packed or self.count >= MAX_SCRAPES

    def add(self, at: float, page: str, clock: float | None = None) -> None:
        """One more answer, `at` seconds after the start; one at the time of the last is left out.

        Comments in it that begin as a heading get one # more, so that it cannot pass for two.
        """
        at = round(at, 3)
        if at <= self._last:
            return
        lines, mask = page.split("\n"), self._mask
        if len(lines) == len(self._before):  # most lines are those of the answer before
            changes = zip(self._before, lines, self._masked, strict=True)
            masked = [kept if was == now else mask(now) for was, now, kept in changes]
        else:
            masked = [mask(line) for line in lines]
        heading = f"{_MARK}{at:.3f}"
        if clock is not None:
            heading += f" clock {clock:.0f}"
        end = ""
        if lines[-1]:  # it was cut: its last value may be half a number
            heading, end = f"{heading} torn", "\n"
        kept = (f"#{line}" if line.startswith(_MARK) else line for line in masked)
        text = ("\n".join((heading, *kept)) + end).encode("utf-8", "replace")
        self._packed += self._frame.compress(text)
        self._before, self._masked, self._last = lines, masked, at
        self._size += len(text)
        self.count += 1

    def ended(self) -> bytes:
        """All that was written; nothing can be added then."""
        self._packed += self._frame.flush()
        return bytes(self._packed)
