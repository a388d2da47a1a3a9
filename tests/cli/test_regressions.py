"""vllm-doctor regressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_doctor.cli import main

SETUP = ["--model", "nvidia/Llama-3.3-70B-Instruct-FP4", "--gpu", "B300"]
COMMAND = "docker run --gpus all vllm/vllm-openai:{} --model mistralai/Mixtral-8x7B-Instruct-v0.1 -tp 2"
LOG = """\
INFO 05-04 10:00:00 [api_server.py:1287] vLLM API server version 0.17.1
INFO 05-04 10:00:01 [utils.py:233] non-default args: {'model': 'openai/gpt-oss-120b', 'tensor_parallel_size': 4}
"""


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main.main(["regressions", *words, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def _ids(faults: list[dict[str, Any]], held: str) -> set[str]:
    return {fault["id"] for fault in faults if fault["held"] == held}


def test_a_setup_and_two_releases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.21", "0.23.0", *SETUP]) == 0
    told = capsys.readouterr().out
    assert "Read of this setup: model_type llama, weights_kind nvfp4, gpu_name B300" in told
    assert "[nvfp4-b300-0.22] NVFP4 decodes slowly on B300" in told
    assert "cause: PR 42988" in told
    assert "https://github.com/vllm-project/vllm/issues/45741" in told
    assert "vllm/vllm-openai:v0.22.1" in told
    assert "vllm bench serve --model nvidia/Llama-3.3-70B-Instruct-FP4" in told


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    told = _told(capsys, "0.21.0", "0.23.0", *SETUP)
    assert "nvfp4-b300-0.22" in _ids(told["brings"], "certain")
    assert told["setup"]["gpu_capability"] == 10.3
    assert {one["version"] for one in told["bisect"]["releases"]} == {"0.22.0", "0.22.1"}


def test_what_is_told_by_the_issue_that_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = _told(capsys, "0.26", "0.29", "--model", "Qwen/Qwen3.6-35B-A3B-FP8", "--gpu", "H100 NVL")
    (fault,) = (one for one in told["brings"] if one["id"] == "qwen3.6-fp8-confidential-0.29")
    assert "3.3 times slower" in fault["effect"]
    assert "confidential-computing" in fault["also"]
    assert fault["held"] == "possible"  # no signal tells of it
    assert fault["sources"][0]["url"] == "https://github.com/vllm-project/vllm/issues/57680"


def test_one_release_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    one = _told(capsys, "0.17.0")["faults"]
    assert {fault["id"] for fault in one} < {fault["id"] for fault in _told(capsys)["faults"]}
    assert {fault["held"] for fault in one} == {"possible"}


def test_the_version_of_an_image(capsys: pytest.CaptureFixture[str]) -> None:
    inside = _told(capsys, "--command", COMMAND.format("v0.20.2"), "--gpu", "2xH200")
    assert inside["version"] == "0.20.2"
    assert _ids(inside["faults"], "certain") == {"moe-hopper-flashinfer-0.20"}
    assert not _ids(_told(capsys, "--command", COMMAND.format("v0.23.0"), "--gpu", "2xH200")["faults"], "certain")
    upgrade = _told(capsys, "0.23.0", "--command", COMMAND.format("v0.20.2"), "--gpu", "2xH200")
    assert _ids(upgrade["fixes"], "certain") == {"moe-hopper-flashinfer-0.20"}


def test_the_first_lines_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (log := tmp_path / "server.log").write_text(LOG)
    told = _told(capsys, str(log), "--gpu", "H200")
    assert told["version"] == "0.17.1"
    assert "gpt-oss-hopper-0.17" in _ids(told["faults"], "possible")
    later = _told(capsys, str(log), "0.21.0")
    assert (later["from"], later["to"]) == ("0.17.1", "0.21.0")
    assert later["bisect"]["benchmark"].startswith("vllm bench serve --model openai/gpt-oss-120b")


def test_a_build_is_never_certain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.22.1rc1.dev55+gf91fb2fcf", *SETUP]) == 0
    told = capsys.readouterr().out
    assert "0.22.1rc1.dev55+gf91fb2fcf is judged as 0.22.1: of a build nothing is certain." in told
    assert "[nvfp4-b300-0.22] possibly:" in told


def test_what_came_later(capsys: pytest.CaptureFixture[str]) -> None:
    setup = ("--model", "deepseek-ai/DeepSeek-V3", "--gpu", "8xH200", "-tp", "8")
    one = _told(capsys, "0.6.6", *setup)
    assert _ids(one["lacks"], "certain") == {"mla-0.7.1", "deepseek-mtp-0.7.3"}
    assert {entry["kind"] for entry in one["lacks"]} == {"improvement"}
    assert {entry["kind"] for entry in _told(capsys, "0.17.0")["faults"]} == {"fault"}
    upgrade = _told(capsys, "0.6.6", "0.8.0", *setup)
    (mla,) = (entry for entry in upgrade["gains"] if entry["id"] == "mla-0.7.1")
    assert (mla["until"], mla["times"], mla["held"]) == ("0.7.1", 3.0, "certain")
    assert main.main(["regressions", "0.6.6", "0.8.0", *setup]) == 0
    told = capsys.readouterr().out
    assert "It ends, with what it brings:" in told
    assert "there from 0.7.1 on" in told
    assert main.main(["regressions", "0.6.6", *setup]) == 0
    assert "improvements came after vLLM 0.6.6, 2 certainly of this setup:" in capsys.readouterr().out


def test_silence_says_what_was_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.22.1", "--command", "vllm serve /models/mine"]) == 0
    told = capsys.readouterr().out
    assert "Not known: model_type" in told
    assert "gpu_capability" in told


def test_a_gpu_that_is_not_known_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.20.0", "--gpu", "H10"]) == 0
    assert "GPU 'H10' is not in the table; nearest: H100" in " ".join(capsys.readouterr().out.split())


def test_amd_has_images_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", "0.16.0", "0.18.0", "--gpu", "MI300X"]) == 0
    assert "vllm/vllm-openai-rocm:v0.17.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["99.9"],
        ["0.18.0", "0.16.0"],
        ["0.16.0", "0.17.0", "0.18.0"],
        ["no-such.log"],
        ["0.18.0", "--command", "vllm serve a/b", "--model", "a/b"],
    ],
)
def test_what_cannot_be_answered(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["regressions", *words]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert main.main(["regressions", *words, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["kind"]
