"""RunPod's templates of an endpoint, whose image is worker-vllm: its environment is the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests import script, worker_vllm
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Written
from vllm_doctor.launch.yaml_tree import Node

_GPUS = ("gpuTypeIds", "gpuIds", "gpuTypeId")


def starts(root: Node, name: str) -> Iterable[Written] | None:
    image = root["imageName"] or root["image"] or root["dockerImage"]
    if not (image.is_scalar and worker_vllm.is_worker(image.text)):
        return None
    return _starts(root, image.text)


def _starts(template: Node, image: str) -> Iterator[Written]:
    node = template["env"] or template["environment"]
    environment = _environment(node)
    listed = [item for key in _GPUS for item in (template[key].items or (template[key],)) if item.is_scalar]
    yield Written(
        worker_vllm.words(environment, node.line),
        Form.VALUES,
        environment,
        place=node.path,
        image=image,
        holder=Values(),
        resources=Resources(
            gpus=docker.number(template["gpuCount"].text) or 1.0, gpu=listed[0].text if len(listed) == 1 else None
        ),
        notes=(worker_vllm.NOTE,),
    )


def _environment(node: Node) -> dict[str, str | None]:
    pairs = {item["key"].text or item["name"].text: item["value"] for item in node.items if item.kind == "map"}
    if pairs:
        return {name: value.text if value.is_scalar else None for name, value in pairs.items() if name}
    return script.environment_of(node)
