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
_PCIE_LANE = {"3": 0.985e9, "4": 1.969e9, "5": 3.938e9, "6": 7.563e9}
"""Bytes a second of one lane, in one direction."""
_MEMORY_FITS = 0.1
"""How far a GPU's memory may be from its data sheet's: ECC and the driver keep some."""

_CUT = "..."
"""How the table of nvidia-smi ends a name that is too long for it."""
_VENDOR = re.compile(r"^(?:NVIDIA )?(?:Tesla )?")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of data/gpus.tsv: bytes and operations a second, not GB and TFLOPS."""

    name: str
    """As people read it, near to what the driver says: "A100-SXM4-80GB"."""
    pattern: str
    bandwidth: float
    """Of its memory."""
    bf16: float | None
    """Dense, accumulated in FP32, as `fp8` and `fp4`; FP16 for a GPU without BF16."""
    fp8: float | None
    fp4: float | None
    int8: float | None
    memory: float | None
    """Bytes; a data sheet's GB are GiB."""
    capability: str | None
    architecture: str
    """hopper, ada, ampere, …"""
    link: str
    """How the GPUs of one server reach each other. "nvlink": by links of the vendor's own, whatever he calls them;
    "pcie"; "unified": one memory with the CPU; "none"."""
    nvlink: float | None
    """In one direction, over all links of one GPU; also where a bridge is sold apart (then `link` is "pcie")."""
    pcie: float | None
    """To the host, in one direction."""
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
        and known.name.lower().startswith(begun)
    ]
    return fitting[0] if len(fitting) == 1 and re.search(r"\d", begun) else None


@cache
def gpus() -> tuple[Gpu, ...]:
    """All that data/gpus.tsv knows."""
    lines = _FILE.read_text("utf-8").splitlines()
    return tuple(_gpu(line) for line in lines if not line.startswith("#"))


def _gpu(line: str) -> Gpu:
    name, pattern, bandwidth, bf16, fp8, fp4, int8, memory, capability, architecture, link, links, pcie, source = (
        line.split("\t")
    )
    both_ways = _number(links, _GIGA)
    return Gpu(
        name=name,
        pattern=pattern,
        bandwidth=float(bandwidth) * _GIGA,
        bf16=_number(bf16, _TERA),
        fp8=_number(fp8, _TERA),
        fp4=_number(fp4, _TERA),
        int8=_number(int8, _TERA),
        memory=_number(memory, _GIB),
        capability=None if capability == "-" else capability,
        architecture=architecture,
        link=link,
        nvlink=None if both_ways is None else both_ways / 2,
        pcie=None if pcie == "-" else _lanes(pcie),
        source=source,
    )


def _lanes(pcie: str) -> float:
    """Bytes a second of "5x16": generation, lanes."""
    generation, _, lanes = pcie.partition("x")
    return _PCIE_LANE[generation] * float(lanes)


def _number(text: str, factor: float) -> float | None:
    return None if text == "-" else float(text) * factor
