"""Tables that vLLM's benchmarks print, within whatever text they were pasted into."""

from __future__ import annotations

import math

import pytest

from vllm_doctor.sources.bench import printed
from vllm_doctor.sources.bench.run import LATENCY, SERVE, THROUGHPUT

TABLE = """\
============ Serving Benchmark Result ============
Successful requests:                     500
Benchmark duration (s):                  142.29
Total input tokens:                      510414
Total generated tokens:                  503887
Request throughput (req/s):              3.51
Output token throughput (tok/s):         3541.34
Total Token throughput (tok/s):          7128.55
---------------Time to First Token----------------
Mean TTFT (ms):                          43636.24
Median TTFT (ms):                        18233.81
P99 TTFT (ms):                           93427.34
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          63.40
Median TPOT (ms):                        64.65
P99 TPOT (ms):                           125.97
==================================================
"""
COMMAND = """\
python /x/benchmarks/benchmark_serving.py --backend vllm \\
--model Qwen2-7B --dataset-name random \\
--num-prompts 600 \\
--random-input-len 1024 --random-output-len=1024
"""


def quoted(text: str) -> str:
    return "".join(f"> {line}\n" for line in text.splitlines())


def fenced(text: str) -> str:
    return f"### Report\n\nIt is slow:\n```text\n{text}```\nWhy?\n"


def coloured(text: str) -> str:
    return text.replace("Mean", "\x1b[1mMean\x1b[0m")


def windows(text: str) -> str:
    return text.replace("\n", "\r\n")


def in_log(text: str) -> str:
    line = "INFO 09-03 02:23:12 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Running: 256 reqs\n"
    return line + text + line


def folded(text: str) -> str:
    return "It is slow: " + " ".join(text.split()) + " What can I do?\n"


def prefixed(text: str) -> str:
    return "".join(f"INFO     root:vllm_bench.py:126 {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("form", [str, quoted, fenced, coloured, windows, in_log, folded, prefixed])
def test_a_table_is_found_wherever_it_stands(form: type[str]) -> None:
    (run,) = printed.runs(form(TABLE))
    assert (run.tool, run.completed, run.duration) == (SERVE, 500, 142.29)
    assert (run.ttft.mean, run.tpot.p99) == pytest.approx((43.63624, 0.12597))
    assert run.total_rate == 7128.55


def test_the_command_above_is_its_own() -> None:
    (run,) = printed.runs(COMMAND + "\n" + TABLE)
    assert (run.model, run.asked.input_len, run.asked.output_len) == ("Qwen2-7B", 1024, 1024)
    assert run.asked.prompts == 600
    assert run.failed == 100  # an old table does not tell, but its command does
    assert run.asked.rate == math.inf
    assert run.is_capped is False
    assert run.asked.ignore_eos is False


def test_each_table_has_the_command_before_it() -> None:
    other = COMMAND.replace("600", "500")
    runs = printed.runs(COMMAND + TABLE + other + TABLE)
    assert [run.asked.prompts for run in runs] == [600, 500]
    assert [run.place for run in runs] == ["line 5", "line 26"]


def test_one_command_is_of_all_tables() -> None:
    assert [run.model for run in printed.runs(COMMAND + TABLE + TABLE)] == ["Qwen2-7B"] * 2


def test_without_a_command_the_load_is_unknown() -> None:
    (run,) = printed.runs(TABLE)
    assert run.asked.rate is None
    assert run.is_capped is None
    assert run.failed is None


def test_what_the_tool_prints_when_it_starts_is_used() -> None:
    (run,) = printed.runs("Traffic request rate: 4.0\nMaximum request concurrency: 32\n" + TABLE)
    assert (run.asked.rate, run.asked.concurrency) == (4, 32)


def test_a_new_table_names_each_limit_that_was_given() -> None:
    (run,) = printed.runs(TABLE.replace("Mean TTFT", "Peak concurrent requests:  500.00\nMean TTFT", 1))
    assert run.asked.rate == math.inf
    assert run.is_capped is False


def test_a_table_without_its_header_or_its_end_is_read() -> None:
    body = TABLE.split("\n", 1)[1].rsplit("=" * 50, 1)[0]
    assert [run.completed for run in printed.runs(body + body)] == [500, 500]


def test_throughput_and_latency() -> None:
    text = (
        "Throughput: 41.32 requests/s, 14476.78 total tokens/s, 2644.46 output tokens/s\n"
        "Total num prompt tokens:  28636\nTotal num output tokens:  6400\n"
        "$ vllm bench latency --input-len 64 --batch-size 4\n"
        "Avg latency: 0.198 seconds\n10% percentile latency: 0.185 seconds\n50% percentile latency: 0.203 seconds\n"
    )
    throughput, latency = printed.runs(text)
    assert (throughput.tool, throughput.completed, throughput.input_tokens) == (THROUGHPUT, 100, 28636)
    assert (latency.tool, latency.e2e.mean, latency.e2e.median) == (LATENCY, 0.198, 0.203)
    assert (latency.asked.input_len, latency.asked.output_len, latency.asked.concurrency) == (64, 128, 4)


def test_the_throughput_of_old_releases_has_no_output_tokens() -> None:
    (run,) = printed.runs("Throughput: 9.94 requests/s, 4750.12 tokens/s")
    assert (run.total_rate, run.output_rate, run.completed) == (4750.12, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm bench serve is a tool",
        "Successful requests: many",
        "=" * 50,
        "============ Serving Benchmark Result ====",
    ],
)
def test_nothing_is_made_of_less(text: str) -> None:
    assert printed.runs(text) == ()
    assert not printed.holds_table(text)


def test_not_more_than_some_tables_are_read() -> None:
    assert len(printed.runs(TABLE * 200)) == printed.MOST_RUNS


def test_the_table_of_sglang_s_client() -> None:
    text = (
        "============ Serving Benchmark Result ============\nBackend:        vllm\nTraffic request rate:   inf\n"
        "Max reqeuest concurrency:   not set\nSuccessful requests:   660\nBenchmark duration (s):  55.42\n"
        "Output token throughput (tok/s):  12195.89\nConcurrency:   315.98\nMean E2E Latency (ms):  26530.12\n"
        "Mean TTFT (ms):  2533.44\n"
    )
    (run,) = printed.runs(text)
    assert (run.completed, run.in_flight) == (660, 315.98)
    assert run.e2e.mean == pytest.approx(26.53012)
    assert (run.asked.rate, run.is_capped) == (math.inf, False)


def test_lines_that_an_issue_has_in_bold_are_read() -> None:
    table = "\n".join(
        f"**{line}**" if "duration" in line or "throughput (req/s)" in line else line
        for line in (
            "============ Serving Benchmark Result ============",
            "Successful requests:                     1000      ",
            "Benchmark duration (s):                  118.85    ",
            "Total generated tokens:                  56000     ",
            "Request throughput (req/s):              8.41      ",
            "Mean TPOT (ms):                          190.66    ",
            "==================================================",
        )
    )
    (found,) = printed.runs(table)
    assert (found.duration, found.requests_per_second) == (118.85, 8.41)


def test_a_command_in_another_fence_with_the_line_ends_of_a_form() -> None:
    """vllm-project/vllm issue 9070: the command says 4,096, its result 979."""
    text = (
        "```\npython benchmark_serving.py \\\n  --backend vllm \\\n  --num-prompt=4096\n```\nBench Marking Output\n"
        "```Initial test run completed. Starting main benchmark run...\nTraffic request rate: inf\n"
        "============ Serving Benchmark Result ============\nSuccessful requests:                     979       \n"
        "Benchmark duration (s):                  87.88     \n==================================================\n```\n"
    )
    for ends in ("\n", "\r\n"):
        [run] = printed.runs(text.replace("\n", ends))
        assert (run.completed, run.failed) == (979, 4096 - 979)


@pytest.mark.parametrize("row", ["", "Request rate configured (RPS):           10.00\n"])
def test_a_table_that_is_cut_off_before_its_first_figure_is_none(row: str) -> None:
    head = "============ Serving Benchmark Result ============\nSuccessful requests:                     100\n"
    table = f"{head}Failed requests:                         0\n{row}"
    assert not printed.holds_table(table)
    assert printed.runs(f"{table}{'=' * 50}\n") == ()


def test_a_table_of_which_requests_failed_tells_something() -> None:
    (run,) = printed.runs("Successful requests:                     0\nFailed requests:                         100\n")
    assert (run.completed, run.failed) == (0, 100)
