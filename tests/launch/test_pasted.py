"""Commands that were pasted over many lines and lost their backslashes."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.launch import pasted
from vllm_doctor.launch.source import notes, read
from vllm_doctor.sources.bench import prose_command

DOCKER = (
    "sudo docker run -d\n--name a\n--gpus all\n-e HF_HUB_OFFLINE=1\nvllm/vllm-openai:v0.11.0 /models/m\n"
    '--max-num-seqs 64\n--speculative-config \'{"method":"mtp","num_speculative_tokens":5}\'\n'
)
SERVE = "vllm serve\norg/m-7B\n--max-num-seqs 64\n--max-model-len\n8192\n"
WORDS = ("vllm", "serve", "org/m-7B", "--max-num-seqs", "64", "--max-model-len", "8192")


def test_a_docker_run_alone_and_among_sentences() -> None:
    for text in (DOCKER, f"机器是8张H200。\n\n{DOCKER}\n现在问题是\n"):
        [start] = read(text)
        assert start.image == "vllm/vllm-openai:v0.11.0"
        assert start.command.model == "/models/m"
        assert start.command.flags["--max-num-seqs"] == 64.0
        assert start.environment["HF_HUB_OFFLINE"] == "1"
        assert pasted.NOTE in notes(start)
    [start] = prose_command.starts(f"I run it like this and it is very slow.\n\n{DOCKER}\nWhat is wrong?\n")
    assert start.command.flags["--max-num-seqs"] == 64.0
    assert pasted.NOTE in notes(start)


@pytest.mark.parametrize("prompt", ["", "$ ", "(vllm) root@box:~# ", "CUDA_VISIBLE_DEVICES=0 nohup "])
def test_a_serve_in_a_page_and_in_prose(prompt: str) -> None:
    if "#" not in prompt:  # which is a comment for a shell
        [start] = read(f"# Slow\n\n```bash\n{prompt}{SERVE}```\n")
        assert start.argv == WORDS
        assert pasted.NOTE in notes(start)
    [start] = prose_command.starts(f"It is slow, and I do not know why.\n\n{prompt}{SERVE}\nThanks\n")
    assert start.argv == WORDS


def test_comments_and_prose_below_end_it() -> None:
    [start] = prose_command.starts("So I start it:\n\nvllm serve org/m-7B\n--max-num-seqs 64  # few\n-tp 2\nThanks\n")
    assert start.argv == ("vllm", "serve", "org/m-7B", "--max-num-seqs", "64", "-tp", "2")


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m \\\n  --seed 1\n  --max-num-seqs 8\n",  # its author knew how to go on
        "we use vllm serve for that\n--seed 1\n",
        "vllm serve m\n- it is slow\n- it is loud\n",
        "vllm serve m\n\n--seed 1\n",
        "vllm serve m --enable-prefix-caching\nThanks\n",
    ],
)
def test_what_is_left_as_it_is(text: str) -> None:
    assert pasted.joined(text) == text


def test_in_a_script_the_end_is_a_fault() -> None:
    [start] = read("cd /srv\nvllm serve m\n  --dtype half\n")
    assert start.lost == ("--dtype",)
    assert pasted.NOTE not in notes(start)


@pytest.mark.parametrize("piece", [SERVE, DOCKER, "vllm serve m\n", "--a " * 50, "docker run\n-", "A=1 " * 40])
def test_a_hostile_text_does_not_take_long(piece: str) -> None:
    started = time.process_time()
    pasted.joined(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 2
