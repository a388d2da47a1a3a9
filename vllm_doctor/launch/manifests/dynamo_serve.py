"""The configuration of `dynamo serve` (NVIDIA Dynamo up to 0.3): a mapping of settings for each service of its graph.

Those of vLLM's workers are vLLM's flags among Dynamo's own; what several share stands once, below `Common`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_doctor.launch import docker, yaml_tree
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.model.errors import SourceError

VARIABLE = "DYN_DEPLOYMENT_CONFIG"
"""Of a graph deployment: the configuration as JSON."""
_SHARED, _ARE_SHARED, _SERVICE = "Common", "common-configs", "ServiceArgs"
_WORKER = "Worker"


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root, is_document=True) if _is_it(root) else None


def in_variable(text: str, line: int) -> Iterator[Written]:
    """What the JSON in a graph's variable configures."""
    try:
        roots = yaml_tree.read(text, line).roots
    except SourceError:
        return
    for root in roots[:1]:
        if _is_it(root):
            yield from _starts(root, is_document=False)


def _is_it(root: Node) -> bool:
    has_settings = any(value[_SERVICE] or value[_ARE_SHARED] for value in root.fields.values())
    return has_settings and any(name.startswith("Vllm") and name.endswith(_WORKER) for name in root.fields)


def _starts(root: Node, is_document: bool) -> Iterator[Written]:
    for name, settings in root.fields.items():
        if not name.endswith(_WORKER) or settings.kind != "map":
            continue
        shared = [item.text for item in settings[_ARE_SHARED].items]
        given = {**{key: value for key, value in root[_SHARED].fields.items() if key in shared}, **settings.fields}
        flags = {key: value for key, value in given.items() if flag_map.known(key)}
        told = Node(settings.path, settings.line, "map", fields=flags)
        line = settings.line
        yield Written(
            [*(Word(word, line) for word in docker.SERVE), *flag_map.words(told, turns_off=False)],
            Form.VALUES,
            {},
            place=settings.path if is_document else f"{VARIABLE} {name}",
            holder=Values(flags=settings) if is_document else None,
            resources=Resources(gpus=docker.number(settings.at(_SERVICE, "resources", "gpu").text)),
            notes=tuple(_notes(settings, [key for key in settings.fields if key not in flags])),
            role=_role(name, settings),
        )


def _role(name: str, settings: Node) -> str:
    if "Prefill" in name:
        return "prefill"
    return "decode" if settings["remote-prefill"].plain is True else ""


def _notes(settings: Node, others: list[str]) -> Iterator[str]:
    yield "`dynamo serve` gives vLLM's engine the flags of its configuration: they were read as `vllm serve`"
    if own := [key for key in others if key not in (_SERVICE, _ARE_SHARED)]:
        yield f"not read, as vLLM does not have them: {', '.join(own)}"
    workers = settings.at(_SERVICE, "workers").text
    if workers not in ("", "0", "1"):
        yield f"it starts {workers} such workers"
