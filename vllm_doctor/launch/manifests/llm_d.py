"""Helm values of llm-d's modelservice: a server for each role, to which the chart gives model, port and parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.manifests.pod import Pod, container_of
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Word, Written
from vllm_doctor.launch.yaml_tree import Node

ROLES = ("decode", "prefill")
_SERVICE_PORT, _TARGET_PORT = "8000", "8200"
"""What the chart itself says of routing."""
_SIZES = {"tensor": "--tensor-parallel-size", "data": "--data-parallel-size", "dataLocal": "--data-parallel-size-local"}


def starts(root: Node, name: str) -> Iterable[Written] | None:
    if root["modelArtifacts"].kind != "map" or not any(root[role].kind == "map" for role in ROLES):
        return None
    return _starts(root)


def _starts(root: Node) -> Iterator[Written]:
    for role in ROLES:
        spec = root[role]
        if spec["create"].plain is False or spec["replicas"].text == "0":
            continue
        for place, container in enumerate(spec["containers"].items):
            if container.kind == "map":
                yield from _of_role(root, role, Pod("", root, (role,), spec), place, container)


def _of_role(root: Node, role: str, pod: Pod, place: int, node: Node) -> Iterator[Written]:
    container = replace(container_of(pod, (role, "containers", place), node), form=Form.HELM)
    container = replace(container, resources=replace(container.resources, gpus=_gpus(pod.spec, container)))
    how = node["modelCommand"].text
    added = _added(root, role, pod.spec, how, node.line) if how in ("vllmServe", "imageDefault") else ()
    if added:
        container = _started_by_chart(container, how, added)
    notes = _not_read(root["modelArtifacts"], pod.spec)
    for written in container.starts():
        yield replace(written, holder=Values(node["args"]), notes=(*notes, *written.notes), role=role)


def _started_by_chart(container: Container, how: str, added: tuple[Word, ...]) -> Container:
    line = added[0].line
    serve = tuple(Word(word, line) for word in docker.SERVE) if how == "vllmServe" or container.image else None
    return replace(container, entrypoint=serve, arguments=(*added, *texts(container.node["args"])))


def _added(root: Node, role: str, spec: Node, how: str, line: int) -> tuple[Word, ...]:
    """What the chart puts before the container's own arguments."""
    model = _model(root["modelArtifacts"])
    proxy = root.at("routing", "proxy")
    is_direct = role == "prefill" or proxy["enabled"].plain is False
    port = root.at("routing", "servicePort") if is_direct else proxy["targetPort"]
    words = [model] if model and how == "vllmServe" else ["--model", model] if model else []
    words += ["--port", port.text or (_SERVICE_PORT if is_direct else _TARGET_PORT)]
    for key, size in _parallelism(spec["parallelism"]).items():
        if size > 1:
            words += [_SIZES[key], str(size)]
    if served := text(root.at("modelArtifacts", "name")):
        words += ["--served-model-name", served]
    return tuple(Word(word, line) for word in words)


def _model(artifacts: Node) -> str | None:
    """What the chart gives to vLLM: a name on the Hub, or the path in the volume with the model."""
    protocol, parted, rest = artifacts["uri"].text.partition("://")
    if protocol == "hf":
        name = artifacts["name"].text
        return name if "modelArtifacts.name" in rest and name else rest
    if protocol == "pvc+hf":
        return "/".join(rest.split("/")[-2:])
    if protocol == "pvc":
        mounted = artifacts["mountPath"].text or "/model-cache"
        return f"{mounted}/{rest.partition('/')[2]}"
    return None if parted else text(artifacts["name"])


def _parallelism(node: Node) -> dict[str, int]:
    """As the chart works them out: what is not told follows from the others."""
    told = {key: int(value.text) for key, value in node.fields.items() if value.text.isdigit() and len(value.text) < 6}
    workers = told.get("workers", 0)
    data = told.get("data", 0) or told.get("dataLocal", 0) * (workers or 1)
    local = told.get("dataLocal", 0) or (data // workers if workers else data)
    return {"tensor": told.get("tensor", 0) or 1, "data": data or 1, "dataLocal": local or 1}


def _gpus(spec: Node, container: Container) -> float:
    """The chart asks for as many as the server's sizes need, where the container names none."""
    sizes = _parallelism(spec["parallelism"])
    return container.resources.gpus or float(sizes["tensor"] * sizes["dataLocal"])


def _not_read(artifacts: Node, spec: Node) -> tuple[str, ...]:
    if artifacts["uri"].text.startswith("oci://"):
        return ("modelArtifacts.uri is an image: the model's path in it is not known",)
    lora = "loraAdapters" if artifacts["loraAdapters"] else "initContainers" if spec["initContainers"] else ""
    return (f"not read: {lora}",) if lora else ()
