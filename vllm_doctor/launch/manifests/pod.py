"""A pod of Kubernetes, and its containers: variables, words with $(NAME) replaced, resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker, machine
from vllm_doctor.launch.manifests import around, mounts
from vllm_doctor.launch.manifests.container import Container, text, texts
from vllm_doctor.launch.start import Fault, Flaw, Form, Resources, Word
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.text.secret_names import is_secret

_GPU = re.compile(r"(nvidia\.com/(gpu|mig-.+)|(amd|google)\.com/[gt]pu|habana\.ai/gaudi|gpu\.intel\.com/\w+)")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")


@dataclass(frozen=True)
class Pod:
    """A mapping with containers, or with KServe's `model`, and the object that it stands in."""

    owner: str
    object: Node
    keys: tuple[str | int, ...]
    spec: Node


def container_of(pod: Pod, keys: tuple[str | int, ...], container: Node) -> Container:
    of_maps, unread = _of_maps(container["envFrom"])
    environment = {**of_maps, **environment_of(container["env"])}
    command, arguments = container["command"], container["args"]
    part = container["args"] if arguments else container["command"]
    return Container(
        pod.object,
        keys,
        container,
        Form.KUBERNETES,
        f"{pod.owner} {part.path}".strip(),
        text(container["image"]),
        tuple(referenced(texts(command), environment)) if command else None,
        tuple(referenced(texts(arguments), environment)),
        environment,
        resources_of(pod.spec, container),
        tuple(not_text(command, arguments)),
        unread,
        mounts.of_pod(pod.spec, container),
    )


def environment_of(node: Node) -> dict[str, str | None]:
    """`env`: None for a value that is taken from elsewhere than a ConfigMap among the documents."""
    return {item["name"].text: _value(item) for item in node.items if item["name"].is_scalar}


def _value(item: Node) -> str | None:
    reference = item.at("valueFrom", "configMapKeyRef")
    data = around.config_map(reference["name"].text)
    return text(item["value"] or data[reference["key"].text]) if data is not None else text(item["value"])


def _of_maps(node: Node) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """The variables of `envFrom`, as far as its ConfigMaps are among the documents."""
    found: dict[str, str | None] = {}
    is_whole = True
    for item in node.items:
        data = around.config_map(item.at("configMapRef", "name").text)
        is_whole = is_whole and data is not None
        if data is not None:
            found |= {f"{item['prefix'].text}{name}": text(value) for name, value in data.fields.items()}
    return found, () if is_whole else ("envFrom is not read: what it sets is not known",)


def referenced(words: Iterable[Word], environment: Mapping[str, str | None]) -> Iterator[Word]:
    """With $(NAME) replaced, as Kubernetes does; a name that `env` does not have stays as it is written."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        found = environment.get(match[1], match[0])
        budget.spend()
        budget.spend_on(found or "")
        return mark(match[0]) if found is None or is_secret(match[1]) else found

    for word in words:
        yield replace(word, text=_REFERENCE.sub(value, word.text))


def not_text(*lists: Node) -> Iterator[Fault]:
    for item in (item for node in lists for item in node.items):
        if item.kind in ("int", "float", "bool"):
            says = f"{item.path} is no text, and Kubernetes takes nothing else there: put it in quotes"
            yield Fault(Flaw.NOT_TEXT, item.line, says)


def resources_of(spec: Node, container: Node) -> Resources:
    limits, requests = container.at("resources", "limits"), container.at("resources", "requests")
    gpus = [docker.number(n.text) for key, n in {**requests.fields, **limits.fields}.items() if _GPU.fullmatch(key)]
    shm = _shm(spec, container)
    mounted = any(m["mountPath"].text.rstrip("/") == "/dev/shm" for m in container["volumeMounts"].items)
    return Resources(
        gpus=sum(count for count in gpus if count) or None,
        cpu_limit=docker.number(limits["cpu"].text),
        cpu_request=docker.number(requests["cpu"].text),
        shm_bytes=shm,
        host_ipc=spec["hostIPC"].plain is True,
        other_shm=mounted and shm is None,
        gpu=machine.gpu(spec),
    )


def _shm(spec: Node, container: Node) -> float | None:
    """The size of an emptyDir at /dev/shm; None without a sizeLimit: then the memory's own limit holds."""
    mounted = {m["name"].text for m in container["volumeMounts"].items if m["mountPath"].text.rstrip("/") == "/dev/shm"}
    for volume in spec["volumes"].items:
        if volume["name"].text in mounted and volume["emptyDir"]["medium"].text == "Memory":
            return docker.quantity(volume["emptyDir"]["sizeLimit"].text)
    return None
