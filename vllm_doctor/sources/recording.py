"""A recording: the scrapes of a real server, kept as plain files.

    recording.json      {"format", "taken", "scrapes": [seconds, ...], "version": {...}, "models": {...}}
    metrics/NNN.prom.gz the answers of /metrics, in order

Read for the demo, which serves one over HTTP, and for the tests.
"""

from __future__ import annotations

import bisect
import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_doctor.errors import UsageError

FORMAT = "vllm-doctor/recording/v1"


@dataclass(frozen=True)
class Recording:
    """`times[i]` seconds after the start, /metrics answered `pages[i]`."""

    name: str
    times: tuple[float, ...]
    pages: tuple[bytes, ...]
    version: Any
    models: Any

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
    except (OSError, ValueError, TypeError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is not a recording: {error}") from None
    if about.get("format") != FORMAT or not pages or len(times) != len(pages):
        raise UsageError(f"{path} is not a recording of format {FORMAT}")
    return Recording(path.name, times, pages, about.get("version"), about.get("models"))
