"""What a later release brought: the cause of a speed that is missing, a note on any other server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import Doctor, doctor

__all__ = ["doctor"]

RULE = "release-outdated"
V3 = "docker run vllm/vllm-openai:v{} --model deepseek-ai/DeepSeek-V3 --ipc=host --tensor-parallel-size 8"
SPEED = {"slow": "10tok/s", "typical": "100tok/s"}


def _examined(doctor: Doctor, version: str, speed: str, *more: str) -> tuple[int, dict[str, Any]]:
    ran = doctor("--measured", SPEED[speed], "--gpu", "8xH200", "--command", V3.format(version), "--json", *more)
    return ran.code, ran.report


def _found(report: dict[str, Any]) -> dict[str, Any]:
    [finding] = [one for one in report["findings"] if one["rule"] == RULE]
    return dict(finding)


def test_it_leads_where_it_explains_most_of_what_is_missing(doctor: Doctor) -> None:
    code, report = _examined(doctor, "0.6.6", "slow")
    assert (code, report["verdict"]) == (1, "warning")
    assert report["headline"].startswith("A later vLLM does better here: DeepSeek-V3 and R1 run without MLA")
    finding = _found(report)
    assert (finding["severity"], finding["role"]) == ("warning", "root")
    assert finding["remedies"][0]["do"].startswith("Run vLLM 0.7.1 or later")
    [share] = [one for one in report["expected"]["explained"] if one["rule"] == RULE]
    assert 0.5 < share["share"] < 0.9, (
        "three times as long a token does not explain ten times: the rest is not explained"
    )


def test_it_is_a_note_where_nothing_is_slow(doctor: Doctor) -> None:
    code, report = _examined(doctor, "0.6.6", "typical")
    assert (code, report["verdict"]) == (0, "ok")
    assert _found(report)["severity"] == "info"
    assert "does better" not in report["headline"]


@pytest.mark.parametrize("version", ["0.9.0", "0.32.0"])
def test_a_release_that_has_it_is_not_blamed(doctor: Doctor, version: str) -> None:
    _, report = _examined(doctor, version, "slow")
    assert RULE not in {finding["rule"] for finding in report["findings"]}
    assert "no finding explains it" in report["headline"]


def test_what_is_not_known_is_not_said(doctor: Doctor) -> None:
    """Of GPUs that nobody named, and of a build between releases, nothing is certain."""
    for words in (
        ["--command", V3.format("0.6.6")],
        ["--command", V3.format("0.6.6.dev3"), "--gpu", "8xH200"],
        ["--command", "vllm serve deepseek-ai/DeepSeek-V3 -tp 8", "--gpu", "8xH200"],
    ):
        report = doctor(*words, "--json").report
        assert RULE not in {finding["rule"] for finding in report["findings"]}, words


ENTRY = """\
improvements:
  - id: mine-0.30
    title: My kernel is not there
    until: 0.30.0
    when: model_type == 'deepseek_v3'
    cause: PR 1
    effect: slower steps
    {}
    sources:
      - url: https://github.com/vllm-project/vllm/pull/1
        says: it is slow
"""


@pytest.mark.parametrize(
    ("times", "headline"),
    [
        ("times: unknown", "; suspected: A later vLLM does better here: My kernel is not there"),
        ("times: 1.5", "; what was found explains at most 3"),
        ("", None),
    ],
)
def test_what_nobody_can_bound_is_suspected_and_what_is_small_does_not_lead(
    doctor: Doctor, tmp_path: Path, times: str, headline: str | None
) -> None:
    (tmp_path / "regressions").mkdir()
    written = ENTRY.format(times).replace("    \n", "")
    (tmp_path / "regressions" / "mine.yaml").write_text(written, "utf-8")
    _, report = _examined(doctor, "0.25.0", "slow", "--rules", str(tmp_path))
    assert _found(report)["severity"] == "info"
    assert (headline or "no finding explains it") in report["headline"]
