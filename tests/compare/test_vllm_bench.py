"""Results of `vllm bench serve --save-result`, with the keys that vllm/benchmarks/serve.py writes."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_doctor.compare import vllm_bench
from vllm_doctor.model.errors import UsageError


def run(**changed: Any) -> dict[str, Any]:
    """What vLLM 0.32 saves of a run of 100 prompts with 24 clients."""
    result: dict[str, Any] = {
        "date": "20261120-101500", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "tiny",
        "tokenizer_id": "tiny", "num_prompts": 100, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 24,
        "duration": 20.0, "completed": 100, "failed": 0, "total_input_tokens": 12800, "total_output_tokens": 20000,
        "request_throughput": 5.0, "request_goodput": None, "output_throughput": 1000.0,
        "total_token_throughput": 1640.0, "max_output_tokens_per_s": 1300.0, "max_concurrent_requests": 24,
        "mean_ttft_ms": 250.0, "median_ttft_ms": 240.0, "std_ttft_ms": 30.0, "p99_ttft_ms": 400.0,
        "mean_itl_ms": 12.0, "median_itl_ms": 11.0, "std_itl_ms": 3.0, "p99_itl_ms": 30.0,
    }  # fmt: skip
    return result | changed


def detailed(seconds: int = 100) -> dict[str, Any]:
    """One request after the other, each a second long: ten tokens a tenth of a second apart."""
    return run(
        start_times=[1000.0 + n for n in range(seconds)],
        ttfts=[0.1] * seconds,
        itls=[[0.1] * 9 for _ in range(seconds)],
        output_lens=[10] * seconds,
        input_lens=[128] * seconds,
        output_throughput=10.0,
    )


def test_a_result_is_known_by_its_keys() -> None:
    assert vllm_bench.is_result(run())
    assert not vllm_bench.is_result({"schema": "vllm-doctor/report/v1"})
    assert not vllm_bench.is_result([run()])


def test_its_figures_are_in_seconds_and_tokens() -> None:
    result = vllm_bench.result([run()], "a.json")
    figures = {name: round(measure.value, 4) for name, measure in result.measures.items()}
    assert figures == {
        "tokens_out": 1000, "tokens_in": 640, "requests": 5, "ttft": 0.25, "ttft_p50": 0.24, "ttft_p99": 0.4,
        "itl": 0.012, "itl_p50": 0.011, "itl_p99": 0.03, "given_up": 0, "prompt_tokens": 128, "output_tokens": 200,
        "finished": 100,
    }  # fmt: skip
    assert (result.model, result.kind, result.seconds, result.lacks) == ("tiny", "bench", 20.0, ())
    assert result.asked == {"request_rate": None, "max_concurrency": 24, "num_prompts": 100, "burstiness": 1}


def test_several_runs_are_samples() -> None:
    runs = [run(output_throughput=value) for value in (900.0, 1000.0, 1050.0, 980.0)]
    tokens = vllm_bench.result(runs, "a.json").measures["tokens_out"]
    assert (tokens.value, tokens.low, tokens.high, tokens.samples, tokens.spread) == (990.0, 900.0, 1050.0, 4, "runs")


def test_a_detailed_run_is_counted_in_parts_without_its_ends() -> None:
    tokens = vllm_bench.result([detailed()], "a.json").measures["tokens_out"]
    assert (tokens.samples, tokens.spread) == (8, "parts")
    assert tokens.low == pytest.approx(10, rel=0.1)
    assert tokens.high == pytest.approx(10, rel=0.1)


def test_a_failed_request_gave_no_tokens() -> None:
    result = detailed()
    result["output_lens"][50] = 0
    assert vllm_bench.result([result], "a.json").measures["tokens_out"].low < 9.9


@pytest.mark.parametrize("broken", [{"itls": "x"}, {"ttfts": [0.1]}, {"itls": [["x"]] * 100}, {"start_times": []}])
def test_details_that_do_not_fit_are_left(broken: dict[str, Any]) -> None:
    assert vllm_bench.result([detailed() | broken], "a.json").measures["tokens_out"].spread == "runs"


def test_what_is_no_number_is_refused_by_its_key() -> None:
    for value in ("fast", True, float("nan"), [1]):
        with pytest.raises(UsageError, match="'output_throughput' must be a number"):
            vllm_bench.result([run(output_throughput=value)], "a.json")


def test_a_key_that_is_missing_is_not_zero() -> None:
    result = run()
    del result["mean_itl_ms"]
    assert "itl" not in vllm_bench.result([result], "a.json").measures


def test_failed_requests_are_told() -> None:
    assert vllm_bench.result([run(failed=25, completed=75)], "a.json").measures["given_up"].value == 0.25
    nobody = vllm_bench.result([run(failed=100, completed=0, request_throughput=0.0, output_throughput=0.0)], "a.json")
    assert nobody.lacks == ("no request succeeded",)


def test_runs_of_two_kinds_in_one_file_are_refused() -> None:
    with pytest.raises(UsageError, match=r"a\.json holds runs with different load"):
        vllm_bench.result([run(), run(max_concurrency=48)], "a.json")
    with pytest.raises(UsageError, match="several models"):
        vllm_bench.result([run(), run(model_id="other")], "a.json")


def test_details_without_the_whole_rate_are_left() -> None:
    whole = {name: value for name, value in detailed().items() if name != "output_throughput"}
    assert "tokens_out" not in vllm_bench.result([whole], "b").measures


def test_a_number_that_no_float_can_hold_is_told() -> None:
    with pytest.raises(UsageError, match="'mean_itl_ms' must be a number"):
        vllm_bench.result([run(mean_itl_ms=10**400)], "b")
