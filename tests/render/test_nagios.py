"""Nagios: one ASCII line, one bar before the perfdata."""

from __future__ import annotations

import re

import pytest

from tests.render.reports import unreachable
from tests.test_fixtures import NAMES, judged
from vllm_doctor.render import nagios

PERFDATA = re.compile(r"'[a-z_]+'=-?[0-9.]+s?;[0-9.]*;;0")


@pytest.mark.parametrize("name", NAMES)
def test_one_ascii_line_with_perfdata(name: str) -> None:
    report = judged(name, slice(0, 4))
    line = nagios.render(report)
    assert line.count("\n") == 1
    assert line.isascii()
    assert line.startswith(f"VLLM {report.verdict.value.upper()} - ")
    text, bar, perfdata = line.strip().partition(" | ")
    assert "|" not in text
    assert all(PERFDATA.fullmatch(item) for item in perfdata.split()) if bar else name == "no-log-stats"


def test_the_line_names_cause_evidence_and_cure() -> None:
    line = nagios.render(judged("max-num-seqs-cap", slice(0, 4)))
    assert "max-num-seqs-cap: " in line
    assert "fix: --max-num-seqs 32" in line


def test_nobody_answered() -> None:
    assert nagios.render(unreachable()).startswith("VLLM UNKNOWN - http://127.0.0.1:1 refuses connections")
