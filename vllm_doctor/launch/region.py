"""A command within a file of another language: where it stands there, and the file with another in its place.

How its words are written is that of a shell, or of a list of quoted texts; what else the file has is left as it is.
Whether the file then says what was wanted is for the reader of its form: `again`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from vllm_doctor.launch import docker, rewrite, shell, unwrap
from vllm_doctor.launch.rewrite import Quote, UnwritableError, Wanted
from vllm_doctor.launch.start import Form, Holder, Launch, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.model import outside

_ITEM = re.compile(r'"(?:[^"\\\n]|\\.){0,5000}"|[A-Za-z_][\w.\[\]]{0,500}')
"""A text, or what another program puts in: Terraform's `var.model`."""
_BLANK = re.compile(r"[\s\\]*+")


class Wording(Enum):
    """How a region's words are written."""

    SCRIPT = auto()
    """As a shell's script, which may have more than the command."""
    WORDS = auto()
    """As a shell's words, but no shell reads them."""
    LIST = auto()
    """As texts in double quotes, with commas between."""


@dataclass(frozen=True)
class Region(Holder):
    """The signs from `start` to before `end` of the text. `number`: which of the starts that `again` reads in it."""

    text: str = field(repr=False)
    start: int
    end: int
    wording: Wording
    again: Callable[[str], Sequence[Written]] = field(compare=False, repr=False)
    number: int = 0
    quote: Quote = field(default=shlex.quote, compare=False, repr=False)

    @property
    def launch(self) -> Launch:
        """The command, with its words' places in the whole text. Raises UnwritableError."""
        held = self.text[self.start : self.end]
        if self.wording is Wording.LIST:
            return _alone(_items(self.text, self.start, self.end))
        if self.wording is Wording.WORDS:
            return _shifted(_alone(shell.words(held)[0]), self.start)
        launches = unwrap.of_script(held)
        if len(launches) != 1:
            raise UnwritableError("its line does not start one server by itself")
        return _shifted(launches[0], self.start)

    def edited(self, wanted: Wanted) -> str:
        """The whole text with the command changed. Raises UnwritableError."""
        launch = self.launch
        if wanted.environment and self.wording is not Wording.SCRIPT and launch.image_at is None and not launch.inside:
            raise UnwritableError("its variables are set in another place")
        if self.wording is not Wording.LIST:
            return rewrite.in_text(self.text, launch, wanted, self.quote)
        if not launch.inside:
            return _in_list(self.text, rewrite.splices(launch, wanted), launch.words, self.quote)
        script = launch.inside[0]
        changed = rewrite.in_text(script.text, replace(launch, inside=launch.inside[1:]), wanted)
        return self.text[: script.start] + self.quote(changed) + self.text[script.end :]


def continued(text: str, line: int, goes_on: Callable[[str, str], bool] | None = None) -> tuple[int, int]:
    """Where the command of this line (the first is 1) begins, and where it ends: it goes on behind a backslash, or as
    `goes_on` tells of a line and the one after it."""
    lines = text.split("\n")
    follows = goes_on or (lambda here, _: here.rstrip().endswith("\\"))
    first = last = line - 1
    while first > 0 and follows(lines[first - 1], lines[first]):
        first -= 1
    while last + 1 < len(lines) and follows(lines[last], lines[last + 1]):
        last += 1
    start = sum(len(one) + 1 for one in lines[:first])
    return start, start + len("\n".join(lines[first : last + 1]))


def behind(text: str, place: tuple[int, int], before: re.Pattern[str]) -> tuple[int, int]:
    """The place without what stands before the command in its line."""
    match = before.match(text, *place)
    return (match.end() if match else place[0], place[1])


def as_json(text: str) -> str:
    """A word of a list as JSON has it."""
    return json.dumps(text, ensure_ascii=False)


def _alone(words: Sequence[Word]) -> Launch:
    """The server that the words start; else they are what an image's own entrypoint is given."""
    launches = unwrap.of_words(words, Form.SHELL, {})
    if len(launches) > 1:
        raise UnwritableError("its words do not start one server by themselves")
    if launches:
        return launches[0]
    if not words or not words[0].text.startswith("-"):
        raise UnwritableError("what it starts is defined in another place")
    return Launch([*(Word(text, words[0].line) for text in (*docker.SERVE, "m")), *words], Form.SHELL)


def _shifted(launch: Launch, by: int) -> Launch:
    def moved(word: Word) -> Word:
        return word if word.start < 0 else replace(word, start=word.start + by, end=word.end + by)

    inside = tuple(moved(word) if place == 0 else word for place, word in enumerate(launch.inside))
    if launch.inside:  # its words stand in the script's own text
        return replace(launch, inside=inside)
    return replace(
        launch,
        words=[moved(word) for word in launch.words],
        image_at=launch.image_at and moved(launch.image_at),
        assignments={name: moved(word) for name, word in launch.assignments.items()},
    )


def _items(text: str, start: int, end: int) -> list[Word]:
    """The items of a list. Raises UnwritableError where it holds anything else."""
    words: list[Word] = []
    at = _behind_blanks(text, start + 1)
    is_parted = True
    while is_parted and (match := _ITEM.match(text, at, end)) is not None:
        words.append(Word(_plain(match[0]), 1 + text.count("\n", 0, at), False, at, match.end()))
        at = _behind_blanks(text, match.end())
        is_parted = text[at : at + 1] == ","
        at = _behind_blanks(text, at + 1) if is_parted else at
    if text[at : at + 1] != "]":
        raise UnwritableError("its list holds more than texts")
    return words


def _behind_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _plain(item: str) -> str:
    if not item.startswith('"'):
        return mark(item)
    try:
        return str(outside.json(item))
    except ValueError:
        raise UnwritableError("a text of its list is no JSON") from None


def _in_list(text: str, splices: Sequence[rewrite.Splice], words: Sequence[Word], quote: Quote) -> str:
    """With words changed, added behind the last, or taken away with the comma before them."""
    own = [word for word in words if word.start >= 0]
    places: list[tuple[int, int, str]] = []
    added = [quote(word) for splice in splices if splice.is_new for word in splice.words]
    if added:
        places.append((own[-1].end, own[-1].end, _separator(text, own) + ", ".join(added)))
    for splice in splices:
        if splice.is_new:
            continue
        if splice.words:
            places.append((splice.start, splice.end, ", ".join(map(quote, splice.words))))
            continue
        place = next(n for n, word in enumerate(own) if word.start == splice.start)
        if place:
            places.append((own[place - 1].end, splice.end, ""))
        else:
            after = next((word.start for word in own if word.start >= splice.end), splice.end)
            places.append((splice.start, after, ""))
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _separator(text: str, own: Sequence[Word]) -> str:
    """What stands before the last flag of the list: a line of its own, or a space."""
    last = next((place for place in range(len(own) - 1, 0, -1) if own[place].text.startswith("-")), 0)
    before = text[own[last - 1].end : own[last].start] if last else ""
    return before if "\n" in before else ", "
