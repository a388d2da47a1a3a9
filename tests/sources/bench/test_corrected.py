"""The command with which to measure again."""

from __future__ import annotations

import pytest

from vllm_doctor.sources.bench.corrected import corrected
from vllm_doctor.sources.bench.run import LATENCY, SERVE, Asked, BenchRun, Spread


def words(run: BenchRun) -> str:
    return str(corrected(run)["bench_command_corrected"])


def test_without_a_command_it_is_whole() -> None:
    run = BenchRun(
        SERVE, "m", asked=Asked(concurrency=8), completed=50, input_tokens=12800, output_tokens=3200,
        requests_per_second=2.0,
    )  # fmt: skip
    assert words(run) == (
        "vllm bench serve --model m --dataset-name random --random-input-len 256 --random-output-len 64 --ignore-eos"
        " --num-prompts 120 --max-concurrency 8 --num-warmups 8 --seed 1"
    )


def test_the_command_that_was_used_is_kept_but_for_its_faults() -> None:
    flags = {
        "--model": "m", "--base-url": "http://h:1", "--dataset-name": "sharegpt", "--dataset-path": "s.json",
        "--seed": "3", "--num-prompts": "20", "--save-result": "", "--header": "Authorization=x", "--top-p": "1 ; x",
    }  # fmt: skip
    run = BenchRun(SERVE, "m", asked=Asked(concurrency=4, seed=3), program=("vllm", "bench", "serve"), flags=flags)
    assert words(run) == (
        "vllm bench serve --model m --base-url http://h:1 --dataset-name sharegpt --dataset-path s.json --ignore-eos"
        " --num-prompts 100 --max-concurrency 4 --num-warmups 4 --seed 4"
    )


def test_what_ran_at_a_time_is_the_limit_where_there_was_none() -> None:
    run = BenchRun(
        SERVE, asked=Asked(rate=float("inf"), concurrency=float("inf")), output_rate=2261, tpot=Spread(0.0055)
    )
    assert "--max-concurrency 16 " in words(run)


def test_an_old_script_does_not_warm_up() -> None:
    run = BenchRun(SERVE, "m", program=("python3", "benchmark_serving.py"), flags={"--model": "m"})
    assert words(run).startswith("python3 benchmark_serving.py --model m ")
    assert "--num-warmups" not in words(run)


def test_releases_before_0_11_1_have_no_warmups() -> None:
    assert "--num-warmups" not in str(corrected(BenchRun(SERVE))["bench_command_early"])


@pytest.mark.parametrize("asked", [1.0, 8.0])
def test_answers_are_long_enough_to_measure_decoding(asked: float) -> None:
    assert "--random-output-len 128" in words(BenchRun(SERVE, asked=Asked(output_len=asked)))


def test_latency_keeps_its_batch() -> None:
    run = BenchRun(LATENCY, "m", asked=Asked(input_len=128, output_len=64, concurrency=4))
    assert words(run) == (
        "vllm bench latency --model m --input-len 128 --batch-size 4 --output-len 64 --num-iters-warmup 10"
        " --num-iters 30"
    )
