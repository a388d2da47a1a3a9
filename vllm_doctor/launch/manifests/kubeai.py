"""KubeAI's Model: its operator starts vLLM with the arguments of the model."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.manifests.pod import not_text, referenced
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import gpu_names

IMAGE = "kubeai/vllm"
"""Stands for the image that the operator takes: its arguments are vLLM's."""


def of_model(owner: str, object: Node) -> Iterator[Written]:
    spec = object["spec"]
    if spec["engine"].text != "VLLM":
        return
    url = spec["url"]
    named = url.text.removeprefix("hf://").partition("?")[0]
    line = spec["args"].line
    adapters = [Word("--enable-lora", spec["adapters"].line)] if spec["adapters"].items else []
    environment = {name: text(value) for name, value in spec["env"].fields.items()}
    arguments = tuple(referenced(texts(spec["args"]), environment))
    place = f"{owner} {spec['args'].path}"
    image = text(spec["image"])
    resources = _resources(spec["resourceProfile"].text)
    yield Written(
        [*(Word(word, line) for word in docker.SERVE), Word(named, url.line), *arguments, *adapters],
        Form.KUBERNETES,
        environment,
        place=place,
        holder=Container(
            object,
            ("spec",),
            spec,
            Form.KUBERNETES,
            place,
            IMAGE,
            None,
            arguments,
            environment,
            resources,
            is_environment_a_map=True,
        ),
        image=image,
        resources=resources,
        faults=tuple(not_text(spec["args"])),
        notes=(
            "KubeAI starts vLLM: it was read as `vllm serve` with the same flags",
            *(("envFrom is not read: what it sets is not known",) if spec["envFrom"] else ()),
        ),
    )


def _resources(profile: str) -> Resources:
    """What a profile's name says: a GPU, and how many of its units ("nvidia-gpu-l4:2")."""
    name, _, count = profile.partition(":")
    gpu = name.rpartition("gpu-")[2] if "gpu-" in name else ""
    return Resources(
        gpus=docker.number(count) if "gpu" in name else None,
        gpu=gpu if gpu and gpu_names.named(gpu) is not None else None,
        other_shm=True,
    )
