"""A page: a tuple of blocks, which each painter (text, markdown, HTML, the terminal) shows in its own way.

Blocks hold sentences and figures, no layout: no width, no escape, no markup. What is said is decided where a page is
made (report_page), how it looks where it is painted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_doctor.model.profile import Flame


class Kind(StrEnum):
    """What a piece of a sentence is."""

    PLAIN = "plain"
    CODE = "code"  # a flag, a path, a value: as it is typed
    RULE = "rule"  # the id of a rule, beside a title
    BAR = "bar"  # drawn in characters: it is not folded
    SOFT = "soft"  # of less weight than the rest
    BREAK = "break"  # where the line may end if it does not fit as a whole; else it is shown


@dataclass(frozen=True)
class Span:
    text: str
    kind: Kind = Kind.PLAIN


Words = str | tuple[str | Span, ...]
"""A sentence: plain, or of pieces."""


def code(text: str) -> Span:
    return Span(text, Kind.CODE)


def rule(id: str) -> Span:
    return Span(id, Kind.RULE)


def soft(text: str) -> Words:
    return (Span(text, Kind.SOFT),)


def spans(words: Words) -> tuple[Span, ...]:
    """The pieces of a sentence, each with its kind."""
    pieces = (words,) if isinstance(words, str) else words
    return tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces)


def plain(words: Words) -> str:
    """A sentence as characters: a rule in brackets, the rest as it stands."""
    return "".join(f"[{span.text}]" if span.kind is Kind.RULE else span.text for span in spans(words))


def joined(parts: Sequence[Words], between: str = " · ") -> tuple[Span, ...]:
    """The parts as one sentence."""
    return tuple(span for part in parts for span in (Span(between), *spans(part)))[1:]


def listed(texts: Sequence[str]) -> tuple[Span, ...]:
    """ "a, b, c", each as code."""
    return joined([(code(text),) for text in texts], ", ")


@dataclass(frozen=True)
class Head:
    """The verdict. `gist`: the finding's own sentence and its cure, for a reader who stops here."""

    state: str
    title: str
    rule: str = ""
    gist: tuple[Words, ...] = ()


@dataclass(frozen=True)
class Heading:
    """The title of what follows; a `signpost` is wanted only where one scrolls."""

    title: str
    signpost: bool = True


@dataclass(frozen=True)
class Lines:
    """Sentences of equal rank. `close`: they belong to the block above; `hang`: how far a folded one is set in."""

    items: tuple[Words, ...]
    close: bool = False
    hang: int = 2


@dataclass(frozen=True)
class Command:
    """A command line, and the pieces of it that a shell expands (words.quoted)."""

    words: tuple[str, ...]
    variables: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Figures:
    """Names and values, of which each is read alone."""

    title: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells. `right`: the columns that are aligned right; `notes` stand under it."""

    head: tuple[str, ...]
    rows: tuple[tuple[Words, ...], ...]
    right: frozenset[int] = frozenset()
    notes: tuple[Words, ...] = ()


@dataclass(frozen=True)
class Numbered:
    """The findings in their order: the rule, and for how long it held."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Curve:
    """A value over time, from 0 to `top`; None is a gap. `ends` name the first and the last time."""

    name: str
    extent: str
    points: tuple[tuple[float, float | None], ...]
    first: float
    last: float
    top: float
    ends: tuple[str, str]
    deaths: tuple[float, ...] = ()


@dataclass(frozen=True)
class Held:
    """When a rule held, and for how long in all."""

    rule: str
    state: str
    spans: tuple[tuple[float, float], ...]
    lasted: str


@dataclass(frozen=True)
class Plots:
    """What went on over time: `drawn` in characters, and as curves; and when rules held, from `first` to `last`."""

    drawn: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    held: tuple[Held, ...] = ()
    more_held: int = 0
    first: float = 0.0
    last: float = 0.0
    between: str = ""


@dataclass(frozen=True)
class Diff:
    """Lines that go (-) and come (+)."""

    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Shell:
    """Commands to run, and by whom, where that is not the reader."""

    commands: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Explains:
    """The symptoms that follow from a finding."""

    symptoms: tuple[Words, ...]


@dataclass(frozen=True)
class Labelled:
    """A paragraph with a label in the margin, and what belongs to it below."""

    label: str
    text: Words = ""
    body: tuple[Table | Diff | Shell | Command | Lines, ...] = ()


@dataclass(frozen=True)
class Card:
    """A finding. `repeats`: its title is the page's headline."""

    state: str
    title: str
    rule: str
    blocks: tuple[Labelled | Explains, ...]
    repeats: bool = False


@dataclass(frozen=True)
class Note:
    """A finding that is only worth knowing, and what may be done."""

    label: str
    state: str
    title: str
    rule: str
    text: Words = ""
    advice: Words = ""
    repeats: bool = False


@dataclass(frozen=True)
class Fold:
    """What only some readers open: `summary` says how much it is."""

    title: str
    items: tuple[Words, ...]
    summary: str = ""


@dataclass(frozen=True)
class FlameGraph:
    """The stacks of a process, which characters cannot draw. `parts`: the words of each part, by its id."""

    title: str
    flame: Flame
    parts: Mapping[str, str]
    is_open: bool
    """Whether it is shown at once, or when asked for."""
    note: str = ""


@dataclass(frozen=True)
class Footer:
    parts: tuple[Words, ...]


Block = (
    Head | Heading | Lines | Command | Figures | Table | Numbered | Plots | Diff | Shell | Explains | Labelled | Card
    | Note | Fold | FlameGraph | Footer
)  # fmt: skip
Page = tuple[Block, ...]
