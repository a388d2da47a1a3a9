"""The doctor's own documents are told, and not judged again."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.intake.report import holds, said
from vllm_doctor.model.report import SCHEMA

REPORT = {
    "schema": SCHEMA,
    "doctor": "0.1.0",
    "at": "2026-11-20T14:02:09Z",
    "verdict": "warning",
    "headline": "KV cache is full\nmost of the time",
    "sources": [{"kind": "log", "target": "server.log"}],
}


def raw(**changed: object) -> bytes:
    return json.dumps(REPORT | changed, indent=1).encode()


def test_a_report_is_told_in_one_line() -> None:
    assert holds(raw())
    assert said(raw(), "r.json") == (
        "r.json is a report of 2026-11-20 14:02 UTC by vllm-doctor 0.1.0: WARNING KV cache is full most of the time;"
        " it is not judged again: give the recording, or the log, that it was made of (server.log)"
    )


def test_the_keys_may_stand_in_another_order() -> None:
    assert holds(json.dumps(REPORT, sort_keys=True).encode())


@pytest.mark.parametrize("kind", ["compare", "expect", "fleet"])
def test_other_documents_are_told_by_their_command(kind: str) -> None:
    document = raw(schema=f"vllm-doctor/{kind}/v1")
    assert holds(document)
    assert said(document, "r.json").startswith(f"r.json is what `vllm-doctor {kind}` wrote")


@pytest.mark.parametrize(
    "told", [b"", b"[]", b'{"schema": "other/v1"}', b"x" + raw(), b'{"schema": "vllm-doctor/state/v1"}']
)
def test_other_files_are_none(told: bytes) -> None:
    assert not holds(told)


@pytest.mark.parametrize(
    "told",
    [
        raw()[:-20],
        raw(at=5, verdict=None, headline=["x"], sources={"a": 1}, doctor={}),
        raw(headline="\x1b[31m" + "x" * 100_000),
        raw(sources=[1, {"target": 3}, {"target": "\n\n"}]),
        b'{"schema": "vllm-doctor/report/v1", "a": ' + b"[" * 1_000_000,
    ],
)
def test_what_is_wrong_in_it_is_one_line_still(told: bytes) -> None:
    line = said(told, "r.json")
    assert line.isprintable()
    assert len(line) < 1000


def test_secrets_of_it_are_masked() -> None:
    assert "hf_Zq0123456789abcdefGHIJklmn" not in said(raw(headline="HF_TOKEN=hf_Zq0123456789abcdefGHIJklmn"), "r")
