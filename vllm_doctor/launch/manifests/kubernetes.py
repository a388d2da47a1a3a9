"""Kubernetes, and what is built on it: a pod's containers are found wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch.manifests import kserve
from vllm_doctor.launch.manifests.pod import Pod, container_of
from vllm_doctor.launch.start import Written
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.launch.yaml_tree import Node


def starts(root: Node, name: str) -> Iterable[Written] | None:
    pods = list(_pods(root, "", root))
    if not pods and not (root["kind"] and root["apiVersion"]):
        return None
    return [written for pod in pods for written in _of_pod(pod)]


def _pods(node: Node, owner: str, object: Node, keys: tuple[str | int, ...] = ()) -> Iterator[Pod]:
    if node.kind == "map":
        if node["kind"].is_scalar:
            owner = "/".join(text for text in (node["kind"].text, node.at("metadata", "name").text) if text)
        if node["kind"].is_scalar and node["apiVersion"].is_scalar:
            object, keys = node, ()
        is_bare = not node.path and not node["apiVersion"] and (node["args"] or node["command"])
        if node["containers"].kind == "seq" or node["model"]["modelFormat"] or is_bare:
            yield Pod(owner, object, keys, node)
        for key, value in node.fields.items():
            yield from _pods(value, owner, object, (*keys, key))
    for place, item in enumerate(node.items):
        yield from _pods(item, owner, object, (*keys, place))


def _of_pod(pod: Pod) -> Iterator[Written]:
    containers = pod.spec["containers"].items
    if pod.spec["model"]["modelFormat"]:
        yield from kserve.served(pod, pod.spec["model"])
    elif not containers and pod.spec["command"].is_scalar and not pod.spec["args"]:
        yield from _of_recipe(pod.spec)
    elif not containers:
        yield from container_of(pod, pod.keys, pod.spec).starts()
    for place, container in enumerate(containers):
        if container.kind == "map":
            yield from container_of(pod, (*pod.keys, "containers", place), container).starts()


def _of_recipe(recipe: Node) -> Iterator[Written]:
    """A mapping of nobody's form whose `command` is one text: it is for a shell."""
    for written in of_script(recipe["command"].text, recipe["command"].text_line):
        yield replace(written, place="command")
