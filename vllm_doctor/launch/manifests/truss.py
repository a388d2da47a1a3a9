"""Truss (Baseten): the command that starts the image's own server, on the accelerator of `resources`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch import machine
from vllm_doctor.launch.manifests import script
from vllm_doctor.launch.manifests.container import text
from vllm_doctor.launch.start import Resources, Written
from vllm_doctor.launch.yaml_tree import Node


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root) if root.at("docker_server", "start_command").is_scalar else None


def _starts(config: Node) -> Iterator[Written]:
    command, resources = config.at("docker_server", "start_command"), config["resources"]
    gpu, count = machine.of_truss(resources["accelerator"])
    asked = Resources(gpus=count, gpu=gpu)
    environment = script.environment_of(config["environment_variables"])
    yield from script.commands(command.path, command, environment, asked, text(config.at("base_image", "image")))
