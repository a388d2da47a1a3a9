"""A page set in lines of a given width, for a terminal: lines of pieces, each with the tone in which it is shown.

No colours here: the text painter has those of ANSI, the full-screen application its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

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
    plain,
    spans,
)
from vllm_doctor.text import words as text_words

INDENT = 14
"""Where paragraphs begin, right of their labels."""
_FOLD_INDENT = 13
PLAIN, LABEL, SOFT, ADDED, DROPPED, RUN = "", "label", "soft", "added", "dropped", "run"
"""The tones; a verdict's word has its state for one."""


class Piece(NamedTuple):
    text: str
    tone: str = PLAIN


Line = tuple[Piece, ...]


def lay(page: Page, width: int, above: Block | None = None) -> list[Line]:
    """The page in lines of at most `width` characters; `above`: the block that stands before it."""
    lines: list[Line] = []
    for block in page:
        made = list(_lines(block, width))
        if made and above is not None and _is_apart(block, above):
            lines.append(())
        if made:
            lines += made
            above = block
    return lines


def _is_apart(block: Block, above: Block) -> bool:
    """Whether an empty line parts them."""
    match block:
        case Lines():
            return not block.close
        case Command() | Explains():
            return False
        case Labelled(body=()):
            return not isinstance(above, Labelled | Explains | Head)
        case Note():
            return not isinstance(above, Note)
        case Footer():
            return not isinstance(above, Fold)
        case _:
            return True


def _lines(block: Block, width: int) -> Iterator[Line]:
    match block:
        case Head():
            yield from _headline(block, width)
        case Heading() | Figures() | Diff() | Shell() | Table():
            yield from _unlabelled(block, width)
        case Lines():
            for part in (part for item in block.items for part in _parts(item, width)):
                yield from _toned(_wrapped(f"  {plain(part)}", width, block.hang), _tone(part))
        case Command():
            yield from _toned([f"  {line}" for line in text_words.folded(block.words, width - 2, block.variables)])
        case Numbered():
            yield from _numbered(block, width)
        case FlameGraph():
            return
        case Plots():
            yield from _toned([f"  {line}" for line in block.drawn])
        case Explains():
            for symptom in block.symptoms:
                yield from _toned(_wrapped(f"{'':<{INDENT - 2}}→ explains: {plain(symptom)}", width, INDENT + 2), SOFT)
        case Labelled():
            yield from _labelled(block, width)
        case Card():
            if not block.repeats:
                yield from _headline(Head(block.state, block.title, block.rule), width)
                yield ()
            yield from lay(block.blocks, width)
        case Note():
            yield from _note(block, width)
        case Fold():
            yield from _fold(block, width)
        case Footer():
            yield from _toned(_wrapped(" · ".join(map(plain, block.parts)), width, 2))
        case _:
            assert_never(block)


def _unlabelled(block: Heading | Figures | Diff | Shell | Table, width: int) -> Iterator[Line]:
    """Blocks that a report has only under a label, or, as titles, not at all on a terminal."""
    match block:
        case Heading():
            return
        case Figures():
            for name, value in block.items:
                yield from _toned(_wrapped(f"  {name}: {value}", width, 4))
        case _:
            yield from _body(block, "", width)


def _headline(head: Head, width: int) -> Iterator[Line]:
    """The word of the verdict, its title, and its rule at the right edge."""
    word, tag = head.state.upper(), f"[{head.rule}]" if head.rule else ""
    room = width - len(word) - 2
    lines = textwrap.wrap(head.title, room) or [""]
    if tag and len(lines[-1]) + 2 + len(tag) <= room:
        lines[-1] += tag.rjust(room - len(lines[-1]))
    elif tag:
        lines.append(tag.rjust(room))
    yield (Piece(word, head.state), Piece(f"  {lines[0]}"))
    yield from _toned([" " * (len(word) + 2) + line for line in lines[1:]])


def _numbered(block: Numbered, width: int) -> Iterator[Line]:
    wide = max((len(rule) for rule, _ in block.items), default=0)
    for number, (rule, held) in enumerate(block.items, 1):
        yield from _toned(_wrapped(f"  {number}  {rule:<{wide}}  {held}", width, wide + 7))


def _fold(block: Fold, width: int) -> Iterator[Line]:
    for place, item in enumerate(block.items):
        label = "" if place else block.title
        yield from _toned(_wrapped(f"{label:<{_FOLD_INDENT}}{plain(item)}", width, _FOLD_INDENT))


def _labelled(block: Labelled, width: int) -> Iterator[Line]:
    label = block.label
    if plain(block.text) or not block.body:
        yield from _paragraph(label, block.text, width)
        label = ""
    for part in block.body:
        yield from _body(part, label, width)
        label = ""


def _body(block: Table | Diff | Shell | Command | Lines, label: str, width: int) -> Iterator[Line]:
    """What belongs to a label, set in below it."""
    margin = " " * INDENT
    match block:
        case Table():
            yield from _table(block, label, width)
            for note in block.notes:
                yield from _in_margin("", plain(note), width, INDENT, SOFT)
        case Diff():
            for sign, text in block.lines:
                yield (Piece(f"{margin}{sign}  {text}", ADDED if sign == "+" else DROPPED),)
        case Shell():
            for command in block.commands:
                first, *others = text_words.folded_text(command, width - INDENT - 3)
                last = f"  # {block.note}" if block.note else ""
                lines = [f"{margin}$  {first}", *(f"{margin}   {line}" for line in others)]
                fits = len(lines[-1]) + len(last) <= width
                yield from _toned([*lines[:-1], f"{lines[-1]}{last}"] if fits else [f"{margin}{last[2:]}", *lines], RUN)
        case Command():
            folded = text_words.folded(block.words, width - INDENT, block.variables)
            yield from _toned([margin + line for line in folded])
        case Lines():
            for part in (part for item in block.items for part in _parts(item, width - INDENT)):
                yield from _paragraph("", part, width)
        case _:
            assert_never(block)


def _note(note: Note, width: int) -> Iterator[Line]:
    details = plain(note.text)
    title = "" if note.repeats else f"{note.title} "
    yield from _paragraph(note.label, f"{title}[{note.rule}]{f': {details}' if details else ''}", width)
    if note.advice:
        yield from _paragraph("", f"→ {plain(note.advice)}", width)


def _table(table: Table, label: str, width: int) -> Iterator[Line]:
    """Without its head: its cells say enough. The first column gives way, and before it what stands in brackets."""
    rows = [[plain(cell) for cell in row] for row in table.rows]
    if not rows:
        return
    gaps, last = 2 * (len(rows[0]) - 1), max(len(row[-1]) for row in rows)
    widths = _widths(rows)
    if INDENT + sum(widths) + gaps + last > width:
        rows = [[_bare(cell) for cell in row] for row in table.rows]
        widths = _widths(rows)
    room = max(INDENT, min(widths[0], width - INDENT - gaps - sum(widths[1:]) - last))
    widths[0] = room
    for place, (says, *others) in enumerate(rows):
        first, *rest = textwrap.wrap(says, room) or [""]
        cells = [first, *others]
        padded = [
            f"{cell:>{wide}}" if n in table.right else f"{cell:<{wide}}"
            for n, (cell, wide) in enumerate(zip(cells, widths, strict=False))
        ]
        line = "  ".join([*padded, cells[-1]])
        yield from _in_margin(label if not place else "", line, width, INDENT + 2)
        yield from _toned([" " * (INDENT + 2) + line for line in rest])


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of all columns but the last, behind which nothing stands."""
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]


def _bare(cell: Words) -> str:
    """A cell without the name behind its value: "< 40" of "< 40 (max_num_seqs)"."""
    pieces = spans(cell)
    is_value = len(pieces) == 1 and pieces[0].kind is Kind.CODE
    return plain(cell).partition(" (")[0] if is_value else plain(cell)


def _paragraph(label: str, text: Words, width: int) -> Iterator[Line]:
    yield from _in_margin(label, plain(text), width, INDENT, _tone(text))


def _in_margin(label: str, text: str, width: int, hang: int, tone: str = PLAIN) -> Iterator[Line]:
    """A paragraph, its label in the margin."""
    head = f"  {label}" if label else ""
    lines = _wrapped(f"{head:<{INDENT}}{text}", width, hang)
    if label:
        yield (Piece(lines[0][:INDENT], LABEL), Piece(lines[0][INDENT:], tone))
        lines = lines[1:]
    yield from _toned(lines, tone)


def _parts(item: Words, width: int) -> list[Words]:
    """The sentence; where it does not fit, in parts between its breaks."""
    pieces = spans(item)
    if len(plain(pieces)) + 2 <= width or not any(span.kind is Kind.BREAK for span in pieces):
        return [item]
    parts: list[tuple[Span, ...]] = [()]
    for span in pieces:
        if span.kind is Kind.BREAK:
            parts.append(())
        else:
            parts[-1] += (span,)
    return list(parts)


def _tone(words: Words) -> str:
    return SOFT if any(span.kind is Kind.SOFT for span in spans(words)) else PLAIN


def _toned(lines: Sequence[str], tone: str = PLAIN) -> Iterator[Line]:
    return ((Piece(line, tone),) for line in lines)


def _wrapped(text: str, width: int, hang: int) -> list[str]:
    wrapped = textwrap.wrap(text, width, subsequent_indent=" " * hang, break_on_hyphens=False)
    return wrapped or [""]
