"""Every recorded server gets the diagnosis that its expected.yaml names; what is not named stays silent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_doctor import catalogue, examination, rule
from vllm_doctor.observation import Observation
from vllm_doctor.report import Report
from vllm_doctor.signal import Known, Reading
from vllm_doctor.sources import recording
from vllm_doctor.sources.exposition import parse
from vllm_doctor.window import Window

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/recording.json"))
SIGNALS = catalogue.load(rule.shipped() / "signals.yaml")
RULES = rule.load([rule.shipped()], SIGNALS)


def judged(name: str, scrapes: slice) -> Report:
    taken = recording.read(FIXTURES / name)
    window, has_vllm = Window(), False
    for at, text in list(zip(taken.times, taken.pages, strict=True))[scrapes]:
        page = parse(text.decode(), SIGNALS.metrics)
        has_vllm = has_vllm or page.has_vllm
        window.add(at, page.samples)
    facts: dict[str, Reading] = {
        "vllm_version": Known(taken.version["version"]),
        "stats_published": Known(has_vllm),
        "max_model_len": Known(2048.0),
        **taken.facts,
    }
    seen = Observation("server", "http://127.0.0.1:8000", window, facts, ("tiny",))
    return examination.judge([seen], RULES, SIGNALS, {"goal": "throughput"}, datetime(2026, 11, 20, tzinfo=UTC))


def expected(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FIXTURES / name / "expected.yaml").read_text())
    return loaded


@pytest.mark.parametrize("scrapes", [slice(0, 4), slice(0, 10), slice(None)], ids=["3s", "10s", "whole"])
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_server_gets_its_diagnosis_and_nothing_else(name: str, scrapes: slice) -> None:
    report, want = judged(name, scrapes), expected(name)
    assert report.verdict in want["verdicts"]
    roots = [finding.rule for finding in report.findings if finding.role != "symptom"]
    assert roots == want["found"]
    assert {finding.rule for finding in report.findings} <= {*want["found"], *want.get("beside", [])}


@pytest.mark.parametrize("name", NAMES)
def test_the_cure_has_the_value_of_the_hand_calculation(name: str) -> None:
    report, want = judged(name, slice(0, 4)), expected(name)
    remedies = report.findings[0].remedies if report.findings else ()
    for flag, value in want.get("set", {}).items():
        assert [remedy.set[flag] for remedy in remedies if flag in remedy.set] == [value]
    if "unset" in want:
        assert any(want["unset"] in remedy.unset for remedy in remedies)
    assert all(remedy.validated_for == "0.32.0" for remedy in remedies)


@pytest.mark.parametrize("name", NAMES)
def test_a_first_scrape_never_says_ok(name: str) -> None:
    """Tokens per second, a vital sign, need a second scrape."""
    assert judged(name, slice(0, 1)).verdict != "ok"


def test_every_stable_rule_has_a_recording() -> None:
    recorded = {found for name in NAMES for found in expected(name)["found"]}
    assert {r.id for r in RULES if r.status == "stable"} <= recorded
