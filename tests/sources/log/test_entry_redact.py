from __future__ import annotations

import gzip
import time
from collections import Counter
from pathlib import Path

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log import entry_redact
from vllm_doctor.sources.log.bytes_stream import Held

STATS = (
    "INFO 11-20 10:00:10 [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation throughput:"
    " 2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%"
)


def lines_kept(*lines: str) -> tuple[list[str], Counter[str]]:
    masked: Counter[str] = Counter()
    held = Held("vllm.log", "\n".join(lines).encode(), 0.0)
    return entry_redact.text(held, [], masked).decode().split("\n"), masked


@pytest.mark.parametrize(
    "line",
    [
        STATS,
        "INFO 11-20 10:00:00 [core.py:70] Initializing a V1 LLM engine with config: model='tiny', kv_cache_dtype=auto",
        "INFO 11-20 10:00:00 [x.py:1] GPU KV cache size: 10,240 tokens",
        "INFO 11-20 10:00:00 [x.py:1] Maximum concurrency for 2,048 tokens per request: 5.00x",
        "INFO:     127.0.0.1:1234 - \"POST /v1/completions HTTP/1.1\" 200 OK",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "INFO 11-20 10:00:00 [x.py:1] bytes_per_token=131072, eos_token_id=2, hf_token=None, api_key=None",
        "INFO 11-20 10:00:04 [async_llm.py:261] Added request cmpl-1.",
        "  File \"/usr/lib/x.py\", line 3, in f",
        "\ttabs and \x1b[32mcolours\x1b[0m stay",
    ],
)  # fmt: skip
def test_what_tells_of_the_server_stays_as_it_is(line: str) -> None:
    assert lines_kept(line) == ([line], Counter())


@pytest.mark.parametrize(
    ("lines", "kept_lines"),
    [
        (
            ["INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-1: prompt: 'hello', params: x", STATS],
            ["INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-1: [masked]", STATS],
        ),
        (
            ["(APIServer pid=7) INFO 11-20 10:00:04 [request_logger.py:109] Generated response cmpl-1 (streaming"
             " complete): output: 'no', finish_reason: stop"],
            ["(APIServer pid=7) INFO 11-20 10:00:04 [request_logger.py:109] Generated response cmpl-1 (streaming"
             " complete): [masked]"],
        ),
        (  # as somebody's own format has it
            ["vllm-1 | Received request cmpl-ab12: params: SamplingParams(stop=['x'])"],
            ["vllm-1 | Received request cmpl-ab12: [masked]"],
        ),
        (
            ["DEBUG 11-20 10:00:04 [request_logger.py:77] Request cmpl-1 JSON body: {\"prompt\": \"x\"}"],
            ["DEBUG 11-20 10:00:04 [request_logger.py:77] Request cmpl-1: [masked]"],
        ),
        (  # a prompt of several lines, with what looks like a line of vLLM's within
            ["INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-1: prompt: 'a", "b", "", "c', params: x", STATS],
            ["INFO 11-20 10:00:04 [logger.py:39] Received request cmpl-1: [masked]", "[masked]", "", "[masked]", STATS],
        ),
        (
            ["NameError: bad input_value='my prompt', input_type=str"],
            ["NameError: bad input_value=[masked], input_type=str"],
        ),
        (
            ["-----BEGIN RSA PRIVATE KEY-----", "MIIE", "abcd", "-----END RSA PRIVATE KEY-----", STATS],
            ["-----BEGIN RSA PRIVATE KEY-----", "[masked]", "[masked]", "[masked]", STATS],
        ),
    ],
)  # fmt: skip
def test_what_clients_said_and_keys_of_several_lines(lines: list[str], kept_lines: list[str]) -> None:
    found, masked = lines_kept(*lines)
    assert found == kept_lines
    assert "private" in lines[0].lower() or masked["prompt"] >= 1


def test_a_key_without_an_end_does_not_hide_the_log() -> None:
    found, _ = lines_kept("-----BEGIN PRIVATE KEY-----", *(["abc"] * 300), STATS)
    assert found[-1] == STATS


def test_of_a_long_log_start_and_end_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_redact, "HEAD", 10_000)
    monkeypatch.setattr(entry_redact, "TAIL", 30_000)
    lines = [f"INFO 11-20 10:00:00 [x.py:1] line {number}" for number in range(20_000)]
    path = tmp_path / "vllm.log.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    notes: list[str] = []
    found = entry_redact.text(path, notes, Counter()).decode().split("\n")
    assert (found[0], found[-1]) == (lines[0], lines[-1])
    assert set(found) <= set(lines)  # none is cut
    size = sum(len(line) + 1 for line in found)
    assert 35_000 < size <= 40_001
    whole = sum(len(line) + 1 for line in lines)
    (note,) = notes
    assert f"{whole - size:,} bytes between are left out" in note


def test_a_line_without_an_end_is_cut() -> None:
    found, _ = lines_kept("x" * 1_000_000, STATS)
    assert len(found[0]) < 100_000
    assert found[1] == STATS


def test_a_log_that_is_none() -> None:
    with pytest.raises(SourceError, match="empty in the recording"):
        entry_redact.text(Held("vllm.log", b" \n", 0.0), [], Counter())


def test_what_a_client_said_to_other_loggers() -> None:
    found, masked = lines_kept(
        "WARNING 11-20 10:00:04 [hf.py:927] Chat template rejected the request: my words",
        "DEBUG 11-20 10:00:04 [hermes_tool_parser.py:133] delta_text: my words",
        "DEBUG 11-20 10:00:04 [serving.py:833] Received messages request model='m' messages=[x]",
        "INFO 11-20 10:00:04 [async_llm.py:9] Added with SamplingParams(n=1, stop=['my words'], seed=None)",
        "INFO 11-20 10:00:04 [hf.py:736] Detected the chat template content format to be 'string'.",
    )
    assert "my words" not in "\n".join(found)
    assert "messages" not in found[2].partition("request")[2]
    assert found[4].endswith("to be 'string'.")
    assert masked["prompt"] == 4


def test_hostile_lines_take_no_longer_than_others() -> None:
    """The words of a logged request were searched for from each place of a line anew."""

    def seconds(line: str) -> float:
        began = time.process_time()
        lines_kept(*[line] * 3)
        return time.process_time() - began

    plain = max(seconds(STATS * 250), 0.02)
    pumps = [
        "equest a ",
        "a ",
        "Error: ",
        "pass='",
        "auth={",
        "token=",
        "key ",
        'File "',
        "Request 1",
        "--key ",
        "Params(",
    ]
    for pump in pumps:
        line = "INFO 11-20 10:00:00 [x.py:10] equest " + pump * (55_000 // len(pump))
        assert seconds(line) < 20 * plain, pump
