"""YAML files, read strictly: every mistake is told with its line.

Stricter than YAML on purpose: no duplicate keys, no aliases (a small file cannot unfold into a large one),
no tags (nothing is constructed but text, numbers, true, false, null), and no surprise booleans: `off` is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import compiled

try:
    from yaml import CSafeLoader as _Loader  # ten times faster; absent where PyYAML was built without libyaml
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_MAX_BYTES = 1_000_000
_MAX_DEPTH = 20
_MAX_BRACKETS = 200
_BRACKET = re.compile(r"[\[\]{}]")
_NESTED_LINE = re.compile(r"^[ ]*(?:[-?][ \t]+){50}", re.MULTILINE)
_KEY_TAGS = {_TAG + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}


class Table(dict[str, Any]):
    """A YAML mapping that remembers where it stands: `path`, and the line of each key."""

    path: Path
    line: int
    lines: dict[str, int]

    def fail(self, problem: str, key: str | None = None) -> NoReturn:
        raise DocumentError(self.path, self.lines.get(key, self.line) if key else self.line, problem)

    def allow(self, *keys: str) -> None:
        """Refuse a key that is not among these."""
        for key in self:
            if key not in keys:
                near = get_close_matches(key, keys, 1)
                self.fail(
                    f"unknown key {key!r}" + (f"; meant {near[0]!r}?" if near else f"; known: {', '.join(keys)}"), key
                )

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str) or not value.strip():
            self.fail(f"{key!r} must be a text", key)
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(f"{key!r} must be a list of texts", key)
        return tuple(item.strip() for item in value)

    def one_of(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.get(key, default)
        if value not in choices:
            self.fail(f"{key!r} must be one of {', '.join(choices)}; it is {value!r}", key)
        return str(value)

    def table(self, key: str) -> Table:
        value = self.get(key)
        if value is None:
            value = Table()
            value.path, value.line, value.lines = self.path, self.lines.get(key, self.line), {}
        if not isinstance(value, Table):
            self.fail(f"{key!r} must be a mapping", key)
        return value

    def tables(self, key: str) -> Iterator[Table]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, Table) for item in value):
            self.fail(f"{key!r} must be a list of mappings", key)
        yield from value


def read(path: Path, until: str | None = None) -> Table:
    """The mapping in a YAML file. Raises DocumentError with the line.

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
        key = compiled.key(text.encode())
        if (tree := compiled.find(key)) is not None:
            return _of_tree(tree, path)
        _check_depth(path, text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode) or node.tag != _TAG + "map":
            raise DocumentError(path, 1, "must be a mapping (key: value)")
        table = _table(node, path, set(), 0)
        compiled.add(key, path, _tree(table))
        return table
    except UnicodeDecodeError:
        raise DocumentError(path, None, "is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise DocumentError(path, mark.line + 1 if mark else None, str(error.problem)) from None
    except yaml.YAMLError as error:
        raise DocumentError(path, None, " ".join(str(error).split())) from None


def _tree(value: Any) -> Any:
    """A table as JSON holds it."""
    if isinstance(value, Table):
        return {"": [value.line, *(value.lines[key] for key in value)]} | {key: _tree(value[key]) for key in value}
    return [_tree(item) for item in value] if isinstance(value, list) else value


def _of_tree(tree: Any, path: Path) -> Any:
    if isinstance(tree, dict):
        table = Table(tree)
        table.path = path
        table.line, *lines = table.pop("")
        table.lines = dict(zip(table, lines, strict=True))
        for key, value in table.items():
            if isinstance(value, dict | list):
                table[key] = _of_tree(value, path)
        return table
    return [_of_tree(item, path) if isinstance(item, dict | list) else item for item in tree]


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


def _table(node: yaml.MappingNode, path: Path, seen: set[int], depth: int) -> Table:
    table = Table()
    table.path, table.line, table.lines = path, node.start_mark.line + 1, {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or id(key_node) in seen or key_node.tag not in _KEY_TAGS:
            raise DocumentError(path, line, "a key must be a plain text")
        seen.add(id(key_node))
        key = str(key_node.value)
        if key in table:
            raise DocumentError(path, line, f"key {key!r} stands twice (first in line {table.lines[key]}): keep one")
        table.lines[key] = line
        table[key] = _value(value_node, path, seen, depth + 1)
    return table


def _value(node: yaml.Node, path: Path, seen: set[int], depth: int) -> Any:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise DocumentError(path, line, "aliases (*name) are not allowed: write it out")
    seen.add(id(node))
    if depth > _MAX_DEPTH:
        raise DocumentError(path, line, f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        return _table(node, path, seen, depth)
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_value(item, path, seen, depth + 1) for item in node.value]
    return _scalar(node, path, line)


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
