"""Recipes of srt-slurm: a mapping of flags for each role, which it turns into the command of a worker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from vllm_doctor.launch import docker
from vllm_doctor.launch.manifests import flag_map
from vllm_doctor.launch.manifests.container import text
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.yaml_tree import Node

_CONNECTORS = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
    "kvbm": {
        "kv_connector": "DynamoConnector",
        "kv_connector_module_path": "kvbm.vllm_integration.connector",
        "kv_role": "kv_both",
    },
}
"""Its words for --kv-transfer-config."""
_SHORT = {"aggregated": "agg"}
_ROLES = ("prefill", "decode")
_BY_LAUNCHER = frozenset({"connector"})


def starts(root: Node, name: str) -> Iterable[Written] | None:
    is_recipe = root["backend"]["vllm_config"].kind == "map" and root["model"].kind == "map"
    return _starts(root) if is_recipe else None


def _starts(recipe: Node) -> Iterator[Written]:
    backend = recipe["backend"]
    for role, config in backend["vllm_config"].fields.items():
        if config.kind != "map":
            continue
        line = config.line
        words = [*(Word(word, line) for word in docker.SERVE), *_model(recipe["model"], line)]
        told = Node(config.path, line, "map", fields={k: v for k, v in config.fields.items() if k not in _BY_LAUNCHER})
        words += _transfer(config["connector"] or backend["connector"])
        words += flag_map.words(told, turns_off=False)
        environment = {key: text(value) for key, value in backend[f"{role}_environment"].fields.items()}
        yield Written(
            words,
            Form.VALUES,
            environment,
            place=config.path,
            holder=Values(flags=config),
            image=text(recipe.at("model", "container")),
            resources=_resources(recipe["resources"], role, config),
            notes=(*_workers(recipe["resources"], role), "srt-slurm adds the flags that join its nodes"),
            role=role if role in _ROLES else "",
        )


def _model(model: Node, line: int) -> Iterator[Word]:
    path = model["path"].text
    if path.startswith("hf:"):
        yield Word(path.removeprefix("hf:"), line)
    elif path:  # an alias, or a folder that becomes /model: what it holds is told by its name alone
        yield Word(path, model["path"].line)
    else:
        yield Word(mark("model.path"), line)


def _transfer(connector: Node) -> Iterator[Word]:
    if connector.is_scalar and connector.text.lower() not in ("null", "none"):
        preset = _CONNECTORS.get(connector.text.lower())
        given = json.dumps(preset) if preset else connector.text
        yield from (Word("--kv-transfer-config", connector.line), Word(given, connector.line))


def _resources(told: Node, role: str, config: Node) -> Resources:
    short = _SHORT.get(role, role)
    asked = docker.number(told[f"gpus_per_{short}"].text)
    sizes = [config[f"{kind}-parallel-size"] or config[f"{kind}_parallel_size"] for kind in ("tensor", "pipeline")]
    product = 1.0
    for size in sizes:
        product *= docker.number(size.text) or 1.0
    return Resources(gpus=asked or product, gpu=text(told["gpu_type"]))


def _workers(told: Node, role: str) -> Iterator[str]:
    count = told[f"{_SHORT.get(role, role)}_workers"]
    if count.is_scalar and count.text not in ("0", "1"):
        yield f"the recipe starts {count.text} such workers"
