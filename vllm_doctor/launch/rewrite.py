"""A written command with other flags, in the text it stands in: what is not about them stays, sign by sign."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_doctor.launch import shell
from vllm_doctor.launch.start import Launch, Word
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change
from vllm_doctor.text import words as wording
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm import command_line
from vllm_doctor.vllm.command_line import masked
from vllm_doctor.vllm.environment import is_shown

Quote = Callable[[str], str]

SECRET = "the text to change may hold a secret, which is not printed: change it by hand"

_BLANKS = re.compile(r"[ \t]+(?=[^\s\\#])")
_GAP = re.compile(r"(?:\\\n|\s)*")
_SET = re.compile(r"(?<![\w-])(?:-e)?([A-Za-z_]\w*)\+?=([^\s;&|]+)")
_MOST_SETTINGS = 200
_HARMLESS = re.compile(r"\w{0,3}|\d{1,5}")


Place = tuple[int, int, str]
"""Signs from, to before, and what stands there then."""


class UnwritableError(Exception):
    """Why the command cannot be changed where it stands."""


@dataclass(frozen=True)
class Wanted:
    """What a command is to be given: flags with the words that set them, flags to leave out, variables."""

    set: Mapping[str, tuple[str, ...]]
    unset: frozenset[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Splice:
    """The signs (of a text) or the items (of a list) from `start` to before `end` become these words.

    `beside`: a word of the same text. `is_new`: nothing stood there.
    """

    start: int
    end: int
    words: tuple[str, ...]
    beside: Word
    is_new: bool = False


def wanted(changes: Sequence[Change]) -> Wanted:
    flags = {change.name: change.now for change in changes if change.name.startswith("-")}
    variables = {change.name: change.now for change in changes if not change.name.startswith("-")}
    return Wanted(
        {name: wording.setting(name, value) for name, value in flags.items() if value is not None},
        frozenset(name for name, value in flags.items() if value is None),
        {name: str(wording.plain(value)) for name, value in variables.items() if value is not None},
    )


def splices(launch: Launch, wanted: Wanted) -> list[Splice]:
    """Where its own words change, in their innermost text. Raises UnwritableError."""
    found: list[Splice] = []
    edits = command_line.edits([word.text for word in launch.words], wanted.set, wanted.unset)
    lost = wanted.unset - {edit.name for edit in edits}
    appended = {
        edit.name
        for edit in edits
        if edit.name in wanted.set and any(word.start < 0 for word in launch.words[edit.start : edit.end])
    }  # what a variable holds cannot be changed there; what stands after it counts
    for edit in edits:
        here = launch.words[edit.start : edit.end]
        if not here:
            appended.add(edit.name)
        elif any(word.start < 0 for word in here):
            lost |= {edit.name} - wanted.set.keys()
        else:
            words = () if edit.name in appended else edit.words
            found.append(Splice(here[0].start, here[-1].end, words, here[0]))
    if lost:
        raise UnwritableError(f"{', '.join(sorted(lost))} cannot be left out: it comes from a variable")
    last = launch.words[-1]
    found += [Splice(last.end, last.end, wanted.set[name], last, True) for name in wanted.set if name in appended]
    return found


def in_text(text: str, launch: Launch, wanted: Wanted, quote: Quote = shlex.quote) -> str:
    """The text (of a shell, or parted as by one) with the command in it changed, and its variables set before it.

    `quote`: how a word is quoted in it; within a script that is a word of it, a shell's. Raises UnwritableError.
    """
    texts = [text, *(word.text for word in launch.inside)]
    for outer, word in zip(texts, launch.inside, strict=False):
        if [part.text for part in shell.words(outer[word.start : word.end])[0]] != [word.text]:
            raise UnwritableError("what the inner command holds depends on variables of the outer one")
    innermost = shlex.quote if launch.inside else quote
    found = splices(launch, wanted)
    new = spliced(texts[-1], launch.words, found, innermost, _of_variables(launch, wanted.environment, innermost))
    for depth in range(len(launch.inside) - 1, -1, -1):
        outer, word = texts[depth], launch.inside[depth]
        quoted = (shlex.quote if depth else quote)(new)
        new = outer[: word.start] + quoted + outer[word.end :]
    return new


def spliced(text: str, words: Sequence[Word], found: Sequence[Splice], quote: Quote, more: Sequence[Place] = ()) -> str:
    """The text in which these words stand, with the splices and the other places. Raises UnwritableError."""
    own = sorted((word for word in words if word.start >= 0), key=lambda word: word.start)
    if any(after.start < before.end for before, after in pairwise(own)):
        raise UnwritableError("its words stand within each other")
    places = list(more)
    added: dict[int, str] = {}
    for splice in found:
        joined = " ".join(map(quote, splice.words))
        if splice.is_new:
            added[splice.end] = added.get(splice.end, "") + _separator(text, words) + joined
            continue
        here = [word for word in own if splice.start <= word.start < splice.end]
        if not all(_GAP.fullmatch(text, a.end, b.start) for a, b in pairwise(here)):
            raise UnwritableError("a flag and its value do not stand together")
        places.append((*((splice.start, splice.end) if splice.words else _left_out(text, splice)), joined))
    places += [(at, at, joined) for at, joined in added.items()]
    for start, end, joined in sorted(places, key=lambda place: place[:2], reverse=True):
        text = text[:start] + joined + text[end:]
    return text


def _left_out(text: str, splice: Splice) -> tuple[int, int]:
    """What goes with words that go: the blanks before them, or, where they begin a line with others, those after."""
    before, after = _before(text, splice.start), _BLANKS.match(text, splice.end)
    start = splice.start - len(before)
    if (after and "\n" in before) or not start:
        return splice.start, after.end() if after else splice.end
    return start, splice.end


def _before(text: str, at: int) -> str:
    """The blanks and continued lines that end there."""
    start = at
    while start and (text[start - 1].isspace() or (text[start - 1] == "\\" and text[start : start + 1] == "\n")):
        start -= 1
    return text[start:at]


def _separator(text: str, words: Sequence[Word]) -> str:
    """What stands before the last flag: a line of its own, or a space."""
    last = next((at for at in range(len(words) - 1, 0, -1) if words[at].text.startswith("-")), 0)
    tail = words[last:]
    if not last or any(word.start < 0 for word in tail):
        return " "
    if not all(_GAP.fullmatch(text, a.end, b.start) for a, b in pairwise(tail)):
        return " "
    before = _before(text, tail[0].start)
    return before if "\n" in before else " "


def _of_variables(launch: Launch, environment: Mapping[str, str], quote: Quote) -> list[Place]:
    """The places where the variables are set, in the innermost text."""
    known = {name: launch.assignments[name] for name in environment if has(launch, name)}
    places = [(word.start, word.end, f"{name}={quote(environment[name])}") for name, word in known.items()]
    settings = [f"{name}={quote(value)} " for name, value in environment.items() if name not in known]
    at = launch.image_at or launch.words[0]
    if settings and at.start < 0:
        raise UnwritableError("no variable can be set in it")
    if launch.image_at is not None:
        settings = [f"-e {setting}" for setting in settings]
    elif launch.is_wrapped and settings:
        settings.insert(0, "env ")
    return [*places, (at.start, at.start, "".join(settings))] if settings else places


def has(launch: Launch, name: str) -> bool:
    """Whether the variable is set in the words around it."""
    return name in launch.assignments and launch.assignments[name].start >= 0


def hides(launch: Launch) -> list[int]:
    """Which of its words hold what may be a secret, by their places."""
    texts = [word.text for word in launch.words]
    told = command_line.parse(texts, lambda path: Reason.NOT_IN_COMMAND).argv
    return [place for place, (text, tells) in enumerate(zip(texts, told, strict=True)) if text != tells]


def may_tell(text: str, launch: Launch) -> bool:
    """Whether the text may hold a secret, in the command or around it."""
    return bool(hides(launch)) or any(tells(rest, launch) for rest in _around(text, launch))


def tells(rest: str, launch: Launch) -> bool:
    """Whether what stands around a command may hold a secret; what the command itself has of it is none."""
    command = " ".join(word.text for word in launch.words)
    if masked(rest) != rest:
        return True
    for count, match in enumerate(_SET.finditer(rest)):
        value = match[2].strip("'\"")
        is_used = not is_secret(match[1]) and value in command
        if not (is_shown(match[1]) or is_used or value.startswith("$") or _HARMLESS.fullmatch(value)):
            return True
        if count > _MOST_SETTINGS:
            return True
    return False


def _around(text: str, launch: Launch) -> list[str]:
    """The texts without the words of the command."""
    texts = [text, *(word.text for word in launch.inside)]
    found = [outer[: word.start] + " " + outer[word.end :] for outer, word in zip(texts, launch.inside, strict=False)]
    innermost = texts[-1]
    for word in sorted(launch.words, key=lambda word: word.start, reverse=True):
        if word.start >= 0:
            innermost = innermost[: word.start] + " " + innermost[word.end :]
    return [*found, innermost]
