"""Prompts that part, on the command line: out of a log, and out of published events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor
from tests.inputs.kv_events import Cache
from tests.sources.prefix.test_request_log import TEXT, new, old, tokens

__all__ = ["doctor"]

START = "INFO 11-20 10:49:35 [api_server.py:1900] vLLM API server version {version}\n"
STATS = (
    "INFO 11-20 10:52:{second:02} [loggers.py:123] Engine 000: Avg prompt throughput: 1000.0 tokens/s, Avg generation"
    " throughput: 20.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%,"
    " Prefix cache hit rate: 2.0%\n"
)
RECEIVED = (
    "INFO 11-20 10:52:03 [request_logger.py:65] Received request c-{n}: params: SamplingParams(n=1),"
    " lora_request: None.\n"
)
SYSTEM = tokens(800, 1)
IDS = [7_000_001 + n for n in range(8)]


def mutated(n: int) -> list[int]:
    return [*SYSTEM[:37], IDS[n], *SYSTEM[37:]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = "".join(
        new(n, f"hushhush-{n} text", mutated(n)) + "\n" + RECEIVED.format(n=n) + STATS.format(second=n)
        for n in range(8)
    )
    path = tmp_path / "vllm.log"
    path.write_text(START.format(version="0.32.0") + lines)
    return path


def test_a_log_of_requests(log: Path, doctor: Doctor) -> None:
    report = doctor(log, "--json").report
    [seen] = report["prefixes"]
    assert (seen["unit"], seen["prompts"], seen["groups"][0]["at"], seen["groups"][0]["change"]) == (
        "token",
        8,
        37,
        "head",
    )
    [found] = [one for one in report["findings"] if one["rule"] == "prefix-head-mutates"]
    assert "part at token 37, where the beginning changes" in found["here"]
    assert {evidence["signal"] for evidence in found["evidence"]} >= {"prefix_lost", "prefix_prompts_compared"}


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_people_read_of_it(form: str, log: Path, doctor: Doctor) -> None:
    said = doctor(log, "--format", form).out
    assert "Prefixes" in said
    assert "token 37" in said
    assert "the beginning changes" in said


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html", "nagios", "checkmk", "openmetrics", "patch"])
def test_no_prompt_leaves(form: str, tmp_path: Path, log: Path, doctor: Doctor) -> None:
    said = doctor(log, "--format", form, "--explain").out
    older = tmp_path / "old.log"
    lines = "".join(old(n, f"{n} hushhush {TEXT}") + "\n" + STATS.format(second=n) for n in range(8))
    older.write_text(START.format(version="0.10.0") + lines)
    said += doctor(older, "--format", form, "--explain").out
    assert "hushhush" not in said
    assert "assistant" not in said
    assert not [token for token in map(str, IDS) if token in said]


def test_text_is_shown_where_it_is_asked_for(log: Path, doctor: Doctor) -> None:
    report = doctor(log, "--json", "--show-text").report
    assert str(IDS[0]) in report["prefixes"][0]["groups"][0]["shown"][0]
    assert str(IDS[0]) in doctor(log, "--text", "--show-text").out


def test_secrets_in_it_are_masked(tmp_path: Path, doctor: Doctor) -> None:
    log = tmp_path / "vllm.log"
    lines = "".join(
        old(n, f"{n}; Authorization: Bearer abcdefgh12345678{n} {TEXT}") + "\n" + STATS.format(second=n)
        for n in range(8)
    )
    log.write_text(START.format(version="0.10.0") + lines)
    said = doctor(log, "--json", "--show-text").out
    assert "abcdefgh12345678" not in said
    assert json.loads(said)["prefixes"][0]["groups"][0]["shown"]


def test_a_log_without_prompts_says_nothing(tmp_path: Path, doctor: Doctor) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        START.format(version="0.32.0") + "".join(RECEIVED.format(n=n) + STATS.format(second=n) for n in range(8))
    )
    report = doctor(log, "--json").report
    assert report["prefixes"] == []
    assert report["rules"]["prefix-head-mutates"] != "info"


def test_an_endpoint_must_be_one(doctor: Doctor) -> None:
    run = doctor("--kv-events", "http://127.0.0.1:8000", "--json")
    assert run.code == 3
    assert "write tcp://HOST:5557" in run.report["error"]["message"]


def test_published_events(doctor: Doctor) -> None:
    pytest.importorskip("zmq", reason="the extra kv-events is not installed")
    from tests.sources.prefix.test_kv_events import batch, published

    events = Cache().events(*map(mutated, range(8)))
    with published([], [batch(number, event) for number, event in enumerate(events)]) as endpoint:
        word = f"{endpoint.published},{endpoint.replayed}"
        run = doctor("--kv-events", word, "--json", "--window", "0.5")
    report = run.report
    assert [(source["kind"], source["target"]) for source in report["sources"]] == [("kv-events", endpoint.published)]
    assert report["prefixes"][0]["groups"][0]["at"] == 37
    assert report["rules"]["prefix-head-mutates"] == "info"
    assert not [token for token in map(str, [*IDS, *SYSTEM[:3]]) if f"{token}" in run.out and len(token) > 5]


def test_nothing_is_published(doctor: Doctor) -> None:
    pytest.importorskip("zmq", reason="the extra kv-events is not installed")
    run = doctor("--kv-events", "tcp://127.0.0.1:9", "--json", "--window", "0.2")
    assert (run.code, run.report["error"]["kind"]) == (3, "unreachable")
