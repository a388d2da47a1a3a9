"""What may leave: secrets masked, and nothing that a terminal would obey. Applied once, to the whole report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from vllm_doctor.report import Patch, Report

Shown = TypeVar("Shown")

_MASK = "[masked]"
_SECRETS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("url-credentials", re.compile(r"(?<=://)[^/\s]+(?=@)")),
    ("authorization", re.compile(r"(?i)(?<=authorization: )\S+(?: \S+)?|(?<=bearer )[\w.~+/=-]{8,}")),
    ("api-key", re.compile(r"(?i)(?<=--api-key )\S+(?: [^-\s\\]\S*)*|(?<=--api-key=)\S+")),
    (
        "api-key",
        re.compile(
            r"""(?ix)((?:x-)?api[_-]?key|token|secret|password)["']?\s*[:=]\s*\[?["']?(?!\[masked\]|masked\])(?P<it>[^\s"'&,}]{4,})"""
        ),
    ),
    ("token", re.compile(r"\b(?:hf_|sk-|ghp_|xox[abp]-|AKIA)[\w-]{8,}")),
)


def text(value: str, masked: Counter[str]) -> str:
    """The text without secrets and control characters; `masked` counts what was taken out."""
    clean, counts = _again(value) if len(value) <= _SHORT else _cleaned(value)
    masked.update(counts)
    return clean


def _cleaned(value: str) -> tuple[str, dict[str, int]]:
    counts: Counter[str] = Counter()
    for what, pattern in _SECRETS:
        value, count = pattern.subn(_masked, value)
        if count:
            counts[what] += count
    if not value.isprintable():
        value = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in value)
    return value, dict(counts)


_SHORT = 1000
_again = lru_cache(4096)(_cleaned)
"""Of a server that is watched most texts are the same each time."""


def _patch(value: Patch, masked: Counter[str]) -> Patch:
    """Its lines keep their tabs, without which they would not fit."""
    lines = ["\t".join(text(part, masked) for part in line.split("\t")) for line in value.lines]
    rest = {f.name: _clean(getattr(value, f.name), masked) for f in fields(value) if f.name != "lines"}
    return replace(value, **rest, lines=tuple(lines))


def _masked(match: re.Match[str]) -> str:
    secret = match.groupdict().get("it")
    return _MASK if secret is None else match[0].replace(secret, _MASK)


def report(value: Report) -> Report:
    """The report as it may leave; says what was masked."""
    masked: Counter[str] = Counter()
    clean: Report = _clean(value, masked)
    return replace(clean, redacted=dict(masked))


def anything(value: Shown) -> Shown:
    """What else may leave, a comparison: the same without secrets and control characters."""
    clean: Shown = _clean(value, Counter())
    return clean


def _clean(value: Any, masked: Counter[str]) -> Any:
    if type(value) is str:
        return text(value, masked)
    if isinstance(value, Patch):
        return _patch(value, masked)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _clean(getattr(value, f.name), masked) for f in fields(value)}
        return replace(value, **changes)
    if isinstance(value, Mapping):
        return {_clean(key, masked): _clean(item, masked) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_clean(item, masked) for item in value)
    return value
