"""What each vLLM release has, out of a table: a row, the releases that it holds for, its cells.

data/*.tsv: a first line that says what it is and where from; `# samples:`, releases of which only names are known, and
between which nothing is; `# releases:`, every release since 0.8.0; then `NAMES<TAB>0.8.0..0.9.2;0.31.0..<TAB>…`.
What has no end, `0.31.0..`, holds up to the newest release, so that a newer one changes only what differs in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Release = tuple[int, ...]
Key = tuple[int, ...]
"""Orders versions: four numbers, the post-release, and 0 for what only leads to it (0.11.1rc3, 0.33.0.dev5)."""

OFF = "!"
"""Before a name that means the opposite of the others in its row."""

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?([^+]*)")


def release(version: str) -> Release | None:
    """(0, 11, 1) of "0.11.1rc3.dev29+g3fa2c12"; None where there is no version in the text."""
    match = _VERSION.match(version)
    return tuple(int(part or 0) for part in match.groups()[:3]) if match else None


def number(version: str) -> float | None:
    """A release as one number, in order: 2601 of 0.26.1, 10200 of 1.2.0, 805.1 of 0.8.5.post1; None of what is no
    release, but leads to one or stands between two: a nightly build has what its commit has."""
    key = _key(version)
    if key is None or key[-1] == 0 or max(key[1:4]) > 99:
        return None
    major, minor, patch, fourth, post, _ = key
    return 10000.0 * major + 100 * minor + patch + fourth / 100 + post / 10


def _key(version: str) -> Key | None:
    match = _VERSION.match(version)
    if match is None:
        return None
    post = re.search(r"post(\d{1,9})", match[5])
    leads_to = re.match(r"[._-]?(a|b|rc)\d", match[5]) or "dev" in match[5]
    return (*(int(part or 0) for part in match.groups()[:4]), int(post[1]) if post else 0, 0 if leads_to else 1)


@dataclass(frozen=True)
class Row:
    """A row of a table. `off`: names that mean the opposite. `spans`: places in `History.releases`, both inclusive."""

    names: tuple[str, ...]
    off: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    cells: tuple[str, ...]

    def cell(self, number: int) -> str:
        return self.cells[number] if number < len(self.cells) else ""

    def is_at(self, place: int) -> bool:
        return any(first <= place <= last for first, last in self.spans)


class History:
    """A table, read when it is first asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _lines(self) -> list[str]:
        return self.path.read_text("utf-8").splitlines()

    @cached_property
    def samples(self) -> tuple[str, ...]:
        return tuple(self._lines[1].partition(":")[2].split())

    @cached_property
    def releases(self) -> tuple[str, ...]:
        """In order: the samples, then every release."""
        return (*self.samples, *self._lines[2].partition(":")[2].split())

    @cached_property
    def _keys(self) -> list[Key]:
        return [key for name in self.releases if (key := _key(name))]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.releases)}

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """The lines of each name: most are never asked for, and stay unread."""
        lines: dict[str, list[str]] = {}
        for line in self._lines[3:]:
            for name in line[: line.index("\t")].split(" "):
                lines.setdefault(name.removeprefix(OFF), []).append(line)
        return lines

    def names(self) -> frozenset[str]:
        return frozenset(self._by_name)

    def rows(self, name: str) -> Iterator[Row]:
        """What is known under the name, in any release."""
        return (self._row(line) for line in self._by_name.get(name, ()))

    def rows_at(self, place: int) -> Iterator[Row]:
        """All rows of one release, in the order of the table."""
        return (row for row in map(self._row, self._lines[3:]) if row.is_at(place))

    def _row(self, line: str) -> Row:
        names, listed, *cells = line.split("\t")
        spans = []
        for span in listed.split(";"):
            first, dots, last = span.partition("..")
            is_open = dots and not last
            spans.append((self._places[first], len(self.releases) - 1 if is_open else self._places[last or first]))
        on = tuple(name for name in names.split(" ") if not name.startswith(OFF))
        off = tuple(name.removeprefix(OFF) for name in names.split(" ") if name.startswith(OFF))
        return Row(on, off, tuple(spans), tuple(cells))

    def spans(self, rows: Iterable[Row]) -> tuple[tuple[str, str], ...]:
        """From which release to which one of the rows holds, oldest first; a gap is real, but among the samples."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(span for row in rows for span in row.spans):
            if merged and merged[-1][1] >= first - 1:
                first, last = merged[-1][0], max(last, merged.pop()[1])
            merged.append((first, last))
        return tuple((self.releases[first], self.releases[last]) for first, last in merged)

    def stretch(self, name: str, place: int) -> tuple[str, str | None]:
        """The first and the last release of the span that a release lies in; None for the last: it goes on."""
        for first, last in self.spans(self.rows(name)):
            if self._places[first] <= place <= self._places[last]:
                return first, None if last == self.releases[-1] else last
        raise KeyError(name)

    def place(self, name: str) -> int:
        """Where a release stands in `releases`. Raises KeyError for what is none of them."""
        return self._places[name]

    def is_known(self, version: str) -> bool:
        """Whether the version is one of the releases."""
        return _key(version) in self._keys

    def is_newer(self, version: str) -> bool:
        """Whether the version is newer than all releases."""
        key = _key(version)
        return key is not None and key > self._keys[-1]

    def around(self, version: str) -> tuple[int, ...]:
        """Where a version stands among the releases: at one; or, of one that is not known, beside one or two."""
        key = _key(version)
        if key is None:
            return ()
        place = bisect_left(self._keys, key)
        if place < len(self._keys) and self._keys[place] == key:
            return (place,)
        return tuple(beside for beside in (place - 1, place) if 0 <= beside < len(self._keys))

    def judged_at(self, version: str) -> int | None:
        """The release that answers for a version: itself; else the one it leads to, else the newest before it."""
        key = _key(version)
        if key is None:
            return None
        place = bisect_left(self._keys, key)
        if place < len(self._keys) and self._keys[place] in (key, (*key[:-1], 1)):
            return place
        return place - 1 if place else None

    def has(self, version: str | None, is_at: Callable[[int], bool]) -> bool | None:
        """Whether something is in a version, asked of the releases around it; None: they differ, or do not tell.

        What the newest release has, a newer one may have dropped; what it has not counts as gone for good.
        """
        around = self.around(version) if version else ()
        answers = {is_at(place) for place in around}
        if len(answers) != 1:
            return None
        (answer,) = answers
        is_certain = len(around) > 1 or self.is_known(version or "")
        return answer if is_certain or (answer is False and around[0] > 0) else None
