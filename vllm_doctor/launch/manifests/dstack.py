"""dstack: the commands of a service or a task, for a shell in its image, or those of each of its replica groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch import docker, machine
from vllm_doctor.launch.manifests import script
from vllm_doctor.launch.manifests.container import text
from vllm_doctor.launch.start import Resources, Written
from vllm_doctor.launch.yaml_tree import Node

_TYPES = frozenset({"service", "task", "dev-environment"})
_OWN = ("commands", "image", "env", "resources")


def starts(root: Node, name: str) -> Iterable[Written] | None:
    groups = [group for group in root["replicas"].items if group["commands"]]
    if root["type"].text not in _TYPES or not (root["commands"] or groups):
        return None
    return _starts(root, groups)


def _starts(run: Node, groups: list[Node]) -> Iterator[Written]:
    for group in groups or [run]:
        commands, image, env, resources = (group[key] or run[key] for key in _OWN)
        environment = {**script.environment_of(run["env"]), **script.environment_of(env)}
        asked = _resources(resources)
        given = dict(environment)
        if asked.gpus is not None:
            given["DSTACK_GPUS_NUM"] = f"{asked.gpus:.0f}"
        yield from script.commands(commands.path, commands, given, asked, text(image) or "dstack's own")


def _resources(told: Node) -> Resources:
    gpu, count = machine.of_dstack(told["gpu"])
    return Resources(gpus=count, shm_bytes=docker.size(told["shm_size"].text), gpu=gpu)
