"""metrics.txt of a recording: a server's answers of /metrics, each as what differs from the one before."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording.archive import KIND
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import Heads, parse
from vllm_doctor.sources.server.scrapes import Scrape

MAX_SCRAPES = 100_000
_MAX_LINES = 3_000_000
"""Of one server's answers: each takes memory of its own."""
_MAX_READ = 64 << 20
"""Characters of pages that are parsed: of large ones fewer are judged."""
_MAX_PAGES = 256 << 20


@dataclass(frozen=True)
class Metrics:
    """The answers of /metrics. `text` is what metrics.txt holds:

    @ SECONDS page COUNT [SERVER'S CLOCK]     the next COUNT lines are a whole page
    @ SECONDS lines COUNT [SERVER'S CLOCK]    the page before, but for the next COUNT lines: "NUMBER TEXT"
    """

    text: str
    name: str = "metrics.txt"

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Seconds after the start of the recording."""
        return tuple(at for at, _, _ in self._pages(frozenset()))

    @cached_property
    def pages(self) -> tuple[bytes, ...]:
        """All pages whole. Raises SourceError where they are too large to be held at once."""
        found, size = [], 0
        for _, _, lines in self._pages(None):
            found.append("\n".join(lines).encode())
            size += len(found[-1])
            if size > _MAX_PAGES:
                raise SourceError(KIND, f"{self.name}: its pages are larger than {_MAX_PAGES >> 20} MiB")
        return tuple(found)

    def scrapes(self, wanted: frozenset[str], most: int, until: float | None = None) -> Iterator[Scrape]:
        """At most so many of them, evenly in time, up to `until`."""
        heads: Heads = {}
        wanted |= {scrapes.START_TIME}
        for at, clock, lines in self._pages(self._chosen(most, until)):
            page = parse("\n".join(lines), wanted, heads)
            yield Scrape(at, page, scrapes.started(page), clock)

    def _chosen(self, most: int, until: float | None) -> frozenset[int]:
        count = len(self.times) if until is None else bisect.bisect_right(self.times, until)
        most = min(most, max(2, _MAX_READ // max(1, self._largest)))
        if count <= most:
            return frozenset(range(count))
        return frozenset(round(place * (count - 1) / (most - 1)) for place in range(most))

    @cached_property
    def _largest(self) -> int:
        """Characters of the largest page that is there as a whole."""
        lines, place, largest = self.text.split("\n"), 0, 0
        while place < len(lines) - 1:
            _, kind, count, _ = self._head(lines[place], place)
            if kind == "page":
                largest = max(largest, sum(map(len, lines[place + 1 : place + 1 + count])))
            place += 1 + count
        return largest

    def _pages(self, chosen: frozenset[int] | None) -> Iterator[tuple[float, float | None, list[str]]]:
        """Time, the server's clock and the lines of these pages, all where None; without any, the times alone.

        The lines are only valid until the next page is asked for: copying a large page each time would take long.
        """
        if self.text.count("\n") > _MAX_LINES:
            raise self._wrong(_MAX_LINES, f"more than {_MAX_LINES:,} lines")
        lines, place, number, last = self.text.split("\n"), 0, 0, -math.inf
        page: list[str] = []
        while place < len(lines) - 1:
            at, kind, count, clock = self._head(lines[place], place)
            if at <= last:
                raise self._wrong(place, "its time is not after the one before")
            last, place = at, place + 1
            changed = lines[place : place + count]
            if len(changed) != count or place + count >= len(lines):
                raise self._wrong(place, "it ends early")
            if chosen is None or chosen:
                if kind == "page":
                    page = changed
                else:
                    self._change(page, changed, place)
            if chosen is None or not chosen or number in chosen:
                yield at, clock, page
            place += count
            number += 1
            if number > MAX_SCRAPES:
                raise self._wrong(place, f"more than {MAX_SCRAPES:,} scrapes")

    def _change(self, page: list[str], changed: Sequence[str], place: int) -> None:
        for line in changed:
            number, _, text = line.partition(" ")
            try:
                if int(number) < 1:
                    raise IndexError
                page[int(number) - 1] = text
            except (ValueError, IndexError):
                raise self._wrong(place, "a line that the page before does not have") from None

    def _head(self, line: str, place: int) -> tuple[float, str, int, float | None]:
        words = line.split(" ")
        try:
            mark, at, kind, count, *clock = words
            told = float(at), kind, int(count), float(clock[0]) if clock else None
            is_one = mark == "@" and kind in ("page", "lines") and int(count) >= 0 and math.isfinite(told[0])
        except ValueError:
            is_one = False
        if not is_one:
            raise self._wrong(place, f"{line[:60]!r} does not begin a scrape")
        return told

    def _wrong(self, place: int, what: str) -> SourceError:
        return SourceError(KIND, f"{self.name}, line {place + 1:,}: {what}")


class Tape:
    """metrics.txt while it is written. `mask` is applied to each line that is new."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._before: list[str] = []
        self._parts: list[str] = []
        self.size = 0
        """Characters."""
        self.count = 0
        self.last = -math.inf

    def add(self, at: float, page: str, clock: float | None = None) -> None:
        """One more answer, `at` seconds after the start; one at the time of the last is left out."""
        at = round(at, 3)
        if at <= self.last:
            return
        lines = page.split("\n")
        before = self._before
        if len(lines) == len(before):
            pairs = enumerate(zip(before, lines, strict=True), 1)
            changed = [f"{place} {self._mask(now)}" for place, (was, now) in pairs if was != now]
            kind = "lines"
        else:
            changed, kind = [self._mask(line) for line in lines], "page"
        told = "" if clock is None else f" {clock:.0f}"
        part = "\n".join([f"@ {at:.3f} {kind} {len(changed)}{told}", *changed, ""])
        self._parts.append(part)
        self._before, self.last = lines, at
        self.size += len(part)
        self.count += 1

    def text(self) -> str:
        return "".join(self._parts)
