"""The tables by release, vllm_doctor/vllm/data/{flags,environment,metrics}.tsv: read, and written with one release more
or less. Their form: vllm_doctor/vllm/release_table.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLES = ("flags.tsv", "environment.tsv", "metrics.tsv")

Cells = tuple[str, ...]
Rows = dict[str, Cells]
"""Of one release: the cells of each row, by its names."""


@dataclass(frozen=True)
class Table:
    """`title`: the first line. `samples`: the releases of which only names are known. `rows`: by release, in order."""

    title: str
    samples: tuple[str, ...]
    rows: Mapping[str, Rows]

    def with_release(self, release: str, rows: Rows) -> Table:
        """With the rows of this release, whether they are new or others than they were."""
        as_written = {key: _trimmed(cells) for key, cells in rows.items()}
        return Table(self.title, self.samples, {**self.rows, release: as_written})

    def without(self, release: str) -> Table:
        return Table(self.title, self.samples, {name: rows for name, rows in self.rows.items() if name != release})


def read(path: Path) -> Table:
    title, samples, releases, *lines = path.read_text("utf-8").splitlines()
    sampled = samples.partition(":")[2].split()
    order = [*sampled, *releases.partition(":")[2].split()]
    rows: dict[str, Rows] = {release: {} for release in order}
    for line in lines:
        key, written, *cells = line.split("\t")
        for release in releases_of(written, order):
            rows[release][key] = tuple(cells)
    return Table(title, tuple(sampled), rows)


def releases_of(spans: str, order: Sequence[str]) -> Iterator[str]:
    """The releases of spans as they are written."""
    for span in spans.split(";"):
        first, dots, last = span.partition("..")
        last = last or (order[-1] if dots else first)
        yield from order[order.index(first) : order.index(last) + 1]


def _trimmed(cells: Cells) -> Cells:
    """Without the empty cells at the end, which are not written."""
    filled = max((place + 1 for place, cell in enumerate(cells) if cell), default=0)
    return cells[:filled]


def write(path: Path, table: Table) -> None:
    releases = sorted((release for release in table.rows if release not in table.samples), key=order_of)
    order = [*table.samples, *releases]
    places: dict[tuple[str, Cells], list[int]] = {}
    for place, release in enumerate(order):
        for key, cells in table.rows[release].items():
            places.setdefault((key, cells), []).append(place)
    lines = [table.title, f"# samples: {' '.join(table.samples)}", f"# releases: {' '.join(releases)}"]
    for (key, cells), at in sorted(places.items(), key=lambda item: (item[0][0], item[1])):
        lines.append("\t".join([key, spans(at, order), *cells]))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def spans(places: Iterable[int], order: Sequence[str]) -> str:
    """Stretches of releases; one up to the newest is left open, so that a newer release need not change it."""
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return ";".join(_span(first, last, order) for first, last in found)


def _span(first: int, last: int, order: Sequence[str]) -> str:
    if last == len(order) - 1:
        return f"{order[first]}.."
    return order[first] if first == last else f"{order[first]}..{order[last]}"


def order_of(release: str) -> tuple[list[int], int]:
    numbers, _, post = release.partition(".post")
    return [int(part) for part in numbers.split(".")], int(post or 0)


def rows_of(content: Mapping[str, Any]) -> dict[str, Rows]:
    """The rows of a release in each table, out of what was read of it."""
    metrics: Rows = {
        name: (found["kind"], " ".join(found["engines"]), "hidden" if found["hidden"] else "")
        for name, found in content["metrics"].items()
    }
    environment: Rows = {name: (_cell(default),) for name, default in content["environment"].items()}
    return {"flags.tsv": _flags(content), "environment.tsv": environment, "metrics.tsv": metrics}


def _flags(content: Mapping[str, Any]) -> Rows:
    rows: Rows = {}
    for flag in content["flags"]:
        long_names = [name for name in flag["spellings"] if name.startswith("--") and flag["kind"] == "on-off"]
        negatives = {"--no-" + name.removeprefix("--") for name in long_names}
        odd = negatives - {*flag["off"]}
        if odd:
            raise SystemExit(f"{odd}: an on-off switch without its --no- form")
        spellings = " ".join([*flag["spellings"], *(f"!{name}" for name in flag["off"] if name not in negatives)])
        if any("|" in choice for choice in flag["choices"] or ()):
            raise SystemExit(f"{spellings}: a choice holds the separator")
        rows[spellings] = (
            flag["kind"] or "",
            "|".join(flag["choices"] or ()),
            _cell(flag["default"]),
            "deprecated" if flag["deprecated"] else "",
        )
    return rows | {f":{name}": () for name in content["syntax"]}


def _cell(text: str | None) -> str:
    if text is None:
        return ""
    return '""' if text == "" else text.replace("\t", " ").replace("\n", " ")
