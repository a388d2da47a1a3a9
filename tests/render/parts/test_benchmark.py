"""What a benchmark measured, in a line, and in JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import jsonschema

from tests.making import shipped_catalogue
from tests.paths import FIXTURES, PACKAGE
from vllm_doctor.model.report import BenchSeen, Report
from vllm_doctor.render import json_v1, text
from vllm_doctor.render.parts.benchmark import in_words
from vllm_doctor.session.judge import judge
from vllm_doctor.sources.bench import source

SEEN = BenchSeen(
    target="bench.json", tool="vllm bench serve", model="m", requests=512, failed=0, concurrency=16, rate=None,
    seconds=60.4, input_len=1024, output_len=128, output_tokens_per_second=1234, ttft=0.08, tpot=0.0123,
)  # fmt: skip


def report() -> Report:
    result = source.results([FIXTURES / "bench/sound.json"])[0]
    return judge([result.examine("")], (), shipped_catalogue(), {}, datetime(2026, 11, 23, tzinfo=UTC))


def test_the_line() -> None:
    assert in_words(SEEN) == (
        "512 requests, 16 concurrent, 1,024 prompt / 128 generation tokens, in 60.4 s: 1,234 generation tokens/s,"
        " TPOT 12.3 ms, TTFT 80 ms"
    )


def test_what_is_not_known_is_left_out() -> None:
    bare = replace(SEEN, requests=None, concurrency=None, seconds=None, input_len=None, output_len=None, ttft=None)
    assert in_words(bare) == "vllm bench serve: 1,234 generation tokens/s, TPOT 12.3 ms"
    assert in_words(replace(bare, tpot=None, output_tokens_per_second=None)) == "vllm bench serve: no figures"
    assert "TPOT 12.3 ms (derived)" in in_words(replace(SEEN, is_tpot_derived=True))


def test_the_text_has_it_and_asks_no_server() -> None:
    shown = text.render(report(), False)
    assert "Benchmark: 1,000 requests, 8 concurrent" in shown
    assert "no answer from /metrics" not in shown


def test_json_has_it_as_the_schema_says() -> None:
    document = json.loads(json_v1.render(report()))
    jsonschema.validate(document, json.loads((PACKAGE / "render/report.v1.schema.json").read_text("utf-8")))
    (benchmark,) = document["benchmarks"]
    assert (benchmark["requests"], benchmark["concurrency"], benchmark["rate"]) == (1000, 8, None)
    assert document["sources"][0]["kind"] == "bench"
