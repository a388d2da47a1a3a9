"""What may leave: no secrets, and nothing that a terminal would obey.

The one place for it. Sources mask what they read of a command line or an environment, the whole report is masked once
more before a renderer sees it, and a recording is made of masked texts alone.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vllm_doctor.model.report import Patch, Report
from vllm_doctor.text import named_values, secret_names

Shown = TypeVar("Shown")

MASK = "[masked]"
WHEN_READ = "when-read"
"""What a source has masked itself, of a command line, an environment or a file."""


class _Shape(NamedTuple):
    """What a secret looks like, or what stands around it: then it is the group `it`, else the whole match.

    A text without any of `literals`, in lower case, has none: few patterns are ever compiled.
    Each repetition is bounded or possessive: a hostile text must not take long.
    """

    what: str
    literals: tuple[str, ...]
    pattern: str

    def sub(self, value: str, low: str, masked: Counter[str]) -> str:
        for literal in self.literals:
            if literal in low:
                break
        else:
            return value
        value, count = _compiled(self.pattern).subn(_mask, value)
        if count:
            masked[self.what] += count
        return value


_compiled = cache(re.compile)
_BEFORE_NAMES = (
    _Shape("private-key", ("private key-----",), r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<it>[\w+/=\\\s]{1,9999})"),
    _Shape("url-credentials", ("://",), r"(?<=://)(?!\[masked\]@)(?P<it>[^/\s]{1,1000})(?=@)"),
    _Shape(
        "authorization",
        ("authorization",),
        r"""(?ix)\bauthorization ["']? \s{0,9} [:=] \s{0,9} ["'\[]{0,2} (?!\[?masked\])
            (?P<it> [^\s"',}\]]{1,9999} (?: [ ] [^\s"',}\]]{1,9999} )? )""",
    ),
    _Shape("authorization", ("bearer",), r"(?i)\bbearer\s{1,9}(?P<it>[\w.~+/=-]{8,})"),
    _Shape("authorization", ("basic",), r"\b(?i:basic)\s{1,9}(?P<it>(?=[a-z]{0,99}[A-Z0-9+/=])[\w+/=-]{8,})"),
    _Shape(
        "cookie",
        ("cookie",),
        r"""(?i)\b(?:set-)?cookie["']?\s{0,9}[:=]\s{0,9}["']?(?P<it>(?!\[masked)[^"'\s][^"']{3,9999})""",
    ),
)
_AFTER_NAMES = (
    _Shape(
        "signature",
        ("sig", "auth", "x-amz", "x-goog"),
        r"""(?i)[?&](?:sig|signature|auth|x-(?:amz|goog)-[a-z-]{3,20})=(?!\[masked)(?P<it>[^&\s"']{1,9999})""",
    ),
    _Shape("cloud-key", ("sharedaccess",), r"""(?i)\bsharedaccesssignature=(?!\[masked)(?P<it>[^;\s"']{1,9999})"""),
    _Shape(
        "prompt",
        ("prompt", "token_ids", "output", "messages", "content", "input_value"),
        r"""(?x) (?<![\w-])
            (?:prompts? | (?:prompt_|output_)?token_ids | outputs? | messages | content | input_value)
            ["']? \s?[:=]\s? (?P<it> '(?!\[masked)(?:[^'\\]|\\.){1,9999}'? | "(?!\[masked)(?:[^"\\]|\\.){1,9999}"?
            | \[(?!masked)[^\]]{1,9999}\]? )""",
    ),
)
_RUN = re.compile(r"[\w~+/=.:-]{12}")
"""Each token of `_token_shapes` has as many of these in a row."""
_SHAPES = Path(__file__).with_name("token_shapes.tsv")


@cache
def _token_shapes() -> tuple[tuple[str, _Shape], ...]:
    """Each with a text that is in it, as it is written."""
    lines = _SHAPES.read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return tuple(
        (literal, _Shape(what, (literal,), pattern))
        for _, what, _, literals, pattern in rows
        for literal in literals.split(",")
    )


def text(value: str, masked: Counter[str]) -> str:
    """The text without secrets and control characters; `masked` counts what was taken out."""
    clean, counts = _again(value) if len(value) <= _SHORT else _cleaned(value)
    if counts:
        masked.update(counts)
    return value if clean == value else clean  # the same one: what is unchanged is not copied


def secrets(value: str, masked: Counter[str]) -> str:
    """The text without secrets; else as it stands, with all its lines."""
    low = value.lower()
    for shape in _BEFORE_NAMES:
        value = shape.sub(value, low, masked)
    value = named_values.masked(value, low, masked, MASK)
    for shape in _AFTER_NAMES:
        value = shape.sub(value, low, masked)
    if _RUN.search(value):
        for literal, shape in _token_shapes():
            if literal in value:
                value = shape.sub(value, value, masked)
    return value


def _cleaned(value: str) -> tuple[str, dict[str, int]]:
    counts: Counter[str] = Counter()
    if MASK in value:
        counts[WHEN_READ] = value.count(MASK)
    value = secrets(value, counts)
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


def _mask(match: re.Match[str]) -> str:
    start, end = (place - match.start() for place in match.span("it" if "it" in match.re.groupindex else 0))
    return match[0][:start] + MASK + match[0][end:]


def report(value: Report) -> Report:
    """The report as it may leave; says what was masked, in recordings also when they were taken."""
    masked: Counter[str] = Counter()
    clean: Report = _clean(value, masked)
    if value.recordings:
        del masked[WHEN_READ]
    for seen in value.recordings:
        masked.update(seen.redacted)
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
        changes = {}
        for name in _fields_of(type(value)):
            before = getattr(value, name)
            if (after := _clean(before, masked)) is not before:
                changes[name] = after
        return replace(value, **changes) if changes else value
    if isinstance(value, Mapping):
        return {_clean(key, masked): _of_name(key, _clean(item, masked), masked) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_clean(item, masked) for item in value]
        return value if all(map(operator.is_, items, value)) else tuple(items)
    return value


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _of_name(name: Any, value: Any, masked: Counter[str]) -> Any:
    """A value, unless its name tells that it is a secret: a label api_key="…"."""
    kind = secret_names.kind(name) if type(name) is str and type(value) is str and MASK not in value else None
    if kind is None:
        return value
    masked[kind] += 1
    return MASK
