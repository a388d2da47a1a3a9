"""What the doctor itself wrote as JSON, given as a file: it is said what it is; it is not judged again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.text import redact

_SCHEMA = re.compile(rb'"schema"\s{0,20}:\s{0,20}"vllm-doctor/(report|compare|expect|fleet)/v\d{1,3}"')
_AT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::[\d.]{2,12})?Z?")
_LONGEST = 300
_AGAIN = "is not judged again: give the recording, or the log, that it was made of"


def holds(raw: bytes) -> bool:
    """Whether this, or its beginning and its end, is a document of the doctor's."""
    return raw.lstrip()[:1] == b"{" and _SCHEMA.search(raw) is not None


def said(raw: bytes, name: str) -> str:
    """What the document is and what it said, in one line."""
    match = _SCHEMA.search(raw)
    kind = match[1].decode() if match else "report"
    try:
        told = outside.json(raw)
    except ValueError:
        return f"{name} is what vllm-doctor wrote ({kind}), but cut off or changed: no JSON; it {_AGAIN}"
    if kind != "report" or not isinstance(told, dict):
        return f"{name} is what `vllm-doctor {kind}` wrote: it {_AGAIN}"
    at = _AT.fullmatch(_text(told, "at"))
    when = f" of {at[1]} {at[2]} UTC" if at else ""
    by = f" by vllm-doctor {version}" if (version := _text(told, "doctor")) else ""
    verdict = f"{_text(told, 'verdict').upper()} {_text(told, 'headline')}".strip()
    return f"{name} is a report{when}{by}: {verdict or 'without a verdict'}; it {_AGAIN}{_made_of(told)}"


def _made_of(told: Mapping[str, Any]) -> str:
    """ " (server.log)": the files and URLs that the report names as its sources."""
    sources = told.get("sources")
    rows = [row for row in sources if isinstance(row, dict)] if isinstance(sources, list) else []
    named = [target for row in rows[:3] if (target := _text(row, "target"))]
    return f" ({', '.join(named)})" if named else ""


def _text(told: Mapping[str, Any], key: str) -> str:
    """A text of the document's on one line, without secrets; "" where there is none."""
    value = told.get(key)
    line = " ".join(value[: 4 * _LONGEST].split()) if isinstance(value, str) else ""
    clean = "".join(char for char in redact.text(line, Counter()) if char.isprintable())
    return clean if len(clean) <= _LONGEST else f"{clean[: _LONGEST - 1]}…"
