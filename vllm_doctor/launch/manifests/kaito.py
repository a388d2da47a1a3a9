"""Kaito's Workspace, InferenceSet and MultiRoleInference: a preset model on machines of a type.

Kaito gives vLLM what it works out for them, and what the ConfigMap holds that the workspace names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.manifests.container import text
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node, read

_RUNTIME = "kaito.sh/runtime"
_STEPS_OF_A_TEXT = 100
_FILE = "inference_config.yaml"


@dataclass(frozen=True)
class Preset(Values):
    """`config`: the name of its ConfigMap."""

    config: str = ""


def of_workspace(owner: str, object: Node) -> Iterator[Written]:
    spec = next((node for node in (object, object["spec"], object.at("spec", "template")) if node["inference"]), object)
    yield from _preset(owner, object, spec["inference"], spec["inference"].at("preset", "name"), spec["resource"])


def of_set(owner: str, object: Node) -> Iterator[Written]:
    for written in of_workspace(owner, object):
        count = object.at("spec", "replicas").text
        replicas = (f"replicas: {count}",) if count not in ("", "1") else ()
        yield replace(written, notes=(*written.notes, *replicas))


def of_roles(owner: str, object: Node) -> Iterator[Written]:
    spec = object["spec"]
    for role in spec["roles"].items:
        for written in _preset(owner, object, role, spec.at("model", "name"), role):
            yield replace(written, place=f"{owner} {role['type'].text} {role.path}", role=role["type"].text)


def _preset(owner: str, object: Node, inference: Node, preset: Node, resource: Node) -> Iterator[Written]:
    runtime = object.at("metadata", "annotations", _RUNTIME).text or "vllm"
    if not preset.is_scalar or runtime != "vllm":
        return
    instance = resource["instanceType"]
    yield Written(
        [*(Word(word, preset.line) for word in docker.SERVE), Word(preset.text, preset.line)],
        Form.VALUES,
        place=f"{owner} {inference.path}",
        holder=Preset(config=inference["config"].text),
        resources=Resources(gpu=text(instance)),
        notes=(
            "Kaito starts vLLM with its preset, and sets the parallel sizes for the machine by itself",
            *((f"nodes: {resource['count'].text}",) if resource["count"].text not in ("", "1") else ()),
            *(("adapters are not read",) if inference["adapters"] else ()),
        ),
        is_open=True,
    )


def configured(written: Written, roots: Sequence[Node]) -> Written:
    """The start with the flags of its ConfigMap, where that is among the documents."""
    holder = written.holder
    if not isinstance(holder, Preset) or not holder.config:
        return written
    budget.spend(_STEPS_OF_A_TEXT + len(roots))
    for root in roots:
        held = root["data"][_FILE]
        if root["kind"].text == "ConfigMap" and root.at("metadata", "name").text == holder.config and held.is_scalar:
            config = next(iter(read(held.text, held.text_line).roots), Node("", held.line))
            flags = config["vllm"]
            others = [key for key in config.fields if key != "vllm"]
            notes = (f"not read of {_FILE}: {', '.join(others)}",) if others else ()
            return replace(
                written,
                words=[*written.words, *flag_map.words(flags)],
                holder=replace(holder, flags=flags),
                notes=(*written.notes, *notes),
            )
    return replace(written, notes=(*written.notes, f"the ConfigMap {holder.config} is not in the text"))
