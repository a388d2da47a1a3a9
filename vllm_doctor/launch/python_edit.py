"""A call in a Python text with other keywords: what stands as `name=value` in it is changed there, the rest is said."""

from __future__ import annotations

import ast
import difflib
import itertools
import json
from collections.abc import Sequence

from vllm_doctor.launch.rewrite import UnwritableError
from vllm_doctor.model import outside
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change
from vllm_doctor.text import words as wording
from vllm_doctor.text.secret_names import is_secret
from vllm_doctor.vllm.command_line import masked


def keyword(flag: str) -> str:
    """The keyword that a flag is in Python. Raises UnwritableError."""
    name = flag.removeprefix("--").replace("-", "_")
    if not name.isidentifier():
        raise UnwritableError(f"{flag} is a part of another keyword's value")
    return name


def literal(value: Value) -> str:
    """The value as Python writes it; JSON as a dictionary."""
    plain = wording.plain(value)
    if isinstance(plain, str) and plain.lstrip()[:1] in ("{", "["):
        try:
            plain = outside.json(plain)
        except ValueError:
            return json.dumps(plain, ensure_ascii=False)
        return repr(plain)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, str) else repr(plain)


def settings(changes: Sequence[Change]) -> tuple[str, ...]:
    """The changes as lines of a call, and of the environment before it."""
    lines: list[str] = []
    for change in changes:
        if not change.name.startswith("-"):
            if change.now is not None:
                lines.append(f"+os.environ[{json.dumps(change.name)}] = {json.dumps(str(wording.plain(change.now)))}")
            continue
        try:
            name = keyword(change.name)
        except UnwritableError:
            name = change.name
        if change.was is not None:
            lines.append(f"-{name}={masked(literal(change.was))}")
        if change.now is not None:
            lines.append(f"+{name}={literal(change.now)}")
    return tuple(lines)


def edited(text: str, node: ast.Call, changes: Sequence[Change]) -> str:
    """The text with the call changed. Raises UnwritableError where the call is not the place of a setting."""
    source = _Source(text)
    here = {one.arg: one for one in node.keywords if one.arg is not None}
    spread = any(one.arg is None for one in node.keywords)
    places: list[tuple[int, int, str]] = []
    added: list[str] = []
    for change in changes:
        if not change.name.startswith("-"):
            raise UnwritableError(f"{change.name} is a variable of the environment")
        name = keyword(change.name)
        if name in here and change.now is not None:
            value = here[name].value
            places.append((source.at(value.lineno, value.col_offset), source.end(value), literal(change.now)))
        elif name in here:
            places.append(_without(text, source, node, here[name]))
        elif spread or change.now is None:
            raise UnwritableError(f"{name} does not stand in the call")
        else:
            added.append(f"{name}={literal(change.now)}")
    places += _added(text, source, node, added)
    ordered = sorted(places)
    if any(before[1] > after[0] for before, after in itertools.pairwise(ordered)):
        raise UnwritableError("its settings stand within each other")
    for start, end, new in reversed(ordered):
        text = text[:start] + new + text[end:]
    return text


def diff(text: str, new: str, path: str) -> tuple[str, ...]:
    """A unified diff without context, which might hold a secret. Raises UnwritableError where a changed line might."""
    was, now = text.split("\n"), new.split("\n")
    lines = list(difflib.unified_diff(was, now, f"a/{path}", f"b/{path}", n=0, lineterm=""))
    for line in lines[2:]:
        words = line[1:].replace("(", " ").replace(",", " ").split()
        if masked(line) != line or any("=" in word and is_secret(word.partition("=")[0]) for word in words):
            raise UnwritableError("a line to change may hold a secret")
    return tuple(lines)


def _without(text: str, source: _Source, node: ast.Call, gone: ast.keyword) -> tuple[int, int, str]:
    """The keyword with its comma; with its line, where it has one alone."""
    start, end = source.at(gone.lineno, gone.col_offset), source.end(gone.value)
    rest = text[end : source.end(node)]
    comma = len(rest) - len(rest.lstrip())
    if rest[comma : comma + 1] == ",":
        end += comma + 1
        begins = text.rfind("\n", 0, start) + 1
        if text[begins:start].strip() == "" and text[end : (stop := _line_end(text, end))].strip()[:1] in ("", "#"):
            return begins, min(stop + 1, len(text)), ""
        while text[end : end + 1] == " ":
            end += 1
        return start, end, ""
    before = text[:start].rstrip()
    return (len(before) - 1 if before.endswith(",") else start), end, ""


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _added(text: str, source: _Source, node: ast.Call, added: Sequence[str]) -> list[tuple[int, int, str]]:
    """After the last argument: on lines of their own where that has one."""
    if not added:
        return []
    values = [*node.args, *(one.value for one in node.keywords)]
    if not values:
        at = source.end(node) - 1
        return [(at, at, ", ".join(added))]
    last = max(values, key=source.end)
    at = source.end(last)
    begun = [(one.lineno, one.col_offset) for one in node.args] + [
        (one.lineno, one.col_offset) for one in node.keywords
    ]
    first = source.at(*min(begun))
    begins = text.rfind("\n", 0, first) + 1
    indent = text[begins:first]
    between = f",\n{indent}" if not indent.strip() and begins > source.at(node.lineno, node.col_offset) else ", "
    return [(at, at, "".join(between + one for one in added))]


class _Source:
    """Places of ast (a line, and UTF-8's bytes in it) as places in the text."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode("utf-8", "replace"))

    def end(self, node: ast.expr) -> int:
        if node.end_lineno is None or node.end_col_offset is None:
            raise UnwritableError("it is not known where the call ends")
        return self.at(node.end_lineno, node.end_col_offset)
