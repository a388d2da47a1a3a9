"""overrides.yaml: what is changed in shipped rules, said wherever the rule is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import reads
from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import rule, rule_set, rulebook
from vllm_doctor.rules.folders import shipped
from vllm_doctor.rules.rule import Rule
from vllm_doctor.rules.rule_set import RuleSet

ID = "admission-rejected"
"""A rule with one condition: warning, over one signal."""
SIGNAL = "admission_rejections_per_second"


def load(folder: Path, text: str) -> RuleSet:
    (folder / "overrides.yaml").write_text(f"overrides:\n  {ID}:\n    {text}\n", "utf-8")
    return rule_set.load([folder])


def changed(folder: Path, text: str) -> Rule:
    return next(rule for rule in load(folder, text).rules if rule.id == ID)


@pytest.mark.parametrize(
    ("text", "value", "state"),
    [
        pytest.param(f"when: {{warning: {SIGNAL} > 5}}", 3.0, "ok", id="a threshold, below"),
        pytest.param(f"when: {{warning: {SIGNAL} > 5}}", 6.0, "warning", id="a threshold, above"),
        pytest.param(f"when: {{critical: {SIGNAL} > 5}}", 6.0, "critical", id="one more"),
        pytest.param(f"when: {{critical: {SIGNAL} > 5, warning: null}}", 3.0, "ok", id="one dropped"),
        pytest.param("severity: {warning: info}", 3.0, "info", id="a severity"),
        pytest.param(f"{{severity: {{warning: info}}, when: {{warning: {SIGNAL} > 5}}}}", 3.0, "ok", id="both"),
    ],
)
def test_a_rule_is_judged_as_it_is_changed(text: str, value: float, state: str, tmp_path: Path) -> None:
    assert changed(tmp_path, text).judge(reads(**{SIGNAL: value})).state == state


def test_a_changed_rule_says_so(tmp_path: Path) -> None:
    rule = changed(tmp_path, "{severity: {warning: info}, because: 'we {refuse} on purpose'}")
    place = f"{tmp_path / 'overrides.yaml'}:3"
    assert rule.overridden == f"{place} (we {{refuse}} on purpose)"
    assert rule.here[-1] == f"This rule is changed by {place} (we (refuse) on purpose)."
    page = " ".join(rulebook.page(rule).split())
    assert "changed by" in page
    assert "on purpose" in page


def test_a_skipped_rule_does_not_judge(tmp_path: Path) -> None:
    found = load(tmp_path, "skip: true")
    assert found.skipped == {ID}
    assert ID not in {rule.id for rule in found.judging}
    assert f"{ID} " in rulebook.listing(found)
    assert "(skipped)" in rulebook.listing(found)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("skip: maybe", 3, "'skip' must be true or false", id="skip"),
        pytest.param("because: x", 3, "an override needs skip: true, 'when' or 'severity'", id="nothing"),
        pytest.param("skipp: true", 3, "unknown key 'skipp'; meant 'skip'?", id="key"),
        pytest.param("{skip: true, severity: {warning: info}}", 3, "'skip' stands alone", id="skip and more"),
        pytest.param("when: {warning: admissions > 1}", 3, "'admissions' is not a signal", id="signal"),
        pytest.param("when: {worse: engines > 1}", 3, "unknown key 'worse'", id="severity of when"),
        pytest.param("when: {warning: null}", 3, "no condition is left: write skip: true", id="nothing left"),
        pytest.param("when: {critical: null}", 3, f"rule '{ID}' is never critical: leave it out", id="never"),
        pytest.param("severity: {critical: info}", 3, f"rule '{ID}' is never critical: leave it out", id="never so"),
        pytest.param("severity: {warning: bad}", 3, "'warning' must be one of critical, warning, info", id="to what"),
        pytest.param(
            "{severity: {warning: info}, when: {info: engines > 1}}", 3, "two conditions would be info", id="two"
        ),
        pytest.param("skip: true\n  admission-rejectd: {skip: true}", 4, "no rule 'admission-rejectd'; meant", id="id"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(text: str, line: int, says: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'overrides.yaml'}:{line}: {says}")


def test_a_rule_is_changed_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "overrides.yaml").write_text(f"overrides: {{{ID}: {{skip: true}}}}\n")
    with pytest.raises(DocumentError, match=r"overridden twice \(first in .*a.overrides\.yaml:1\)"):
        load(tmp_path, "skip: true")


def test_other_overrides_are_other_rules(tmp_path: Path) -> None:
    load(tmp_path, "skip: true")
    one = rule.version([shipped(), tmp_path])
    load(tmp_path, "severity: {warning: info}")
    assert rule.version([shipped(), tmp_path]) != one
