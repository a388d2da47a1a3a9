from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.model.errors import SourceError

RUNTIME = """\
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: rt}
spec:
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.11.0
    command: [python, -m, vllm.entrypoints.openai.api_server]
    args: [--model, /mnt/models, "--served-model-name={{.Name}}", --max-model-len, "8000"]
    resources: {limits: {nvidia.com/gpu: "1"}}
---
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: svc}
spec:
  predictor:
    model: {modelFormat: {name: vLLM}, runtime: rt, storageUri: "hf://org/m", args: [--max-num-seqs=16]}
"""


def test_a_runtime_alone() -> None:
    [start] = read(RUNTIME)
    assert start.place == "ServingRuntime/rt spec.containers[0].args"
    assert start.unknown_flags == {"--served-model-name"}


def test_a_service_is_one_with_its_runtime() -> None:
    [start] = read(RUNTIME + SERVICE)
    assert start.argv == ("vllm", "serve", "org/m", "--max-model-len", "8000", "--max-num-seqs=16")
    assert (start.version, start.resources.gpus) == ("0.11.0", 1.0)
    assert start.notes[-1] == "its ServingRuntime was read with it: ServingRuntime/rt spec.containers[0].args"
    runtime, service = read(RUNTIME.replace("rt", "other", 1) + SERVICE.replace("runtime: rt", "runtime: else"))
    assert (runtime.command.model, service.command.model) == ("/mnt/models", "org/m")


def test_a_model_that_is_no_language_model() -> None:
    with pytest.raises(SourceError, match="no vLLM server is started here"):
        read(SERVICE.replace("vLLM", "sklearn"))
