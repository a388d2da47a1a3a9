from __future__ import annotations

from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from vllm_doctor import redact
from vllm_doctor.report import Evidence, Finding, Patient, Problem, Remedy, Report, SourceSeen, Verdict
from vllm_doctor.signal import Known, Reason

AT = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "clean", "what"),
    [
        ("http://me:pw@host:8000/metrics", "http://[masked]@host:8000/metrics", "url-credentials"),
        ("https://token@host", "https://[masked]@host", "url-credentials"),
        ("Authorization: Bearer abc.def", "Authorization: [masked]", "authorization"),
        ("authorization: Basic dXNlcjpwdw==", "authorization: [masked]", "authorization"),
        ("sent bearer abcdefgh12345", "sent bearer [masked]", "authorization"),
        ("vllm serve m --api-key s3cret --port 1", "vllm serve m --api-key [masked] --port 1", "api-key"),
        ("--api-key=s3cret", "--api-key=[masked]", "api-key"),
        ("VLLM_API_KEY=s3cret", "VLLM_API_KEY=[masked]", "api-key"),
        ("/metrics?token=s3cret&x=1", "/metrics?token=[masked]&x=1", "api-key"),
        ("http://user:p@ss@host:8000/x", "http://[masked]@host:8000/x", "url-credentials"),
        ("serve m --api-key k1 k2 --port 1", "serve m --api-key [masked] --port 1", "api-key"),
        ("X-Api-Key: abcd1234", "X-Api-Key: [masked]", "api-key"),
        ('{"api_key": "abcd1234", "port": 1}', '{"api_key": "[masked]", "port": 1}', "api-key"),
        ("{'password': 'abcd1234'}", "{'password': '[masked]'}", "api-key"),
        ("VLLM_API_KEY=sk-abcdefghijkl", "VLLM_API_KEY=[masked]", "api-key"),
        ("with hf_abcdefghijkl in it", "with [masked] in it", "token"),
        ("sk-abcdefghijkl", "[masked]", "token"),
    ],
)
def test_secrets_are_masked_and_counted(text: str, clean: str, what: str) -> None:
    masked: Counter[str] = Counter()
    assert redact.text(text, masked) == clean
    assert masked == {what: 1}


def test_each_secret_of_a_text_counts() -> None:
    masked: Counter[str] = Counter()
    text = redact.text("http://a:b@c and https://d:e@f with --api-key=g", masked)
    assert text == "http://[masked]@c and https://[masked]@f with --api-key=[masked]"
    assert masked == {"url-credentials": 2, "api-key": 1}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        pytest.param("\x1b[31mred\x1b[0m", "\\u001b[31mred\\u001b[0m", id="ANSI"),
        pytest.param("\x9b31m", "\\u009b31m", id="one-byte CSI"),
        pytest.param("\x1b]0;title\x07", "\\u001b]0;title\\u0007", id="terminal title"),
        pytest.param("one\ntwo\rthree\0", "one\\u000atwo\\u000dthree\\u0000", id="lines"),
        pytest.param("a\u202eb\u2066c", "a\\u202eb\\u2066c", id="bidi"),
        pytest.param("a\u200bb", "a\\u200bb", id="zero width"),
        pytest.param("naïve 模型 – 5 % ✓", "naïve 模型 – 5 % ✓", id="text of any language stays"),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, clean: str) -> None:
    masked: Counter[str] = Counter()
    assert redact.text(text, masked) == clean
    assert not masked


EVIL = "\x1b[2J hf_abcdefghijkl"
CLEAN = "\\u001b[2J [masked]"


def test_a_report_is_clean_to_its_last_text_and_lists_what_was_masked() -> None:
    evidence = Evidence(EVIL, EVIL, Known(EVIL), EVIL, EVIL, EVIL, EVIL, EVIL)
    remedy = Remedy(
        do=EVIL,
        set={EVIL: EVIL},
        was={EVIL: EVIL},
        unset=(EVIL,),
        env={EVIL: 1.0},
        run=(EVIL,),
        by=EVIL,
        computed=EVIL,
        needs={EVIL: Reason.IDLE},
        validated_for=EVIL,
        cost=EVIL,
        risk=EVIL,
        expect=EVIL,
        gain=None,
    )
    finding = Finding(
        EVIL, EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}, EVIL, EVIL, EVIL, EVIL, (evidence,), (remedy,), (EVIL,)
    )
    report = Report(
        at=AT,
        verdict=Verdict.WARNING,
        headline=EVIL,
        patient=Patient(EVIL, EVIL, 1),
        sources=(SourceSeen("server", EVIL, 1.0, 2, Problem("denied", EVIL), (EVIL,)),),
        findings=(finding,),
        unknown=(),
        vitals=(),
        engines=(),
        targets=(),
        states={"a-rule": "ok"},
        error=Problem("denied", EVIL),
    )
    clean = redact.report(report)
    assert "\\x1b" not in repr(clean)
    assert "hf_" not in repr(clean)
    assert clean.redacted == {"token": repr(report).count("hf_")}
    assert clean.findings[0].remedies[0].set == {CLEAN: CLEAN}
    assert clean.findings[0].evidence[0].seen == Known(CLEAN)
    # and nothing else is changed
    assert (clean.at, clean.verdict, clean.states) == (AT, Verdict.WARNING, {"a-rule": "ok"})
    assert type(clean.verdict) is Verdict
    assert clean.findings[0].remedies[0].needs == {CLEAN: Reason.IDLE}


def test_a_report_without_secrets_stays_as_it_is() -> None:
    plain = Report(AT, Verdict.OK, "well", Patient("0.32.0", "m", 1), (), (), (), (), (), (), {})
    clean = redact.report(plain)
    assert all(getattr(clean, f.name) == getattr(plain, f.name) for f in fields(plain))
    assert clean.redacted == {}
