"""Every recorded server gets the diagnosis that its expected.yaml names; what is not named stays silent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from tests.making import shipped_catalogue, shipped_rules
from tests.paths import FIXTURES
from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report
from vllm_doctor.model.window import Window
from vllm_doctor.recording import bundle
from vllm_doctor.session.judge import judge
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.vllm import command_line

NAMES = sorted(path.parent.name for path in FIXTURES.glob("*/recording.json"))
SIGNALS = shipped_catalogue()
RULES = shipped_rules()


def judged(name: str, scrapes: slice, command: str = "", goal: str = "throughput") -> Report:
    """The report on the first scrapes of a recording; as if the server had been started with the command, if given."""
    taken = bundle.read(FIXTURES / name)
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
    target = "http://127.0.0.1:8000"
    seen = [Observation(SourceKind.SERVER, target, window, facts, ("tiny",))]
    if command:
        started = command_line.parse(command.split(), lambda _: Reason.ABSENT)
        given: dict[str, Reading] = {flag: Known(value, origin="cmdline") for flag, value in started.flags.items()}
        given[COMMAND] = Known(True, origin="cmdline")
        seen.append(
            Observation(SourceKind.HOST, "this host", facts=given, patient=target, command=tuple(command.split()))
        )
    return judge(seen, RULES, SIGNALS, {"goal": goal}, datetime(2026, 11, 20, tzinfo=UTC))


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


@pytest.mark.parametrize(
    ("name", "command", "now", "cured"),
    [
        (
            "max-num-seqs-cap",
            "vllm serve tiny --max-num-seqs 2 --enforce-eager",
            "vllm serve tiny --max-num-seqs 32",
            ["max-num-seqs-cap", "enforce-eager"],
        ),
        (
            "max-num-seqs-cap",  # a step must be able to give each request a token: vLLM would refuse 32 with 16
            "vllm serve tiny --max-num-seqs 2 --max-num-batched-tokens 16 --dtype=float32",
            "vllm serve tiny --max-num-seqs 32 --dtype auto",
            ["max-num-seqs-cap", "dtype-float32"],
        ),
        (
            "preemption",
            "vllm serve tiny --num-gpu-blocks-override 80 --enforce-eager --no-enable-chunked-prefill",
            "vllm serve tiny",
            ["preemption", "chunked-prefill-off", "enforce-eager"],
        ),
        (
            "prefix-cache-off",
            "vllm serve tiny --no-enable-prefix-caching --no-async-scheduling",
            "vllm serve tiny --enable-prefix-caching --async-scheduling",
            ["async-scheduling-off", "prefix-cache-off"],
        ),
    ],
)
def test_two_faults_are_cured_by_one_command(name: str, command: str, now: str, cured: list[str]) -> None:
    correction = judged(name, slice(None), command).correction
    assert correction is not None
    assert " ".join(correction.now) == now
    assert list(dict.fromkeys(change.rule for change in correction.changes)) == cured
    assert correction.left_out == ()


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("preemption", 1.1, 3), ("max-num-seqs-cap", 10, 20), ("prefix-cache-off", None, None), ("cpu-hog", None, None)],
)
def test_what_the_cause_costs_at_most(name: str, least: float | None, most: float | None) -> None:
    """Bounds, no more: 32 in flight where 2 may run gain less than in proportion, preemption of this kind nothing."""
    finding = judged(name, slice(None)).findings[0]
    if least is None or most is None:
        assert finding.gain is None
    else:
        assert finding.gain is not None
        assert least < finding.gain.at_most < most
