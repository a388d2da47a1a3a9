"""Scenarios of llm-d-benchmark: a model, flags that all share, and for each role its own command or parallelism.

What a scenario leaves out has the value of the tool's own defaults, which differ by its release: it is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import docker, machine
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.manifests.pod import environment_of, resources_of
from vllm_doctor.launch.manifests.values import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.unwrap import of_script
from vllm_doctor.launch.yaml_tree import Node

_ROLES = ("decode", "prefill")
_SWITCHES = {
    "enforceEager": "--enforce-eager",
    "disableLogRequests": "--no-enable-log-requests",
    "disableUvicornAccessLog": "--disable-uvicorn-access-log",
    "noPrefixCaching": "--no-enable-prefix-caching",
    "enablePrefixCaching": "--enable-prefix-caching",
}
_OF_MODEL = {
    "VLLM_MAX_MODEL_LEN": "maxModelLen",
    "VLLM_BLOCK_SIZE": "blockSize",
    "VLLM_ACCELERATOR_MEM_UTIL": "gpuMemoryUtilization",
    "VLLM_MAX_NUM_SEQ": "maxNumSeq",
    "VLLM_MAX_NUM_BATCHED_TOKENS": "maxNumBatchedTokens",
    "MODEL_NAME": "name",
    "MODEL_PATH": "path",
}
"""The variables of a container by the keys of `model`, or of `vllmCommon`, that set them."""
_FLAGS = {
    "--block-size": "VLLM_BLOCK_SIZE",
    "--max-model-len": "VLLM_MAX_MODEL_LEN",
    "--gpu-memory-utilization": "VLLM_ACCELERATOR_MEM_UTIL",
}


@dataclass(frozen=True)
class _Stack:
    scenario: Node
    role: str
    node: Node

    def shared(self, key: str) -> Node:
        return self.scenario["common"][key] or self.scenario[key]

    def value(self, variable: str) -> str | None:
        key = _OF_MODEL[variable]
        told = self.shared("model")[key] or self.shared("vllmCommon")[key]
        return told.text if told.is_scalar else None

    @property
    def variables(self) -> dict[str, str | None]:
        parallelism = self.node["parallelism"]["tensor"]
        tensor = parallelism.text if parallelism.is_scalar else None
        own = environment_of(self.node["extraEnvVars"])
        known = {name: self.value(name) for name in _OF_MODEL}
        return {**own, **known, "VLLM_TENSOR_PARALLELISM": tensor, "TP_SIZE": tensor}


def starts(root: Node, name: str) -> Iterable[Written] | None:
    scenarios = [one for one in (root["scenario"].items or [root["scenario"]]) if one.kind == "map"]
    if not any(one[key] for one in scenarios for key in ("common", "modelservice", "standalone", "vllmCommon")):
        return None
    return [written for one in scenarios for stack in _stacks(one) for written in _of_stack(stack)]


def _stacks(scenario: Node) -> Iterator[_Stack]:
    if scenario["standalone"]["enabled"].plain is True:
        yield _Stack(scenario, "standalone", scenario["standalone"])
    if scenario["modelservice"]["enabled"].plain is False:
        return
    for role in _ROLES:
        node = scenario["modelservice"][role] or scenario[role]
        is_on = node["enabled"].plain
        if is_on is not False and node["replicas"].text != "0" and (role == "decode" or node):
            yield _Stack(scenario, role, node)


def _of_stack(stack: _Stack) -> Iterator[Written]:
    custom = stack.node["vllm"]["customCommand"]
    environment = environment_of(stack.node["extraEnvVars"])
    generated = Written(_generated(stack), Form.VALUES, environment, notes=tuple(_left_out(stack.node)))
    own = of_script(custom.text, custom.text_line, stack.variables) if custom.is_scalar else []
    for written in [replace(one, words=[*one.words, *_configs(stack)]) for one in own] or [generated]:
        place = stack.node.path or stack.scenario.path
        role = stack.role if stack.role in _ROLES else ""
        written = replace(written, form=Form.VALUES, place=place, resources=_resources(stack), holder=Values())
        yield replace(written, role=role)


def _left_out(node: Node) -> Iterator[str]:
    yield "what the scenario leaves out has the tool's own defaults, which are not known"
    if node["vllmVariants"]:
        yield f"not read: {node['vllmVariants'].path}, which sets flags for each pod"


def _generated(stack: _Stack) -> list[Word]:
    """The command that the tool itself makes."""
    model, common = stack.shared("model"), stack.shared("vllmCommon")
    named = model["huggingfaceId"] or model["name"]
    found = [*docker.SERVE, named.text or mark("model.name")]
    if model["name"].is_scalar:
        found += ["--served-model-name", model["name"].text]
    variables: Mapping[str, str | None] = stack.variables
    of_variants = {key for variant in stack.node["vllmVariants"].items for key in variant.fields}
    for flag, variable in _FLAGS.items():
        value = None if _OF_MODEL[variable] in of_variants else variables[variable]
        if flag != "--gpu-memory-utilization" or value is None or docker.number(value) is not None:
            found += [flag, mark(f"${variable}") if value is None else value]
    if (tensor := variables["TP_SIZE"]) != "0":
        found += ["--tensor-parallel-size", mark("$VLLM_TENSOR_PARALLELISM") if tensor is None else tensor]
    found += [flag for key, flag in _SWITCHES.items() if common["flags"][key].plain is True]
    words = [Word(text, model.line) for text in found] + _configs(stack)
    extra = texts(stack.node["vllm"]["additionalFlags"])
    return words + [replace(word, text=part) for word in extra for part in word.text.split(None, 1)]


def _configs(stack: _Stack) -> list[Word]:
    """--kv-transfer-config, which is added to a command of one's own as well."""
    transfer = stack.shared("vllmCommon")["kvTransfer"]
    if transfer["enabled"].plain is not True:
        return []
    connector, role = transfer["connector"].text or "NixlConnector", transfer["role"].text or "kv_both"
    config = {"kv_connector": connector, "kv_role": role}
    if transfer["extraConfig"]:
        config["kv_connector_extra_config"] = transfer["extraConfig"].plain
    return [Word("--kv-transfer-config", transfer.line), Word(json.dumps(config), transfer.line)]


def _resources(stack: _Stack) -> Resources:
    asked = resources_of(stack.shared("affinity"), stack.node)
    sizes = [docker.number(stack.node["parallelism"][key].text) for key in ("tensor", "dataLocal")]
    gpus = None if sizes[0] is None else sizes[0] * (sizes[1] or 1.0)
    gpu = asked.gpu or machine.gpu(stack.shared("affinity"))
    mounts = any(item["mountPath"].text == "/dev/shm" for item in stack.shared("vllmCommon")["volumeMounts"].items)
    return replace(asked, gpus=asked.gpus or gpus, gpu=gpu, other_shm=mounts)
