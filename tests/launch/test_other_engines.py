from __future__ import annotations

import pytest

from vllm_doctor.launch import other_engines


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("python3 -m sglang.launch_server --model-path m", ["SGLang"]),
        ("- dynamo.trtllm\n- x", ["TensorRT-LLM"]),
        ("engine: OLlama", ["Ollama"]),
        ("vllm serve m", []),
    ],
)
def test_named(text: str, names: list[str]) -> None:
    assert other_engines.named(text) == names
