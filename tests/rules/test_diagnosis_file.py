"""diagnosis_file: what is made of signals, and mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making import catalogue_of
from vllm_doctor.model.errors import DocumentError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("symptoms: [{says: s, when: y > 1, verdict: warning}]", "'y' is not a signal"),
        ("symptoms: [{says: s, when: x > 1, verdict: bad}]", "'verdict' must be one of"),
        ("symptoms: [{says: s, when: x(), verdict: warning}]", "not part of the condition language"),
        ("negligible: {below: much, when: x > 1}", "'below' must be a number"),
        ("negligible: {below: 1.02, when: y > 1}", "'y' is not a signal"),
        ("negligible: {under: 1.02, when: x > 1}", "unknown key 'under'"),
        ("refusals: [{when: y > 1, says: no, from: f}]", "'y' is not a signal"),
        ("refusals: [{when: x > 1, says: no}]", "'from'"),
        ("outliers: [{signal: y, factor: 2, least: 1}]", "'y' is not a signal"),
        ("outliers: [{signal: x, factor: 0, least: 1}]", "'factor' must be a number above 0"),
    ],
)
def test_a_mistake_in_what_is_made_of_signals(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=says) as refused:
        catalogue_of(tmp_path, "signals:\n  x: {says: s, unit: s, fact: x}\n", f"{text}\n")
    assert str(refused.value).startswith(f"{tmp_path / 'diagnosis.yaml'}:1: ")
