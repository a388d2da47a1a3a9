"""How fast a GPU could be, by its data sheet. What a step reads and computes is in rules/signals/roofline.yaml. Pure.

Upper bounds, of which no kernel reaches all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "gpus.tsv"
_GIGA, _TERA = 1e9, 1e12
_GIB = 1024.0**3
_MEMORY_FITS = 0.1
"""How far a GPU's memory may be from its data sheet's: ECC and the driver keep some."""

_CUT = "..."
"""How the table of nvidia-smi ends a name that is too long for it."""
_VENDOR = re.compile(r"^(?:NVIDIA )?(?:Tesla )?")
_ALTERNATIVES = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of data/gpus.tsv: bytes and operations a second, not GB and TFLOPS."""

    pattern: str
    bandwidth: float
    bf16: float | None
    """Dense, accumulated in FP32; FP16 for a GPU without BF16."""
    fp8: float | None
    memory: float | None
    """Bytes; a data sheet's GB are GiB."""
    capability: str | None
    source: str


def gpu(name: str, memory: float | None = None) -> Gpu | None:
    """The GPU that the driver calls this, of this many bytes; None where we do not know it, or it is a part of one."""
    for known in gpus():
        fits = memory is None or known.memory is None or abs(memory / known.memory - 1) <= _MEMORY_FITS
        if fits and re.search(known.pattern, name, re.IGNORECASE):
            return known
    return _of_cut(name, memory) if name.endswith(_CUT) and memory is not None else None


def _of_cut(name: str, memory: float) -> Gpu | None:
    """The only GPU of this memory whose name begins so, of those without near kin ("RTX 3090 Ti")."""
    begun = _VENDOR.sub("", name.removesuffix(_CUT)).rstrip().lower()
    fitting = [
        known
        for known in gpus()
        if known.memory is not None
        and abs(memory / known.memory - 1) <= _MEMORY_FITS
        and not known.pattern.endswith("$")
        and any(whole.lower().startswith(begun) for whole in names(known))
    ]
    return fitting[0] if len(fitting) == 1 and re.search(r"\d", begun) else None


def names(known: Gpu) -> list[str]:
    """The names that a pattern of data/gpus.tsv stands for."""
    plain = re.sub(r"\\b|\$", "", known.pattern).replace("\\", "")
    match = _ALTERNATIVES.search(plain)
    return [plain.replace(match[0], part) for part in match[1].split("|")] if match else [plain]


@cache
def gpus() -> tuple[Gpu, ...]:
    """All that data/gpus.tsv knows."""
    lines = _FILE.read_text("utf-8").splitlines()
    return tuple(_gpu(line) for line in lines if not line.startswith("#"))


def _gpu(line: str) -> Gpu:
    pattern, bandwidth, bf16, fp8, memory, capability, source = line.split("\t")
    return Gpu(
        pattern,
        float(bandwidth) * _GIGA,
        _number(bf16, _TERA),
        _number(fp8, _TERA),
        _number(memory, _GIB),
        None if capability == "-" else capability,
        source,
    )


def _number(text: str, factor: float) -> float | None:
    return None if text == "-" else float(text) * factor
