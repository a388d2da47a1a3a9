"""YAML files, read strictly: every mistake is told with its line.

Stricter than YAML on purpose: no duplicate keys, no aliases (a small file cannot unfold into a large one),
no tags (nothing is constructed but text, numbers, true, false, null), and no surprise booleans: `off` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from vllm_doctor.model.errors import DocumentError

try:
    from yaml import CSafeLoader as _Loader  # ten times faster; absent where PyYAML was built without libyaml
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

Word = TypeVar("Word", bound=str)

_TAG = "tag:yaml.org,2002:"
_MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_MAX_BRACKETS = 200
_BRACKET = re.compile(r"[\[\]{}]")
_NESTED_LINE = re.compile(r"^[ ]*(?:[-?][ \t]+){50}", re.MULTILINE)
_KEY_TAGS = {_TAG + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}


class Problems:
    """The mistakes of files that are checked as a whole. Without it a reader raises the first that it meets."""

    def __init__(self) -> None:
        self.found: list[DocumentError] = []
        self._broken: set[tuple[object, int | None]] = set()

    def add(self, error: DocumentError, breaks_line: bool = False) -> None:
        """`breaks_line`: what stands in the line could not be read, so whatever else is missed there is no news."""
        if error.is_consequence or (error.path, error.line) in self._broken:
            return
        if breaks_line:
            self._broken.add((error.path, error.line))
        self.found.append(error)

    def are_in(self, path: Path) -> bool:
        return any(error.path == path for error in self.found)

    def lines(self) -> list[str]:
        """One a mistake, by file and line, each once."""
        ordered = sorted(self.found, key=lambda error: (str(error.path), error.line or 0))
        return list(dict.fromkeys(map(str, ordered)))


@contextmanager
def gathered(problems: Problems | None) -> Iterator[None]:
    """The block ends at a mistake after which nothing in it can be read; what follows the block goes on."""
    try:
        yield
    except DocumentError as error:
        if problems is None:
            raise
        problems.add(error)


class Table(dict[str, Any]):
    """A YAML mapping that remembers where it stands: `path`, and the line of each key.

    With `problems`, a mistake is noted there, and what was asked for is answered with what is empty; without, the first
    is raised as a DocumentError.
    """

    path: Path
    line: int
    lines: dict[str, int]
    problems: Problems | None = None
    wrong: frozenset[str] | None = frozenset()
    """The keys under which something of another kind stands; None: the whole table stands for what is none."""

    def error(self, problem: str, key: str | None = None) -> DocumentError:
        error = DocumentError(self.path, self.lines.get(key, self.line) if key else self.line, problem)
        error.is_consequence = self.wrong is None or key in self.wrong
        return error

    def fail(self, problem: str, key: str | None = None) -> NoReturn:
        """Refuse: after this mistake nothing can be read."""
        raise self.error(problem, key)

    def mistake(self, problem: str, key: str | None = None) -> None:
        """Note a mistake after which the reader can go on; raise it where none are gathered."""
        error = self.error(problem, key)
        if self.problems is None:
            raise error
        self.problems.add(error)

    def _is_not(self, wanted: str, key: str) -> None:
        self.mistake(f"{key!r} must be {wanted}", key)
        self.wrong = None if self.wrong is None else self.wrong | {key}

    def allow(self, *keys: str) -> None:
        """Refuse a key that is not among these."""
        for key in self:
            if key not in keys:
                near = get_close_matches(key, keys, 1)
                self.mistake(
                    f"unknown key {key!r}" + (f"; meant {near[0]!r}?" if near else f"; known: {', '.join(keys)}"), key
                )
                if near and near[0] not in self and self.wrong is not None:
                    self.wrong |= {near[0]}

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str) or not value.strip():
            self._is_not("a text", key)
            return ""
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._is_not("a list of texts", key)
            return ()
        return tuple(item.strip() for item in value)

    def one_of(self, key: str, choices: Iterable[Word], default: Word | None = None) -> Word:
        """The choice that the key holds: of an enum, its member."""
        value = self.get(key, default)
        known = tuple(choices)
        for choice in known:
            if choice == value:
                return choice
        self._is_not(f"one of {', '.join(known)}; it is {value!r}", key)
        return known[0]

    def table(self, key: str) -> Table:
        value = self.get(key)
        if isinstance(value, Table):
            return value
        empty = Table()
        if value is not None:
            self._is_not("a mapping", key)
            empty.wrong = None
        empty.path, empty.line, empty.lines = self.path, self.lines.get(key, self.line), {}
        empty.problems = self.problems
        return empty

    def tables(self, key: str) -> Iterator[Table]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, Table) for item in value):
            self._is_not("a list of mappings", key)
            return
        yield from value


def read(path: Path, until: str | None = None, problems: Problems | None = None) -> Table:
    """The mapping in a YAML file. Raises DocumentError with the line; with `problems`, only where it cannot go on.

    `until`: a key that is left out, with all below it, where it is the file's last: what is not needed costs no time.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError(path, None, f"cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise DocumentError(path, None, f"larger than {_MAX_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8")
        if until is not None:
            head, _, rest = text.partition(f"\n{until}:\n")
            text = text if _NEXT_KEY.search(rest) else f"{head}\n"
        _check_depth(path, text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode) or node.tag != _TAG + "map":
            raise DocumentError(path, 1, "must be a mapping (key: value)")
        return _Reader(path, problems).table(node, 0)
    except UnicodeDecodeError:
        raise DocumentError(path, None, "is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise DocumentError(path, mark.line + 1 if mark else None, str(error.problem)) from None
    except yaml.YAMLError as error:
        raise DocumentError(path, None, " ".join(str(error).split())) from None


_NEXT_KEY = re.compile(r"^[^\s#-]", re.MULTILINE)


def _check_depth(path: Path, text: str) -> None:
    """libyaml's parser recurses without a limit of its own: refuse before it sees a hundred thousand brackets."""
    nested = _NESTED_LINE.search(text)
    if nested:
        raise DocumentError(path, text.count("\n", 0, nested.start()) + 1, "more than 50 lists in one line")
    depth = 0
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
        if depth > _MAX_BRACKETS:
            line = text.count("\n", 0, match.start()) + 1
            raise DocumentError(path, line, f"more than {_MAX_BRACKETS} open brackets")


class _Reader:
    """From YAML's nodes to tables, lists and values."""

    def __init__(self, path: Path, problems: Problems | None) -> None:
        self.path, self.problems = path, problems
        self._seen: set[int] = set()

    def _mistake(self, line: int, problem: str) -> None:
        error = DocumentError(self.path, line, problem)
        if self.problems is None:
            raise error
        self.problems.add(error, breaks_line=True)

    def table(self, node: yaml.MappingNode, depth: int) -> Table:
        table = Table()
        table.path, table.line, table.lines = self.path, node.start_mark.line + 1, {}
        if self.problems is not None:
            table.problems = self.problems
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or id(key_node) in self._seen or key_node.tag not in _KEY_TAGS:
                self._mistake(line, "a key must be a plain text")
                continue
            self._seen.add(id(key_node))
            key = str(key_node.value)
            if key in table:
                self._mistake(line, f"key {key!r} stands twice (first in line {table.lines[key]}): keep one")
                continue
            table.lines[key] = line
            table[key] = self.value(value_node, depth + 1)
        return table

    def value(self, node: yaml.Node, depth: int) -> Any:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            return self._mistake(line, "aliases (*name) are not allowed: write it out")
        self._seen.add(id(node))
        if depth > _MAX_DEPTH:
            return self._mistake(line, f"nested deeper than {_MAX_DEPTH} levels")
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.table(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, depth + 1) for item in node.value]
        try:
            return _scalar(node, self.path, line)
        except DocumentError as error:
            return self._mistake(line, error.problem)


def _scalar(node: yaml.Node, path: Path, line: int) -> str | float | bool | None:
    text, kind = str(node.value), node.tag.removeprefix(_TAG)
    try:
        match kind:
            case _ if not isinstance(node, yaml.ScalarNode):
                raise DocumentError(path, line, f"tag {node.tag!r} is not allowed")
            case "int":
                return int(text.replace("_", ""), 0)
            case "float":
                return float(text.replace("_", ""))
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "str" | "bool" | "timestamp" | "value" | "merge":
                return text
            case _:
                raise DocumentError(path, line, f"tag {node.tag!r} is not allowed")
    except ValueError:
        return text
