"""What stands within flags whose value is JSON, as the flags that vLLM takes for it: --speculative-config.method. Pure.

A value that was cut, or of which a part was left out ('{... "num_speculative_tokens": 3}'), still tells what stands in
it; and so does the repr by which a log has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown, Value

KEYS: Mapping[str, tuple[str, ...]] = {
    "--speculative-config": ("method", "num_speculative_tokens"),
    "--structured-outputs-config": ("backend",),
    "--limit-mm-per-prompt": ("image", "video", "audio"),
    "--kv-transfer-config": ("kv_role",),
    "--compilation-config": ("cudagraph_mode", "max_cudagraph_capture_size", "cudagraph_capture_sizes"),
}
"""Those that rules read. A list is kept as its words ("1 2 4")."""

_MODE = "cudagraph_mode"
_MODE_FLAG = f"--compilation-config.{_MODE}"
_LARGEST = "largest_graph_given"
_SIZES = ("--cudagraph-capture-sizes", "--compilation-config.cudagraph_capture_sizes", "--cuda-graph-sizes")
_CAPS = ("--max-cudagraph-capture-size", "--compilation-config.max_cudagraph_capture_size")
_VALUE = r"[\"']?\s{0,9}[:=]\s{0,9}(?:\[([\d,\s]{1,4000})\]|<\w{1,40}\.(\w{1,40})|[\"']?([\w.-]{1,200}))"
_MOST = 20_000


def of_text(flag: str, text: str) -> dict[str, Value]:
    """The keys of the flag that stand in its value, by their dotted names. {} for a flag without such keys."""
    found: dict[str, Value] = {}
    for key in KEYS.get(flag, ()):
        match = re.search(rf"\b{key}{_VALUE}", text[:_MOST])
        value = None if match is None else _plain(match[1], match[2] or match[3])
        if key == _MODE and isinstance(value, str):
            value = value.upper()
        if value is not None:
            found[f"{flag}.{key}"] = value
    return found


def of_facts(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """What the flags among the facts hold within, where it is not given by its dotted name; where a flag's value is not
    known, neither is what it does not show. And the fact largest_graph_given: the tokens of the largest CUDA graph that
    may be captured, by the flags that limit it."""
    found: dict[str, Reading] = {}
    for flag, keys in KEYS.items():
        given = facts.get(flag)
        if isinstance(given, Known) and isinstance(given.value, str):
            found |= {name: Known(value, origin=given.origin) for name, value in of_text(flag, given.value).items()}
        elif isinstance(given, Unknown):
            found |= dict.fromkeys((f"{flag}.{key}" for key in keys), given)
    found = {name: reading for name, reading in found.items() if not isinstance(facts.get(name), Known)}
    mode = facts.get(_MODE_FLAG)
    if isinstance(mode, Known) and isinstance(mode.value, str) and mode.value != mode.value.upper():
        found[_MODE_FLAG] = replace(mode, value=mode.value.upper())
    largest = _largest_graph({**facts, **found})
    return found if largest is None else {**found, _LARGEST: largest}


def rewritten(text: str, keys: Mapping[str, str | None]) -> str | None:
    """The JSON with these keys set, or left out (None); None where it is no object of JSON, or stays as it is."""
    try:
        told = outside.json(text)
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    now = {key: value for key, value in told.items() if key not in keys}
    now |= {key: _json_value(value) for key, value in keys.items() if value is not None}
    return None if now == told else json.dumps(now)


def _json_value(text: str) -> object:
    number = outside.number(text)
    if number is None:
        return {"true": True, "false": False}.get(text.lower(), text)
    return int(number) if number == int(number) else number


def _largest_graph(facts: Mapping[str, Reading]) -> Known | None:
    """By config/vllm.py, _set_cudagraph_sizes: the largest size that is listed; else the largest of vLLM's own sizes
    within the cap: 1, 2, 4, multiples of 8 up to 256 and of 16 above."""
    for name in _SIZES:
        given = facts.get(name)
        if isinstance(given, Known) and (sizes := list(_numbers(given.value))):
            return Known(max(sizes), origin=given.origin)
    for name in _CAPS:
        given = facts.get(name)
        if isinstance(given, Known) and isinstance(given.value, float) and given.value >= 1:
            return Known(_own_size(given.value), origin=given.origin)
    return None


def _own_size(cap: float) -> float:
    return max(size for size in (1.0, 2.0, 4.0, min(cap // 8 * 8, 248.0), cap // 16 * 16) if size <= cap)


def _numbers(value: Value) -> Iterator[float]:
    words: Iterable[str] = str(value).replace(",", " ").split() if isinstance(value, str) else ()
    if isinstance(value, float):
        yield value
    for word in words:
        if (number := outside.number(word.strip("[]"))) is not None:
            yield number


def _plain(listed: str | None, text: str | None) -> Value | None:
    if listed is not None:
        return " ".join(listed.replace(",", " ").split()) or None
    if text is None or text.lower() in ("none", "null"):
        return None
    number = outside.number(text)
    return text if number is None else number
