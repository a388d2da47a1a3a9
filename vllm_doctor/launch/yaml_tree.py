"""A YAML text as people write manifests: with anchors, merge keys and a chart's templates, and told by line.

Aliases are unfolded, up to a limit; tags but YAML's own are refused. Nothing is constructed but plain values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from vllm_doctor.launch import budget
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError

MAX_NODES = 50_000  # once unfolded
MAX_DEPTH = 50
_MOST_OF_CUT = 100_000
"""What people quote of a manifest, and cut, is shorter."""
_MOST_LOST = 2
"""Lines at the end of a text that was cut, of which the last may end anywhere."""

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TEMPLATE = re.compile(r"\{\{-?\s*+([\w.$]*+)[^{}]{0,1000}+\}\}")
_TEMPLATE_LINE = re.compile(r"^[ \t]*\{\{-?[ \t]*(\w*)[^\n]{0,1000}\}\}[ \t]*$", re.MULTILINE)
_CONTROL = frozenset({"if", "else", "end", "range", "with", "define", "block"})


@dataclass(frozen=True)
class Node:
    """A value and where it stands. `text`: of a scalar, as it was written."""

    path: str
    line: int
    kind: str = "null"
    """map, seq, or a scalar's: str, int, float, bool, null."""
    text: str = ""
    is_block: bool = False
    fields: Mapping[str, Node] = field(default_factory=dict)
    items: tuple[Node, ...] = ()

    def __getitem__(self, key: str) -> Node:
        """The value under a key; a null where there is none."""
        return self.fields.get(key) or Node(f"{self.path}.{key}".lstrip("."), self.line)

    def __bool__(self) -> bool:
        return self.kind != "null"

    def at(self, *keys: str) -> Node:
        node = self
        for key in keys:
            node = node[key]
        return node

    @property
    def is_scalar(self) -> bool:
        return self.kind not in ("map", "seq", "null")

    @property
    def text_line(self) -> int:
        """The line its text begins in: the one after `|` and `>`."""
        return self.line + self.is_block

    @property
    def plain(self) -> Any:
        """As yaml.safe_load has it."""
        match self.kind:
            case "map":
                return {key: node.plain for key, node in self.fields.items()}
            case "seq":
                return [node.plain for node in self.items]
            case "null":
                return None
            case "bool":
                return self.text.lower() in ("true", "yes", "on", "y")
            case "int" | "float":
                try:
                    value = int(self.text.replace("_", ""), 0) if self.kind == "int" else float(self.text)
                except ValueError:
                    return self.text
                return self.text if outside.number(value) is None else value
            case _:
                return self.text


@dataclass(frozen=True)
class Documents:
    roots: tuple[Node, ...]
    is_open: bool
    """A template stands where anything may stand, or its end is missing."""


def read(text: str, line: int = 1, is_cut: bool = False) -> Documents:
    """The documents of a YAML text that begins in this line. `is_cut`: its end may be missing, and what that leaves
    open is closed. Raises SourceError: unreadable, too-large."""
    if is_cut and (closed := _closed(text)) is not None:
        return Documents(read(closed, line).roots, is_open=True)
    of_chart = "; of a chart's template give what `helm template` prints" if "{{" in text else ""
    text, is_open = _without_templates(text)
    try:
        _check(text, line)
        roots = list(yaml.compose_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refusal(error, line, of_chart) from None
    converter = _Converter(line)
    return Documents(tuple(converter.node(root, "", 0) for root in roots if root is not None), is_open)


def _closed(text: str) -> str | None:
    """The text with its last brackets closed, without a last line that ends within a word; None: nothing is open."""
    if len(text) > _MOST_OF_CUT:
        return None
    kept = text.rstrip().split("\n")
    for lost in range(_MOST_LOST + 1):
        whole = "\n".join(kept[: len(kept) - lost])
        open_: list[str] = []
        try:
            for token in yaml.scan(whole, Loader=_Loader):
                if isinstance(token, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)):
                    open_.append("]" if isinstance(token, yaml.FlowSequenceStartToken) else "}")
                elif open_ and isinstance(token, (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)):
                    open_.pop()
                if len(open_) > MAX_DEPTH:
                    return None
        except (yaml.YAMLError, ValueError):
            continue
        return "\n".join([whole, *reversed(open_)]) if open_ or lost else None
    return None


def _refusal(error: Exception, first: int, of_chart: str) -> SourceError:
    mark = (error.problem_mark or error.context_mark) if isinstance(error, yaml.MarkedYAMLError) else None
    where = f"line {mark.line + first}: " if mark else ""
    if outside.is_too_deep(error):
        return SourceError("too-large", f"{where}nested deeper than {MAX_DEPTH} levels")
    if not isinstance(error, yaml.MarkedYAMLError):
        return SourceError("unreadable", "this is no valid YAML")
    return SourceError("unreadable", f"{where}this is no valid YAML ({_problem(error)}){of_chart}")


def _problem(error: yaml.MarkedYAMLError) -> str:
    """What the parser says, without any piece of the text, which may be secret."""
    return re.sub(r"['\"].*['\"]", "…", " ".join(str(error.problem).split()))[:100]


def _without_templates(text: str) -> tuple[str, bool]:
    if "{{" not in text:
        return text, False
    is_open = False

    def blank(match: re.Match[str]) -> str:
        nonlocal is_open
        is_open |= match[1] not in _CONTROL and not match[0].lstrip().startswith("{{/*")
        return ""

    text = _TEMPLATE_LINE.sub(blank, text)
    # What a template falls back to may be a secret: only its name is kept.
    return _TEMPLATE.sub(lambda match: mark("{{" + match[1] + "}}"), text), is_open


def _check(text: str, first: int) -> None:
    """Refuse what holds too much, or is nested too deeply, before it takes long."""
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + first if event.start_mark else first
        count += isinstance(event, (yaml.NodeEvent, yaml.DocumentStartEvent))
        if count > 2 * MAX_NODES:  # the keys as well
            raise SourceError("too-large", f"line {line}: unfolds to more than {MAX_NODES:,} values")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise SourceError("too-large", f"line {line}: nested deeper than {MAX_DEPTH} levels")


class _Converter:
    def __init__(self, first: int) -> None:
        self._first = first
        self._count = 0

    def node(self, node: yaml.Node, path: str, depth: int) -> Node:
        line = node.start_mark.line + self._first
        self._count += 1
        budget.spend_on(path)
        if self._count > MAX_NODES:
            raise SourceError("too-large", f"line {line}: unfolds to more than {MAX_NODES:,} values")
        if depth > MAX_DEPTH:  # an alias within what it names
            raise SourceError("too-large", f"line {line}: nested deeper than {MAX_DEPTH} levels")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind in ("map", "omap", "set"):
            return Node(path, line, "map", fields=dict(self._fields(node, path, depth)))
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            items = tuple(self.node(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(node.value))
            return Node(path, line, "seq", items=items)
        if isinstance(node, yaml.ScalarNode) and kind in ("str", "int", "float", "bool", "null"):
            budget.spend_on(node.value)
            return Node(path, line, kind, str(node.value), node.style in ("|", ">"))
        if isinstance(node, yaml.ScalarNode) and kind in ("timestamp", "value", "merge"):
            return Node(path, line, "str", str(node.value))
        raise SourceError("unreadable", f"line {line}: a tag that only another program knows is not read")

    def _fields(self, node: yaml.MappingNode, path: str, depth: int) -> Iterator[tuple[str, Node]]:
        """Merged keys first, so that the mapping's own go over them."""
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                sources = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    if not isinstance(source, yaml.MappingNode):
                        line = key.start_mark.line + self._first
                        raise SourceError("unreadable", f"line {line}: << takes a mapping, or a list of them")
                    yield from self.node(source, path, depth + 1).fields.items()
        for key, value in node.value:
            if key.tag != _TAG + "merge":
                if not isinstance(key, yaml.ScalarNode):
                    raise SourceError(
                        "unreadable", f"line {key.start_mark.line + self._first}: a key must be a plain text"
                    )
                name = str(key.value)
                yield name, self.node(value, f"{path}.{name}".lstrip("."), depth + 1)
