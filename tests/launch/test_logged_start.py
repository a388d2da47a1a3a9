"""The arguments that vLLM wrote to a log, given as a command."""

from __future__ import annotations

from contextlib import suppress

import pytest

from vllm_doctor.launch.source import read
from vllm_doctor.launch.start import Form
from vllm_doctor.model.errors import SourceError


@pytest.mark.parametrize(
    ("text", "argv", "version", "is_open"),
    [
        (
            "INFO [api_server.py:1] vLLM API server version 0.11.0\n"
            "INFO [utils.py:2] non-default args: {'model_tag': 'a/b', 'enforce_eager': True, 'max_num_seqs': 8}\n",
            "vllm serve a/b --enforce-eager --max-num-seqs 8",
            "0.11.0",
            False,
        ),
        ("non-default args: {'model': 'a/b', 'seed': 1, 'max_num", "vllm serve a/b --seed 1", None, True),
        (
            "version 0.6.3\nINFO x.py:1] args: Namespace(model='a/b', seed=0, max_num_seqs=8, quantization=None)",
            "vllm serve a/b --seed 0 --max-num-seqs 8",
            None,
            False,
        ),
        (
            "Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', tokenizer='a/b', dtype=torch.bfloat16,"
            " max_seq_len=2048, tensor_parallel_size=2, enforce_eager=True, kv_cache_dtype=auto, seed=0",
            "vllm serve a/b --dtype bfloat16 --max-model-len 2048 --tensor-parallel-size 2 --enforce-eager",
            "0.11.0",
            True,
        ),
    ],
)
def test_logged_arguments(text: str, argv: str, version: str | None, is_open: bool) -> None:
    [start] = read(text)
    assert (" ".join(start.argv), start.version, start.is_open) == (argv, version, is_open)
    assert start.form is Form.LOG


def test_the_same_twice_is_one_start_and_nothing_is_evaluated() -> None:
    text = "non-default args: {'model': 'a/b', 'seed': __import__('os').system('x')}\n"
    [start] = read(text * 9)
    assert start.command.model == "a/b"


def test_hostile_lines() -> None:
    for text in (
        "non-default args: {" + "{" * 100_000,
        "args: Namespace(" * 50_000,
        "LLM engine with config: " + "a=1," * 90_000,
    ):
        with suppress(SourceError):
            read(text + "\nnon-default args: {'model': 'a/b'}")
