"""compose's interpolation: `$NAME`, `${NAME:-default}`, `${NAME:+other}`, one in another, and `$$` for a dollar.

What compose takes from its own environment is not known here; a default is, until that sets another value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vllm_doctor.launch import budget
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.text.secret_names import is_secret

_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATOR = re.compile(r":?[-?+]")
_BRACE = re.compile(r"\$\{|\}")
_DEPTH = 10


class Interpolation:
    """`variables`: the values that are known. `defaults`: the names that were read with their defaults."""

    def __init__(self, variables: Mapping[str, str | None] | None = None) -> None:
        self._variables = variables or {}
        self.defaults: dict[str, None] = {}

    def text(self, text: str, depth: int = _DEPTH) -> str:
        """With what is known filled in, and the rest marked."""
        pieces: list[str] = []
        at = 0
        while (dollar := text.find("$", at)) >= 0:
            budget.spend()
            pieces.append(text[at:dollar])
            name = _NAME.match(text, dollar + 1)
            if text.startswith("$$", dollar):
                pieces.append("$")
                at = dollar + 2
            elif name:
                pieces.append(self._value(name[0], "", "", depth))
                at = name.end()
            elif text.startswith("${", dollar) and (braced := _NAME.match(text, dollar + 2)):
                at = _closing(text, braced.end())
                operator = _OPERATOR.match(text, braced.end())
                end = operator.end() if operator else braced.end()
                pieces.append(self._value(braced[0], operator[0] if operator else "", text[end : at - 1], depth))
            else:
                pieces.append("$")
                at = dollar + 1
        return "".join(pieces) + text[at:]

    def _value(self, name: str, operator: str, other: str, depth: int) -> str:
        unknown = mark(f"${{{name}}}")
        if is_secret(name) or depth == 0:
            return unknown
        known = self._variables.get(name)
        is_set = known is not None and (known != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return self.text(other, depth - 1) if is_set else unknown
        if is_set and known is not None:
            budget.spend_on(known)
            return known
        if operator.endswith("-"):
            self.defaults[name] = None
            return self.text(other, depth - 1)
        return unknown


def _closing(text: str, at: int) -> int:
    """Behind the brace that closes; the end of the text where none does."""
    depth = 1
    for brace in _BRACE.finditer(text, at):
        depth += 1 if brace[0] == "${" else -1
        if depth == 0:
            return brace.end()
    return len(text) + 1
