from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from tests.paths import PACKAGE
from vllm_doctor.model.kinds import Confidence, Role, Severity, SourceKind, Stage, State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Evidence, Finding, Patient, Problem, Remedy, Report, SourceSeen, Verdict
from vllm_doctor.text import redact

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
        ("{'password': 'abcd1234'}", "{'password': '[masked]'}", "password"),
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
        EVIL, Severity.WARNING, Role.ROOT, EVIL, Confidence.HIGH, {EVIL: EVIL}, EVIL, EVIL, EVIL, EVIL,
        (evidence,), (remedy,), (EVIL,), Stage.LIMIT,
    )  # fmt: skip
    report = Report(
        at=AT,
        verdict=Verdict.WARNING,
        headline=EVIL,
        patient=Patient(EVIL, EVIL, 1),
        sources=(SourceSeen(SourceKind.SERVER, EVIL, 1.0, 2, Problem("denied", EVIL), (EVIL,)),),
        findings=(finding,),
        unknown=(),
        vitals=(),
        engines=(),
        targets=(),
        states={"a-rule": State.OK},
        error=Problem("denied", EVIL),
    )
    clean = redact.report(report)
    assert "\\x1b" not in repr(clean)
    assert "hf_" not in repr(clean)
    assert clean.redacted == {"token": repr(report).count("hf_")}
    assert clean.findings[0].remedies[0].set == {CLEAN: CLEAN}
    assert clean.findings[0].evidence[0].seen == Known(CLEAN)
    # and nothing else is changed
    assert (clean.at, clean.verdict, clean.states) == (AT, Verdict.WARNING, {"a-rule": State.OK})
    assert type(clean.verdict) is Verdict
    assert clean.findings[0].remedies[0].needs == {CLEAN: Reason.IDLE}


def test_a_report_without_secrets_stays_as_it_is() -> None:
    plain = Report(AT, Verdict.OK, "well", Patient("0.32.0", "m", 1), (), (), (), (), (), (), {})
    clean = redact.report(plain)
    assert all(getattr(clean, f.name) == getattr(plain, f.name) for f in fields(plain))
    assert clean.redacted == {}


@pytest.mark.parametrize(
    ("text", "clean", "what"),
    [
        ("'api_key': ['one-key', 'two-key'], 'x': 1", "'api_key': [[masked]], 'x': 1", "api-key"),
        ("--hf-token abcdefgh --port 1", "--hf-token [masked] --port 1", "api-key"),
        ("AWS_SECRET_ACCESS_KEY=abc/def+ghi", "AWS_SECRET_ACCESS_KEY=[masked]", "api-key"),
        ("Cookie: session=abcdef; x=y", "Cookie: [masked]", "cookie"),
        ("Basic YWxpY2U6cHc=", "Basic [masked]", "authorization"),
        ("https://b/x?sv=1&sig=abc%2Fdef&x=1", "https://b/x?sv=1&sig=[masked]&x=1", "signature"),
        ("https://b/x?X-Amz-Signature=0123abc", "https://b/x?X-Amz-Signature=[masked]", "signature"),
        ("AccountName=a;AccountKey=Zm9v==;x", "AccountName=a;AccountKey=[masked];x", "api-key"),
        ("id AKIAABCDEFGHIJKLMNOP", "id [masked]", "cloud-key"),
        ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "[masked]", "cloud-key"),
        ("glpat-0123456789abcdef0123", "[masked]", "token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln_XX", "[masked]", "token"),
        ("prompt: 'tell me', x", "prompt: [masked], x", "prompt"),
        ("output_token_ids: [1, 2, 3], x", "output_token_ids: [masked], x", "prompt"),
    ],
)
def test_more_kinds_of_secrets(text: str, clean: str, what: str) -> None:
    masked: Counter[str] = Counter()
    assert redact.text(text, masked) == clean
    assert masked == {what: 1}
    assert redact.text(clean, Counter()) == clean  # once is enough


@pytest.mark.parametrize(
    "text",
    [
        "kv_cache_bytes_per_token=131072",
        "time per output token: 0.0123 s",
        "Avg prompt throughput: 770.0 tokens/s",
        "hf_token=None, api_key=None, password: null",
        "a basic understanding of bearers",
        "tokenizer='org/tokenizer', eos_token_id=2, max_num_batched_tokens=8192",
        "/data/hf_models_cache/llama",
        "--max-num-batched-tokens 8192 --limit-mm-per-prompt {'image': 2}",
        "prompts of 256 tokens, output 700",
        "https://docs.vllm.ai/en/latest/configuration/optimization/#preemption",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    masked: Counter[str] = Counter()
    assert redact.text(text, masked) == text
    assert not masked


def test_a_label_that_is_called_a_secret() -> None:
    subject = {"api_key": "anything", "engine": "0"}
    finding = Finding(
        "r", Severity.WARNING, Role.ROOT, None, Confidence.HIGH, subject, "t", "h", "w", "heuristic",
        (), (), (), Stage.LIMIT,
    )  # fmt: skip
    report = Report(AT, Verdict.OK, "x", Patient(None, None, None), (), (finding,), (), (), (), (), {})
    clean = redact.report(report)
    assert clean.findings[0].subject == {"api_key": "[masked]", "engine": "0"}
    assert clean.redacted == {"api-key": 1}


_SHAPES = [
    row.split("\t")
    for row in (PACKAGE / "text/token_shapes.tsv").read_text("utf-8").splitlines()
    if not row.startswith("#")
]


def test_each_row_of_the_shapes_is_whole() -> None:
    for name, what, source, literals, pattern in _SHAPES:
        assert what in ("token", "cloud-key"), name
        assert source in ("gitleaks", "gitleaks, changed", "ours"), name
        assert all(literals.split(",")), name
        assert "(?P" not in pattern, name
        re.compile(pattern)


def test_the_shapes_take_time_in_proportion_to_the_text() -> None:
    def seconds(text: str) -> float:
        began = time.process_time()
        redact.secrets(text, Counter())
        return time.process_time() - began

    plain = max(seconds("a line of words, " * 1200), 0.005)
    for _, _, _, literals, _ in _SHAPES:
        for literal in literals.split(","):
            for text in (literal * 4000, f"{literal}a1" * 3000, literal + "a1B2" * 5000, "a1B2" * 5000 + literal):
                assert seconds(text[:20_000]) < 40 * plain, literal
