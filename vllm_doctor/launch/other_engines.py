"""Engines other than vLLM that a text may start: they are named, not read."""

from __future__ import annotations

import re

_ENGINES = {
    "SGLang": re.compile(
        r"\bsglang[./]launch_server\b|\bsglang[ \t]{1,20}serve\b|\bdynamo\.sglang\b|\blmsysorg/sglang\b"
    ),
    "TensorRT-LLM": re.compile(r"\b(?:dynamo\.trtllm|trtllm-serve|tensorrt_llm|tensorrt-llm/release)\b"),
    "TGI": re.compile(r"\btext-generation-(?:launcher|inference)\b"),
    "Triton": re.compile(r"\btritonserver\b"),
    "Ollama": re.compile(r"\bollama[ \t]{1,20}(?:serve|run)\b|\bollama/ollama\b|\bengine:[ \t]{0,20}OLlama\b"),
    "FasterWhisper": re.compile(r"\bengine:[ \t]{0,20}FasterWhisper\b"),
    "Infinity": re.compile(r"\bengine:[ \t]{0,20}Infinity\b"),
    "transformers": re.compile(r"\bkaito\.sh/runtime:[ \t\"']{0,5}transformers\b"),
    "llama.cpp": re.compile(r"\bllama-server\b|\bllama_cpp\.server\b|\bllama\.cpp:(?:server|full)\b"),
    "LMDeploy": re.compile(r"\blmdeploy[ \t]{1,20}serve\b|\bopenmmlab/lmdeploy\b"),
    "MLC": re.compile(r"\bmlc_llm[ \t]{1,20}serve\b"),
}
_COMMENT = re.compile(r"[ \t]*(?:#|//|;|--\s|rem\b)", re.IGNORECASE)
_MOST_LINES = 5000
_MOST_CHARACTERS = 1000
_MOST = 3


def named(text: str) -> dict[str, int]:
    """The engines that a text names as it would start them, each with the line where it does so first."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n", _MOST_LINES)[:_MOST_LINES], 1):
        if _COMMENT.match(line):
            continue
        here = line[:_MOST_CHARACTERS]
        for name, pattern in _ENGINES.items():
            if name not in found and pattern.search(here):
                found[name] = number
    return found


def said(text: str) -> tuple[str, ...]:
    """A sentence for each of them."""
    return tuple(
        f"line {number} starts {name}, not vLLM: its flags are not judged"
        for name, number in list(named(text).items())[:_MOST]
    )
