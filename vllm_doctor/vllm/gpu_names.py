"""GPUs by what people, logs, and labels of a cluster call them: how many, which, and what that leaves open. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import gpu_stated, gpus, instances
from vllm_doctor.vllm.gpus import Gpu

_MEGA, _GIGA = 1e6, 1e9
_GIB = 1024.0**3
_LINKED = "nvlink"
_UNLINKED = re.compile(r"\b(?:no|not|non|without|w/o|lacks?)[ -]nv-?link\b", re.I)
_CLOUD = re.compile(r"(?:aws|amazon|ec2|gcp|google|azure|oracle|oci|nvidia) ", re.I)
_PARTS = frozenset(["mig", "vgpu", "slice", "fraction"])
"""Words of a part of a GPU, of which no data sheet tells."""
_NODES = re.compile(r"(\d{1,6}) ?(?:nodes?|hosts?|servers?|machines?)\b ?(?:[x×*@,:]|of\b|with\b)? ?", re.I)
_FIRST = re.compile(r"(\d{1,9})(?:[x×*]| [x×*](?![a-z])) ?(?=\S)|(\d{1,2}) (?!g(?:i?b)?\b)(?=\S)", re.I)
_LAST = re.compile(r" ?\(?(?:(?<![a-z])x|[×*:]) ?(\d{1,9})\)?$| ?\((\d{1,9}) ?x\)$", re.I)
_CPU = re.compile(
    r"cpu:?(?: ([1-9]\d{0,4}) ?gi?b\b,?)? ([1-9]\d?) ?(?:x|×|channels?|ch) ?(?:ddr\d-)?([1-9]\d{3,4})", re.I
)
_IN_TEXT = re.compile(
    r"^[> \t]{0,20}(?:GPU models and configuration ?: ?(?:GPU 0: )?|GPU 0: )"
    r"((?:NVIDIA|Tesla|GeForce|Quadro|AMD) [^()\n]{1,60})"
    r"|^[> \t]{0,20}\|   0  (\S[^|\n]{0,60}?) +(?:On|Off|N/A|ERR!|TCC|WDDM|MCDM) +\|",
    re.MULTILINE,
)
"""As rules/log-lines/startup.yaml has them: gpu-listed, nvidia-smi-row."""
_CHANNEL = 8
"""Bytes that a channel of memory moves at a time."""
_NO_NAMES = frozenset(("gpu", "gpus", "card", "cards", "accelerator", "accelerators", "device", "devices"))
_VENDORS = frozenset(("nvidia", "amd", "intel"))
_ASIDE = re.compile(r" ?\(.*| ?, .*")
_COUNTS = {"single": 1, "one": 1, "dual": 2, "two": 2, "four": 4, "quad": 4, "eight": 8}


@dataclass(frozen=True, slots=True)
class Named:
    """What somebody's words for GPUs mean. `count`: in one server; None where it is not said.

    `assumptions`: what the words leave open, in sentences.
    """

    gpu: Gpu
    count: int | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counted:
    """Words for GPUs without the numbers in front and behind: "2 nodes x 8 H100" is (8, 2, "H100")."""

    count: int | None
    nodes: int | None
    name: str


@lru_cache(maxsize=1024)
def named(text: str) -> Named | None:
    """The GPUs that people mean by "8xH100", "a100-80g", "4 x NVIDIA L40S 48GB", "p5.48xlarge"; else None. Also a CPU
    with its memory: "cpu 8 x DDR5-4800" (channels, MT/s); and any device with its figures, which are then the
    table's: "cpu 64 GB 38 GB/s 1.2 TFLOPS", "foo 900GB/s 100TFLOPS 24GB".

    Of several that fit the likeliest, with the others as an assumption.
    """
    told = counted(text)
    if figures := gpu_stated.stated(told.name):
        return _as_stated(figures, told)
    if match := _CPU.fullmatch(told.name):
        return Named(_cpu(match))
    instance = _instance(told.name)
    if instance is not None:
        return _rented(instance, told)
    words = gpus.words_of(told.name)
    unknown = {word for word in words if not gpus.is_word(word)}
    if unknown & _PARTS:
        return None
    if unknown and (before := _without_aside(told)) is not None:
        return before
    if any(re.search(r"\d", word) for word in unknown):
        return None
    words -= unknown
    found = gpus.best(words, None) or gpus.best(words, None, gpus.FORMS)
    if found is None:
        return None
    said = [f"{told.nodes} servers with as many GPUs each"] if told.nodes is not None else []
    if unknown:
        said.append(f"{' '.join(sorted(unknown))!r} in the GPU's name is not understood")
    others = gpus.others(found, words)
    if others or gpus.best(words, None) is None:
        too = f"; there is {', '.join(others)}, too" if others else ""
        said.append(f"{told.name!r} is taken for {found.name}{too}")
    if _UNLINKED.search(told.name):
        found = _unlinked(found)
    elif _LINKED in words and found.nvlink is not None:
        found = replace(found, link=_LINKED)
    return Named(found, told.count, tuple(said))


def _unlinked(gpu: Gpu) -> Gpu:
    return replace(gpu, link="pcie", nvlink=None)


def _instance(name: str) -> instances.Instance | None:
    return instances.instance(_CLOUD.sub("", name))


def _rented(instance: instances.Instance, told: Counted) -> Named | None:
    found = gpus.best(gpus.words_of(instance.gpu), None)
    if found is None:
        return None
    if instance.is_label:
        return Named(found, told.count)
    machines = () if told.count is None else (f"{told.count} machines of {instance.type}",)
    return Named(found, instance.count, machines)


def is_number_alone(name: str) -> bool:
    """Whether such words, without their number, name no GPU: "GPUs", "cards (TP4), CUDA 13.0"."""
    words = set(_ASIDE.sub("", name, count=1).lower().split()) - _VENDORS
    return bool(words) and words <= _NO_NAMES


def _without_aside(told: Counted) -> Named | None:
    """What stands before a bracket or a comma, where that says what we do not know: "AMD Instinct MI210 (gfx90a)",
    "H20 141 GB, TP8"; that there is no NVLink is understood there, too."""
    aside = _ASIDE.search(told.name)
    found = named(told.name[: aside.start()]) if aside is not None else None
    if aside is None or found is None:
        return None
    if found.gpu.architecture == "cpu" and (beside := named(aside[0].strip(" ,()+"))) is not None:
        return beside
    is_unlinked = _UNLINKED.search(aside[0]) is not None
    note = f"{aside[0].strip(' ,')!r} in the GPU's name is not understood{' but for NVLink' if is_unlinked else ''}"
    gpu = _unlinked(found.gpu) if is_unlinked else found.gpu
    return Named(gpu, told.count or found.count, (*found.assumptions, note))


def _cpu(match: re.Match[str]) -> Gpu:
    memory, channels, transfers = match.groups()
    return replace(
        _plain_cpu(),
        name=f"CPU {channels} x {transfers} MT/s",
        bandwidth=float(channels) * _CHANNEL * float(transfers) * _MEGA,
        memory=None if memory is None else float(memory) * _GIB,
    )


def _plain_cpu() -> Gpu:
    return next(known for known in gpus.gpus() if known.name == "CPU")


def _as_stated(figures: gpu_stated.Stated, told: Counted) -> Named:
    """The device of that name, or one that is not known, with the figures that are stated instead of a data sheet's."""
    known = named(figures.name) if figures.name else None
    name, memory = gpu_stated.memory(figures.name)
    if known is None:
        is_cpu = "cpu" in gpus.words_of(name)
        known = Named(replace(_plain_cpu() if is_cpu else gpus.UNKNOWN, name=name or gpus.UNKNOWN.name))
    found = known.gpu
    if found.name == _plain_cpu().name and figures.bandwidth is not None:
        found = replace(found, name=f"{found.name} {figures.bandwidth / _GIGA:g} GB/s")
    stated = replace(
        found,
        bandwidth=figures.bandwidth or found.bandwidth,
        bf16=figures.flops or found.bf16,
        memory=found.memory or memory,
    )
    return Named(stated, told.count, () if found.bandwidth is None else known.assumptions)


def completed(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """What the data sheet tells of a GPU that a log or a manifest names (the fact gpu_written), where nobody else tells
    which it is: neither its driver, nor the user."""
    written = facts.get("gpu_written")
    if isinstance(facts.get("gpu_name"), Known) or not isinstance(written, Known):
        return {}
    found = named(str(written.value))
    if found is None:
        return {}
    told: dict[str, Value] = {**gpus.figures(found.gpu)}
    if found.count is not None:
        told["gpus_on_host"] = float(found.count)
    return {
        name: Known(value, origin=written.origin)
        for name, value in told.items()
        if not isinstance(facts.get(name), Known)
    }


def in_text(text: str) -> str | None:
    """The GPU that the first lines of collect_env or nvidia-smi in a text name, in their words."""
    found = _IN_TEXT.search(text)
    return None if found is None else (found[1] or found[2]).strip()


def counted(text: str) -> Counted:
    """The numbers of GPUs and of servers in such words, and the rest."""
    name = " ".join(text.split()).strip("\"'")
    nodes = count = None
    is_whole = len(name) > gpus.LONGEST or _instance(name) is not None or _CPU.fullmatch(name) is not None
    if is_whole or gpus.best(gpus.words_of(name), None) is not None:
        return Counted(None, None, name)
    if (match := _NODES.match(name)) and match.end() < len(name):
        nodes, name = int(match[1]), name[match.end() :]
    first, _, rest = name.partition(" ")
    if first.lower() in _COUNTS and rest:
        count, name = _COUNTS[first.lower()], rest
    elif match := _FIRST.match(name):
        count, name = int(match[1] or match[2]), name[match.end() :]
    elif match := _LAST.search(name):
        count, name = int(match[1] or match[2]), name[: match.start()]
    if count is not None and nodes is None and (match := _FIRST.match(name)) and match[1]:  # "2x8xH100"
        nodes, count, name = count, int(match[1]), name[match.end() :]
    return Counted(count, nodes, name.strip(" -_,"))
