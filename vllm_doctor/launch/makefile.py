"""The recipes of a Makefile, with make's own variables put in: `:=`, `?=`, `$(NAME)`, `$$`. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from vllm_doctor.launch import budget, region
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.start import Form, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.text.secret_names import is_secret

_RULE = re.compile(r"^[^\s#:=][^:=\n]{0,300}:(?!=)[^\n]*\n(?:[ \t]*\n|#[^\n]*\n){0,20}\t[^\n]*\S", re.MULTILINE)
_DEFINITION = re.compile(
    r"(?:(?:export|override|private)[ \t]+){0,3}(?P<name>[\w.-]{1,100})[ \t]*"
    r"(?P<sign>:{0,3}=|\?=|\+=)[ \t]*(?P<value>.*)",
    re.DOTALL,
)
_COMMENT = re.compile(r"(?<!\\)#.*", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\$|(?P<sign>[@<^*?%+])|[({](?P<name>[\w.-]{1,100})[)}]|(?P<letter>[A-Za-z]))")
_PREFIX = re.compile(r"\t[ \t@+-]*")
_STRIPPED = re.compile(r"\$\(strip[ \t]+(\$[({][\w.-]{1,100}[)}])\)")
_OPENS, _CLOSES = ("ifeq", "ifneq", "ifdef", "ifndef"), "endif"
_MOST_NESTED = 8
_MOST_OF_A_VALUE = 20_000


def is_it(text: str) -> bool:
    return _RULE.search(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers that its recipes start; it begins in this line."""
    make = _Make(text)
    script = "\n".join(make.recipes())
    found = []
    for number, written in enumerate(of_script(script, line)):
        defaults = sorted(make.defaults_of(written.words[0].line - line))
        names = ", ".join(defaults)
        told = (f"read with the defaults of {names}, which may be set to others where make runs",) if defaults else ()
        here = Form.MAKEFILE if written.form is Form.SHELL else written.form
        holder = replace(_region(text, written.words[0].line - line + 1), number=number)
        found.append(replace(written, form=here, holder=holder, notes=(*written.notes, *told)))
    return found


def _region(text: str, number: int) -> Region:
    """Where the recipe's line has its words, make's own references among them."""
    place = region.behind(text, region.continued(text, number), _PREFIX)
    return Region(text, *place, Wording.SCRIPT, starts, quote=lambda word: shlex.quote(word).replace("$", "$$"))


class _Make:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._values: dict[str, str | None] = {}
        self._defaults: set[str] = set()
        self._taken: dict[int, frozenset[str]] = {}
        self._read()

    def defaults_of(self, number: int) -> frozenset[str]:
        """The variables set with ?= that the command of this line has, and the lines that it goes on in."""
        found: set[str] = set()
        for place in range(number, len(self._lines)):
            found |= self._taken.get(place, frozenset())
            if not self._lines[place].endswith("\\"):
                break
        return frozenset(found)

    def recipes(self) -> Iterator[str]:
        """Each line as the shell gets it; an empty one where it is of make itself."""
        goes_on = False
        for place, line in enumerate(self._lines):
            if line.startswith("\t") or goes_on:
                budget.spend()
                shown = line if goes_on else line.lstrip("\t @+-")
                used: set[str] = set()
                yield self._expanded(_STRIPPED.sub(r"\1", shown), used, 0)
                self._taken[place] = frozenset(used & self._defaults)
                goes_on = line.endswith("\\")
            else:
                yield ""

    def _read(self) -> None:
        depth, at = 0, 0
        while at < len(self._lines):
            line = self._lines[at]
            at += 1
            if line.startswith("\t"):
                continue
            first = line.split(maxsplit=1)[0] if line.strip() else ""
            depth += (first in _OPENS) - (first == _CLOSES)
            match = _DEFINITION.fullmatch(line)
            if match is None:
                continue
            value = match["value"]
            while value.endswith("\\") and at < len(self._lines):
                value = value[:-1].rstrip() + " " + self._lines[at].strip()
                at += 1
            self._define(match["name"], match["sign"], _COMMENT.sub("", value).strip(), depth > 0)

    def _define(self, name: str, sign: str, value: str, is_conditional: bool) -> None:
        before = self._values.get(name)
        if is_conditional:
            self._values[name] = None
        elif sign == "+=":
            self._values[name] = f"{before} {value}".strip() if name not in self._values or before is not None else None
            if before is None and name not in self._defaults:
                self._values[name] = value
        elif sign == "?=":
            self._values.setdefault(name, value)
            self._defaults.add(name)
        else:
            self._values[name] = value
            self._defaults.discard(name)

    def _expanded(self, text: str, used: set[str], depth: int) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            name = match["name"] or match["letter"]
            found = self._values.get(name) if name else None
            budget.spend()
            if found is None or depth > _MOST_NESTED or is_secret(name):
                return mark(match[0])
            used.add(name)
            budget.spend_on(found)
            return self._expanded(found, used, depth + 1)[:_MOST_OF_A_VALUE]

        return _REFERENCE.sub(value, text)
