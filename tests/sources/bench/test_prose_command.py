"""The server's command within what people write."""

from __future__ import annotations

import pytest

from vllm_doctor.sources.bench import prose_command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "this is how:\n(vllm) root@box:~$ vllm serve ./Llama-Q4_K_M.gguf --max-model-len 8192\nit is slow",
            "vllm serve ./Llama-Q4_K_M.gguf --max-model-len 8192",
        ),
        ("I used vllm serve 'Qwen/Qwen3-8B' -tp 2 and get 20 tok/s", "vllm serve Qwen/Qwen3-8B -tp 2"),
        (
            "```\n$ python3 -m vllm.entrypoints.openai.api_server \\\n  --model a/b1 \\\n  --enforce-eager\n```",
            "python3 -m vllm.entrypoints.openai.api_server --model a/b1 --enforce-eager",
        ),
        (
            'llm = LLM(model="Qwen/Qwen2.5-7B", tensor_parallel_size=2,\n  enforce_eager=True)\nf(dtype=9)',
            "vllm serve Qwen/Qwen2.5-7B --tensor-parallel-size 2 --enforce-eager",
        ),
    ],
)  # fmt: skip
def test_the_one_command(text: str, words: str) -> None:
    start = prose_command.start(text)
    assert start is not None
    assert start.argv == tuple(words.split())


@pytest.mark.parametrize(
    "text",
    [
        "we let vllm serve for a week",
        "vllm serve a/b1 or vllm serve c/d2",
        "LLM(model=name)",
        "vllm bench serve --model a/b1",
        "",
        "vllm serve " * 10_000,
        "LLM(" * 50_000,
        "vllm serve 'a" * 5_000,
    ],
)
def test_none_or_several_is_no_command(text: str) -> None:
    assert prose_command.start(text) is None
