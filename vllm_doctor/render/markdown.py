"""The painter of markdown as GitHub has it, to paste into an issue or a chat.

Nothing that came from outside takes effect in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from vllm_doctor.model.report import Finding, Report
from vllm_doctor.render import report_page
from vllm_doctor.render.page import (
    Block,
    Card,
    Command,
    Diff,
    Explains,
    Figures,
    FlameGraph,
    Fold,
    Footer,
    Head,
    Heading,
    Kind,
    Labelled,
    Lines,
    Note,
    Numbered,
    Page,
    Plots,
    Shell,
    Span,
    Table,
    Words,
    joined,
    spans,
)
from vllm_doctor.text import words as text_words

_WIDTH = 80
_SIGNS = re.compile(r"[\\`*\[\]<~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_AT_START = re.compile(r"^(?:#{1,6}(?=\s|$)|[+-](?=\s|$)|[-=](?=[-=\s]*$)|>|:(?=-)|\d{1,9}(?=[.)](?:\s|$)))")
_LINKED = re.compile(r"@(?=[\w-])|#(?=\d)|:(?=//)|www(?=\.)|GH-(?=\d)|(?<!\d):(?=[\w+-]+:)", re.IGNORECASE)
"""What GitHub links although it is escaped, but not in code: people, issues, addresses; and emoji by their names."""


def render(report: Report) -> str:
    return paint(report_page.whole(report))


def finding(group: Sequence[Finding], report: Report) -> str:
    """The findings of one rule, with the server they are of, to paste where the whole report is too much."""
    return paint(report_page.alone(group, report))


def paint(page: Page) -> str:
    return "\n\n".join(_all(page)) + "\n"


# ---- texts from outside


def text(value: str) -> str:
    """As it reads: of its own signs none is markdown, HTML, or a link to a person, an issue or an address."""
    line = " ".join(r"\|".join(map(_piece, word.split("|"))) for word in value.split())
    start = _AT_START.match(line)
    if start is None:
        return line
    return f"{start[0]}\\{line[start.end() :]}" if start[0].isdigit() else f"\\{line}"


def _piece(value: str) -> str:
    """A word, or what stands of it between bars, which a table would take out of code."""
    return code(value) if _LINKED.search(value) else _SIGNS.sub(r"\\\g<0>", value)


def code(value: str) -> str:
    """As a code span, in more backticks than it holds."""
    line = " ".join(value.split())
    if not line:
        return ""
    ticks = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def _said(words: Words) -> str:
    """A sentence: its texts escaped, with the blanks between its pieces."""
    return "".join(map(_span, spans(words)))


def _span(span: Span) -> str:
    if span.kind in (Kind.CODE, Kind.BAR):
        return code(span.text)
    if span.kind is Kind.RULE:
        return f"({code(span.text)})"
    before = " " if span.text[:1].isspace() else ""
    after = " " if span.text[-1:].isspace() and span.text.strip() else ""
    return f"{before}{text(span.text)}{after}"


def _cell(words: Words) -> str:
    """A sentence in a table, where a bar would end the cell even within code."""
    return "".join(text(s.text) if s.kind is Kind.CODE and "|" in s.text else _span(s) for s in spans(words))


# ---- blocks


def _all(blocks: Sequence[Block]) -> Iterator[str]:
    return (text for block in blocks for text in _painted(block))


def _painted(block: Block) -> Iterator[str]:
    match block:
        case Head():
            yield f"## {block.state.upper()}: {text(block.title)}"
        case Heading():
            if not block.signpost:
                yield f"### {text(block.title)}"
        case Lines() | Command() | Table() | Diff() | Shell():
            yield from _body(block)
        case Figures():
            yield _table((block.title, "Value"), block.items, {1})
        case Numbered():
            yield "\n".join(f"{n}. {code(rule)} {text(held)}" for n, (rule, held) in enumerate(block.items, 1))
        case Plots():
            yield from _fenced(block.drawn)
        case FlameGraph():
            return
        case Explains():
            yield f"Explains: {', '.join(map(_said, block.symptoms))}"
        case Labelled():
            said = _said(block.text)
            if said:
                yield f"**{block.label}** {said}"
            yield from (text for part in block.body for text in _body(part))
        case Card():
            title = "" if block.repeats else f": {text(block.title)} ({text(block.state)})"
            yield f"### {code(block.rule)}{title}"
            yield from _all(block.blocks)
        case Note():
            yield _note(block)
        case Fold():
            yield from _fold(block)
        case Footer():
            yield _sentence(joined(block.parts))
        case _:
            assert_never(block)


def _body(block: Lines | Command | Table | Diff | Shell) -> Iterator[str]:
    match block:
        case Lines():
            yield _list(block.items)
        case Command():
            yield from _fenced(text_words.folded(block.words, _WIDTH, block.variables), "sh")
        case Table():
            yield _table(block.head, block.rows, block.right)
            yield from map(_sentence, block.notes)
        case Diff():
            yield from _fenced([f"{sign} {line}" for sign, line in block.lines], "diff")
        case Shell():
            yield from _fenced(block.commands, "sh")
            if block.note:
                yield _list((block.note,))
        case _:
            assert_never(block)


def _fold(fold: Fold) -> Iterator[str]:
    yield f"<details>\n<summary>{fold.title}{f': {fold.summary}' if fold.summary else ''}</summary>"
    yield _list(fold.items)
    yield "</details>"


def _note(note: Note) -> str:
    details, advice = _said(note.text), _said(note.advice)
    line = f"- {note.label}: {text(note.title)} ({code(note.rule)}){': ' + details if details else ''}"
    return f"{line} → {advice}" if advice else line


def _sentence(words: Words) -> str:
    """One that stands alone."""
    said = _said(words)
    return said[:1].upper() + said[1:]


def _list(items: Iterable[Words]) -> str:
    return "\n".join(f"- {_said(item)}" for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[Words]], right: Iterable[int]) -> str:
    aligned = set(right)
    lines = [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('--:' if place in aligned else '---' for place, _ in enumerate(head))}|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _fenced(lines: Sequence[str], language: str = "") -> Iterator[str]:
    """A code block, whose fence is longer than any in it."""
    if not lines:
        return
    within = [" ".join(line.splitlines()) for line in lines]
    fence = "`" * max([3, *(len(run) + 1 for line in within for run in re.findall("`+", line))])
    yield "\n".join([f"{fence}{language}", *within, fence])
