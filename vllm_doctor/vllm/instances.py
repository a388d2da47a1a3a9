"""Machines that clouds rent out, by their type, and the labels by which Kubernetes picks their GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "instances.tsv"
_LABELS = Path(__file__).parent / "data" / "gpu_labels.tsv"


@dataclass(frozen=True, slots=True)
class Instance:
    """One line of data/instances.tsv. `count`: GPUs of one machine; None of a label, and of a family."""

    type: str
    gpu: str
    """A name that data/gpus.tsv knows."""
    count: int | None
    source: str
    is_label: bool = False
    """Whether it names a GPU, and no machine."""


def instance(text: str) -> Instance | None:
    """The machine of this type ("p5.48xlarge"), or of this family ("p5"), where all of it have the same GPU."""
    said = "-".join(text.lower().split())
    known = _by_type()
    if said in known:
        return known[said]
    of_family = [one for type, one in known.items() if said and type.startswith((f"{said}.", f"{said}-"))]
    if not of_family or "-" in said or len({one.gpu for one in of_family}) > 1:
        return None
    first = of_family[0]
    counts = {one.count for one in of_family}
    return Instance(said, first.gpu, first.count if len(counts) == 1 else None, first.source)


@cache
def instances() -> tuple[Instance, ...]:
    """All that data/instances.tsv knows."""
    lines = _FILE.read_text("utf-8").splitlines()
    return tuple(_instance(line) for line in lines if not line.startswith("#"))


@cache
def labels() -> tuple[str, ...]:
    """The keys by which Kubernetes picks nodes for their GPUs, those that name the GPU itself first."""
    lines = _LABELS.read_text("utf-8").splitlines()
    return tuple(line.partition("\t")[0] for line in lines if not line.startswith("#"))


@cache
def _by_type() -> dict[str, Instance]:
    return {one.type.lower(): one for one in instances()}


def _instance(line: str) -> Instance:
    type, gpu, count, source = line.split("\t")
    return Instance(type, gpu, None if count == "-" else int(count), source, is_label=count == "-")
