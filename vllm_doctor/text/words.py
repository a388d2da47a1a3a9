"""Readings in words: a number with its unit, a sentence with its numbers."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from vllm_doctor.model.reading import Known, Reading, Unknown, Value

Read = Callable[[str], tuple[Reading, str]]
"""A signal's reading and unit, by name."""

COST = {
    "none": "no cost",
    "client": "a change in the client",
    "restart": "restart",
    "capacity": "needs hardware",
    "quality": "restart, and a change of quality",
}
"""What a remedy costs, in words."""
ORIGIN = {
    "heuristic": "rule of thumb",
    "vllm-docs": "vLLM's docs",
    "vllm-source": "vLLM's source",
    "nvidia": "NVIDIA's docs",
    "measured": "measured",
}
"""Where a threshold is from, in words."""

_VARIABLE = re.compile(r"\$(?:\w+|\{\w+(?:\[[@*]\])?\}|[@*])", re.ASCII)
_LONG = 1e15
"""From here on a number is written with its exponent: nobody counts the digits."""
_NO_VARIABLES: Mapping[str, bool] = MappingProxyType({})
_PLACE = re.compile(r"\{(\w+)\}")


def number(value: float, unit: str = "") -> str:
    """1234.5 -> "1,234"; 0.034 as a share -> "3.4 %"; 0.0071 s -> "7.1 ms". Three digits are enough."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞" if value < 0 else "?"
    if unit == "share":
        return _percent(value * 100)
    if unit == "s":
        return _seconds(value)
    if unit == "requests":
        return _digits(float(round(value))) if value >= 10 else f"{round(value, 1):g}"
    if unit == "bytes":
        return _bytes(value)
    text = _digits(value)
    if unit in ("W", "MHz", "°C"):
        return f"{text} {unit}"
    return f"{text}/s" if unit == "1/s" else text


def _percent(value: float) -> str:
    if 0 < value < 0.1:
        return "under 0.1 %"
    return f"{value:.1f}".removesuffix(".0") + " %" if abs(value) < 10 else f"{_digits(round(value, 0))} %"


def _bytes(value: float) -> str:
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value)} bytes"


def _seconds(value: float) -> str:
    if 0 < abs(value) < 1:
        return f"{_digits(value * 1000)} ms"
    return f"{_digits(value)} s"


def _digits(value: float) -> str:
    if abs(value) >= _LONG:
        return f"{value:.3g}"
    if value == int(value) or abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1e}"


def reading(known: Known, unit: str = "") -> str:
    """A value as a person reads it: "18", "1–2.5 s" where only the bucket is known, "no"."""
    if isinstance(known.value, bool) or (unit == "flag" and known.value in (0.0, 1.0)):
        return "yes" if known.value else "no"
    if isinstance(known.value, str):
        return known.value
    if known.low is not None and known.high is not None and known.low != known.high:
        if known.high == math.inf:
            return f"over {number(known.low, unit)}"
        low = "0" if known.low == 0 else number(known.low, unit)
        return _span(low, number(known.high, unit))
    return number(known.value, unit)


def _span(low: str, high: str) -> str:
    low_number, _, low_unit = low.partition(" ")
    _, _, high_unit = high.partition(" ")
    return f"{low_number}–{high}" if low_unit in ("", high_unit) else f"{low}–{high}"


def compared(is_: str, than: Value, unit: str = "", than_signal: str | None = None) -> str:
    """ "> 10 %", "< 40 (max_num_seqs)"; nothing beside a yes or no, which says it."""
    if isinstance(than, bool):
        return ""
    text = f"{is_} {reading(Known(than), unit)}"
    return f"{text} ({than_signal})" if than_signal else text


def flag(name: str, value: Value) -> str:
    """A flag as it stands on a command line: "--max-num-seqs 64", "--enforce-eager", "--no-enable-x"."""
    if isinstance(value, bool):
        return name if value else f"--no-{name.removeprefix('--')}"
    return f"{name} {plain(value)}"


def bound(at_most: float, basis: str) -> str:
    """What a cure can bring: "at most × 1.11 (recomputed tokens / all)"; rounded up, so that it stays a bound."""
    digits = 2 if at_most < 10 else 1 if at_most < 100 else 0
    return f"at most × {number(math.ceil(at_most * 10**digits - 1e-9) / 10**digits)} ({basis})"


def setting(name: str, value: Value) -> tuple[str, ...]:
    """The words that set a flag: ("--max-num-seqs", "64")."""
    written, space, text = flag(name, value).partition(" ")
    return (written, text) if space else (written,)


def quoted(word: str, variables: Mapping[str, bool]) -> str:
    """The word as a shell takes it. `variables`: the pieces of a command that a shell expands, and whether one that
    stands alone may become several words."""
    pieces = [piece for piece in variables if piece in word and _VARIABLE.fullmatch(piece)]
    if not pieces:
        return shlex.quote(word)
    pattern = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
    parts = [part for part in re.split(f"({pattern})", word) if part]
    expanded = {piece: piece if piece == word and variables[piece] else f'"{piece}"' for piece in pieces}
    return "".join(expanded.get(part) or shlex.quote(part) for part in parts)


def folded(command: Sequence[str], width: int, variables: Mapping[str, bool] = _NO_VARIABLES) -> list[str]:
    """A command line, folded between its words so that it can still be pasted; `variables` as of `quoted`."""
    lines: list[str] = []
    for word in (quoted(word, variables) for word in command):
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def fill(template: str, read: Read) -> str | None:
    """The sentence with its signals' values; None if one is unknown: a sentence with a hole says nothing."""
    holes: list[str] = []

    def value(match: re.Match[str]) -> str:
        found, unit = read(match[1])
        if isinstance(found, Unknown):
            holes.append(match[1])
            return ""
        return reading(found, unit)

    text = _PLACE.sub(value, template)
    return None if holes else text


def names(template: str) -> list[str]:
    """The signals that a template names."""
    return _PLACE.findall(template)


def plain(value: Value) -> Value:
    """A whole number as int: 11.0 -> 11; one whose digits a float does not hold stays as it is."""
    if isinstance(value, float) and abs(value) < 2**53 and value == int(value):
        return int(value)
    return value
