"""Markdown out of plain text: what stands in the text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MEANT = re.compile(r"([\\`*_\[\]<>{}|#$~])")
_URL = re.compile(r"https://[^\s<>|]+[^\s<>|.,;:)]")


def plain(text: str) -> str:
    """A text without markup; URLs in it become links."""
    parts, last = [], 0
    for found in _URL.finditer(text):
        parts += [_MEANT.sub(r"\\\1", text[last : found.start()]), f"<{found[0]}>"]
        last = found.end()
    return "".join([*parts, _MEANT.sub(r"\\\1", text[last:])])


def code(text: str) -> str:
    """A text as code, within a sentence or a table."""
    text = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def block(text: str, kind: str = "text") -> str:
    """A text as a block of code."""
    return f"```{kind}\n{text.rstrip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown without line ends."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def toctree(names: Iterable[str], *, is_hidden: bool = True) -> str:
    """What stands below a page."""
    return "\n".join(["```{toctree}", *([":hidden:"] if is_hidden else []), "", *names, "```"])


def page(*parts: str) -> str:
    """Paragraphs, tables and blocks as a page; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
