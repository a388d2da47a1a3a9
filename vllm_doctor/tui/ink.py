"""Lines of text as a terminal shows them: fitted, in columns, with the few colours there are.

The terminal's own palette only, and none of it alone: every colour repeats a word or a sign. What comes from outside
is literal: nothing in it is markup, and no character in it moves the cursor.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from vllm_doctor.model.kinds import State
from vllm_doctor.render import columns
from vllm_doctor.render.page import Block, Page
from vllm_doctor.text import redact

SIGN: dict[str, str] = {"": " ", **{state.value: state.sign for state in State}}
COLOUR: dict[str, str] = {state.value: state.colour for state in State}
DIM, BOLD, HEAD, TITLE = "dim", "bold", "bold", "cyan"
_TONE = {
    columns.LABEL: HEAD, columns.SOFT: DIM, columns.ADDED: "green", columns.DROPPED: "red", columns.RUN: "cyan",
}  # fmt: skip
NOTHING = Text("")


class Row(NamedTuple):
    """A line, and what it stands for; "" where it cannot be chosen."""

    text: Text
    key: str = ""


def plain(text: str) -> str:
    """Text from outside on one line, with every character that a terminal would obey written out."""
    return text if text.isprintable() else redact.text(text, Counter())


def escaped(text: str) -> str:
    """For the few places of Textual's that read markup."""
    return plain(text).replace("[", "\\[")


def say(*parts: str | tuple[str, str]) -> Text:
    """A line of pieces, each with a style or without."""
    line = Text(no_wrap=True, end="")
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(plain(text), style or None)
    return line


def fit(text: str, width: int, right: bool = False) -> str:
    """Exactly so many cells, with "…" where something is cut."""
    text = plain(text)
    cells = cell_len(text)
    if cells > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width > 0 else ""
    pad = " " * (width - cells)
    return pad + text if right else text + pad


def cut(line: Text, width: int) -> Text:
    """The line, not wider than so many cells."""
    if line.cell_len <= width:
        return line
    shorter = line.copy()
    shorter.truncate(max(0, width), overflow="ellipsis")
    return shorter


def spread(left: Text, right: Text, width: int) -> Text:
    """One at each edge; of what does not fit the left gives way."""
    room = width - right.cell_len
    if room < 8:
        return cut(left, width)
    line = cut(left, room - 1)
    return Text.assemble(line, " " * (room - line.cell_len), right, no_wrap=True, end="")


def ruled(title: str, right: str, width: int) -> Text:
    """A horizontal line with a title in it; what does not fit of the title is cut."""
    tail = f" {plain(right)} ──" if right else "──"
    named = f"{cut(say(title), max(0, width - cell_len(tail) - 5)).plain} " if title else ""
    line = "─" * (width - cell_len(named) - cell_len(tail) - (3 if title else 2))
    return cut(say(("── " if title else "──", DIM), (named, TITLE), (f"{line}{tail}", DIM)), width)


def wrapped(text: str, width: int, first: str = "", rest: str | None = None, style: str = "") -> list[Text]:
    """A paragraph; `first` and `rest` are what its lines begin with."""
    rest = " " * cell_len(first) if rest is None else rest
    lines = textwrap.wrap(plain(text), max(8, width - len(rest)), break_on_hyphens=False) or [""]
    return [say(first if not place else rest, (line, style)) for place, line in enumerate(lines)]


def severity(name: str, text: str | None = None) -> tuple[str, str]:
    """A sign and a word in their colour."""
    return f"{SIGN.get(name, ' ')} {name if text is None else text}", COLOUR.get(name, "")


def badge(name: str) -> tuple[str, str]:
    """The word of a verdict, as a block of its colour."""
    colour = COLOUR.get(name, "")
    return f" {SIGN.get(name, ' ')} {name.upper()} ", f"bold reverse {colour}".strip()


def alarm(text: str) -> tuple[str, str]:
    """Words of a server that is lost, as a block in the colour of the worst."""
    return f" {SIGN[State.CRITICAL]} {text[:1].upper()}{text[1:]} ", f"bold reverse {COLOUR[State.CRITICAL]}"


def painted(page: Page, width: int, above: Block | None = None) -> list[Text]:
    """Blocks of a report, in lines of so many characters; `above`: the block that stands before them."""
    lines = columns.lay(page, width, above)
    return [say(*((piece.text, _TONE.get(piece.tone, "")) for piece in line)) for line in lines]


class Column(NamedTuple):
    """A column of a table: its head, its width, and whether it is right-aligned."""

    head: str
    width: int
    right: bool = True


def table_head(columns: Sequence[Column]) -> Text:
    return say((" " + "  ".join(fit(c.head, c.width, c.right) for c in columns), DIM))


def table_row(columns: Sequence[Column], cells: Sequence[str | tuple[str, str]]) -> Text:
    """One row; a cell may have a style."""
    parts: list[str | tuple[str, str]] = [" "]
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        text, style = (cell, "") if isinstance(cell, str) else cell
        parts.append((("  " if place else "") + fit(text, column.width, column.right), style))
    return say(*parts)
