"""metrics.txt of a recording of version 1: a server's answers of /metrics, each as what differs from the one before.

    @ SECONDS page COUNT [CLOCK]     the next COUNT lines are a whole answer
    @ SECONDS lines COUNT [CLOCK]    the answer before, but for the next COUNT lines: "NUMBER TEXT" stands for one

Read, and no longer written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording.archive import KIND
from vllm_doctor.recording.metrics import MAX_SCRAPES, Answer, Metrics

FILE = "metrics.txt"
_MAX_LINES = 3_000_000
"""Of one server's answers: each takes memory of its own."""


def of_file(body: bytes, name: str) -> Metrics:
    """The answers in metrics.txt; `name` is for messages."""
    return Metrics(partial(_answers, body.decode("utf-8", "replace"), name))


def _answers(text: str, name: str) -> Iterator[Answer]:
    if text.count("\n") > _MAX_LINES:
        raise _wrong(name, _MAX_LINES, f"more than {_MAX_LINES:,} lines")
    lines, place, last, number, size = text.split("\n"), 0, -math.inf, 0, 0
    page: list[str] = []
    while place < len(lines) - 1:
        at, kind, count, clock = _heading(lines[place], name, place)
        place, number = place + 1, number + 1
        if at <= last:
            raise _wrong(name, place - 1, "its time is not after the one before")
        if place + count >= len(lines):
            raise _wrong(name, place, "it ends early")
        if number > MAX_SCRAPES:
            raise _wrong(name, place, f"more than {MAX_SCRAPES:,} scrapes")
        changed = lines[place : place + count]
        if kind == "page":
            page, size = changed, sum(map(len, changed)) + count
        else:
            _change(page, changed, name, place)
        yield Answer(at, clock, size, partial("\n".join, page))
        last, place = at, place + count


def _heading(line: str, name: str, place: int) -> tuple[float, str, int, float | None]:
    try:
        mark, seconds, kind, lines, *clock = line.split(" ")
        at, count, time = float(seconds), int(lines), float(clock[0]) if clock else None
        is_one = mark == "@" and kind in ("page", "lines") and count >= 0 and math.isfinite(at)
    except ValueError:
        is_one = False
    if not is_one:
        raise _wrong(name, place, f"{line[:60]!r} does not begin a scrape")
    return at, kind, count, time


def _change(page: list[str], changed: Sequence[str], name: str, place: int) -> None:
    for line in changed:
        number, _, text = line.partition(" ")
        try:
            if int(number) < 1:
                raise IndexError
            page[int(number) - 1] = text
        except (ValueError, IndexError):
            raise _wrong(name, place, "a line that the answer before does not have") from None


def _wrong(name: str, place: int, what: str) -> SourceError:
    return SourceError(KIND, f"{name}, line {place + 1:,}: {what}")
