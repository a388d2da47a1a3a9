"""GPUs by the words of their names, and what their data sheets say. Pure.

A name is read as words ("RTX4090D" is rtx, 4090, d), in any order; each row of data/gpus.tsv tells which words it
needs, and which it may have. How fast a server could be on them is in rules/signals/roofline.yaml and expected.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from vllm_doctor.model.reading import Value

_FILE = Path(__file__).parent / "data" / "gpus.tsv"
_GIGA, _TERA = 1e9, 1e12
_GIB = 1024.0**3
_PCIE_LANE = {"3": 0.985e9, "4": 1.969e9, "5": 3.938e9, "6": 7.563e9}
"""Bytes a second of one lane, in one direction."""
_MEMORY_FITS = 0.1
"""How far a GPU's memory may be from its data sheet's: ECC and the driver keep some."""

LONGEST = 100
"""Characters of a name; a longer one is none."""
_ALIKE = 0.6
"""From here on one name may be meant by another, as difflib has it."""
_CUT = "..."
"""How the table of nvidia-smi ends a name that is too long for it."""
_VENDOR = re.compile(r"^(?:NVIDIA )?(?:Tesla |GeForce )?")
_SAID_ALONG = frozenset(
    (
        *("nvidia", "geforce", "tesla", "quadro", "amd", "radeon", "instinct", "intel", "habana", "google", "cloud"),
        *("rtx", "gtx", "rx", "gpu", "gpus", "graphics", "card", "cards", "accelerator", "tensor", "core", "vram"),
        *("memory", "generation", "edition", "hgx", "with", "nvlink", "s"),
    )
)
"""Words that tell no GPU from another, unless a row has them. The last is of a plural: "8 H100s"."""
FORMS = frozenset(["pcie", "nvl", "sxm", "sxm2", "server", "max", "q", "maxq"])
"""Words by which one and the same product is told from itself, and which people leave out."""
_MEMORY = re.compile(r"[1-9]\d{0,3}g(?:i?b)?")
_NUMBER = re.compile(r"[1-9]\d{0,3}")
_CHUNK = re.compile(r"[a-z0-9]+")
_DEVICES = {"cpu": "cpu", "tpu": "tpu", "xe": "xpu", "gaudi": "hpu", "ascend": "npu", "neuron": "neuron"}


_ECC_IN_MEMORY = frozenset({"T4", "A2", "A10", "A10G", "A10M", "A16", "A40", "L2", "L4", "L20", "L40", "L40G", "L40S"})
"""Cards with GDDR6 that are delivered with ECC on, for which a sixteenth of the memory is kept."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One line of data/gpus.tsv: bytes and operations a second, not GB and TFLOPS."""

    name: str
    """As people read it, and mostly the driver's without its vendor: "A100-SXM4-80GB"."""
    ways: tuple[tuple[frozenset[str], frozenset[str]], ...]
    """Each way to say it: the words that it needs, and those that it may have."""
    bandwidth: float | None
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
    """To the host, in one direction; over NVLink-C2C for a GPU that has it."""
    source: str


UNKNOWN = Gpu("GPU", (), *(None,) * 7, architecture="", link="", nvlink=None, pcie=None, source="")
"""One of which nothing is known."""


def gpu(name: str, memory: float | None = None) -> Gpu | None:
    """The GPU that the driver calls this, of this many bytes; None where we do not know it, or it is a part of one."""
    if name.endswith(_CUT):
        return None if memory is None else _of_cut(name, memory)
    return best(words_of(name), memory)


def is_without_links(gpu: Gpu) -> bool:
    """Whether GPUs of this kind reach each other over PCIe alone: the vendor's link is neither on the card nor sold."""
    return gpu.link == "pcie" and gpu.nvlink is None


def figures(gpu: Gpu) -> dict[str, Value]:
    """What its data sheet tells, by the names of the facts: gpu_name, gpu_memory_total (bytes), gpu_memory_usable (less
    what ECC and the driver keep), gpu_compute_capability, gpu_bandwidth (bytes/s), gpu_flops, gpu_flops_fp8,
    gpu_flops_fp4 (dense, operations/s), gpu_link, gpu_link_bandwidth (bytes/s, in one direction); nvlink, False where
    there cannot be any; gpu_architecture; device_written, as vLLM calls it, of what is no GPU of NVIDIA's or AMD's."""
    told = {
        "gpu_name": gpu.name,
        "gpu_memory_total": gpu.memory,
        "gpu_memory_usable": None if gpu.memory is None else gpu.memory * _usable(gpu),
        "gpu_compute_capability": None if gpu.capability is None else float(gpu.capability),
        "gpu_bandwidth": gpu.bandwidth,
        "gpu_flops": gpu.bf16,
        "gpu_flops_fp8": gpu.fp8,
        "gpu_flops_fp4": gpu.fp4,
        "gpu_link": gpu.link,
        "gpu_link_bandwidth": gpu.nvlink if gpu.link == "nvlink" else None,
        "gpu_architecture": gpu.architecture,
        "nvlink": False if is_without_links(gpu) else None,
        "device_written": _DEVICES.get(gpu.architecture),
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def _usable(gpu: Gpu) -> float:
    """The share of its memory that programs get; in public logs of vLLM and torch 79.2 GiB of an H100's 80, 95.0 of an
    RTX PRO 6000's 96, 23.5 of an RTX 4090's 24; 44.5 of an L40S's 48, 14.6 of a T4's 16."""
    return 0.92 if gpu.name in _ECC_IN_MEMORY else 0.985


def nearest(name: str, most: int = 4) -> tuple[str, ...]:
    """The names in the table that are like this one, the most alike first."""
    from difflib import SequenceMatcher  # late: only for a mistake

    wanted = name[:LONGEST].lower()
    words = {word for word in _CHUNK.findall(wanted) if re.search(r"\d", word)}

    def likeness(known: Gpu) -> tuple[bool, float]:
        called = [known.name.lower(), *(" ".join(needed) for needed, _ in known.ways)]
        shares = any(word in called[0] or called[0] in word for word in words)
        return shares, max(SequenceMatcher(None, wanted, name).ratio() for name in called)

    alike = sorted(((likeness(known), known.name) for known in gpus()), key=lambda pair: pair[0], reverse=True)
    return tuple(name for (shares, ratio), name in alike if shares or ratio >= _ALIKE)[:most]


@cache
def gpus() -> tuple[Gpu, ...]:
    """All that data/gpus.tsv knows."""
    lines = _FILE.read_text("utf-8").splitlines()
    return tuple(_gpu(line) for line in lines if not line.startswith("#"))


# ---- which row fits


@lru_cache(maxsize=1024)
def best(words: frozenset[str], memory: float | None, left_out: frozenset[str] = frozenset()) -> Gpu | None:
    """The row that has most of the words, and lacks none; the first of several. `left_out`: words that it may need, and
    that are not there."""
    fitting = [(best, known) for known in gpus() if (best := _fit(known, words, memory, left_out)) is not None]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


def _fit(known: Gpu, words: frozenset[str], memory: float | None, left_out: frozenset[str]) -> int | None:
    """How many of the words the row has, itself; None where they are not of this GPU."""
    if memory is not None and not _has(known, memory):
        return None
    found = None
    for needed, more in known.ways:
        own = needed | more
        if needed - left_out <= words and all(word in own or _is_along(known, word) for word in words):
            found = max(found or 0, len(own & words))
    return found


def _is_along(known: Gpu, word: str) -> bool:
    """Whether the word may stand beside this GPU's own ones: it tells nothing, its link, or its memory."""
    return word in _SAID_ALONG or word == known.link or (bool(_MEMORY.fullmatch(word)) and _has(known, _bytes(word)))


def others(found: Gpu, words: frozenset[str]) -> list[str]:
    """What else the words may mean, and is not the same, where they are not the whole name."""
    if words_of(found.name) - _SAID_ALONG <= words:
        return []
    figures = _figures(found)
    return [
        known.name for known in gpus() if _figures(known) != figures and _fit(known, words, None, FORMS) is not None
    ]


def _figures(known: Gpu) -> tuple[object, ...]:
    return known.bandwidth, known.bf16, known.memory, known.link


def _has(known: Gpu, memory: float) -> bool:
    return known.memory is None or abs(memory / known.memory - 1) <= _MEMORY_FITS


def _bytes(word: str) -> float:
    return float(word.rstrip("gib")) * _GIB


def _of_cut(name: str, memory: float) -> Gpu | None:
    """The only GPU of this memory whose name begins so, of those without near kin ("RTX 3090 Ti")."""
    begun = _VENDOR.sub("", name.removesuffix(_CUT)).rstrip().lower()
    fitting = [known for known in gpus() if _has(known, memory) and known.name.lower().startswith(begun)]
    return fitting[0] if len(fitting) == 1 and re.search(r"\d", begun) else None


# ---- the words of a name


def words_of(name: str) -> frozenset[str]:
    """The words of a name, in lower case; () of what is too long for one, or is not printable."""
    if len(name) > LONGEST or not name.isprintable():
        return frozenset()
    return frozenset(_joined([word for chunk in _CHUNK.findall(name.lower()) for word in _parts(chunk)]))


def _parts(chunk: str) -> Sequence[str]:
    """ "rtx4090d" as the fewest words that are known; as it is where it is not made of such."""
    if chunk.isdecimal():
        return (chunk,)
    made: list[Sequence[str] | None] = [(), *(None for _ in chunk)]
    for end in range(1, len(chunk) + 1):
        for start in range(max(0, end - _longest_word()), end):
            before = made[start]
            if before is not None and is_word(chunk[start:end]):
                longer = (*before, chunk[start:end])
                best = made[end]
                made[end] = longer if best is None or len(longer) < len(best) else best
    return made[-1] or (chunk,)


def _joined(words: Sequence[str]) -> Iterator[str]:
    """With "80 gb" as one word."""
    for place, word in enumerate(words):
        after = words[place + 1] if place + 1 < len(words) else ""
        if after in ("gb", "gib", "g") and _NUMBER.fullmatch(word):
            yield word + after
        elif word not in ("gb", "gib", "g"):
            yield word


def is_word(text: str) -> bool:
    return text in _vocabulary() or _MEMORY.fullmatch(text) is not None


@cache
def _vocabulary() -> frozenset[str]:
    return _SAID_ALONG.union(*(needed | more for known in gpus() for needed, more in known.ways), ("gb", "gib", "g"))


@cache
def _longest_word() -> int:
    return max(map(len, _vocabulary()))


# ---- the table


def _gpu(line: str) -> Gpu:
    name, words, bandwidth, bf16, fp8, fp4, int8, memory, capability, *rest = line.split("\t")
    architecture, link, links, pcie, source = rest
    both_ways = _number(links, _GIGA)
    return Gpu(
        name=name,
        ways=tuple(_way(way) for way in words.split("|")),
        bandwidth=_number(bandwidth, _GIGA),
        bf16=_number(bf16, _TERA),
        fp8=_number(fp8, _TERA),
        fp4=_number(fp4, _TERA),
        int8=_number(int8, _TERA),
        memory=_number(memory, _GIB),
        capability=None if capability == "-" else capability,
        architecture=architecture,
        link=link,
        nvlink=None if both_ways is None else both_ways / 2,
        pcie=_host_link(pcie),
        source=source,
    )


def _way(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of "h100 (sxm hbm3)": needed, and in brackets."""
    needed, _, more = text.partition("(")
    return frozenset(needed.split()), frozenset(more.rstrip(" )").split())


def _host_link(text: str) -> float | None:
    """Bytes a second of "5x16" (generation, lanes), and of "450" (GB/s)."""
    generation, _, lanes = text.partition("x")
    return _PCIE_LANE[generation] * float(lanes) if lanes else _number(text, _GIGA)


def _number(text: str, factor: float) -> float | None:
    return None if text == "-" else float(text) * factor
