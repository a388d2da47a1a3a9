"""Harness of what people hand over: any text, parted."""

from __future__ import annotations

import json
from collections.abc import Hashable

from tests.fuzz import of_commands
from tests.fuzz.harness import harness

_COMMAND = "vllm serve org/m-7B --max-num-seqs 8"
_TABLE = """\
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   45C    P0             120W /  400W |   70000MiB /  81920MiB |     30%      Default |"""
_ISSUE = f"It is slow here, as one can see.\n\n```\n{_COMMAND}\n```\n\n```\n{_TABLE}\n```\n"
_CALL = "from vllm import LLM\nn = 8\nllm = LLM(model='org/m-7B', max_num_seqs=n, **{'seed': 1})\n"
_NOTEBOOK = {"cells": [{"cell_type": "code", "source": [_CALL], "outputs": [{"text": ["INFO x"]}]}], "nbformat": 4}


@harness(
    lambda: [
        text.encode()
        for text in (
            _COMMAND,
            _ISSUE,
            _CALL,
            json.dumps({"title": "slow", "body": _ISSUE, "comments": [{"body": _ISSUE}]}),
            json.dumps(_NOTEBOOK),
            f"<html><body><p>It is slow.</p><pre><code>{_COMMAND}</code></pre></body></html>",
            f'vllm:num_requests_running{{engine="0"}} 3.0\n{_ISSUE}',
            "Collecting environment information...\nGPU 0: NVIDIA A100\n",
            f"FROM vllm/vllm-openai:v0.11.0\nCMD {json.dumps(_COMMAND.split())}\n",
        )
    ],
    "```",
    "<pre>",
    "</pre>",
    '{"body": "',
    "LLM(",
    "**",
    "$ ",
    "vllm:",
    *of_commands.FLAGS,
    weight=4,
)
def parts(data: bytes) -> Hashable:
    """A text of any kind, and the parts that stand in it."""
    from vllm_doctor.intake import inputs
    from vllm_doctor.intake import parts as parting

    given = inputs.of_bytes("x", data)
    if given is None:
        return None
    found = parting.of(given, lambda _: False)
    for said in (*found.other_engines, found.problem):
        assert len(said) < 10_000
    forms = tuple(str(start.form) for start in found.commands.starts[:3]) if found.commands else ()
    return given.is_export, forms, found.gpus is not None, found.is_environment, found.scrape is not None
