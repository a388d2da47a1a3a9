"""A speed that a person names: `--measured 17tok/s`."""

from __future__ import annotations

import pytest

from vllm_doctor.model.reading import Known
from vllm_doctor.sources.bench import measured


def _known(text: str) -> dict[str, object]:
    return {name: fact.value for name, fact in measured.parse(text).facts().items() if isinstance(fact, Known)}


@pytest.mark.parametrize(
    ("text", "seconds", "requests"),
    [
        ("17tok/s", 1 / 17, 1),
        ("17 tokens/s", 1 / 17, 1),
        ("12.5 t/s", 0.08, 1),
        ("20 tokens per second", 0.05, 1),
        ("58ms", 0.058, 1),
        ("58ms@16", 0.058, 16),
        ("1.5s", 1.5, 1),
        ("1200tok/s@64", 64 / 1200, 64),
        ("17tok/s,concurrency=16", 1 / 17, 16),
        ("tpot=58ms,concurrency=16,input=1024,output=128", 0.058, 16),
        ("e2e=10s,concurrency=11,input=3000,output=50", 0.2, 11),
    ],
)
def test_the_time_per_token_and_the_load(text: str, seconds: float, requests: float) -> None:
    known = _known(text)
    assert known["bench_tpot"] == pytest.approx(seconds)
    assert known["load_requests"] == requests


def test_what_is_not_said_stays_unknown() -> None:
    known = _known("17tok/s")
    assert "load_input_tokens" not in known
    assert "load_output_tokens" not in known
    assert "bench_ttft" not in known


def test_lengths_are_part_of_the_load() -> None:
    known = _known("tpot=58ms,concurrency=16,input=1024,output=128")
    assert (known["load_input_tokens"], known["load_output_tokens"]) == (1024, 128)


def test_the_time_to_first_token_alone() -> None:
    known = _known("ttft=2s")
    assert known["bench_ttft"] == 2
    assert "bench_tpot" not in known


def test_one_request_is_assumed_aloud() -> None:
    assert measured.parse("17tok/s").notes
    assert not measured.parse("17tok/s@1").notes


@pytest.mark.parametrize(
    "text",
    [
        "", "17", "fast", "0tok/s", "-5tok/s", "nan", "inf", "1e9tok/s", "17tok/s,17tok/s", "17tok/s,tpot=3ms",
        "17tok/s@0", "17tok/s@1.5", "concurrency=3", "tpot=58", "tpot=58ms,tpot=59ms", "9" * 400 + "tok/s",
        "17tok/s@" + "9" * 50, "a" * 5000, "tpot=0ms", "1000000000tok/s", "tpot=2h", "17tok/s,\x1b[31m",
        "ttft=2s,bogus=3",
    ],
)  # fmt: skip
def test_what_is_no_speed_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"17tok/s|write") as refused:
        measured.parse(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
