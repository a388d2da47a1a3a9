from __future__ import annotations

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.model.errors import SourceError

ALPHA = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  envs: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]
  services:
    Frontend:
      componentType: frontend
      extraPodSpec: {mainContainer: {image: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1"}}
    Decode:
      componentType: worker
      subComponentType: decode
      envFromSecret: hf
      multinode: {nodeCount: 2}
      sharedMemory: {size: 80Gi}
      resources: {limits: {gpu: "8", cpu: "32"}}
      extraPodSpec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1
          command: [/bin/sh, -c]
          args: ["exec python3 -m dynamo.vllm --model org/m -tp 16 --connector none --disaggregation-mode decode"]
"""
BETA = """\
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  components:
  - {name: Frontend, type: frontend, podTemplate: {spec: {containers: [{name: main, image: "x/vllm-runtime:1.4.2"}]}}}
  - name: P
    type: prefill
    podTemplate:
      spec:
        containers:
        - name: main
          image: x/vllm-runtime:1.4.2
          command: [python3]
          args: [-m, dynamo.vllm, --model, $(NAME), --is-prefill-worker, --dyn-x, hermes, --max-num-seqs, "8"]
          env: [{name: NAME, value: org/m}]
          resources: {limits: {nvidia.com/gpu: "4"}}
"""


def test_services() -> None:
    [start] = read(ALPHA)
    assert start.place == "DynamoGraphDeployment/g Decode spec.services.Decode.extraPodSpec.mainContainer.args"
    assert start.argv == ("vllm", "serve", "--model", "org/m", "-tp", "16")
    assert start.version is None  # the tag is Dynamo's own
    assert (start.resources.gpus, start.resources.cpu_limit, start.resources.gpu) == (16.0, 32.0, "NVIDIA-H200")
    assert start.resources.shm_bytes == 80.0 * 2**30
    assert start.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert start.notes == (
        "envFromSecret is not read: what it sets is not known",
        "Dynamo's worker starts vLLM's engine: it was read as `vllm serve` with the same flags",
        "not read, as vLLM does not have them: --connector",
        "nodes: 2",
        "its role: decode",
    )


def test_components() -> None:
    [start] = read(BETA)
    assert start.argv == ("vllm", "serve", "--model", "org/m", "--max-num-seqs", "8")
    assert start.resources.gpus == 4.0
    assert start.notes[1:] == ("not read, as vLLM does not have them: --dyn-x", "its role: prefill")


def test_another_engine_is_told() -> None:
    with pytest.raises(SourceError, match="starts SGLang, not vLLM: its flags are not judged"):
        read(ALPHA.replace("dynamo.vllm", "dynamo.sglang"))
    [start] = read(BETA + "---\n" + ALPHA.replace("dynamo.vllm", "dynamo.trtllm"))
    assert start.notes[-1].endswith("starts TensorRT-LLM, not vLLM: its flags are not judged")
