from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Resources

WORKSPACE = """\
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: w}
resource: {instanceType: Standard_NC48ads_A100_v4, count: 2}
inference: {preset: {name: llama-3.1-8b-instruct}, config: mine, adapters: [{source: {name: a}}]}
"""
CONFIG = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mine}
data:
  inference_config.yaml: |
    max_probe_steps: 6
    vllm: {max-model-len: 4096, gpu-memory-utilization: 0.9}
"""


def test_a_workspace_with_its_config_map() -> None:
    [start] = read(WORKSPACE + CONFIG)
    assert start.argv == (
        "vllm", "serve", "llama-3.1-8b-instruct", "--max-model-len", "4096", "--gpu-memory-utilization", "0.9",
    )  # fmt: skip
    assert (start.is_open, start.resources) == (True, Resources(gpu="Standard_NC48ads_A100_v4"))
    assert start.place == "Workspace/w inference"
    assert start.notes[1:] == (
        "nodes: 2",
        "adapters are not read",
        "not read of inference_config.yaml: max_probe_steps",
    )


def test_a_config_map_that_is_not_there() -> None:
    [start] = read(WORKSPACE)
    assert start.notes[-1] == "the ConfigMap mine is not in the text"


def test_sets_and_roles() -> None:
    [start] = read(
        "apiVersion: kaito.sh/v1alpha1\nkind: InferenceSet\n"
        "spec: {template: {resource: {instanceType: p5.48xlarge}, inference: {preset: {name: phi-4}}}}\n"
    )
    assert (start.command.model, start.resources.gpu) == ("phi-4", "p5.48xlarge")
    prefill, decode = read(
        "apiVersion: kaito.sh/v1alpha1\nkind: MultiRoleInference\nmetadata: {name: x}\n"
        "spec: {model: {name: phi-4}, roles: [{type: prefill, instanceType: p5.48xlarge}, {type: decode}]}\n"
    )
    assert prefill.place == "MultiRoleInference/x prefill spec.roles[0]"
    assert decode.notes[-1] == "its role: decode"
