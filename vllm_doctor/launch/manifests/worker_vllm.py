"""RunPod's worker-vllm: an image that makes vLLM's flags of its environment variables (MAX_MODEL_LEN=8192)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from vllm_doctor.launch import docker, shell
from vllm_doctor.launch.manifests import flag_map, script
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.yaml_tree import Node
from vllm_doctor.vllm import flags as catalogue

_IMAGE = re.compile(r"(?:^|/)worker(?:-v1)?-vllm(?:[:@]|$)")
_NAMED = {
    "MODEL_NAME": "--model",
    "MODEL_REVISION": "--revision",
    "TOKENIZER_NAME": "--tokenizer",
    "OPENAI_SERVED_MODEL_NAME_OVERRIDE": "--served-model-name",
    "CUSTOM_CHAT_TEMPLATE": "--chat-template",
    "VLLM_CONFIG_FILE": "--config",
}
"""Variables whose names are not those of their flags."""
_GPUS = ("gpuTypeIds", "gpuIds", "gpuTypeId")
_EXTRA = "VLLM_EXTRA_ARGS"
_OWN = frozenset({"HOST", "PORT", "API_KEY", "UVICORN_LOG_LEVEL"})
"""What the worker sets itself."""
NOTE = "worker-vllm makes the flags of its environment: those of the variables in the text were read"


def starts(root: Node, name: str) -> Iterable[Written] | None:
    """RunPod's template of an endpoint; also the `config` of its hub files."""
    image = root["imageName"] or root["image"] or root["dockerImage"]
    if not (image.is_scalar and is_worker(image.text)):
        return None
    return _starts(root, image.text)


def _starts(template: Node, image: str) -> Iterator[Written]:
    node = template["env"] or template["environment"]
    environment = _environment(node)
    listed = [item for key in _GPUS for item in (template[key].items or (template[key],)) if item.is_scalar]
    yield Written(
        words(environment, node.line),
        Form.VALUES,
        environment,
        place=node.path,
        image=image,
        holder=Values(),
        resources=Resources(
            gpus=docker.number(template["gpuCount"].text) or 1.0, gpu=listed[0].text if len(listed) == 1 else None
        ),
        notes=(NOTE,),
    )


def _environment(node: Node) -> dict[str, str | None]:
    pairs = {item["key"].text or item["name"].text: item["value"] for item in node.items if item.kind == "map"}
    if pairs:
        return {name: value.text if value.is_scalar else None for name, value in pairs.items() if name}
    return script.environment_of(node)


def is_worker(image: str | None) -> bool:
    return image is not None and _IMAGE.search(image) is not None


def words(environment: Mapping[str, str | None], line: int) -> list[Word]:
    """The command that the worker makes of its environment."""
    found = list(docker.SERVE)
    for name, value in environment.items():
        flag = _NAMED.get(name) or (flag_map.known(name) if name.isupper() and name not in _OWN else None)
        if flag is None:
            continue
        if value is None:
            found += [flag, mark(f"${name}")]
        elif value.lower() == "true":
            found.append(flag)
        elif value.lower() == "false":
            off = "--no-" + flag.removeprefix("--")
            found += [off] if catalogue.is_flag(off) else []
        elif value:
            found += [flag, value]
    extra = shell.words(environment.get(_EXTRA) or "", line)[0]
    return [*(Word(text, line) for text in found), *extra]
