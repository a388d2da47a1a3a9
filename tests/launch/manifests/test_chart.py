from __future__ import annotations

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Resources


def test_the_values_of_a_chart_with_the_command_in_its_image() -> None:
    text = (
        "image: {repository: vllm/vllm-openai, tag: v0.20.0, command: [vllm, serve, m, -tp, '2']}\n"
        "resources: {limits: {nvidia.com/gpu: 2, cpu: 8}}\n"
    )
    [start] = read(text)
    assert (start.place, start.version, start.command.flags) == (
        "image.command",
        "0.20.0",
        {"--tensor-parallel-size": 2.0},
    )
    assert start.resources == Resources(gpus=2.0, cpu_limit=8.0)
    [start] = read(text + "shm: {enabled: true, size: 16Gi}\n")
    assert start.resources.shm_bytes == 16.0 * 2**30
