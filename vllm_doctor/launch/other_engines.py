"""Engines other than vLLM that a text may start: they are named, not read."""

from __future__ import annotations

import re

_ENGINES = {
    "SGLang": re.compile(r"\b(?:dynamo\.sglang|sglang\.launch_server|sglang[ \t]+serve)\b"),
    "TensorRT-LLM": re.compile(r"\b(?:dynamo\.trtllm|trtllm-serve|tensorrt_llm)\b"),
    "TGI": re.compile(r"\btext-generation-(?:launcher|inference)\b"),
    "Triton": re.compile(r"\btritonserver\b"),
    "Ollama": re.compile(r"\bollama[ \t]+serve\b|\bengine:[ \t]{0,20}OLlama\b"),
    "FasterWhisper": re.compile(r"\bengine:[ \t]{0,20}FasterWhisper\b"),
    "Infinity": re.compile(r"\bengine:[ \t]{0,20}Infinity\b"),
    "transformers": re.compile(r"\bkaito\.sh/runtime:[ \t\"']{0,5}transformers\b"),
    "llama.cpp": re.compile(r"\bllama-server\b"),
    "LMDeploy": re.compile(r"\blmdeploy[ \t]+serve\b"),
}


def named(text: str) -> list[str]:
    """The engines that a text names as it would start them."""
    return [name for name, pattern in _ENGINES.items() if pattern.search(text)]
