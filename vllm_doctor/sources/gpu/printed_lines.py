"""Text in which tools print GPUs, as lines: without colours, drawn frames, and what a log writes before each line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO

MOST = 200_000
"""Lines that are read of one text; empty ones do not count."""
LONGEST = 4000
"""Characters that are read of one line: nvidia-smi's row of all fields has 3,000."""

# a web page drops the escape and keeps the rest; cat -v writes it as two characters
_COLOURS = re.compile(r"(?:\x1b|\^)?\[[0-9;]{0,20}m")
_CORNERS = "╭╮╰╯╒╕╘╛╞╡╪╧╤├┤┼┬┴┌┐└┘╔╗╚╝╠╣╬╦╩╟╢"
_FRAME = str.maketrans(dict.fromkeys("│║┃", "|") | dict.fromkeys("─━", "-") | {"═": "="} | dict.fromkeys(_CORNERS, "+"))
_SERVICE = re.compile(r"[A-Za-z][\w.@-]{1,60} {0,20}\| ")  # of docker compose
_TIME = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]? (?:std(?:out|err) [FP] )?"
)


@dataclass(frozen=True, slots=True)
class Line:
    """`number`: counted from 0; `text`: not empty, indented as it was."""

    number: int
    text: str


def lines(text: str) -> tuple[list[Line], bool]:
    """The lines that say something; and whether these are all."""
    if any(char in text for char in "│║┃"):
        text = text.translate(_FRAME)
    found: list[Line] = []
    for number, line in enumerate(StringIO(text, newline=None)):
        if len(line) > LONGEST:
            line = line[:LONGEST]
        if line.isspace():
            continue
        if len(found) == MOST:
            return found, False
        found.append(Line(number, _own(line.rstrip())))
    return found, True


def _own(line: str) -> str:
    """The tool's part of a line."""
    line = _COLOURS.sub("", line)
    for prefix in (_SERVICE, _TIME):
        before = prefix.match(line)
        if before is not None:
            line = line[before.end() :]
    return line


def rounds(rows: Iterable[tuple[int, str]], most: int) -> tuple[list[list[tuple[int, str]]], int]:
    """Rows, each of a GPU with this number, cut where a number comes that was seen: each round is one look at all.

    Where there are more rows than `most`, only each n-th round is kept; n comes second.
    """
    found: list[list[tuple[int, str]]] = []
    seen: set[int] = set()
    count = 0
    for index, text in rows:
        if not found or index in seen:
            found.append([])
            seen.clear()
        seen.add(index)
        found[-1].append((index, text))
        count += 1
    every = -(-count // most) if count > most else 1
    return found[::every], every


def fields(text: str) -> list[str]:
    """The cells of a line of a table that is drawn with |, without its border."""
    return [cell.strip() for cell in text.strip().strip("|").split("|")]
