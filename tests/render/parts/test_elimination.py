"""parts/elimination: how the verdict came about, in lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.paths import FIXTURES
from vllm_doctor import api
from vllm_doctor.model.elimination import Compared
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.render.parts import decided


def compared(seen: float | str | bool | Reason, is_: str, than: float | str | bool, holds: bool | None) -> Compared:
    reading = seen if isinstance(seen, Reason) else Known(seen)
    missing = {"usage": seen} if isinstance(seen, Reason) else {}
    return Compared("usage", "cache in use", reading, is_, than, None, "share", holds, missing)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (compared(0.95, ">", 0.9, True), "cache in use 95 % > 90 %"),
        (compared(0.14, ">", 0.9, False), "cache in use 14 %, not > 90 %"),
        (compared(0.14, "==", 0.0, False), "cache in use 14 %, not 0 %"),
        (compared("auto", "==", "auto", True), "cache in use auto"),
        (compared("auto", "!=", "auto", False), "cache in use auto"),
        (compared(False, "==", True, False), "cache in use: no"),
        (compared(Reason.NOT_IN_LOG, ">", 0.9, None), "needs usage (not in this log)"),
    ],
)
def test_a_comparison_in_words(one: Compared, said: str) -> None:
    assert decided.because([one]) == said


def test_of_one_signal_the_nearest_bound_is_enough_and_a_line_is_short() -> None:
    twice = [compared(0.1, ">", 0.5, False), compared(0.1, ">", 0.9, False)]
    assert decided.because(twice) == "cache in use 10 %, not > 50 %"
    many = [replace(compared(0.1, ">", 0.5, False), signal=f"s{number}") for number in range(6)]
    assert decided.because(many).endswith(" and 3 more")


@pytest.fixture(scope="module")
def report() -> Report:
    return api.examine(FIXTURES / "preemption", explain=True)


def test_the_text_tells_what_was_kept_and_what_was_dropped_by_which_number(report: Report) -> None:
    text = " ".join(api.render_report(report).split())
    assert "kept preemption: preemptions per finished request 1.5 > 0.1" in text
    assert "kv-cache-saturated follows from preemption:" in text
    assert "dropped max-num-seqs-cap: KV cache in use (peak) 100 %, not < 80 %" in text
    assert "unknown, needs the host: cpu-contention (cpu_wait)" in text


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_it_stands_where_it_was_asked_for_and_only_there(format: str, report: Report) -> None:
    assert "dropped" in api.render_report(report, format)
    plain = replace(report, gates=tuple(replace(gate, suspects=()) for gate in report.gates))
    assert "dropped" not in api.render_report(plain, format)


def explained(report: Report) -> list[dict[str, Any]]:
    document: Mapping[str, Any] = json.loads(api.render_report(report, "json"))
    return list(document["explain"] or [])


def test_the_json_has_every_rule_below_its_gate(report: Report) -> None:
    entries = explained(report)
    gates = [entry["gate"] for entry in entries if "gate" in entry]
    assert gates[0] == "alive"
    assert {"slots", "kv-blocks", "token-budget", "api-process", "clients", "step"} <= set(gates)
    rules = {entry["rule"]: entry for entry in entries if "rule" in entry}
    assert set(rules) == set(report.states)
    assert (rules["preemption"]["kept"], rules["preemption"]["of"]) == (True, "kv-blocks")
    assert rules["max-num-seqs-cap"]["kept"] is False
    assert rules["cpu-contention"]["kept"] is None
    assert rules["cpu-contention"]["comparisons"][0]["missing"] == {"cpu_wait": "not-local"}
    kept = [entry["kept"] for entry in entries if entry.get("of") == "kv-blocks"]
    assert kept.index(True) < kept.index(False)


def test_without_the_option_the_json_has_none() -> None:
    assert explained(api.examine(FIXTURES / "idle")) == []


def test_an_unknown_verdict_says_what_is_excluded_and_what_decides(report: Report) -> None:
    open_ = tuple(replace(gate, kept=None if gate.gate == "slots" else gate.kept) for gate in report.gates)
    unknown = replace(report, verdict=Verdict.UNKNOWN, findings=(), gates=open_)
    text = " ".join(api.render_report(unknown).split())
    assert "Excluded Alive: generation tokens" in text
    assert "Budget: " in text
    assert "64 %, not >= 90 %" in text
    assert "To decide how many slots there are" in text
    document = json.loads(api.render_report(unknown, "json"))
    assert document["measure_next"].startswith("how many slots")
    assert any(sentence.startswith("Budget:") for sentence in document["excluded"])


def test_a_verdict_that_is_known_asks_for_no_measurement(report: Report) -> None:
    assert "To decide" not in api.render_report(report)
    assert json.loads(api.render_report(report, "json"))["measure_next"] is None
