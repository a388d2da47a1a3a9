"""vLLM's production stack: the models of its Helm values, and its operator's VLLMRuntime: keys that become flags."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vllm_doctor.launch import docker, machine
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.manifests.pod import environment_of
from vllm_doctor.launch.start import Form, Holder, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node

Keys = tuple[str, ...]

_EXTRA = ("vllmConfig", "extraArgs")
_ON = {
    "enableLoRA": "--enable-lora",
    "enableTool": "--enable-auto-tool-choice",
}
"""Switches beside vllmConfig: nothing is said of what is off."""
_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill"}
SWITCHES = frozenset(_SWITCHES.values())
_OF_BOTH = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}
_OF_MODEL = {"toolCallParser": "--tool-call-parser", "modelRevision": "--revision"}
_VERSIONS = ("v0", "v1")
_NO_FLAGS = frozenset({"extraArgs", "env", "port", "prometheusMultiprocDir", *_VERSIONS})
_OF_RUNTIME = frozenset({"maxModelLen", "dtype", "maxNumSeqs"})
"""What VLLMRuntime has beside the model's name, and not in vllmConfig."""
_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}


@dataclass(frozen=True)
class StackModel(Holder):
    """One of the production stack's models; `values`: the whole document."""

    values: Node
    number: int

    @property
    def node(self) -> Node:
        return self.values.at("servingEngineSpec", "modelSpec").items[self.number]

    @property
    def keys(self) -> Mapping[str, Keys]:
        """Where its flags stand."""
        return {
            **{flag: (key,) for key, flag in (*_ON.items(), *_OF_MODEL.items())},
            **{flag: ("vllmConfig", key) for key, flag in (*_OF_BOTH.items(), *_SWITCHES.items())},
        }

    extra: Keys = _EXTRA
    environment: Keys = ("env",)


@dataclass(frozen=True)
class Runtime(Holder):
    """The operator's VLLMRuntime; `node`: its spec."""

    object: Node

    @property
    def node(self) -> Node:
        return self.object["spec"]

    @property
    def keys(self) -> Mapping[str, Keys]:
        in_config = [(key, flag) for key, flag in _OF_BOTH.items() if key not in _OF_RUNTIME]
        in_model = [(key, flag) for key, flag in _OF_BOTH.items() if key in _OF_RUNTIME]
        return {
            **{flag: ("model", key) for key, flag in (*_ON.items(), *in_model)},
            "--tool-call-parser": ("model", "toolCallParser"),
            **{flag: ("vllmConfig", key) for key, flag in (*in_config, *_SWITCHES.items())},
        }

    extra: Keys = _EXTRA
    environment: Keys = ("vllmConfig", "env")


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root) if root.at("servingEngineSpec", "modelSpec").kind == "seq" else None


def _starts(values: Node) -> Iterator[Written]:
    spec = values["servingEngineSpec"]
    if spec["enableEngine"].plain is False:
        return
    for number, model in enumerate(spec["modelSpec"].items):
        if model["enabled"].plain is not False:
            yield _of_model(StackModel(values, number), values)


def _of_model(holder: StackModel, values: Node) -> Written:
    model = holder.node
    config, cache, ray = model["vllmConfig"], model["lmcacheConfig"], model["raySpec"]
    words = list(_words(holder, model["modelURL"]))
    if ray:
        words += (Word("--distributed-executor-backend", ray.line), Word("ray", ray.line))
    else:
        words += _left_off(config, ("enablePrefixCaching",))
    words += texts(config["extraArgs"])
    words += _transfer(cache, is_v0=config["v0"].text == "1")
    image = ":".join(node.text for node in (model["repository"], model["tag"]) if node.is_scalar)
    gpus = docker.number(model["requestGPU"].text)
    workers = docker.number(model["replicaCount"].text) or 1.0
    head = docker.number(ray.at("headNode", "requestGPU").text) or 0.0
    return Written(
        words,
        Form.HELM,
        {**_version(config), **environment_of(model["env"])},
        place=config.path if config else model.path,
        holder=holder,
        image=image or None,
        resources=Resources(
            gpus=gpus if gpus is None or not ray else gpus * workers + head,
            cpu_limit=docker.number(model["limitCPU"].text),
            cpu_request=docker.number(model["requestCPU"].text),
            shm_bytes=docker.quantity(model["shmSize"].text),
            gpu=machine.gpu(model, values),
        ),
        notes=tuple(_notes(config, _role(model), {*_OF_BOTH, *_SWITCHES}, () if ray else ("enablePrefixCaching",))),
    )


def of_runtime(owner: str, object: Node) -> Iterator[Written]:
    """The operator's VLLMRuntime."""
    spec = object["spec"]
    model, config, deployment = spec["model"], spec["vllmConfig"], spec["deploymentConfig"]
    if not model["modelURL"].is_scalar:
        return
    asked = deployment["resources"]
    holder = Runtime(object)
    words = [*_words(holder, model["modelURL"]), *_left_off(config, _SWITCHES), *texts(config["extraArgs"])]
    words += _transfer(spec["lmCacheConfig"], config["v1"].plain is False)
    of_config = {*_OF_BOTH, *_SWITCHES} - _OF_RUNTIME
    yield Written(
        words,
        Form.KUBERNETES,
        {**_version(config), **environment_of(config["env"])},
        place=f"{owner} {config.path if config else spec.path}",
        holder=holder,
        image=deployment.at("image", "name").text or None,
        resources=Resources(
            gpus=docker.number(asked["gpu"].text),
            cpu_limit=docker.number(asked["cpu"].text),
            cpu_request=docker.number(asked["cpu"].text),
            other_shm=True,
        ),
        notes=tuple(_notes(config, (), of_config, _SWITCHES)),
    )


def _words(holder: StackModel | Runtime, model: Node) -> Iterator[Word]:
    """The command that the chart, or the operator, makes of the keys."""
    node = holder.node
    line = node["vllmConfig"].line
    yield from (Word(word, line) for word in docker.SERVE)
    if model.is_scalar:
        yield Word(model.text, model.line)
    places = {place: flag for flag, place in holder.keys.items()}
    for top in ((), ("model",), ("vllmConfig",)):
        for key, value in node.at(*top).fields.items():
            flag = places.get((*top, key))
            if flag is None:
                continue
            if key in _ON or key in _SWITCHES:
                if value.kind == "bool" and (value.plain or key in _SWITCHES):
                    yield Word(flag if value.plain else flag.replace("--", "--no-", 1), value.line)
            elif value.is_scalar and value.text:
                yield from (Word(flag, value.line), Word(value.text, value.line))


def _left_off(config: Node, keys: Iterable[str]) -> Iterator[Word]:
    """Switches that the stack turns off where vllmConfig does not have them."""
    for key in keys:
        if config and not config[key]:
            yield Word(_SWITCHES[key].replace("--", "--no-", 1), config.line)


def _transfer(cache: Node, is_v0: bool) -> Iterator[Word]:
    if cache["enabled"].plain is True:
        told = {
            "kv_connector": "LMCacheConnector" if is_v0 else "LMCacheConnectorV1",
            "kv_role": cache["kvRole"].text or "kv_both",
        }
        yield from (Word("--kv-transfer-config", cache.line), Word(json.dumps(told), cache.line))


def _version(config: Node) -> dict[str, str | None]:
    """Which engine the keys v1 and v0 ask for."""
    for key in _VERSIONS:
        if config[key].is_scalar:
            is_on = config[key].plain is True or config[key].text == "1"
            return {"VLLM_USE_V1": "1" if is_on == (key == "v1") else "0"}
    return {}


def _role(model: Node) -> Iterator[str]:
    role = _ROLES.get(model.at("lmcacheConfig", "kvRole").text)
    if role is not None:
        yield f"role of {model['name'].text or model.path}: {role}"


def _notes(config: Node, role: Iterable[str], known: Iterable[str], switches: Iterable[str]) -> Iterator[str]:
    yield from role
    others = [key for key in config.fields if key not in {*known, *_NO_FLAGS}]
    if others:
        yield f"not read of vllmConfig: {', '.join(others)}"
    if off := [key for key in switches if config and not config[key]]:
        yield f"vllmConfig does not have {', '.join(off)}, so the production stack turns that off (since May 2025)"
