"""vllm-doctor regressions."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.cli import main

SETUP = ["--model", "openai/gpt-oss-120b", "--gpu", "4xH200"]


def test_a_setup_and_two_releases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.16.0", "0.18.0", *SETUP]) == 0
    told = capsys.readouterr().out
    assert "[gpt-oss-hopper-0.17] gpt-oss is slower on Hopper" in told
    assert "https://github.com/vllm-project/vllm/issues/40838" in told
    assert "vllm/vllm-openai:v0.17.0" in told
    assert "vllm bench serve --model openai/gpt-oss-120b" in told


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.16.0", "0.18.0", *SETUP, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (fault,) = (one for one in told["brings"] if one["id"] == "gpt-oss-hopper-0.17")
    assert fault["held"] == "certain"
    assert {one["version"] for one in told["bisect"]["releases"]} == {"0.17.0", "0.17.1"}


def test_one_release_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.17.0", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)["faults"]
    assert main.main(["regressions", "--json"]) == 0
    assert {fault["id"] for fault in one} < {fault["id"] for fault in json.loads(capsys.readouterr().out)["faults"]}
    assert {fault["held"] for fault in one} == {"possible"}


def test_amd_has_images_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.16.0", "0.18.0", "--gpu", "MI300X"]) == 0
    assert "vllm/vllm-openai-rocm:v0.17.0" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["9.9"], ["0.18.0", "0.16.0"], ["0.16.0", "0.17.0", "0.18.0"]])
def test_what_cannot_be_answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", *words]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert main.main(["regressions", *words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["kind"]
