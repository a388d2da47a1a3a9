"""The text of a YAML file as tables, lists and values.

Stricter than YAML on purpose: no duplicate keys, no aliases (a small file cannot unfold into a large one),
no tags (nothing is constructed but text, numbers, true, false, null), and no surprise booleans: `off` is text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from vllm_doctor.model import outside
from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules.table import Problems, Table

try:
    from yaml import CSafeLoader as _Loader  # ten times faster; absent where PyYAML was built without libyaml
except ImportError:  # pragma: no cover
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_MAX_DEPTH = 20
_MAX_BRACKETS = 200
_BRACKET = re.compile(r"[\[\]{}]")
_NESTED_LINE = re.compile(r"^[ ]*(?:[-?][ \t]+){50}", re.MULTILINE)
_KEY_TAGS = {_TAG + kind for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge")}


def parsed(text: str, path: Path, problems: Problems | None) -> Table:
    """The mapping that it holds. Raises DocumentError with the line; with `problems`, only where it cannot go on."""
    try:
        _check_depth(path, text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode) or node.tag != _TAG + "map":
            raise DocumentError(path, 1, "must be a mapping (key: value)")
        return _Reader(path, problems).table(node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise DocumentError(path, mark.line + 1 if mark else None, str(error.problem)) from None
    except yaml.YAMLError as error:
        raise DocumentError(path, None, " ".join(str(error).split())) from None


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
                return _finite(int(text.replace("_", ""), 0), path, line)
            case "float":
                return _finite(float(text.replace("_", "")), path, line)
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


def _finite(value: float, path: Path, line: int) -> float:
    if outside.number(value) is None:
        raise DocumentError(path, line, f"a number larger than {outside.LARGEST:g}, which nothing has so many of")
    return value
