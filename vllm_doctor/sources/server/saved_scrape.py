"""A page of /metrics that was saved (`curl http://host:8000/metrics > metrics.prom`): one moment of a server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import FRONTS, SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.sources.server.scrapes import Scrape
from vllm_doctor.text import files
from vllm_doctor.text.encoding import decoded

MAX_FILE = 64 << 20
_HEAD, _LINES = 1 << 16, 200
_BEFORE = 30
"""So many lines may stand before it: the command that got it, curl's progress, the answer's headers."""
_SAMPLE = re.compile(
    r"[a-zA-Z_:][\w:]*(?<!:)(\{.*\})? +([-+]?\d+(\.\d*)?(e[-+]?\d+)?|[-+]?Inf|NaN)( \d+)?$", re.IGNORECASE
)
_COMMENT = re.compile(r"# (HELP|TYPE) [a-zA-Z_:][\w:]* ")
_NAMED = re.compile(r"^[ \t]*# (HELP|TYPE) (ray_)?vllm[:_]", re.MULTILINE)
_OF_VLLM = "vllm:"
_FEWEST = 3
"""Fewer samples within a text are quoted, and no page."""
_NOTE = "a saved page is one moment: for rates keep a minute of the server (vllm-doctor record URL -o FILE.tar.gz)"


def is_page(path: Path) -> bool:
    """Whether a file is a page of metrics: from its first line of one on, most lines are.

    A page is also kept from a terminal: with what stood around it there, and parts of it left out.
    """
    try:
        if not path.is_file():
            return False
        with open(files.descriptor(path), "rb") as file:
            head = decoded(file.read(_HEAD))
    except (OSError, ValueError):
        return False
    lines = [line for raw in head.split("\n")[:-1] if (line := raw.strip())]
    first = next((at for at, line in enumerate(lines[:_BEFORE]) if _is_told(line)), None)
    if first is None:
        return False
    page = [line for line in lines[first : first + _LINES] if line[0] != "#" or _is_told(line)]
    return 2 * sum(map(_is_told, page)) > len(page)


def _is_told(line: str) -> bool:
    return bool(_SAMPLE.match(line) or _COMMENT.match(line))


def within(text: str) -> str | None:
    """The lines of a page of vLLM's metrics that stand in a text among others; None where there are too few."""
    if _OF_VLLM not in text:
        return None
    lines = [line for raw in text.splitlines() if _is_told(line := raw.strip())]
    samples = sum(line.startswith(_OF_VLLM) for line in lines)
    return "\n".join(lines) + "\n" if samples >= _FEWEST else None


def examine(path: Path, wanted: frozenset[str], role: str = "") -> Observation:
    """What the page tells. What needs two of them is unknown; nothing tells the server's version."""
    target = str(path)
    try:
        data = files.read(path, MAX_FILE)
        if len(data) > MAX_FILE:
            raise SourceError("too-large", f"{target} is larger than {MAX_FILE >> 20} MiB")
    except OSError as error:
        return Observation(
            SourceKind.PAGE, target, error=Problem("unreadable", f"{target} cannot be read ({error.strerror})")
        )
    except SourceError as error:
        return Observation(SourceKind.PAGE, target, error=Problem(error.kind, str(error)))
    return of_text(target, decoded(data), wanted, role=role)


def of_text(target: str, text: str, wanted: frozenset[str], patient: str = "", role: str = "") -> Observation:
    """The same of a page that was read already; `patient`: whose it is, where that is known; `role`: on the path."""
    try:
        page = parse(text, wanted | {scrapes.START_TIME})
        if not page.has_vllm and page.gateway is None and role not in FRONTS:
            named = _NAMED.search(text)
            what = "; it names vLLM's, but has no value of any" if named else ", but none of vLLM's"
            raise SourceError("not-vllm", f"{target} is a page of metrics{what}")
        told = scrapes.seen(
            target, [Scrape(0.0, page, scrapes.started(page), None)], scrapes.identity(target, page, {}, {}, role)
        )
    except SourceError as error:
        return Observation(SourceKind.PAGE, target, error=Problem(error.kind, str(error)))
    kind = told.kind if told.kind is SourceKind.GATEWAY else SourceKind.PAGE
    return replace(told, kind=kind, notes=(*told.notes, _NOTE), patient=patient or told.patient)
