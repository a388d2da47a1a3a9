"""Figures that people state of a device, for one that no table knows: "foo 900GB/s 100TFLOPS 24GB". Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_GIB = 1024.0**3
_SCALE: Mapping[str, float] = {"m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_FIGURE = re.compile(
    r"(?<![\w.])(?P<number>\d{1,6}(?:\.\d{1,3})?) ?(?:(?P<bandwidth>[mgt])i?b/s|(?P<flops>[gtp])flop(?:s|/s))(?![\w/])",
    re.I,
)
_MEMORY = re.compile(r"(?<![\w.])([1-9]\d{0,3}) ?gi?b(?![\w/])", re.I)


@dataclass(frozen=True, slots=True)
class Stated:
    """Bytes and operations a second; None where it is not stated. `name`: the words without these two."""

    name: str
    bandwidth: float | None
    flops: float | None


def stated(text: str) -> Stated | None:
    """The figures in "my cpu 18 GB/s 0.3 TFLOPS"; None where there are none."""
    told: dict[str, float] = {}
    for match in _FIGURE.finditer(text):
        kind = "bandwidth" if match["bandwidth"] else "flops"
        value = float(match["number"]) * _SCALE[match[kind].lower()]
        if value > 0:
            told.setdefault(kind, value)
    if not told:
        return None
    return Stated(_plain(_FIGURE.sub(" ", text)), told.get("bandwidth"), told.get("flops"))


def memory(name: str) -> tuple[str, float | None]:
    """What is left of "foo 24GB" without its memory, and that in bytes (a data sheet's GB are GiB)."""
    match = _MEMORY.search(name)
    return (name, None) if match is None else (_plain(_MEMORY.sub(" ", name)), float(match[1]) * _GIB)


def _plain(text: str) -> str:
    return " ".join(text.replace(",", " ").split()).strip(" ;:@-")
