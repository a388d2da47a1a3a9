"""vllm-doctor recipe."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.cli import main

COMMAND = "docker run vllm/vllm-openai:v0.25.1 --model nvidia/Qwen3.6-27B-NVFP4 --max-num-seqs 64"


def test_a_command_beside_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["recipe", "--command", COMMAND, "--gpu", "5090"]) == 0
    told = capsys.readouterr().out
    assert "models/Qwen/Qwen3.6-27B.yaml nvfp4, RTX 5090, vLLM 0.17.0 and later" in told
    assert "--max-num-seqs 4                               here 64" in told
    assert "--attention-backend flashinfer                 here not set: vLLM decides" in told
    assert "No matter of speed: --trust-remote-code" in told
    assert "no measurement of each setting" in told


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["recipe", "--command", COMMAND, "--gpu", "5090", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["vllm"], told["recipe"]["gpu"]) == ("vllm-doctor/recipe/v1", "0.25.1", "RTX 5090")
    assert {"--max-num-seqs", "--kv-cache-dtype"} < {one["name"] for one in told["differences"]}


def test_silent_where_the_hardware_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["recipe", "--command", COMMAND, "--gpu", "L4"]) == 0
    told = capsys.readouterr().out
    assert "and none for L4" in told
    assert "here" not in told


@pytest.mark.parametrize("words", [[], ["no-such.log"], ["--command", COMMAND, "--model", "a/b"]])
def test_what_cannot_be_answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["recipe", *words]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert main.main(["recipe", *words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["kind"]
