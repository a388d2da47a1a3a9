from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form, Resources

HEAD = "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata: {name: chat}\n"
SPLIT = (
    HEAD
    + """\
spec:
  model: {uri: "hf://org/m", name: chat}
  parallelism: {tensor: 2, expert: true}
  template:
    containers:
    - {name: side, image: proxy}
    - name: main
      env:
      - {name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 8 --api-key S3CRET"}
      - {name: VLLM_LOGGING_LEVEL, value: DEBUG}
      resources: {limits: {nvidia.com/gpu: "2", cpu: "4"}}
  prefill:
    parallelism: {data: 16, dataLocal: 8}
    worker: {containers: [{name: main}]}
    template:
      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}
      containers:
      - {name: main, args: [--max-model-len, "4096"], resources: {limits: {nvidia.com/gpu: "8"}}}
  router: {scheduler: {}}
"""
)


def test_a_pair_of_servers() -> None:
    decode, prefill = read(SPLIT)
    assert (decode.form, decode.place) == (Form.KUBERNETES, "LLMInferenceService/chat decode spec")
    assert decode.argv == (
        "vllm", "serve", "org/m", "--served-model-name", "chat", "--tensor-parallel-size", "2",
        "--enable-expert-parallel", "--max-num-seqs", "8", "--api-key", "[masked]",
    )  # fmt: skip
    assert decode.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert decode.resources == Resources(gpus=2.0, cpu_limit=4.0)
    assert "its role: decode" in decode.notes
    assert prefill.place == "LLMInferenceService/chat prefill spec.prefill"
    assert prefill.command.flags["--max-model-len"] == 4096.0
    assert prefill.command.flags["--data-parallel-size"] == 16.0
    assert prefill.resources == Resources(gpus=16.0, gpu="p5.48xlarge")
    assert prefill.notes[1:] == ("nodes: 2", "its role: prefill")


def test_weights_that_stand_elsewhere_and_what_is_shared() -> None:
    [start] = read(HEAD + "spec: {model: {uri: 'pvc://x', name: org/m}, baseRefs: [{name: base}]}\n")
    assert (start.command.model, start.is_open) == ("org/m", True)
    assert start.notes[1:] == ("what its baseRefs hold is not in the text",)
    [start] = read(HEAD + "spec: {model: {uri: 'oci://x/y:1'}}\n")
    assert start.command.model == "oci://x/y:1"


def test_a_container_with_its_own_command() -> None:
    [start] = read(
        HEAD + "spec: {model: {uri: 'hf://org/m'}, template: {containers:"
        " [{name: main, image: 'vllm/vllm-openai:v0.11.0', command: [vllm, serve, /mnt/models], args: [-tp, '2']}]}}\n"
    )
    assert start.argv == ("vllm", "serve", "/mnt/models", "-tp", "2")
    assert start.version == "0.11.0"
