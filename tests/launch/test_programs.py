from __future__ import annotations

import pytest

from vllm_doctor.launch.source import notes, read
from vllm_doctor.model.errors import SourceError


@pytest.mark.parametrize(
    ("command", "name", "own"),
    [
        ("vllm bench throughput --num-prompts 10", "vllm bench throughput", "--num-prompts"),
        ("vllm bench latency --input-len 32", "vllm bench latency", "--input-len"),
        ("python benchmarks/benchmark_throughput.py --input-len 32", "benchmark_throughput.py", "--input-len"),
        ("vllm run-batch -i a.jsonl -o b.jsonl", "vllm run-batch", "-i, -o"),
        ("python -m vllm.entrypoints.openai.run_batch -i a", "python -m vllm.entrypoints.openai.run_batch", "-i"),
        ("sudo env A=1 uv run vllm bench throughput --num-prompts 10", "vllm bench throughput", "--num-prompts"),
    ],
)
def test_programs_that_start_an_engine(command: str, name: str, own: str) -> None:
    [start] = read(f"{command} --model m --tensor-parallel-size 2 --enforce-eager\n")
    assert start.command.model == "m"
    assert start.command.flags == {"--model": "m", "--tensor-parallel-size": 2.0, "--enforce-eager": True}
    assert f"line 1: `{name}` starts an engine: read as `vllm serve`; its own flags are not judged: {own}" in notes(
        start
    )


@pytest.mark.parametrize("command", ["vllm bench serve --model m", "vllm chat", "python -m dynamo.frontend --port=1"])
def test_programs_that_start_none(command: str) -> None:
    with pytest.raises(SourceError):
        read(command)
