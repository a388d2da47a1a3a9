"""What a text is that is none of what the doctor reads: its kind and its size, and nothing of what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KINDS = (
    ("an SVG picture", r"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)?<svg\b"),
    ("an HTML page", r"<(?:!doctype html|html|head)\b"),
    ("an XML document", r"<\?xml\b"),
    ("a JSON document", r'[{\[]\s*["{}\[\]\d]'),
    ("a PEM certificate or key", r"-----BEGIN "),
    ("a script", r"#!"),
    ("TOML or an INI file", r"(?:#.*\s+)*\[\[?[\w.\" -]+\]\]?\s*\n"),
    ("YAML", r"(?:#.*\s+)*(?:---\s*\n|[\w.-]+:(?: \S.*)?\n(?: *- |\s+[\w.-]+:|[\w.-]+:))"),
)
_BEGINNINGS = tuple((what, re.compile(rf"\ufeff?\s*{pattern}", re.IGNORECASE)) for what, pattern in _KINDS)


def described(lines: Iterable[str], size: int) -> str:
    """The kind of a text by its first lines, and how many bytes it has: "an HTML page (5,120 bytes)"."""
    head = "".join(f"{line}\n" for line in lines)
    kind = next((what for what, beginning in _BEGINNINGS if beginning.match(head)), "text")
    return f"{kind} ({size:,} byte{'' if size == 1 else 's'})"
