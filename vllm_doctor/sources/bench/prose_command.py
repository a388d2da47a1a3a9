"""The server's command within what people write: in a sentence, behind a prompt, or as Python's `LLM(model=…)`. Pure.

Nothing is run or expanded. What follows the command's last flag and its value is taken for the sentence that goes on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vllm_doctor.launch import pasted, python_calls, source
from vllm_doctor.launch.start import Start, judged
from vllm_doctor.model.errors import SourceError

_MOST_CHARS = 100_000
_MOST_COMMANDS = 16
_LONGEST = 6_000
_JOINED = re.compile(r"\\[ \t]*\n[ \t]{0,40}(?:>[ \t]{0,4})?")
_PROGRAM = re.compile(
    r"(?<![\w./-])(?:(?:[A-Z][A-Z0-9_]{2,60}=[\w./:,-]{1,100} +){0,10})"
    r"(?:vllm +serve|python3?(?:\.\d{1,2})? +-m +vllm\.entrypoints\.(?:openai\.)?api_server)(?= )"
)
_ENDS = re.compile(r"[\n`|;&]|(?<!\S)\d?>")
_FLAG = re.compile(r"-{1,2}[A-Za-z][\w.-]*(?:=.*)?")
_MODEL = re.compile(r"(?=[^\d/]{0,200}[\d/])[\w./~:-]{2,200}")
"""A word of a sentence has neither a slash nor a digit."""


def start(text: str) -> Start | None:
    """The one server that is started in the text; None: there is none, or several."""
    found = starts(text)
    return found[0] if len(found) == 1 else None


def starts(text: str) -> list[Start]:
    """The different servers that are started in the text: those of its sentences, else of the text as a whole."""
    quoted = text[:_MOST_CHARS]
    text = pasted.joined(quoted)
    found: Sequence[Start] = [
        *(one for line in dict.fromkeys(_lines(text)) for one in _read(line)),
        *_calls(text),
    ] or _read(text)
    different = list({one.argv: one for one in found if one.command.model or one.command.flags}.values())
    if text == quoted:
        return different
    return [replace(one, notes=tuple(dict.fromkeys((*one.notes, pasted.NOTE)))) for one in different]


def _read(line: str) -> tuple[Start, ...]:
    try:
        return source.within(line)
    except SourceError:
        return ()


def _calls(text: str) -> Iterator[Start]:
    """What Python's `LLM(…)` starts, where its model is told."""
    try:
        found = [judged(one) for one in python_calls.in_text(text)[:_MOST_COMMANDS]]
    except SourceError:
        return
    yield from (one for one in found if one.command.model is not None)


def _lines(text: str) -> Iterator[str]:
    """Commands of a shell, without what stands before and after them."""
    joined = _JOINED.sub(" ", text)
    for count, match in enumerate(_PROGRAM.finditer(joined)):
        if count >= _MOST_COMMANDS:
            return
        rest = joined[match.end() : match.end() + _LONGEST]
        end = _ENDS.search(rest)
        words = _words(rest[: end.start()] if end else rest)
        if kept := list(_of_command(words, "serve" in match[0])):
            yield f"{match[0]} {shlex.join(kept)}"


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is not closed
        return line.split()


def _of_command(words: list[str], takes_model: bool) -> Iterator[str]:
    """The model, flags and their values, up to the first word that is none of them."""
    may_follow = takes_model
    for place, word in enumerate(words):
        if _FLAG.fullmatch(word):
            may_follow = "=" not in word
        elif not may_follow or (place == 0 and _MODEL.fullmatch(word) is None):
            return
        else:
            may_follow = False
        yield word
