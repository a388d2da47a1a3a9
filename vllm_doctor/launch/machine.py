"""Which GPU a manifest asks for: by its node selector, its node affinity, and SkyPilot's resources. Pure."""

from __future__ import annotations

from collections.abc import Iterator

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
