from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form

PAIR = """modelArtifacts: {name: org/m, uri: "hf://org/m"}
routing: {servicePort: 8000, proxy: {targetPort: 8200}}
decode:
  parallelism: {tensor: 2, data: 4, workers: 2}
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-cuda:v0.4.0
    modelCommand: vllmServe
    args: ["--max-num-seqs", "64"]
    env: [{name: VLLM_LOGGING_LEVEL, value: DEBUG}]
    resources: {limits: {cpu: "8"}}
prefill:
  replicas: 2
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-cuda:v0.4.0
    modelCommand: imageDefault
    args: [--enforce-eager]
"""


def test_a_pair_is_two_servers() -> None:
    decode, prefill = read(PAIR)
    assert (decode.form, decode.place, decode.version) == (Form.HELM, "decode.containers[0].args", None)
    assert decode.argv == (
        "vllm", "serve", "org/m", "--port", "8200", "--tensor-parallel-size", "2", "--data-parallel-size", "4",
        "--data-parallel-size-local", "2", "--served-model-name", "org/m", "--max-num-seqs", "64",
    )  # fmt: skip
    assert (decode.resources.gpus, decode.resources.cpu_limit) == (4.0, 8.0)
    assert decode.environment == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert (prefill.place, prefill.command.model) == ("prefill.containers[0].args", "org/m")
    assert prefill.command.flags["--port"] == 8000.0


def test_a_role_that_is_off_and_a_model_in_a_volume() -> None:
    text = PAIR.replace("prefill:\n", "prefill:\n  create: false\n").replace("hf://org/m", "pvc://claim/models/x")
    [decode] = read(text)
    assert decode.command.model == "/model-cache/models/x"


def test_a_command_of_ones_own() -> None:
    [start] = read(
        "modelArtifacts: {uri: 'hf://org/m'}\ndecode:\n  containers:\n  - modelCommand: custom\n"
        "    command: [/bin/sh, -c]\n    args: ['vllm serve org/n --block-size 64']\n"
    )
    assert (start.command.model, start.command.flags) == ("org/n", {"--block-size": 64.0})
