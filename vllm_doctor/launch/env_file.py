"""A file of variables, as compose reads `.env` and `env_file`: NAME=VALUE in each line, with quotes and comments."""

from __future__ import annotations

import re

from vllm_doctor.launch import budget
from vllm_doctor.launch.interpolation import Interpolation

_LINE = re.compile(r"[ \t]*+(?:export[ \t]++)?+([A-Za-z_][\w.-]*+)[ \t]*+(?:[=:][ \t]*+([^\n]*+))?+")
_COMMENT = re.compile(r"[ \t]#")


def values(text: str) -> dict[str, str | None]:
    """The variables; None where a name stands alone, whose value comes from elsewhere."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        budget.spend()
        match = _LINE.fullmatch(line)
        if match is not None:
            found[match[1]] = None if match[2] is None else _value(match[2].strip(), found)
    return found


def _value(text: str, before: dict[str, str | None]) -> str:
    quote = text[:1]
    if quote in ("'", '"') and (end := text.find(quote, 1)) > 0:
        inner = text[1:end]
        return inner if quote == "'" else Interpolation(before).text(inner)
    comment = _COMMENT.search(text)
    plain = (text[: comment.start()] if comment else "" if text.startswith("#") else text).rstrip()
    return Interpolation(before).text(plain)
