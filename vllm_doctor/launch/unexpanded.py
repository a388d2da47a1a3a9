"""What only the place where a command runs knows: `$VAR`, `$(command)`, a chart's `{{ .Values.x }}`.

Such a piece goes through all reading between two marks, so that it is taken neither for text nor for a number.
"""

from __future__ import annotations

import re

_OPEN, _CLOSE = "\ue000", "\ue001"  # of Unicode's private use: no command holds them
_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_MARKS = re.compile(f"[{_OPEN}{_CLOSE}]")
_TEMPLATE_NAME = re.compile(r"\{\{-?\s*+([\w.$]*+)")
ARGUMENTS = frozenset({"$@", "$*"})
"""What a script was itself given."""


def without_marks(text: str) -> str:
    """A text from outside, in which no mark can be forged."""
    return _MARKS.sub("\ufffd", text)


def mark(piece: str) -> str:
    return _OPEN + _MARKS.sub("", piece) + _CLOSE


def is_marked(text: str) -> bool:
    return _OPEN in text


def pieces(text: str) -> list[str]:
    """The marked pieces, as they were written."""
    return _MARKED.findall(text)


def as_written(text: str) -> str:
    return _MARKS.sub("", text)


def template_name(template: str) -> str:
    """`{{ name }}` without what it falls back to, which may be a secret."""
    match = _TEMPLATE_NAME.match(template)
    return "{{" + (match[1] if match and match[1] else "…") + "}}"
