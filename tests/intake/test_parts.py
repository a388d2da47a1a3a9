"""What stands in a text, whatever was pasted into it."""

from __future__ import annotations

import pytest

from vllm_doctor.intake import parts
from vllm_doctor.intake.inputs import Input
from vllm_doctor.intake.parts import Parts

COMMAND = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-num-seqs 8"
LIST = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-2d5c0b4a-0000-0000-0000-000000000001)\n"
SCRAPE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
"""


def of(text: str, is_log: bool = False, name: str = "given.txt") -> Parts:
    return parts.of(Input(name, text, name), lambda _: is_log)


def models(found: Parts) -> list[str | None]:
    return [start.command.model for start in found.commands.starts] if found.commands else []


@pytest.mark.parametrize(
    "text",
    [
        COMMAND,
        f"#!/bin/sh\nexport X=1\n{COMMAND} \\\n  --enforce-eager\n",
        f"It is slow here. We start it as\n\n```bash\n{COMMAND}\n```\n",
        f"It is slow, and I do not know why at all. I run {COMMAND} and it gets 3 tokens/s.",
        "services:\n  a:\n    image: vllm/vllm-openai:v0.11.0\n    command: --model Qwen/Qwen2.5-7B-Instruct\n",
    ],
)
def test_a_command_is_found(text: str) -> None:
    found = of(text)
    assert models(found) == ["Qwen/Qwen2.5-7B-Instruct"]
    assert not found.is_empty
    assert not found.is_only_log


def test_a_command_among_the_lines_of_a_log_is_not_read_as_a_script() -> None:
    found = of(f"$ {COMMAND}\nINFO 11-20 13:30:00 [api_server.py:1] it's up (http://0.0.0.0:8000\n", is_log=True)
    assert models(found) == ["Qwen/Qwen2.5-7B-Instruct"]
    assert found.is_log


def test_an_issue_with_all_that_people_paste() -> None:
    found = of(f"## Slow\n\n```\n{LIST}```\n\n```\n{COMMAND}\n```\n\n```\n{SCRAPE}```\n", is_log=True)
    assert models(found) == ["Qwen/Qwen2.5-7B-Instruct"]
    assert found.gpus is not None
    assert [gpu.name for gpu in found.gpus.gpus] == ["NVIDIA A100-SXM4-80GB"]
    assert found.scrape is not None
    assert found.scrape.count("vllm:num_requests_running{") == 1


def test_commands_that_differ_are_all_kept() -> None:
    found = of(f"Before:\n```\n{COMMAND}\n```\nand then, which is faster:\n```\n{COMMAND} --enforce-eager\n```\n")
    assert len(models(found)) == 2


@pytest.mark.parametrize("text", ["", "nothing of ours\n", "The weather was fine, and all went well.\n", "[1, 2]\n"])
def test_what_holds_nothing(text: str) -> None:
    assert of(text).is_empty


def test_a_scrape_that_is_only_quoted_is_none() -> None:
    assert of("It says\nvllm:num_requests_waiting 3.0\nand no more.\n").scrape is None


def test_a_server_that_a_line_describes() -> None:
    found = parts.described(Input("a", "Qwen/Qwen2.5-7B-Instruct on two A100 80GB; the client sends 256 at once\n"))
    assert found is not None
    [start] = found.starts
    assert start.command.model == "Qwen/Qwen2.5-7B-Instruct"
    assert start.is_open
    assert start.resources.gpu is not None


def test_a_long_text_that_names_a_model_and_gpus_describes_no_server() -> None:
    text = "Qwen/Qwen2.5-7B-Instruct on two A100 80GB.\n" + "and so on\n" * 100
    assert parts.described(Input("a", text)) is None


def test_another_engine_is_told() -> None:
    found = of("python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2\n")
    assert found.commands is None
    assert found.other_engines == ("given.txt: line 1 starts SGLang, not vLLM: its flags are not judged",)
