"""Helm values of vLLM's own chart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests.container import Container, texts
from vllm_doctor.launch.manifests.pod import not_text, resources_of
from vllm_doctor.launch.start import Form, Written
from vllm_doctor.launch.yaml_tree import Node

CHART_KEYS = ("image",)


def starts(root: Node, name: str) -> Iterable[Written] | None:
    is_of = root.at("image", "repository").is_scalar and root.at("image", "command").kind == "seq"
    return _container(root).starts() if is_of else None


def _container(values: Node) -> Container:
    """`image` holds its command as well, and the container's resources stand beside it."""
    image, shm = values["image"], values["shm"]
    resources = resources_of(values, values)
    if shm["enabled"].plain is True:
        size = docker.quantity(shm["size"].text)
        resources = replace(resources, shm_bytes=size, other_shm=size is None)
    return Container(
        values,
        CHART_KEYS,
        image,
        Form.KUBERNETES,
        image["command"].path,
        ":".join(node.text for node in (image["repository"], image["tag"]) if node.is_scalar),
        texts(image["command"]),
        (),
        {},
        resources,
        tuple(not_text(image["command"])),
    )
