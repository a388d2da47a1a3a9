"""compose: a container for each service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_doctor.launch import docker, shellwords
from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.start import Fault, Flaw, Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.unwrap import SAYS
from vllm_doctor.launch.yaml_tree import Node

_LINE_END = (
    "a backslash at the end of the line: compose is no shell, and makes the line's end an argument, which vLLM refuses:"
    " leave it out"
)
_INTERPOLATED = re.compile(r"\$\$|\$\{([A-Za-z_]\w*+)[^{}]*+\}|\$([A-Za-z_]\w*)")
_LINE_END = (
    "a backslash at the end of the line: compose is no shell, and makes the line's end an argument, which vLLM refuses:"
    " leave it out"
)


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root) if root["services"].kind == "map" else None


def _starts(root: Node) -> Iterator[Written]:
    for name, service in root["services"].fields.items():
        if service.kind == "map":
            part = next((key for key in ("command", "entrypoint") if service[key]), "image")
            yield from _service(f"services.{name}.{part}", root, name).starts()


def _service(place: str, root: Node, name: str) -> Container:
    service = root["services"][name]
    entrypoint, faults = _words(service["entrypoint"])
    arguments, more = _words(service["command"])
    image = text(service["image"])
    return Container(
        root,
        ("services", name),
        service,
        Form.COMPOSE,
        place,
        None if image is None else _interpolated(image),
        entrypoint if service["entrypoint"] else None,
        arguments,
        _environment(service["environment"]),
        _resources(service),
        (*faults, *more),
        ("an env_file is not read: what it sets is not known",) if service["env_file"] else (),
    )


def _words(node: Node) -> tuple[tuple[Word, ...], tuple[Fault, ...]]:
    if node.kind == "seq":
        return tuple(replace(word, text=_interpolated(word.text)) for word in texts(node)), ()
    if not node.is_scalar:
        return (), ()
    words, broken = shellwords.words(_interpolated(node.text), node.text_line)
    faults = [] if broken is None else [Fault(broken.kind, broken.line, SAYS[broken.kind])]
    line_end = next((word for word in words if word.text == shellwords.LINE_END), None)
    if line_end is not None:
        faults.append(Fault(Flaw.STRAY_WORD, line_end.line, _LINE_END))
    return tuple(word for word in words if word.text != shellwords.LINE_END), tuple(faults)


def _interpolated(text: str) -> str:
    """With compose's variables marked: they come from where compose runs. `$$` is a dollar."""
    return _INTERPOLATED.sub(lambda m: "$" if m[0] == "$$" else mark(f"${{{m[1] or m[2]}}}"), text)


def _environment(node: Node) -> dict[str, str | None]:
    if node.kind == "seq":
        pairs = [word.text.partition("=") for word in texts(node)]
        given = {name: value if equals else None for name, equals, value in pairs}
    else:
        given = {name: text(value) for name, value in node.fields.items()}
    return {name: None if value is None else _interpolated(value) for name, value in given.items()}


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
    listed = device["device_ids"].items
    return float(len(listed)) if listed else docker.number(device["count"].text)
