"""A notebook (.ipynb): what its cells start, in their order, and the text that they printed. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vllm_doctor.launch import python_calls
from vllm_doctor.launch.python_calls import Cell
from vllm_doctor.launch.start import Written
from vllm_doctor.model import outside

SUFFIX = ".ipynb"
MAX_BYTES = 16_000_000
"""With the pictures in it."""
MOST_CELLS = 1_000
MAX_TEXT = 10_000_000
"""Characters that its cells, or their outputs, hold together; pictures do not count."""
_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}[A-Za-z]")


def is_notebook(text: str) -> bool:
    return text.lstrip()[:1] == "{" and '"cells"' in text and _cells(text) is not None


def starts(text: str) -> list[Written]:
    """The servers and engines that the cells start."""
    cells = [
        Cell(source, f"cell {number}, ")
        for number, (kind, source) in enumerate(_sources(_cells(text) or []), 1)
        if kind == "code"
    ]
    return python_calls.of_cells(cells)


def outputs(raw: str | bytes) -> str:
    """What the cells printed, with the errors that they ended in, as one text; "" where it is no notebook."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    said: list[str] = []
    left = MAX_TEXT
    for cell in (_cells(text) or [])[:MOST_CELLS]:
        for part in _printed(cell):
            part = _COLOUR.sub("", part)[:left]
            left -= len(part)
            said.append(part if part.endswith("\n") else part + "\n")
            if left <= 0:
                return "".join(said)
    return "".join(said)


def _printed(cell: object) -> Iterator[str]:
    given = cell.get("outputs") if isinstance(cell, dict) else None
    for output in given if isinstance(given, list) else ():
        if not isinstance(output, dict):
            continue
        yield from filter(None, (_text(output.get("text")), _text(output.get("traceback"), "\n")))
        data = output.get("data")
        if isinstance(data, dict):
            yield from filter(None, (_text(data.get("text/plain")),))


def _sources(cells: list[object]) -> Iterator[tuple[str, str]]:
    left = MAX_TEXT
    for cell in cells[:MOST_CELLS]:
        fields = cell if isinstance(cell, dict) else {}
        source = _text(fields.get("source", fields.get("input")))[: max(0, left)]
        left -= len(source)
        yield str(fields.get("cell_type")), source


def _text(given: object, between: str = "") -> str:
    """A text, or the lines of one."""
    if isinstance(given, list):
        return between.join(line for line in given if isinstance(line, str))
    return given if isinstance(given, str) else ""


def _cells(text: str) -> list[object] | None:
    try:
        document = outside.json(text)
    except ValueError:
        return None
    cells = document.get("cells") if isinstance(document, dict) else None
    return cells if isinstance(cells, list) else None
