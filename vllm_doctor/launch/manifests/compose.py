"""compose: a container for each service, with the variables that its text and the files beside it tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import docker, env_file, shellwords, yaml_tree
from vllm_doctor.launch.interpolation import Interpolation
from vllm_doctor.launch.manifests import around, mounts
from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.start import Fault, Flaw, Form, Resources, Word, Written
from vllm_doctor.launch.unwrap import SAYS
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError

_JOINED = frozenset({"environment", "env_file", "volumes", "configs", "tmpfs", "devices"})
"""Lists to which a service that extends another adds its own."""
_LINE_END = (
    "a backslash at the end of the line: compose is no shell, and makes the line's end an argument, which vLLM refuses:"
    " leave it out"
)
_OWN = frozenset(
    {
        "build", "container_name", "depends_on", "deploy", "devices", "entrypoint", "env_file", "environment",
        "extra_hosts", "healthcheck", "hostname", "ipc", "network_mode", "ports", "privileged", "restart", "runtime",
        "shm_size", "ulimits", "volumes",
    }
)  # fmt: skip
"""Keys of a service. Of a Kubernetes container's those are no plain values and lists of them."""
_LEAST = 2
_MOST_EXTENDED = 10
_NAMED = 8


def starts(root: Node, name: str) -> Iterable[Written] | None:
    if root["services"].kind == "map":
        return _starts(root)
    services = _without_head(root)
    if not services.fields:
        return None
    found = _starts(Node("", root.line, "map", fields={"services": services}))
    return [replace(one, is_open=one.is_open or one.place.endswith(".image")) for one in found]


def _without_head(root: Node) -> Node:
    """The services that people copied without the line `services:`, or one without its name: as far as they copied."""
    found = {key: value for key, value in root.fields.items() if _is_service(value)}
    if not found and _is_service(root):
        found = {root["container_name"].text or "SERVICE": root}
    return Node("services", root.line, "map", fields=found)


def _is_service(node: Node) -> bool:
    own = [key for key in node.fields if key in _OWN]
    is_plain = all(
        item.is_scalar and ":" in item.text for key in ("ports", "volumes") if key in own for item in node[key].items
    )
    return node["image"].is_scalar and len(own) >= _LEAST and is_plain


def _starts(root: Node) -> Iterator[Written]:
    shared = env_file.values(around.file_beside(".env") or "")
    for name, service in root["services"].fields.items():
        if service.kind == "map":
            yield from _service(root, name, shared).starts()


def _service(root: Node, name: str, shared: dict[str, str | None]) -> Container:
    service, notes = _extended(root, root["services"][name], _MOST_EXTENDED)
    part = next((key for key in ("command", "entrypoint") if service[key]), "image")
    variables = Interpolation(shared)
    entrypoint, faults = _words(service["entrypoint"], variables)
    arguments, more = _words(service["command"], variables)
    image = text(service["image"])
    image = None if image is None else variables.text(image)
    of_files, unread = _of_files(service["env_file"], variables)
    environment = {**of_files, **_environment(service["environment"], variables)}
    return Container(
        root,
        ("services", name),
        service,
        Form.COMPOSE,
        f"services.{name}.{part}",
        image,
        entrypoint if service["entrypoint"] else None,
        arguments,
        environment,
        _resources(service),
        (*faults, *more),
        (*notes, *unread),
        mounts.of_service(root, service, variables),
        tuple(_said(variables)),
    )


def _said(variables: Interpolation) -> Iterator[str]:
    if names := list(variables.defaults):
        listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        yield f"read with their defaults, which variables of these names replace: {listed}"


# ---- what another service, or another file, adds


def _extended(root: Node, service: Node, depth: int) -> tuple[Node, tuple[str, ...]]:
    """The service with what it extends; a note where that cannot be read."""
    told = service["extends"]
    if not told:
        return service, ()
    name, file = told["service"].text or told.text, told["file"].text
    base_root = _other(file) if file else root
    base = root if base_root is None else base_root["services"][name]
    if base_root is None or base.kind != "map" or depth == 0:
        return service, (f"extends is not read: what {file or 'the other service'} adds is not known",)
    whole, notes = _extended(base_root, base, depth - 1)
    return _merged(whole, service), notes


def _other(file: str) -> Node | None:
    content = around.file_beside(file)
    try:
        roots = yaml_tree.read(content).roots if content is not None else ()
    except SourceError:
        return None
    return roots[0] if roots else None


def _merged(base: Node, own: Node, key: str = "") -> Node:
    if key == "environment":
        base, own = _as_map(base), _as_map(own)
    if base.kind == own.kind == "map":
        of_both = {name: _merged(base[name], own[name], name) for name in base.fields if name in own.fields}
        return replace(own, fields={**base.fields, **own.fields, **of_both})
    if base.kind == own.kind == "seq" and key in _JOINED:
        return replace(own, items=(*base.items, *own.items))
    return own


def _as_map(node: Node) -> Node:
    """`[NAME=VALUE]` as a mapping."""
    if node.kind != "seq":
        return node
    fields = {}
    for item in node.items:
        name, equals, value = item.text.partition("=")
        fields[name] = replace(item, kind="str" if equals else "null", text=value)
    return replace(node, kind="map", items=(), fields=fields)


def _of_files(node: Node, variables: Interpolation) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The variables of `env_file`, as far as the files lie beside."""
    found: dict[str, str | None] = {}
    for item in node.items or ((node,) if node else ()):
        content = around.file_beside(variables.text(item["path"].text or item.text))
        if content is None:
            return found, ("an env_file is not read: what it sets is not known",)
        found |= env_file.values(content)
    return found, ()


# ---- one service


def _words(node: Node, variables: Interpolation) -> tuple[tuple[Word, ...], tuple[Fault, ...]]:
    if node.kind == "seq":
        return tuple(replace(word, text=variables.text(word.text)) for word in texts(node)), ()
    if not node.is_scalar:
        return (), ()
    words, broken = shellwords.words(variables.text(node.text), node.text_line)
    faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
    line_end = next((word for word in words if word.text == shellwords.LINE_END), None)
    if line_end is not None:
        faults.append(Fault(Flaw.STRAY_WORD, line_end.line, _LINE_END))
    return tuple(word for word in words if word.text != shellwords.LINE_END), tuple(faults)


def _environment(node: Node, variables: Interpolation) -> dict[str, str | None]:
    given = {name: text(value) for name, value in _as_map(node).fields.items()}
    return {name: None if value is None else variables.text(value) for name, value in given.items()}


def _resources(service: Node) -> Resources:
    devices = service.at("deploy", "resources", "reservations", "devices")
    counts = [gpus for device in devices.items if (gpus := _device(device)) is not None]
    if service["gpus"].is_scalar:
        counts.append(docker.gpus_in(service["gpus"].text) or 0.0)
    limits = [
        docker.number(service.at("deploy", "resources", "limits", "cpus").text),
        docker.number(service["cpus"].text),
        docker.cpus_in(service["cpuset"].text) if service["cpuset"].text else None,
    ]
    files = service.at("ulimits", "nofile")
    return Resources(
        gpus=sum(counts) or None,
        cpu_limit=min((limit for limit in limits if limit is not None), default=None),
        cpu_request=docker.number(service.at("deploy", "resources", "reservations", "cpus").text),
        shm_bytes=docker.size(service["shm_size"].text),
        host_ipc=service["ipc"].text == "host",
        other_shm=service["ipc"].text not in ("", "private", "host")
        or _mounts_shm(service["volumes"], service["tmpfs"])
        or (bool(service["shm_size"]) and docker.size(service["shm_size"].text) is None),
        open_files=docker.number(files["soft"].text if files.kind == "map" else files.text),
    )


def _mounts_shm(*lists: Node) -> bool:
    """Whether a volume of compose is mounted at /dev/shm."""
    items = [item for node in lists for item in (node.items or (node,))]
    return any("/dev/shm" in (item["target"].text or item.text) for item in items)


def _device(device: Node) -> float | None:
    """How many GPUs a reservation asks for; None of all, and of a variable."""
    listed = [one for item in device["device_ids"].items for one in item.text.split(",") if one]
    return float(len(listed)) if listed else docker.number(device["count"].text)
