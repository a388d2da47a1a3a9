"""A Dockerfile: what a container of its last stage runs, unless it is told otherwise. Nothing is built."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, docker, region, shell
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.start import Form, Word, Written
from vllm_doctor.launch.unexpanded import is_marked, mark
from vllm_doctor.launch.unwrap import of_words
from vllm_doctor.model import outside

_INSTRUCTION = re.compile(r"[ \t]*(?P<name>[A-Za-z]{2,12})[ \t]+(?P<rest>\S.*)", re.DOTALL)
_FIRST = re.compile(r"^[ \t]*(?!#)(?P<line>\S[^\n]*)", re.MULTILINE)
_BEGINS = re.compile(r"(?:FROM|ARG)[ \t]+\S", re.IGNORECASE)
_STARTS = re.compile(r"^(?:CMD|ENTRYPOINT)[ \t]+\S", re.MULTILINE)
_BUILDS = re.compile(r"^(?:FROM|RUN|COPY|ENV|WORKDIR|EXPOSE)[ \t]+\S", re.MULTILINE)
_HEREDOC = re.compile(r"<<-?[ \t]*['\"]?([A-Za-z_]\w{0,60})['\"]?")
_FROM = re.compile(
    r"(?:--\S{1,200}[ \t]+){0,4}(?P<image>\S{1,500})(?:[ \t]+as[ \t]+(?P<stage>\S{1,200}))?[ \t]*", re.IGNORECASE
)
_VARIABLE = re.compile(
    r"\\\$|\$(?:\{(?P<name>[A-Za-z_]\w{0,100})(?::?-(?P<default>[^{}]{0,300}))?\}|(?P<bare>[A-Za-z_]\w{0,100}))"
)
_IN_EXEC = re.compile(r"\$\{?[A-Za-z_]\w{0,100}\}?")
_STARTING = re.compile(r"[ \t]{0,16}(?:CMD|ENTRYPOINT)[ \t]{1,16}", re.IGNORECASE)
_NAMES = ("dockerfile", "containerfile")
_SHELL = ("/bin/sh", "-c")


@dataclass
class Built:
    """What an image of its own says of a container: the image it is built on, what it runs, and its variables.

    `entrypoint` is None where the image below has its own. `notes`: what was not as it seems.
    """

    image: str | None = None
    entrypoint: tuple[Word, ...] | None = None
    command: tuple[Word, ...] = ()
    environment: dict[str, str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    line: int = 1


def is_it(text: str, name: str = "") -> bool:
    """By the name of its file, by its first instruction, or, of a part of one, by instructions that only it has."""
    base = os.path.basename(name).lower()
    if base.startswith(_NAMES) or base.endswith(tuple(f".{word}" for word in _NAMES)):
        return True
    first = _FIRST.search(text)
    if first is not None and _BEGINS.match(first["line"]):
        return True
    starts = _STARTS.search(text)
    builds = _BUILDS.search(text)
    return starts is not None and builds is not None and builds.start() < starts.start()


def starts(text: str, line: int = 1) -> list[Written]:
    """The server that a container of it starts: none, or one; it begins in this line."""
    built = entrypoint(text, line)
    environment = built.environment
    guessed: tuple[str, ...] = ()
    argv = list(built.command)
    if built.entrypoint != ():
        argv, guessed = docker.argv(built.image, built.entrypoint, built.command)
    held = built.command or built.entrypoint  # neither: the image's own start, of which nothing stands in the file
    return [
        Written.of(
            launch,
            form=Form.DOCKERFILE,
            place=f"line {held[0].line if held else built.line}",
            environment={**environment, **launch.environment},
            image=built.image,
            notes=(*launch.notes, *built.notes, *guessed),
            holder=_region(text, held[0].line - line + 1) if held else None,
        )
        for launch in of_words(argv, Form.DOCKERFILE, environment)
    ]


def _region(text: str, number: int) -> Region:
    """Where the instruction of this line has its words."""
    start, end = region.behind(text, region.continued(text, number), _STARTING)
    wording = Wording.LIST if text[start : start + 1] == "[" else Wording.SCRIPT
    quote = region.as_json if wording is Wording.LIST else shlex.quote
    return Region(text, start, end, wording, starts, quote=quote)


def entrypoint(text: str, line: int = 1) -> Built:
    """What its last stage says."""
    stages: dict[str, Built] = {}
    arguments: dict[str, str | None] = {}
    stage = Built(line=line)
    is_global = True
    for number, name, rest in _instructions(text, line):
        known = {**arguments, **stage.environment}
        match name:
            case "FROM":
                found = _FROM.fullmatch(rest)
                image = _expanded(found["image"], arguments) if found else ""
                below = stages.get(image.lower())
                stage = replace(below, environment=dict(below.environment)) if below else Built(image, line=number)
                is_global = False
                if found and found["stage"]:
                    stages[found["stage"].lower()] = stage
            case "ARG":
                for word in shell.words(rest, number)[0]:
                    key, equals, value = word.text.partition("=")
                    if equals or is_global or key not in arguments:
                        arguments[key] = _known(_expanded(value, known)) if equals else None
            case "ENV":
                stage.environment |= _environment(rest, number, known)
            case "ENTRYPOINT":
                stage.entrypoint, stage.notes = _words(rest, number, name)
                if stage.entrypoint[:2] == tuple(Word(text, number) for text in _SHELL):
                    stage.command = ()  # a shell's text takes no arguments
            case "CMD":
                stage.command, stage.notes = _command(stage, *_words(rest, number, name))
    return stage


def _command(stage: Built, words: tuple[Word, ...], notes: tuple[str, ...]) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """What CMD adds to the entrypoint: nothing to one that is a shell's text."""
    is_shell = stage.entrypoint is not None and [word.text for word in stage.entrypoint[:2]] == list(_SHELL)
    return ((), stage.notes) if is_shell and len(stage.entrypoint or ()) > 2 else (words, (*stage.notes, *notes))


def _instructions(text: str, first: int) -> Iterator[tuple[int, str, str]]:
    """Each instruction with its line; a document within one is left out."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        number, line = at + first, lines[at]
        at += 1
        budget.spend()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = []
        while line.rstrip().endswith("\\") and at < len(lines):
            parts.append(line.rstrip()[:-1])
            while at < len(lines) - 1 and (lines[at].lstrip().startswith("#") or not lines[at].strip()):
                at += 1
            line = lines[at]
            at += 1
        parts.append(line)
        match = _INSTRUCTION.fullmatch(" ".join(parts))
        if match is None:
            continue
        name = match["name"].upper()
        if name in ("RUN", "COPY", "ADD"):
            for word in _HEREDOC.findall(match["rest"])[:20]:
                while at < len(lines) and lines[at].strip("\t ") != word:
                    at += 1
                at += 1
            continue
        yield number, name, match["rest"].strip()


def _words(rest: str, line: int, name: str) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """The words of CMD or ENTRYPOINT: a JSON list, or one text for a shell."""
    if rest.startswith("["):
        try:
            items = outside.json(rest)
        except ValueError:
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            texts = [str(item) for item in items]
            return _of_list(texts, line, name)
    return tuple(Word(text, line) for text in (*_SHELL, rest)), ()


def _of_list(texts: list[str], line: int, name: str) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """Words that no shell expands, but that of a script among them."""
    is_shell = len(texts) > 1 and re.fullmatch(r"-[a-z]*c", texts[1]) is not None
    if is_shell or not any(_IN_EXEC.search(text) for text in texts):
        return tuple(Word(text, line) for text in texts), ()
    first = next(match[0] for text in texts if (match := _IN_EXEC.search(text)))
    says = f"line {line}: no shell runs {name} where it is a list, so {first} stays as it is written"
    marked = [_IN_EXEC.sub(lambda match: mark(match[0]), text) for text in texts]
    return tuple(Word(text, line) for text in marked), (says,)


def _environment(rest: str, line: int, known: Mapping[str, str | None]) -> dict[str, str | None]:
    """`ENV a=b c=d`, and the old `ENV a b`."""
    first = rest.split(maxsplit=1)
    if "=" not in first[0]:
        return {first[0]: _known(_expanded(first[1], known))} if len(first) > 1 else {}
    found = {}
    for word in shell.words(rest, line)[0]:
        name, equals, value = word.text.partition("=")
        if equals:
            found[name] = _known(_expanded(value, known))
    return found


def _known(value: str) -> str | None:
    return None if is_marked(value) else value


def _expanded(text: str, known: Mapping[str, str | None]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name = match["name"] or match["bare"]
        found = known.get(name)
        found = match["default"] if found is None and name not in known else found
        budget.spend()
        budget.spend_on(found or "")
        return mark(match[0]) if found is None else found

    return _VARIABLE.sub(value, text)
