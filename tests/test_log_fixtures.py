"""Logs of real servers: what must and what must not be found in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from vllm_doctor import cli

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
EXPECTED = yaml.safe_load((LOGS / "expected.yaml").read_text())["logs"]


def test_each_log_says_what_is_expected() -> None:
    assert {path.name.removesuffix(".log.gz") for path in LOGS.glob("*.log.gz")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_log(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = EXPECTED[name]
    cli.main([str(LOGS / f"{name}.log.gz"), "--json"])
    report = json.loads(capsys.readouterr().out)
    found = [finding["rule"] for finding in report["findings"]]
    assert report["verdict"] == expected["verdict"], report["headline"]
    if "root" in expected:
        assert found[:1] == [expected["root"]]
    assert not set(found) & set(expected["never"])
    unknown = {entry["rule"]: set(entry["because"].values()) for entry in report["unknown"]}
    assert all(reason in unknown[rule] for rule, reason in expected.get("unknown", {}).items())
