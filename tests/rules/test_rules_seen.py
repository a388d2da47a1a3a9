"""Rules on what people showed in public: each speaks where it must, and is silent where it must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.making import shipped_rules
from tests.rules import rules_seen
from tests.rules.rules_seen import Case
from vllm_doctor.cli import main
from vllm_doctor.model.kinds import State
from vllm_doctor.rules.rule import example_reading

CASES = rules_seen.cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.what}"[:80])
def test_what_was_shown(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _judged(case) if "signals" in case.parts else _examined(case, tmp_path, capsys)
    assert said == case.gives


def _judged(case: Case) -> str | None:
    [rule] = [one for one in shipped_rules() if one.id == case.rule]
    state = rule.judge(lambda name: example_reading(case.parts["signals"].get(name))).state
    assert state != State.UNKNOWN, "the thread tells too little"
    return str(state) if str(state) in rule.when else None


def _examined(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str | None:
    words = []
    for part, ending in (("log", "log"), ("scrape", "prom"), ("manifest", "yaml")):
        if part in case.parts:
            file = folder / f"seen.{ending}"
            file.write_text(case.parts[part], "utf-8")
            words.append(str(file))
    for part in ("command", "gpu"):
        words += [f"--{part}", case.parts[part]] if part in case.parts else []
    main.main([*words, "--json"])
    report = json.loads(capsys.readouterr().out)
    return next((one["severity"] for one in report["findings"] if one["rule"] == case.rule), None)


def test_the_table_is_that_of_the_cases() -> None:
    assert rules_seen.PAGE.read_text("utf-8") == rules_seen.page(), "python -m tests.rules.rules_seen writes it"
