"""Readings in words: a number with its unit, a sentence with its numbers."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_ONE = re.compile(
    r"(?<![\w.,–/×-])1 ((?:concurrent )?(?:GPU|request|token|core|engine|process(?=es)|worker|run|line|step|stage"
    r"|slot|server|replica|layer|thread|prompt|adapter|stack|sample|scrape))e?s( (?:run|wait|are|were|have))?\b"
)
_OF_ONE = {" run": " runs", " wait": " waits", " are": " is", " were": " was", " have": " has"}
_PIECE = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:\\.|[^"\\])*"|\\.)+""", re.DOTALL)
"""What stands between blanks of a shell command that no quotes hold."""
_IN_COMMAND = re.compile(
    r"(?<![\w./-])(?:vllm-doctor|vllm|docker|podman|kubectl|helm|systemctl|journalctl|nvidia-smi|sudo|pgrep|renice"
    r"|taskset|curl|ray|python3?|bash|sh) [^.;,]*\{\w+\}"
)
_OPEN_QUOTE = re.compile(r"""(?:[^'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")*""", re.DOTALL)


def shortened(name: str, most: int = 300) -> str:
    """A name as it is shown: who gives a longer one wants it to be in the way."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


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
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.2g}" if abs(value) >= 0.0001 else _tiny(value)


def _tiny(value: float) -> str:
    """Without an exponent, which nobody reads at a glance: "0.000021"."""
    return f"{value:.6f}".rstrip("0") if abs(value) >= 0.000001 else f"{'-' if value < 0 else ''}under 0.000001"


def times(factor: float) -> str:
    """How much one value is of another: "× 2.8"; where it is less "÷ 32", and no "× 2.1e-05"."""
    if not 0 < factor < 1:
        return f"× {factor:,.0f}" if factor >= 100 else f"× {factor:.2g}"
    return f"÷ {number(float(f'{1 / factor:.2g}'))}"


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
    """A flag as it stands on a command line, to be pasted: "--max-num-seqs 64", "--enforce-eager", "--no-enable-x"."""
    return " ".join(map(shlex.quote, setting(name, value)))


def bound(at_most: float, basis: str) -> str:
    """What a cure can bring: "at most × 1.11 (recomputed tokens / all)"; rounded up, so that it stays a bound."""
    digits = 2 if at_most < 10 else 1 if at_most < 100 else 0
    return f"at most × {number(math.ceil(at_most * 10**digits - 1e-9) / 10**digits)} ({basis})"


def setting(name: str, value: Value) -> tuple[str, ...]:
    """The words that set a flag: ("--max-num-seqs", "64")."""
    if isinstance(value, bool):
        return (name if value else f"--no-{name.removeprefix('--')}",)
    return name, str(plain(value))


def variable(name: str, value: Value) -> str:
    """A variable as it is set before a command, to be pasted: "OMP_NUM_THREADS=1"."""
    return f"{shlex.quote(name)}={shlex.quote(str(plain(value)))}"


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
    return _folded([quoted(word, variables) for word in command], width)


def folded_text(command: str, width: int) -> list[str]:
    """A shell command, folded in the same way."""
    pieces = _PIECE.findall(command)
    return _folded(pieces if " ".join(pieces) == command else [command], width)


def _folded(pieces: Iterable[str], width: int) -> list[str]:
    """A line that no backslash ends would be a command of its own."""
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + len(piece) + 3 <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}" if lines else piece)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def command(template: str, read: Read) -> str:
    """A shell command with its signals' values as a shell reads them: 1024, not "1,024"; each is one word, whatever
    stands in it, and those of the unit "words" are several. One that is not known stays a place."""

    def value(match: re.Match[str]) -> str:
        found, unit = read(match[1])
        if isinstance(found, Unknown):
            return match[0]
        text = str(plain(found.value))
        return " ".join(map(shlex.quote, text.split())) if unit == "words" else shlex.quote(text)

    return _PLACE.sub(value, template)


def unquotable(template: str) -> str:
    """The place of a shell command that stands within quotes, where `command` cannot quote it; "" for none."""
    return next((m[0] for m in _PLACE.finditer(template) if not _OPEN_QUOTE.fullmatch(template, 0, m.start())), "")


def holds_command(sentence: str) -> bool:
    """Whether a sentence holds a command with a signal's value in it, which nobody would quote."""
    return _IN_COMMAND.search(sentence) is not None


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
    return None if holes else singular(text)


def singular(text: str) -> str:
    """ "1 GPUs" -> "1 GPU", "1 requests run" -> "1 request runs"."""
    return _ONE.sub(lambda m: f"1 {m[1]}{_OF_ONE.get(m[2] or '', m[2] or '')}", text)


def names(template: str) -> list[str]:
    """The signals that a template names."""
    return _PLACE.findall(template)


def plain(value: Value) -> Value:
    """A whole number as int: 11.0 -> 11; one whose digits a float does not hold stays as it is."""
    if isinstance(value, float) and abs(value) < 2**53 and value == int(value):
        return int(value)
    return value
