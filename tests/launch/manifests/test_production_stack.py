from __future__ import annotations

import pytest

from tests.launch.manifests.written import of_file
from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError


def test_values_of_the_production_stack() -> None:
    [start] = of_file("stack-values.yaml")
    assert (start.form, start.version) == (Form.HELM, "0.9.2")
    assert start.argv == (
        "vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "16384", "--enable-prefix-caching",
        "--no-enable-chunked-prefill", "--dtype", "bfloat16", "--tensor-parallel-size", "1", "--max-num-seqs", "32",
        "--gpu-memory-utilization", "0.95", "--disable-log-requests", "--swap-space=4",
    )  # fmt: skip
    assert (start.notes, start.environment["VLLM_USE_V1"]) == ((), "1")


def test_what_the_chart_makes_of_its_other_keys() -> None:
    ray, split = read(
        "servingEngineSpec:\n  modelSpec:\n  - {name: off, modelURL: o, enabled: false}\n"
        "  - {name: a, modelURL: m, enableLoRA: true, enableTool: false, toolCallParser: hermes, requestGPU: 2,\n"
        "     replicaCount: 3, raySpec: {headNode: {requestGPU: 1}},\n"
        "     vllmConfig: {pipelineParallelSize: 2, v0: 1, unheard: x}}\n"
        "  - {name: b, modelURL: m, lmcacheConfig: {enabled: true, kvRole: kv_producer}, vllmConfig: {maxLoras: 4}}\n"
    )
    assert ray.argv == (
        "vllm", "serve", "m", "--enable-lora", "--tool-call-parser", "hermes", "--pipeline-parallel-size", "2",
        "--distributed-executor-backend", "ray",
    )  # fmt: skip
    assert (ray.resources.gpus, ray.environment) == (7.0, {"VLLM_USE_V1": "0"})
    assert ray.notes == ("not read of vllmConfig: unheard",)
    assert split.argv == (
        "vllm", "serve", "m", "--max-loras", "4", "--no-enable-prefix-caching", "--kv-transfer-config",
        '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_producer"}',
    )  # fmt: skip
    assert split.notes[0] == "role of b: prefill"


def test_a_stack_without_engines() -> None:
    with pytest.raises(SourceError, match="no vLLM server is started here"):
        read("servingEngineSpec: {enableEngine: false, modelSpec: [{name: a, modelURL: m}]}")


def test_the_operators_runtime() -> None:
    [start] = read(
        "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nmetadata: {name: r}\nspec:\n"
        "  model: {modelURL: m, maxModelLen: 4096, enableLoRA: true, chatTemplate: x}\n"
        '  vllmConfig: {v1: true, gpuMemoryUtilization: "0.8", port: 8000, env: [{name: HF_HOME, value: /data}]}\n'
        "  lmCacheConfig: {enabled: true}\n"
        '  deploymentConfig: {resources: {cpu: "4", gpu: "2"}, image: {name: "vllm/vllm-openai:v0.11.0"}}\n'
    )
    assert start.argv == (
        "vllm", "serve", "m", "--max-model-len", "4096", "--enable-lora", "--gpu-memory-utilization", "0.8",
        "--no-enable-prefix-caching", "--no-enable-chunked-prefill", "--kv-transfer-config",
        '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}',
    )  # fmt: skip
    assert (start.version, start.resources.gpus, start.resources.cpu_limit) == ("0.11.0", 2.0, 4.0)
    assert start.environment == {"VLLM_USE_V1": "1", "HF_HOME": "/data"}
    assert start.place == "VLLMRuntime/r spec.vllmConfig"
