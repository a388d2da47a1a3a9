"""Programs of supervisord: `command=` of each `[program:…]`, with its `environment=`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, region, shell
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.launch.start import Fault, Form, Word, Written
from vllm_doctor.launch.unexpanded import is_marked, mark
from vllm_doctor.launch.unwrap import SAYS, of_words

_PROGRAM = re.compile(r"^\[(?:program|fcgi-program):(?P<name>[^\]\n]{1,200})\]", re.MULTILINE)
_SECTION = re.compile(r"\[([^\]\n]{1,200})\]")
_EXPANSION = re.compile(r"%%|%\([\w:]{1,80}\)[a-z0-9]")
_COMMAND = re.compile(r"[ \t]{0,16}command[ \t]{0,16}=[ \t]{0,16}")
_COMMENT = re.compile(r"[ \t];.*")
_STEPS_OF_A_LINE = 2


@dataclass(frozen=True)
class _Option:
    line: int
    values: list[str] = field(default_factory=list)


def is_it(text: str) -> bool:
    return _PROGRAM.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers that its programs start; the text begins in this line."""
    found = []
    for name, options in _programs(text, line):
        command = options.get("command")
        if command is None:
            continue
        environment = _environment(options)
        words: list[Word] = []
        faults: list[Fault] = []
        for number, value in enumerate(command.values, command.line):
            parted, broken = shell.words(_expanded(value.removesuffix("\\")), number)
            words += parted
            faults += [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
        if faults:  # a quote that is closed in another line
            words, broken = shell.words(_expanded("\n".join(command.values)), command.line)
            faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
        for launch in of_words(words, Form.SUPERVISOR, environment):
            own = {} if launch.image is not None else environment
            written = Written.of(
                launch,
                place=f"program:{name}, line {command.line}",
                environment={**own, **launch.environment},
                faults=(*faults, *launch.faults),
            )
            found.append((written, command.line))
    return [
        replace(written, holder=replace(_region(text, at - line + 1), number=number))
        for number, (written, at) in enumerate(found)
    ]


def _region(text: str, number: int) -> Region:
    """Where command= of this line has its words: its value goes on in lines that begin with a blank."""
    place = region.continued(text, number, lambda _, after: after[:1] in (" ", "\t") and bool(after.strip()))
    return Region(text, *region.behind(text, place, _COMMAND), Wording.WORDS, starts, quote=_quoted)


def _quoted(text: str) -> str:
    """A word as supervisord reads it back: `%` is a sign of its own, and a `;` behind a blank begins a comment."""
    if ";" in text:
        raise UnwritableError("supervisord takes what stands behind a semicolon for a comment")
    return shlex.quote(text.replace("%", "%%"))


def _programs(text: str, first: int) -> Iterator[tuple[str, Mapping[str, _Option]]]:
    name, options, last = "", dict[str, _Option](), ""
    for number, line in enumerate(text.split("\n"), first):
        budget.spend(_STEPS_OF_A_LINE)
        section = _SECTION.match(line)
        if section:
            if name:
                yield name, options
            kind, _, named = section[1].partition(":")
            name, options, last = (named if kind in ("program", "fcgi-program") else ""), {}, ""
        elif not line.strip() or line.lstrip()[0] in "#;":
            continue
        elif line[0] in " \t" and last:
            options[last].values.append(_COMMENT.sub("", line).strip())
        else:
            key, equals, value = line.partition("=")
            last = key.strip() if equals else ""
            if last:
                options[last] = _Option(number, [_COMMENT.sub("", value).strip()])
    if name:
        yield name, options


def _environment(options: Mapping[str, _Option]) -> dict[str, str | None]:
    """KEY="value",KEY2=value2."""
    given = options.get("environment")
    if given is None:
        return {}
    words, _ = shell.words(_expanded(_parted(" ".join(given.values))))
    pairs = [word.text.partition("=") for word in words]
    return {name: None if is_marked(value) else value for name, equals, value in pairs if equals}


def _parted(text: str) -> str:
    """With blanks for the commas outside quotes."""
    quote, signs = "", []
    for sign in text:
        if sign == quote:
            quote = ""
        elif not quote and sign in "'\"":
            quote = sign
        signs.append(" " if sign == "," and not quote else sign)
    return "".join(signs)


def _expanded(text: str) -> str:
    """With `%(ENV_X)s` marked: what supervisord itself puts in."""
    return _EXPANSION.sub(lambda match: "%" if match[0] == "%%" else mark(match[0]), text)
