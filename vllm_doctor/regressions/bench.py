"""How to try a release: its image or wheel, and the load."""

from __future__ import annotations

import shlex

_LOAD = {"--dataset-name": "random", "--random-input-len": 1024, "--random-output-len": 256, "--num-prompts": 200}
_CONCURRENCY = 16


def image(version: str, is_amd: bool) -> str:
    """The image that vLLM's makers publish."""
    return f"vllm/vllm-openai{'-rocm' if is_amd else ''}:v{version}"


def wheel(version: str) -> str:
    """The package, for who runs no containers."""
    return f"pip install vllm=={version}"


def command(model: str) -> str:
    """The same load each time, once warm."""
    options = [word for name, value in _LOAD.items() for word in (name, str(value))]
    return shlex.join(
        ["vllm", "bench", "serve", "--model", model, *options, "--max-concurrency", str(_CONCURRENCY), "--save-result"]
    )
