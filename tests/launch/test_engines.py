from __future__ import annotations

import pytest

from vllm_doctor.launch.engines import said


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("python -m sglang.launch_server --model-path m", "SGLang"),
        ("    image: lmsysorg/sglang:latest", "SGLang"),
        ("python3 -m dynamo.sglang --model m", "SGLang"),
        ("trtllm-serve m --tp_size 2", "TensorRT-LLM"),
        ("text-generation-launcher --model-id m", "Text Generation Inference"),
        ("./llama-server -m m.gguf", "llama.cpp"),
        ("ollama run llama3", "Ollama"),
        ("    engine: OLlama", "Ollama"),
    ],
)
def test_each_is_told_with_its_line(line: str, engine: str) -> None:
    assert said(f"cd x\n{line}\n") == (f"line 2 starts {engine}, not vLLM: its flags are not judged",)


@pytest.mark.parametrize("text", ["vllm serve m", "# ollama run llama3", "cd ollama", "// trtllm-serve m"])
def test_what_starts_none(text: str) -> None:
    assert said(text) == ()
