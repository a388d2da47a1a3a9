from __future__ import annotations

import pytest

from vllm_doctor.launch import source
from vllm_doctor.launch.start import Start
from vllm_doctor.model.reading import Known
from vllm_doctor.vllm import gpu_names
from vllm_doctor.vllm.instances import labels

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: chat}}
spec:
  {selector}
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.11.0
      args: ["--model", "org/model"]
      resources: {{limits: {{nvidia.com/gpu: 2}}}}
"""
AFFINITY = """affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - {{key: kubernetes.io/arch, operator: In, values: [amd64]}}
              - {{key: {key}, operator: {operator}, values: [{values}]}}"""
SKY = """
resources:
  {resources}
run: |
  vllm serve org/model -tp 8
"""


def only(text: str) -> Start:
    [start] = source.read(text)
    return start


@pytest.mark.parametrize(
    ("selector", "gpu"),
    [
        ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-a100}", "A100-SXM4-40GB"),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}", "H100 80GB HBM3"),
        ("nodeSelector: {karpenter.k8s.aws/instance-gpu-name: l40s}", "L40S"),
        ("nodeSelector: {node.kubernetes.io/instance-type: g6.12xlarge}", "L4"),
        ("nodeSelector: {accelerator: nvidia-l4, node.kubernetes.io/instance-type: p5.48xlarge}", "L4"),
        ("nodeSelector: {accelerator: nvidia, node.kubernetes.io/instance-type: p5.48xlarge}", "H100 80GB HBM3"),
        (AFFINITY.format(key="nvidia.com/gpu.product", operator="In", values="NVIDIA-L40S"), "L40S"),
        (
            AFFINITY.format(
                key="node.kubernetes.io/instance-type", operator="In", values="p5.4xlarge, p5.48xlarge, m7i.large"
            ),
            "H100 80GB HBM3",
        ),
    ],
)
def test_the_gpu_that_a_pod_asks_for(selector: str, gpu: str) -> None:
    start = only(POD.format(selector=selector))
    assert start.resources.gpu is not None
    found = gpu_names.named(start.resources.gpu)
    assert found is not None
    assert found.gpu.name == gpu
    facts = source.facts(start)
    assert facts["gpu_written"] == Known(start.resources.gpu, origin="manifest")
    assert facts["gpus_requested"] == Known(2.0, origin="manifest")


@pytest.mark.parametrize(
    "selector",
    [
        "hostNetwork: false",
        "nodeSelector: {kubernetes.io/arch: amd64, accelerator: nvidia}",
        "nodeSelector: {accelerator: [L4]}",
        "nodeSelector: L4",
        "affinity: [L4]",
        AFFINITY.format(key="nvidia.com/gpu.product", operator="NotIn", values="NVIDIA-L40S"),
        AFFINITY.format(key="nvidia.com/gpu.product", operator="In", values="NVIDIA-L40S, NVIDIA-L4"),
        AFFINITY.format(key="node.kubernetes.io/instance-type", operator="In", values=""),
    ],
)
def test_a_pod_that_asks_for_no_gpu_of_a_kind(selector: str) -> None:
    start = only(POD.format(selector=selector))
    assert start.resources.gpu is None
    assert "gpu_written" not in source.facts(start)


@pytest.mark.parametrize(
    ("resources", "gpu", "count"),
    [
        ("accelerators: H100:8", "H100", 8.0),
        ("accelerators: {A100-80GB: 4}", "A100-80GB", 4.0),
        ("accelerators: [L4:2]", "L4", 2.0),
        ("accelerators: L4", "L4", None),
        ("instance_type: p5.48xlarge", "p5.48xlarge", None),
        ("accelerators: {L4: 1, A10G: 1}", None, None),
        ("cpus: 8", None, None),
    ],
)
def test_a_task_of_skypilot(resources: str, gpu: str | None, count: float | None) -> None:
    start = only(SKY.format(resources=resources))
    assert (start.place, start.command.model) == ("run", "org/model")
    assert (start.resources.gpu, start.resources.gpus) == (gpu, count)


def test_labels_that_name_the_gpu_go_before_those_of_the_machine() -> None:
    assert labels().index("nvidia.com/gpu.product") < labels().index("node.kubernetes.io/instance-type")
    assert len(set(labels())) == len(labels())
