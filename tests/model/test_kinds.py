"""The closed lists: words of the contract, with what they mean."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.model.kinds import GRAVE, Confidence, Role, Severity, SourceKind, Stage, State, Trust


@pytest.mark.parametrize("list_of", [Severity, State, Role, Stage, Confidence, SourceKind])
def test_every_word_says_what_it_means(list_of: type[State]) -> None:
    assert all(word.doc and word == word.value and word.rank == place for place, word in enumerate(list_of))


def test_a_word_is_its_text_in_json_and_as_a_key() -> None:
    assert json.dumps({State.OK: Role.NOT_SERVER}) == '{"ok": "not-server"}'
    assert {"critical": 1}[State.CRITICAL] == 1


def test_a_state_is_a_severity_or_none() -> None:
    assert [state.severity for state in State] == [*Severity, None, None, None]
    assert [severity for severity in Severity if severity in GRAVE] == [Severity.CRITICAL, Severity.WARNING]
    assert all(
        State(severity).sign == severity.sign and severity.colour == State(severity).colour for severity in Severity
    )


def test_what_is_measured_is_believed_before_what_is_written_and_that_before_a_name() -> None:
    by_trust = sorted(SourceKind, key=lambda kind: kind.trust)
    written = [SourceKind.COMMAND, SourceKind.AUTOSCALER]
    assert by_trust[-5:] == [SourceKind.LOG, *written, SourceKind.COLLECT_ENV, SourceKind.GPU_NAME]
    assert SourceKind.SERVER.trust is Trust.MEASURED
