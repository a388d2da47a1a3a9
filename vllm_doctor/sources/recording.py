"""A recording: the scrapes of a real server, kept as plain files.

    recording.json      {"format", "taken", "scrapes": [seconds, ...], "version": {...}, "models": {...}}
    metrics/NNN.prom.gz the answers of /metrics, in order
    facts.json          where its host was seen: {"cores_usable": {"value": 2, "from": "proc"},
                        "cpu_governor": {"unknown": "not-supported"}, ...}

Read for the demo, which serves one over HTTP, and for the tests.
"""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_doctor.errors import UsageError
from vllm_doctor.signal import Known, Reading, Reason, Unknown

FORMAT = "vllm-doctor/recording/v1"


@dataclass(frozen=True)
class Recording:
    """`times[i]` seconds after the start, /metrics answered `pages[i]`."""

    name: str
    times: tuple[float, ...]
    pages: tuple[bytes, ...]
    version: Any
    models: Any
    facts: Mapping[str, Reading] = field(default_factory=dict)

    def page_at(self, seconds: float) -> bytes:
        """What /metrics answered last at that time; after the end, the last answer."""
        return self.pages[max(0, bisect.bisect_right(self.times, seconds) - 1)]


def read(path: Path) -> Recording:
    """Read a recording's folder. Raises UsageError with what is wrong with it."""
    try:
        about = json.loads((path / "recording.json").read_text("utf-8"))
        if not isinstance(about, dict):
            raise ValueError("recording.json is no object")
        pages = tuple(gzip.decompress(file.read_bytes()) for file in sorted(path.glob("metrics/*.prom.gz")))
        times = tuple(float(t) for t in about.get("scrapes", ()))
        host = path / "facts.json"
        facts = _facts(json.loads(host.read_text("utf-8"))) if host.exists() else {}
    except (OSError, ValueError, TypeError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is not a recording: {error}") from None
    if about.get("format") != FORMAT or not pages or len(times) != len(pages):
        raise UsageError(f"{path} is not a recording of format {FORMAT}")
    return Recording(path.name, times, pages, about.get("version"), about.get("models"), facts)


def _facts(told: Any) -> dict[str, Reading]:
    """The host's facts; ValueError where they are not what they must be."""
    if not isinstance(told, dict) or not all(isinstance(fact, dict) for fact in told.values()):
        raise ValueError("facts.json is no object of objects")
    return {name: _fact(fact) for name, fact in told.items()}


def _fact(told: dict[str, Any]) -> Reading:
    if "unknown" in told:
        return Unknown(Reason(told["unknown"]))
    value = told.get("value")
    if not isinstance(value, bool | int | float | str):
        raise ValueError("a fact of facts.json has neither a value nor a reason")
    value = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return Known(value, origin=str(told.get("from", "")))
