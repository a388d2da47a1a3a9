"""What a text is that is none of what the doctor reads: its kind and its size, and nothing of what stands in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KINDS = (
    ("an SVG picture", re.compile(r"(?i)(?:<\?xml[^>]{0,300}>\s{0,9})?(?:<!--[^>]{0,900}-->\s{0,9})?<svg\b")),
    ("an HTML page", re.compile(r"(?i)<(?:!doctype html|html|head)\b")),
    ("an XML document", re.compile(r"<\?xml\b")),
    ("a JSON document", re.compile(r'[{\[]\s*["{}\[\]\d]')),
    ("a PEM certificate or key", re.compile(r"-----BEGIN ")),
    ("a script", re.compile(r"#!")),
)
_BELOW_COMMENTS = (
    ("TOML or an INI file", re.compile(r'\[\[?[\w." -]{1,200}\]\]?\n')),
    ("YAML", re.compile(r"---\n|[\w.-]{1,200}:(?: [^\n]{1,900})?\n(?: {0,9}- | {0,9}[\w.-]{1,200}:)")),
)
_BEFORE = "\ufeff \t\r\n"


def described(lines: Iterable[str], size: int) -> str:
    """The kind of a text by its first lines, and how many bytes it has: "an HTML page (5,120 bytes)"."""
    head = "".join(f"{line.rstrip()}\n" for line in lines).lstrip(_BEFORE)
    kind = next((what for what, form in _KINDS if form.match(head)), None)
    said = "".join(line for line in head.splitlines(keepends=True) if line.strip() and not line.startswith("#"))
    kind = kind or next((what for what, form in _BELOW_COMMENTS if form.match(said)), "text")
    return f"{kind} ({size:,} byte{'' if size == 1 else 's'})"
