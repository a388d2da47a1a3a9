"""Which GPU a manifest asks for: by its node selector, its node affinity, and SkyPilot's resources. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch import docker
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import gpu_names, instances

_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def gpu(*places: Node) -> str | None:
    """The GPU, or the machine, that the pod's nodes must have ("NVIDIA-L40S", "p5.48xlarge"), in the words of the
    manifest; of several machines with the same GPU only that. None where nothing says so, or different ones would do.

    `places`: where a selector may stand.
    """
    for place in places:
        for values in _selected(place):
            known = [found for value in values if (found := gpu_names.named(value)) is not None]
            if len({found.gpu.name for found in known}) == 1:
                return values[0] if len(values) == 1 else known[0].gpu.name
    return None


def accelerators(resources: Node) -> tuple[str, float | None] | None:
    """The GPU of SkyPilot's `resources`, and how many: `accelerators: H100:8`, `{L4: 1}`; or the machine's type."""
    told = resources["accelerators"]
    if told.kind == "map" and len(told.fields) == 1:
        [(name, count)] = told.fields.items()
        said = f"{name}:{count.text}" if count.text.isdigit() else name
    elif told.kind == "seq" and len(told.items) == 1:
        said = told.items[0].text
    else:
        said = told.text or resources["instance_type"].text
    found = gpu_names.counted(said)
    return (found.name, None if found.count is None else float(found.count)) if found.name else None


def of_dstack(told: Node) -> tuple[str | None, float | None]:
    """The GPU of dstack's `resources`, and how many: `H100:4`, `80GB`, `{name: H100, count: 4}`."""
    if told.kind == "map":
        count = docker.number(told["count"].text)
        return _one_of(told["name"]), count or (None if told["count"] else 1.0)
    parts = told.text.split(":")
    counts = [float(part) for part in parts if part.isdigit() and len(part) < 6]
    names = [part for part in parts if gpu_names.named(part) is not None]
    is_asked = told.is_scalar and ".." not in parts[-1]
    return next(iter(names), None), next(iter(counts), 1.0 if is_asked else None)


def of_truss(told: Node) -> tuple[str | None, float | None]:
    """The accelerator of Truss, and how many: `H100:4`, `A10G`."""
    name, _, count = told.text.partition(":")
    known = gpu_names.named(name.replace("_", " ")) is not None
    return (name.replace("_", " ") if known else None), (docker.number(count) or 1.0) if told.is_scalar else None


def _one_of(names: Node) -> str | None:
    listed = [item.text for item in names.items] or [names.text]
    return listed[0] if len(listed) == 1 and gpu_names.named(listed[0]) is not None else None


def _selected(place: Node) -> Iterator[list[str]]:
    """The values that a label with a GPU may have, the telling labels first."""
    terms = [*place.at(*_REQUIRED).items, *place["nodeSelectorTerms"].items]
    expressions = [one for term in terms for one in term["matchExpressions"].items if one["operator"].text == "In"]
    for label in instances.labels():
        if place["nodeSelector"][label].is_scalar:
            yield [place["nodeSelector"][label].text]
        for one in expressions:
            if one["key"].text == label:
                yield [value.text for value in one["values"].items if value.is_scalar]
