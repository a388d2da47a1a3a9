"""Servers of models that are not vLLM, so that a text that starts one is told from a text that starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ENGINES: Mapping[str, re.Pattern[str]] = {
    "SGLang": re.compile(r"\bsglang[./]launch_server\b|\bsglang serve\b|\bdynamo\.sglang\b|\blmsysorg/sglang\b"),
    "TensorRT-LLM": re.compile(r"\btrtllm-serve\b|\bdynamo\.trtllm\b|\btensorrt[-_]llm/release\b"),
    "Text Generation Inference": re.compile(r"\btext-generation-launcher\b|\bhuggingface/text-generation-inference\b"),
    "llama.cpp": re.compile(r"\bllama-server\b|\bllama_cpp\.server\b|\bllama\.cpp:(?:server|full)\b"),
    "Ollama": re.compile(r"\bollama (?:serve|run)\b|\bollama/ollama\b|\bengine:[ \t]{0,20}OLlama\b"),
    "LMDeploy": re.compile(r"\blmdeploy serve\b|\bopenmmlab/lmdeploy\b"),
    "Triton": re.compile(r"\btritonserver --|\bnvidia/tritonserver:"),
    "FasterWhisper": re.compile(r"\bengine:[ \t]{0,20}FasterWhisper\b"),
    "Infinity": re.compile(r"\bengine:[ \t]{0,20}Infinity\b"),
    "transformers": re.compile(r"\bkaito\.sh/runtime:[ \t\"']{0,5}transformers\b"),
    "MLC": re.compile(r"\bmlc_llm serve\b"),
}
_COMMENT = re.compile(r"[ \t]*(?:#|//|;|--\s|rem\b)", re.IGNORECASE)
_MOST_LINES = 5000
_MOST_CHARACTERS = 1000
_MOST = 3


def said(text: str) -> tuple[str, ...]:
    """A sentence for each engine that the text starts, with the line that names it first."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n", _MOST_LINES)[:_MOST_LINES], 1):
        if _COMMENT.match(line):
            continue
        here = line[:_MOST_CHARACTERS]
        for name, pattern in _ENGINES.items():
            if name not in found and pattern.search(here):
                found[name] = number
    return tuple(
        f"line {number} starts {name}, not vLLM: its flags are not judged"
        for name, number in list(found.items())[:_MOST]
    )
