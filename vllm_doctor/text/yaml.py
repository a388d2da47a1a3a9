"""Values as YAML that every reader takes for the same: no anchors, and no text that one of them reads as a number."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import yaml

_PLAIN = re.compile(r"-{0,2}[A-Za-z/_][\w./=,@+-]*", re.ASCII)
_NO_TEXT = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf"})
"""What some reader of YAML 1.1 or 1.2 takes for something else."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
    style = None if is_plain else "|" if "\n" in value else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _word(dumper: _Dumper, value: StrEnum) -> yaml.ScalarNode:
    return _text(dumper, value.value)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(StrEnum, _word)


def dump(value: Any) -> list[str]:
    """The lines of one document: mappings in their order, one item a line, never folded."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=2**31, default_flow_style=False)
    return text.splitlines()[: -1 if text.endswith("\n...\n") else None]
