"""NVIDIA Dynamo's graph deployments: a service, or a component, for each role; only its workers start an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests import dynamo_serve
from vllm_doctor.launch.manifests.container import Container
from vllm_doctor.launch.manifests.pod import Pod, container_of, environment_of
from vllm_doctor.launch.start import Resources, Written
from vllm_doctor.launch.yaml_tree import Node

_ROLES = frozenset({"prefill", "decode"})
_Keys = tuple[str | int, ...]


def of_graph(owner: str, graph: Node) -> Iterator[Written]:
    """v1alpha1 has `services` with one main container each, v1beta1 `components` with pods."""
    shared = {**environment_of(graph.at("spec", "envs")), **environment_of(graph.at("spec", "env"))}
    for variable in (*graph.at("spec", "envs").items, *graph.at("spec", "env").items):
        if variable["name"].text == dynamo_serve.VARIABLE:
            yield from dynamo_serve.in_variable(variable["value"].text, variable["value"].text_line)
    for name, service in graph.at("spec", "services").fields.items():
        keys: _Keys = ("spec", "services", name, "extraPodSpec")
        pod = Pod(f"{owner} {name}", graph, keys, service["extraPodSpec"])
        main = pod.spec["mainContainer"]
        if main["command"] or main["args"]:
            container = container_of(pod, (*keys, "mainContainer"), main)
            yield from _starts(container, service, {**shared, **environment_of(service["envs"])})
    for place, component in enumerate(graph.at("spec", "components").items):
        keys = ("spec", "components", place, "podTemplate", "spec")
        pod = Pod(f"{owner} {component['name'].text}", graph, keys, component.at("podTemplate", "spec"))
        for number, node in enumerate(pod.spec["containers"].items):
            if node["command"] or node["args"]:  # without, the operator starts what the component's type needs
                yield from _starts(container_of(pod, (*keys, "containers", number), node), component, shared)


def _starts(container: Container, service: Node, above: dict[str, str | None]) -> Iterator[Written]:
    container = replace(
        container,
        environment={**above, **container.environment},
        resources=_resources(container.resources, service),
        notes=(*container.notes, *_outside(service)),
    )
    for written in container.starts():
        notes = tuple(dict.fromkeys((*written.notes, *_notes(service))))
        yield replace(written, notes=notes, role=written.role or _role(service))


def _outside(service: Node) -> Iterator[str]:
    if service["envFromSecret"]:
        yield "envFromSecret is not read: what it sets is not known"


def _role(service: Node) -> str:
    return next((node.text for node in (service["subComponentType"], service["type"]) if node.text in _ROLES), "")


def _notes(service: Node) -> Iterator[str]:
    if (nodes := _nodes(service)) > 1:
        yield f"nodes: {nodes:.0f}"


def _resources(own: Resources, service: Node) -> Resources:
    """With what the service asks for, on each of its nodes."""
    limits, requests = service.at("resources", "limits"), service.at("resources", "requests")
    gpus = docker.number(limits["gpu"].text) or docker.number(requests["gpu"].text) or own.gpus
    shm = service["sharedMemory"]["size"] or service["sharedMemorySize"]
    return replace(
        own,
        gpus=None if gpus is None else gpus * _nodes(service),
        cpu_limit=docker.number(limits["cpu"].text) or own.cpu_limit,
        cpu_request=docker.number(requests["cpu"].text) or own.cpu_request,
        shm_bytes=docker.quantity(shm.text) or own.shm_bytes,
        other_shm=own.other_shm or not shm,  # the operator's own default
    )


def _nodes(service: Node) -> float:
    return docker.number(service["multinode"]["nodeCount"].text) or 1.0
