"""Helm values of vLLM's production stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vllm_doctor.launch import docker, machine
from vllm_doctor.launch.manifests.container import texts
from vllm_doctor.launch.manifests.pod import environment_of
from vllm_doctor.launch.start import Form, Holder, Resources, Word, Written
from vllm_doctor.launch.yaml_tree import Node

_FLAGS = {
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
}
_SWITCHES = {"enablePrefixCaching": "--enable-prefix-caching", "enableChunkedPrefill": "--enable-chunked-prefill"}


@dataclass(frozen=True)
class StackModel(Holder):
    """One of the production stack's models; `values`: the whole document."""

    values: Node
    number: int

    @property
    def node(self) -> Node:
        return self.values.at("servingEngineSpec", "modelSpec").items[self.number]


STACK_KEYS: Mapping[str, str] = {flag: key for key, flag in (*_FLAGS.items(), *_SWITCHES.items())}
"""The keys of vllmConfig by their flags."""


def starts(root: Node, name: str) -> Iterable[Written] | None:
    return _starts(root) if root.at("servingEngineSpec", "modelSpec").kind == "seq" else None


def _starts(values: Node) -> Iterator[Written]:
    for number, model in enumerate(values.at("servingEngineSpec", "modelSpec").items):
        config = model["vllmConfig"]
        line = config.line
        words = [Word("vllm", line), Word("serve", line)]
        if model["modelURL"].is_scalar:
            words.append(Word(model["modelURL"].text, model["modelURL"].line))
        for key, node in config.fields.items():
            if key in _FLAGS and node.is_scalar:
                words += [Word(_FLAGS[key], node.line), Word(node.text, node.line)]
            elif key in _SWITCHES and node.kind == "bool":
                flag = _SWITCHES[key]
                words.append(Word(flag if node.plain else flag.replace("--", "--no-", 1), node.line))
        words += texts(config["extraArgs"])
        others = [key for key in config.fields if key not in (*_FLAGS, *_SWITCHES, "extraArgs")]
        image = ":".join(node.text for node in (model["repository"], model["tag"]) if node.is_scalar)
        yield Written(
            words,
            Form.HELM,
            environment_of(model["env"]),
            place=config.path if config else model.path,
            holder=StackModel(values, number),
            image=image or None,
            resources=Resources(
                gpus=docker.number(model["requestGPU"].text),
                cpu_limit=docker.number(model["limitCPU"].text),
                cpu_request=docker.number(model["requestCPU"].text),
                shm_bytes=docker.quantity(model["shmSize"].text),
                gpu=machine.gpu(model, values),
            ),
            notes=(f"not read of vllmConfig: {', '.join(others)}",) if others else (),
        )
