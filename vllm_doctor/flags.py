"""Which flags a vLLM version has.

data/flags.tsv: a flag, and the first and last of the sampled releases that have it (`--x<TAB>0.8.5..0.33.0`),
read from the argument parsers of 34 releases, 0.4.3 to 0.33.0. Between two samples the answer is unknown.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

Release = tuple[int, ...]

_FILE = Path(__file__).parent / "data" / "flags.tsv"


def release(version: str) -> Release | None:
    """(0, 11, 1) of "0.11.1rc3.dev29+g3fa2c12"; None where there is no version in the text."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in match.groups()) if match else None


@cache
def _spans() -> dict[str, list[tuple[Release, Release]]]:
    spans: dict[str, list[tuple[Release, Release]]] = {}
    for line in _FILE.read_text("utf-8").splitlines():
        flag, _, listed = line.partition("\t")
        for span in listed.split(";"):
            first, last = (release(end.strip()) for end in span.split(".."))
            if first and last:
                spans.setdefault(flag, []).append((first, last))
    return spans


@cache
def _samples() -> list[Release]:
    return sorted({end for spans in _spans().values() for span in spans for end in span})


def _spans_of(flag: str) -> list[tuple[Release, Release]]:
    return _spans().get(flag) or _spans().get(flag.replace("--no-", "--", 1)) or []


def names() -> frozenset[str]:
    """Every flag that any of the sampled releases has, by its long name."""
    return frozenset(_spans())


def is_flag(flag: str) -> bool:
    """Whether any of the sampled releases takes the flag (a `--no-` form counts as its flag)."""
    return bool(_spans_of(flag))


def has(version: str | None, flag: str) -> bool | None:
    """Whether that vLLM takes the flag (a `--no-` form counts as its flag). None: not known."""
    asked = release(version) if version else None
    if asked is None:
        return None
    spans = _spans_of(flag)
    if any(first <= asked <= last for first, last in spans):
        return True
    samples = _samples()
    older = max((sample for sample in samples if sample < asked), default=None)
    newer = min((sample for sample in samples if sample > asked), default=None)
    if asked in samples or not spans:
        return False
    # Between two samples a flag may have come or gone; newer than all, it may have gone.
    near = [sample for sample in (older, newer) if sample is not None]
    return None if any(first <= sample <= last for first, last in spans for sample in near) else False
