"""What a release is known to have wrong: the cause of a speed that is missing, a note on any other server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.test_main import Doctor, doctor

__all__ = ["doctor"]

RULE = "release-faulty"
NVFP4 = "docker run vllm/vllm-openai:v{} --model nvidia/Llama-3.3-70B-Instruct-NVFP4 --ipc=host"
SPEED = {"slow": "9tok/s", "typical": "90tok/s"}


def _examined(doctor: Doctor, version: str, speed: str, gpu: str = "B300") -> dict[str, Any]:
    ran = doctor("--measured", SPEED[speed], "--gpu", gpu, "--command", NVFP4.format(version), "--json")
    return dict(ran.report)


def _found(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in report["findings"] if one["rule"] == RULE]


def test_it_leads_where_it_explains_what_is_missing(doctor: Doctor) -> None:
    report = _examined(doctor, "0.22.0", "slow")
    assert report["verdict"] == "warning"
    assert report["headline"].startswith("This vLLM has a known fault for this setup: NVFP4 decodes slowly on B300")
    [finding] = _found(report)
    assert (finding["severity"], finding["role"]) == ("warning", "root")
    assert finding["remedies"][0]["do"].startswith("Run vLLM 0.25.0 or later")


def test_it_is_a_note_where_nothing_is_slow(doctor: Doctor) -> None:
    report = _examined(doctor, "0.22.0", "typical")
    assert report["verdict"] == "ok"
    [finding] = _found(report)
    assert finding["severity"] == "info"
    assert "known fault" not in report["headline"]


@pytest.mark.parametrize(("version", "gpu"), [("0.21.0", "B300"), ("0.25.0", "B300"), ("0.22.0", "B200")])
def test_another_release_or_gpu_is_not_blamed(doctor: Doctor, version: str, gpu: str) -> None:
    assert not _found(_examined(doctor, version, "slow", gpu))
