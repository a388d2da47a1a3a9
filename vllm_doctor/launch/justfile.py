"""The recipes of a justfile, with its variables and the defaults of a recipe's parameters put in. Nothing is run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, region
from vllm_doctor.launch.region import Region, Wording
from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.launch.start import Form, Written
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.text.secret_names import is_secret

_VARIABLE = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][\w-]{0,80})[ \t]*:=[ \t]*(?P<value>[^\n]*)")
_RECIPE = re.compile(r"@?(?P<name>[A-Za-z_][\w-]{0,80})(?P<parameters>(?:[ \t][^\n:]*+)?):(?!=)[^\n]*")
_PARAMETER = re.compile(
    r"[+*$]{0,2}(?P<name>[A-Za-z_][\w-]{0,80})(?:=(?P<value>\"[^\"\n]{0,300}\"|'[^'\n]{0,300}'|\S{1,300}))?"
)
_TEXT = re.compile(r"\"(?P<double>[^\"\\\n]{0,2000})\"|'(?P<single>[^'\n]{0,2000})'")
_DEFAULT = re.compile(
    r"(?:env_var_or_default|env)\([ \t]*[\"'](?P<name>\w{1,100})[\"'],[ \t]*"
    r"(?P<text>\"[^\"\\\n]{0,300}\"|'[^'\n]{0,300}')[ \t]*\)"
)
_TERM = re.compile(r"[A-Za-z_][\w-]{0,80}")
_TEMPLATE = re.compile(r"\{\{[ \t]*(?P<name>[A-Za-z_][\w-]{0,80})[ \t]*\}\}")
_PREFIX = re.compile(r"[ \t@-]*")
_INDENTED = re.compile(r"^[A-Za-z_@][^\n]{0,600}:[^\n=]*\n[ \t]+\S", re.MULTILINE)
_ASSIGNED = re.compile(r"^(?:export[ \t]+)?[A-Za-z_][\w-]{0,80}[ \t]*:=", re.MULTILINE)
_MOST_TERMS = 20


@dataclass(frozen=True)
class _Value:
    """A text, and the names of what may be set to something else where it runs."""

    text: str
    defaults: frozenset[str] = frozenset()


@dataclass
class _Recipe:
    line: int
    values: Mapping[str, _Value]
    lines: list[str] = field(default_factory=list)


def is_it(text: str, name: str) -> bool:
    """By the name of its file, or by variables set with `:=` beside indented recipes."""
    base = os.path.basename(name).lower()
    is_named = base in ("justfile", ".justfile") or base.endswith((".just", ".justfile"))
    return _INDENTED.search(text) is not None and (is_named or _ASSIGNED.search(text) is not None)


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers that its recipes start; it begins in this line."""
    found: list[Written] = []
    for recipe in _recipes(text, line):
        used: set[str] = set()
        script = "\n".join(_filled(part, recipe.values, used) for part in recipe.lines)
        for written in of_script(script, recipe.line + 1):
            names = ", ".join(sorted(used))
            told = (f"read with the defaults of {names}, which may be set to others where just runs",) if used else ()
            here = Form.JUSTFILE if written.form is Form.SHELL else written.form
            holder = replace(_region(text, written.words[0].line - line + 1), number=len(found))
            found.append(replace(written, form=here, holder=holder, notes=(*written.notes, *told)))
    return found


def _region(text: str, number: int) -> Region:
    """Where the recipe's line has its words, just's own templates among them."""
    place = region.behind(text, region.continued(text, number), _PREFIX)
    return Region(text, *place, Wording.SCRIPT, starts, quote=_quoted)


def _quoted(text: str) -> str:
    if "{{" in text:
        raise UnwritableError("just takes what stands between {{ and }} for its own")
    return shlex.quote(text)


def _recipes(text: str, first: int) -> Iterator[_Recipe]:
    variables: dict[str, _Value] = {}
    found: list[_Recipe] = []
    lines = text.split("\n")
    for line in lines:  # a recipe may stand above what it uses
        if match := _VARIABLE.fullmatch(line.rstrip()):
            value = _evaluated(match["value"], variables)
            if value is not None and not is_secret(match["name"]):
                variables[match["name"]] = value
    recipe: _Recipe | None = None
    for number, line in enumerate(lines, first):
        budget.spend()
        if line[:1] in (" ", "\t") or not line.strip():
            if recipe is not None:
                goes_on = bool(recipe.lines) and recipe.lines[-1].endswith("\\")
                recipe.lines.append(line.strip() if goes_on else line.strip().lstrip("@-").lstrip())
        elif (match := _RECIPE.fullmatch(line)) is not None:
            recipe = _Recipe(number, {**variables, **_parameters(match["parameters"])})
            found.append(recipe)
        elif not line.startswith("#"):
            recipe = None
    yield from found


def _parameters(text: str) -> dict[str, _Value]:
    found = {}
    for match in _PARAMETER.finditer(text):
        value = (match["value"] or "").strip("'\"")
        if match["value"] is not None and not is_secret(match["name"]):
            found[match["name"]] = _Value(value, frozenset({match["name"]}))
    return found


def _evaluated(text: str, variables: Mapping[str, _Value]) -> _Value | None:
    """Texts and names joined by `+` and `/`; None for anything else."""
    parts: list[str] = []
    defaults: frozenset[str] = frozenset()
    at, joined = 0, ""
    for _ in range(_MOST_TERMS):
        rest = text[at:].lstrip()
        at = len(text) - len(rest)
        if match := _DEFAULT.match(rest):
            parts.append(joined + match["text"][1:-1])
            if is_secret(match["name"]):
                return None
            defaults |= {match["name"]}
        elif match := _TEXT.match(rest):
            parts.append(joined + (match["double"] if match["double"] is not None else match["single"]))
        elif (match := _TERM.match(rest)) and match[0] in variables and rest[match.end() : match.end() + 1] != "(":
            parts.append(joined + variables[match[0]].text)
            defaults |= variables[match[0]].defaults
        else:
            return None
        rest = rest[match.end() :].lstrip()
        if not rest or rest.startswith("#"):
            return _Value("".join(parts), defaults)
        if rest[0] not in "+/":
            return None
        joined = "/" if rest[0] == "/" else ""
        at = len(text) - len(rest) + 1
    return None


def _filled(line: str, values: Mapping[str, _Value], used: set[str]) -> str:
    def value(match: re.Match[str]) -> str:
        found = values.get(match["name"])
        if found is None:
            return match[0]  # the shell's reader takes it for a template
        used.update(found.defaults)
        budget.spend_on(found.text)
        return found.text

    return _TEMPLATE.sub(value, line)
