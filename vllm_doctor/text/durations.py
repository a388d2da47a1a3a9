"""Durations: read as people write them, written for people and for Prometheus."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h|d|)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse(text: str) -> float:
    """Seconds of "3", "3s", "50ms", "2m", "2 min", "1.5h" or "1d". Raises ValueError."""
    match = _WRITTEN.fullmatch(text)
    if match is None or len(text) > 20:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2]]


def duration(seconds: float) -> str:
    """For people: "45 s", "12 min", "7 h 20", "3 d 4 h"."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02}" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def promql(seconds: float) -> str:
    """As Prometheus writes it: "5m", "90s", "500ms"."""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds % size == 0 and seconds:
            return f"{round(seconds / size)}{unit}"
    return f"{round(seconds * 1000)}ms" if seconds else "0s"
