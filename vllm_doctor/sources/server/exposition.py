"""The Prometheus text format, as servers in the wild write it.

prometheus_client parses; what it refuses, or fails on, is left out line by line: one torn line does not cost the page.
Lines of metrics that no signal uses are dropped unread: a page may hold a hundred thousand of them.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.window import Labels, Sample
from vllm_doctor.vllm import gateways
from vllm_doctor.vllm.gateways import Gateway

if TYPE_CHECKING:
    from prometheus_client import Metric

MAX_SERIES = 200_000

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_RAY = re.compile(r"ray_vllm[:_]")
_CHUNK = 500
_MOST_CHARS = 32 * 1024
"""Of one line: prometheus_client takes time with the square of its length."""


def _parser() -> Callable[[str], Iterable[Metric]]:
    """prometheus_client's parser alone: the package itself would bring an HTTP server along, a tenth of a start."""
    name = "prometheus_client"
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is not None:
        sys.modules[name] = importlib.util.module_from_spec(spec)  # a place for its modules, whose own code is not run
    try:
        from prometheus_client.parser import text_string_to_metric_families
    finally:
        if spec is not None:
            del sys.modules[name]  # who wants the package imports it
    return text_string_to_metric_families


_families = _parser()


@dataclass(frozen=True, slots=True)
class Page:
    """One scrape. `is_metrics`: a line of it parses at all. `has_vllm`: one is a vLLM metric. `gateway`: whose it is,
    where it is no server's but of what stands in front of servers."""

    samples: tuple[Sample, ...]
    is_metrics: bool
    has_vllm: bool
    refused_lines: int
    gateway: Gateway | None = None


Heads = dict[str, tuple[str, Labels]]
"""What stands before a value, as text -> metric and labels. From scrape to scrape only the values change."""


def parse(text: str, wanted: frozenset[str], heads: Heads | None = None) -> Page:
    """The samples of the wanted metrics. NaN, infinite values, and what no server counts, are left out: not known.

    Ray's names (ray_vllm_x, as Ray replaces the colon) count as vllm:x. Raises SourceError if there are too many.
    `heads` is kept by the caller from page to page: a line that begins as one before is not parsed again.
    """
    lines: list[str] = []
    samples: list[Sample] = []
    known = heads if heads is not None else {}
    has_vllm = is_metrics = False
    shown: set[str] = set()
    whole, _, torn = text.rpartition("\n")  # a page without a last newline was cut: its last value may be half a number
    refused = 1 if torn.strip() else 0
    for raw in whole.split("\n"):
        head, _, value = raw.rpartition(" ")
        hit = known.get(head)
        if hit is not None:
            name, labels = hit
            number = outside.number(value)
            if number is not None and name in wanted:
                samples.append(Sample(name, labels, number))
            if number is not None or name not in wanted or _is_unknown(value):
                shown.add(name)
                has_vllm = has_vllm or name.startswith("vllm:")
                continue
        line = raw.strip(" \t\r")
        if not line or line[0] == "#":
            is_metrics = is_metrics or line.startswith(("# TYPE ", "# HELP "))
            continue
        match = _NAME.match(line)
        if match is None:
            continue
        name = match[0]
        if name.startswith("ray_vllm"):
            name = _RAY.sub("vllm:", name, count=1)
            line = name + line[match.end() :]
        shown.add(name)
        if name.startswith("vllm:"):
            has_vllm = True
        if name in wanted and len(line) > _MOST_CHARS:
            refused += 1
        elif name in wanted:
            lines.append(line)
        elif heads is not None and len(heads) < 2 * MAX_SERIES and _is_head(head):
            heads[head] = name, ()
    count = len(lines) + len(samples)
    if count > MAX_SERIES:
        raise SourceError("too-large", f"{count:,} series of vLLM on one page, more than {MAX_SERIES:,}")
    new, bad = _read(lines, heads)
    samples += new
    return Page(tuple(samples), is_metrics or bool(samples), has_vllm, refused + bad, gateways.of(shown))


def _read(lines: list[str], heads: Heads | None) -> tuple[list[Sample], int]:
    """The samples of lines that are new, whose heads are kept; and how many lines cannot be read."""
    samples: list[Sample] = []
    refused = 0
    for start in range(0, len(lines), _CHUNK):
        chunk = lines[start : start + _CHUNK]
        good, bad = _parsed(chunk)
        samples += good
        refused += bad
        if heads is not None:
            _learn(chunk, good, heads)
    return samples, refused


def _is_unknown(value: str) -> bool:
    """NaN and infinity are how a server says that it does not know."""
    return value.strip(" \t\r+-").lower() in ("nan", "inf", "infinity")


def _learn(lines: list[str], samples: list[Sample], heads: Heads) -> None:
    """Keep the heads of these lines. With a time behind the value, or where a line gave nothing, none is kept."""
    if len(lines) != len(samples):
        for line in lines if len(lines) > 1 else ():
            _learn([line], _parsed([line])[0], heads)
        return
    if len(heads) > MAX_SERIES:  # series that come and go: begin anew
        heads.clear()
    for line, sample in zip(lines, samples, strict=True):
        head, _, value = line.rpartition(" ")
        if _is_head(head) and outside.number(value) == sample.value:  # a space may also stand before the labels
            heads[head] = sample.name, sample.labels


def _is_head(text: str) -> bool:
    """Whether a value alone may follow: no time stands between."""
    return text.endswith("}") or " " not in text


def _parsed(lines: list[str]) -> tuple[list[Sample], int]:
    try:
        return _samples(lines)
    except Exception:  # a foreign parser's: it fails on strange lines in several ways
        if len(lines) == 1:
            return [], 1
    half = len(lines) // 2
    (first, bad_first), (second, bad_second) = _parsed(lines[:half]), _parsed(lines[half:])
    return first + second, bad_first + bad_second


def _samples(lines: Iterable[str]) -> tuple[list[Sample], int]:
    found: list[Sample] = []
    refused = 0
    for family in _families("\n".join(lines) + "\n"):
        for sample in family.samples:
            value = outside.number(sample.value) if _NAME.fullmatch(sample.name) else None
            if value is not None:
                found.append(Sample(sample.name, tuple(sorted(sample.labels.items())), value))
            elif isinstance(sample.value, int) or math.isfinite(sample.value):
                refused += 1
    return found, refused
