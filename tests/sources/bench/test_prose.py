"""How fast it was, as people write it."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.sources.bench import prose


def _told(text: str) -> list[tuple[float, float | None]]:
    return [(round(figure.rate, 2), figure.requests) for figure in prose.figures(text)]


@pytest.mark.parametrize(
    ("text", "rate", "requests"),
    [
        ("Whatever I try, a single request gets just 17 tokens per second.", 17, 1),
        ("Inference is much slower than expected, reaching only 8.7 tokens/s", 8.7, None),
        ("We run two cards and see ~23.5 tok/s. Is this normal?", 23.5, None),
        ("it crawls at 0.4 t/s", 0.4, None),
        ("answers come at less than 10 tokens/s", 10, None),
        ("I measured 58 ms per token at batch size 8", 17.24, 8),
        ("TPOT of 40 ms", 25, None),
        ("each step takes long: 0.5 s/token", 2, None),
        ("my TPS is about 40", 40, None),
        ("generation speed (tok/s): 31.5", 31.5, None),
        ("with 32 users I see 1,200 tokens/s in total", 1200, 32),
        ("1.2k tok/s with concurrency 64", 1200, 64),
        ("I get 10-15 tok/s here", 12.5, None),
        ("speed is 12 tokens per sec", 12, None),
        ("单并发速度只有 50token/s", 50, 1),
        ("每秒只有 17 个token", 17, None),
        ("为什么只有 12 tokens/秒", 12, None),
        ("并发数为 16 时平均 300 tokens/s", 300, 16),
        ("with a prompt of 2000 tokens I get 17 tok/s", 17, None),
        ("chunked prefill is on and it gives 17 tok/s", 17, None),
    ],
)
def test_what_was_measured(text: str, rate: float, requests: float | None) -> None:
    assert _told(text) == [(rate, requests)]


@pytest.mark.parametrize(
    "text",
    [
        "I expected 30 tokens/s",
        "How can I achieve 30 tokens per second on this card?",
        "It should be 100 tok/s",
        "Can I get 60 tok/s with this?",
        "we would like to reach 80 tokens/s",
        "slower than the 60 tok/s that others report",
        "Avg prompt throughput: 17 tokens/s",
        "(APIServer pid=109) INFO 06-10 08:07:33 [loggers.py:271] Avg generation thr          oughput: 0.1 tokens/s",
        "over a minute: prompt throughput 1,946 tok/s, generation 0.48 tok/s, 0.2 steps/s",
        "over a minute: prompt throughput 1,946 tok/s, generation\n0.48 tok/s, 0.2 steps/s",
        "prefill runs at 4,000 tok/s",
        "4000 tok/s prefill",
        "prompt: 1200 tok/s",
        "llama.cpp gives 20 tok/s",
        "Ollama can reach about 25+ token/s",
        "I see 25 tok/s with ollama",
        "official figure: 30 tokens/s",
        "期望达到 60 tokens/s",
        "speculative decoding is 2.3x faster",
        "vLLM 0.6.3.post1 on torch 2.4.0",
        "a context of 8k tokens, max 128 tokens",
        "DDR5 at 4800 MT/s and 900 GB/s",
        "between 5-60 tok/s",
        "0 tokens/s",
        "30 tok/s/gpu",
        "no figures at all",
        "",
    ],
)
def test_what_was_not(text: str) -> None:
    assert _told(text) == []


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("I expected 60 tok/s but only get 13 tok/s", [13]),
        ("I only get 13 tok/s but expected 60 tok/s", [13]),
        ("Model A 13 tokens/s vs model B in llama.cpp 20 tokens/s", [13]),
        ("Compared to llama.cpp (20 tok/s) I only get 13 tok/s", [13]),
        ("I get 25 tok/s with llama.cpp and 6 tok/s with vLLM", [6]),
        ("prompt: 1200 tok/s, generation: 35 tok/s", [35]),
        ("only 17 tok/s\n\nwe see 17.2 tokens per second for one request", [17.2]),
        ("one GPU gives 30 tok/s. Two GPUs give 20 tok/s.", [30, 20]),
    ],
)
def test_which_of_several(text: str, rates: list[float]) -> None:
    assert [rate for rate, _ in _told(text)] == rates


def test_whether_it_is_of_each_or_of_all() -> None:
    (together,) = prose.figures("32 concurrent requests, 640 tok/s")
    (each,) = prose.figures("32 concurrent requests, each 20 tok/s")
    assert together.is_together
    assert together.of_request == each.of_request == 20


@pytest.mark.parametrize(
    "text",
    [
        "9" * 300_000,
        "1,111" * 60_000,
        "17 tok/s with 32 users. " * 10_000,
        "only 17 to " * 30_000,
        "每秒" * 100_000,
        "a " * 150_000 + "17 tok/s",
        "\x00\x1b[31m" * 50_000,
        "İ" * 1000 + " 17 tok/s",
    ],
)
def test_hostile_texts_take_little_time(text: str) -> None:
    started = time.process_time()
    found = prose.figures(text)
    assert time.process_time() - started < 5
    assert len(found) <= 200


@pytest.mark.parametrize(
    ("text", "own", "references"),
    [
        (
            "decoding normally runs at around 20–25 tokens/s. However, after upgrading, it drops to below 1 token/s",
            ["1 token/s"],
            [("20–25 tokens/s", "before")],
        ),
        ("Before the update 40 tok/s, after it 20 tok/s", ["20 tok/s"], [("40 tok/s", "before")]),
        ("40 tok/s before the update, 20 tok/s after", ["20 tok/s"], [("40 tok/s", "before")]),
        ("It fell from 25 tok/s to 2 tok/s", ["2 tok/s"], [("25 tok/s", "before")]),
        ("It fell from 25 to 2 tok/s", ["2 tokens/s"], [("25 tokens/s", "before")]),
        ("One gets 40 tok/s. Since then it dropped to 20 tok/s", ["20 tok/s"], [("40 tok/s", "before")]),
        ("previously I was getting 40 tok/s", [], [("40 tok/s", "before")]),
        ("之前 40 token/s，现在 20 token/s", ["20 token/s"], [("40 token/s", "before")]),
        ("v0.8.4 is fine with 40 tok/s, v0.9.0 is slow: 20 tok/s", ["20 tok/s"], [("40 tok/s", "before")]),
        ("Normally I get 17 tok/s", ["17 tok/s"], []),
        ("With prefix caching I get 30 tok/s, without 20 tok/s", ["30 tok/s", "20 tok/s"], []),
        ("Compared to Ollama I get 20 tok/s", ["20 tok/s"], []),
        (
            "I get 31t/s.\nCompared to Ollama I get 66t/s and 31t/s.",
            ["31t/s"],
            [("66t/s", "of another engine"), ("31t/s", "of another engine")],
        ),
        ("I get 6 tok/s with vLLM and 25 tok/s with exllama", ["6 tok/s"], [("25 tok/s", "of another engine")]),
        ("at 32 users 1200 tok/s, with 64 users it drops to 900 tok/s", ["1200 tok/s", "900 tok/s"], []),
    ],
)
def test_what_it_is_compared_with(text: str, own: list[str], references: list[tuple[str, str]]) -> None:
    told = prose.told(text)
    assert [figure.said for figure in told.own] == own
    assert [(figure.said, what) for figure, what in told.references] == references


def test_respectively_goes_by_the_order_of_the_models() -> None:
    text = "When I run Org/Qwen3-14B-GPTQ-Int4 or Org/Qwen3-32B-GPTQ-Int4 I get 31t/s and 20t/s respectively."
    assert [(figure.said, figure.model) for figure in prose.figures(text)] == [
        ("31t/s", "Org/Qwen3-14B-GPTQ-Int4"),
        ("20t/s", "Org/Qwen3-32B-GPTQ-Int4"),
    ]
    assert [figure.model for figure in prose.figures("Qwen3-14B gives 31t/s and 20t/s respectively")] == ["", ""]


@pytest.mark.parametrize(
    ("text", "is_total"),
    [
        ("the generation throughout is round max 10 tokens/s", True),
        ("throughput: 10 tokens/s", True),
        ("I get 300 tok/s in total", True),
        ("with 32 users the throughput is 1200 tok/s", False),
        ("each request gets a throughput of 10 tok/s", False),
        ("I get 17 tok/s", False),
    ],
)
def test_a_throughput_is_of_nobody_knows_how_many(text: str, is_total: bool) -> None:
    assert [figure.is_total for figure in prose.figures(text)] == [is_total]
