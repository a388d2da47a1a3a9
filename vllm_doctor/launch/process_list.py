"""Servers in a list of processes: a line of `ps aux` or `ps -ef`, with its columns in front.

`ps` joins arguments with blanks and quotes nothing; what stands in braces is taken for one argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vllm_doctor.launch import budget
from vllm_doctor.launch.start import Form, Launch, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.vllm.command_line import program_of

_ROW = re.compile(r"[ \t]*(?:[A-Za-z_][\w.+-]{0,40}[ \t]+)?\d{1,10}[ \t]")
_PROGRAM = re.compile(r"[ \t](?:[^\s/]{0,80}/[^\s]{0,300}/|/)?(?:python[\d.]{0,6}|vllm)[ \t]")
_OPEN = frozenset({"...", "…"})
_MOST_ROWS = 5000
_NOTE = "a list of processes has no quotes: an argument with blanks may be read as several"


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers among the processes; the list begins in this line."""
    found = []
    for number, row in _rows(text, line):
        program = _PROGRAM.search(row, 0, 400)
        if program is None:
            continue
        words = [Word(part, number) for part in _parts(row[program.start() :])]
        if program_of([word.text for word in words]) is None:
            continue
        is_open = any(word.text in _OPEN for word in words)
        shown = [Word(mark(word.text), number) if word.text in _OPEN else word for word in words]
        launch = Launch(shown, Form.PROCESS_LIST, notes=(_NOTE,))
        found.append(Written.of(launch, place=f"line {number}", is_open=is_open))
    return found


def _rows(text: str, line: int) -> Iterator[tuple[int, str]]:
    """Each process with the line it begins in; a terminal may have broken it into several."""
    first, row = line, ""
    for number, part in enumerate(text.split("\n", _MOST_ROWS)[:_MOST_ROWS], line):
        if _ROW.match(part):
            yield first, row
            first, row = number, part
        elif row:
            row = f"{row} {part.strip()}"
    yield first, row


def _parts(text: str) -> Iterator[str]:
    held, depth = "", 0
    for part in text.split():
        budget.spend()
        depth += part.count("{") - part.count("}")
        held = f"{held} {part}" if held else part
        if depth <= 0:
            yield held
            held, depth = "", 0
    if held:
        yield from held.split()
