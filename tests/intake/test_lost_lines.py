"""Records within a sentence stand on lines of their own again."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.intake.lost_lines import MOST_CHARS, restored

RECORD = (
    "INFO 10-06 11:23:31 [loggers.py:127] Engine 000: Avg prompt throughput: 474.7 tokens/s, Avg generation throughput:"
    " 9.8 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 27.8%"
)


def test_records_and_what_stands_around_them_are_apart() -> None:
    access = 'INFO: 10.0.0.25:53030 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    text = f"It is slow: (APIServer pid=7) {RECORD} (APIServer pid=7) {access} (APIServer pid=7) {RECORD} and so on."
    assert restored(text) == (
        f"It is slow:\n(APIServer pid=7) {RECORD}\n(APIServer pid=7) {access}\n(APIServer pid=7) {RECORD}\nand so on."
    )


def test_a_line_of_a_journal_within_a_sentence() -> None:
    text = f"It says Jun 03 12:00:01 host vllm[7]: (APIServer pid=7) {RECORD} while the GPU is idle."
    assert restored(text) == (
        f"It says Jun 03 12:00:01 host vllm[7]:\n(APIServer pid=7) {RECORD}\nwhile the GPU is idle."
    )


def test_statistics_of_before_v1() -> None:
    record = (
        "INFO 09-26 11:35:25 metrics.py:351] Avg prompt throughput: 2.3 tokens/s,"
        " Avg generation throughput: 0.2 tokens/s,"
        " Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.1%, CPU KV cache usage: 0.0%."
    )
    assert restored(f"Look: {record} Slow.") == f"Look:\n{record}\nSlow."


@pytest.mark.parametrize(
    "text", [RECORD, f"{RECORD}\n{RECORD}\n", "It is slow, and logs INFO lines.", "x" * MOST_CHARS + RECORD]
)
def test_a_text_without_any_is_left_alone(text: str) -> None:
    assert restored(text) is None


@pytest.mark.parametrize("piece", ["(a pid=1) ", "INFO ", f"{RECORD} ", "GPU KV cache usage: 1.0%, A: 1.0% "])
def test_hostile_text_ends(piece: str) -> None:
    started = time.process_time()
    restored(piece * (MOST_CHARS // len(piece)))
    assert time.process_time() - started < 1
