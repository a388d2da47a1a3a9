"""SkyPilot: `run` is for a shell, with the variables of `envs`, on the GPUs of `resources`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import machine
from vllm_doctor.launch.manifests import script
from vllm_doctor.launch.start import Written
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.launch.yaml_tree import Node


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root) if root["run"].is_scalar and root["resources"].kind == "map" else None


def _starts(task: Node) -> Iterator[Written]:
    gpu, count = machine.accelerators(task["resources"]) or (None, None)
    given = {**script.environment_of(task["envs"]), **dict.fromkeys(task["secrets"].fields)}
    if count is not None:
        given["SKYPILOT_NUM_GPUS_PER_NODE"] = f"{count:.0f}"
    for written in of_script(task["run"].text, task["run"].text_line, given):
        asked = written.resources
        yield replace(written, place="run", resources=replace(asked, gpus=asked.gpus or count, gpu=gpu))
