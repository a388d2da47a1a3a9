"""What is expected of a command: what fits, how fast it is, what that hangs on, what is not known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.expecting import A10G, COMMAND, GIB, H100, LLAMA_8B, facts
from tests.making import shipped_catalogue
from vllm_doctor.model.expectation import Expectation, Load, Range
from vllm_doctor.model.reading import Reading, Value
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules import expectation

LOAD = Load(16.0, 1024.0, 512.0)


def expected(*told: Mapping[str, Value], load: Load | None = LOAD, **flags: Value) -> Expectation:
    known = facts(COMMAND, *told, **flags)
    catalogue = shipped_catalogue().narrowed(expectation.SIGNALS)

    def at(load: Load) -> Snapshot:
        told_load: dict[str, Reading] = facts(expectation.facts(load))
        return catalogue.snapshot(Window(), {**known, **told_load})

    return expectation.expected(at, load)


def ordered(range: Range) -> bool:
    """A rate: the bound is the highest."""
    assert range.low is not None
    assert range.typical is not None
    assert range.high is not None
    assert range.bound is not None
    return range.low <= range.typical <= range.high <= range.bound


def test_a_model_that_fits() -> None:
    found = expected(LLAMA_8B, H100)
    assert found.fits is True
    assert (found.gpus, found.gpus_needed) == (1.0, 1.0)
    assert found.weights_per_gpu == LLAMA_8B["model_weights"]
    # 90 % of 80 GiB, less weights and 3 % for activations; 128 KiB a token
    assert found.kv_memory_per_gpu == pytest.approx(80 * GIB * 0.87 - 16_060_522_496)
    assert found.kv_memory_per_gpu is not None
    assert found.kv_tokens is not None
    assert found.kv_tokens == pytest.approx(found.kv_memory_per_gpu / 131_072, abs=1)
    assert found.requests_that_fit == found.kv_tokens // 1536
    assert (found.full_length, found.context_fits) == (131_072.0, True)
    assert found.unknown == ()


def test_speed_of_a_request_and_of_all() -> None:
    (load,) = expected(LLAMA_8B, H100).loads
    assert (load.running, load.queued) == (16.0, 0.0)
    assert load.tpot.bound is not None
    assert load.tpot.typical is not None
    assert load.ttft.typical is not None
    assert load.tpot.bound > 16e9 / 3.35e12  # its weights alone
    assert ordered(load.rate_of_request)
    assert ordered(load.rate)
    seconds = load.ttft.typical + 511 * load.tpot.typical
    assert load.rate_of_request.typical == pytest.approx(512 / seconds)
    assert load.rate.typical == pytest.approx(16 * 512 / seconds)
    assert load.queue == Range(0.0, 0.0, 0.0, 0.0)


def test_requests_beyond_what_runs_wait() -> None:
    alone = expected(LLAMA_8B, H100, load=Load(64.0, 1024.0, 512.0), max_num_seqs=64).loads[0]
    capped = expected(LLAMA_8B, H100, load=Load(256.0, 1024.0, 512.0), max_num_seqs=64).loads[0]
    assert (capped.running, capped.queued) == (64.0, 192.0)
    assert capped.rate == alone.rate
    assert capped.tpot == alone.tpot
    assert capped.queue.typical is not None
    assert capped.rate_of_request.typical is not None
    assert capped.queue.typical == pytest.approx(3 * 512 / capped.rate_of_request.typical)  # three turns before it
    assert alone.ttft.typical is not None
    assert capped.ttft.typical == pytest.approx(alone.ttft.typical + capped.queue.typical)


def test_the_kv_cache_bounds_what_runs() -> None:
    found = expected(LLAMA_8B, A10G, load=Load(64.0, 3072.0, 1024.0), max_model_len=8192)
    assert found.requests_that_fit is not None
    assert found.requests_that_fit < 64
    assert found.loads[0].running == found.requests_that_fit


def test_replicas_share_the_load() -> None:
    one = expected(LLAMA_8B, H100, load=Load(8.0, 1024.0, 512.0))
    two = expected(LLAMA_8B, H100, load=Load(16.0, 1024.0, 512.0), data_parallel_size=2)
    assert two.gpus == 2
    assert two.loads[0].tpot == one.loads[0].tpot
    assert one.loads[0].rate.typical is not None
    assert two.loads[0].rate.typical == pytest.approx(2 * one.loads[0].rate.typical)
    assert two.kv_tokens == 2 * (one.kv_tokens or 0)
    assert two.loads[0].running == 16


def test_experts_are_divided_over_replicas() -> None:
    """vLLM divides them over tensor times data parallel."""
    mixture = {**LLAMA_8B, "expert_parameters": LLAMA_8B["parameters"], "model_experts": 64.0, "experts_per_token": 8.0}
    whole = LLAMA_8B["model_weights"]
    assert isinstance(whole, float)
    assert expected(mixture, H100, data_parallel_size=4).weights_per_gpu == whole / 4
    assert expected(LLAMA_8B, H100, data_parallel_size=4).weights_per_gpu == whole


def test_a_model_that_is_too_large_has_no_speed() -> None:
    large = {**LLAMA_8B, "model_weights": 141e9, "parameters": 70.6e9}
    found = expected(large, H100)
    assert (found.fits, found.gpus, found.gpus_needed) == (False, 1.0, 2.0)
    assert [load.tpot for load in found.loads] == [Range()]
    assert expected(large, H100, tensor_parallel_size=2).fits is True


def test_a_context_that_is_too_long() -> None:
    found = expected(LLAMA_8B, A10G)
    assert (found.fits, found.context_fits) == (True, False)
    assert found.longest_request is not None
    assert found.longest_request % 1024 == 0
    shorter = expected(LLAMA_8B, A10G, max_model_len=found.longest_request)
    assert shorter.context_fits is True
    assert expected(LLAMA_8B, A10G, max_model_len=found.longest_request + 8192).context_fits is False


def test_auto_context_is_what_fits() -> None:
    assert expected(LLAMA_8B, A10G, max_model_len=-1).context_fits is None


def test_without_a_load_one_request_a_few_and_as_many_as_fit() -> None:
    found = expected(LLAMA_8B, H100, load=None)
    assert [load.load.requests for load in found.loads] == [1.0, 16.0, 218.0]
    assert found.requests_that_fit == 218.0
    assert [load.load.requests for load in expected(LLAMA_8B, H100, load=None, max_num_seqs=8).loads] == [1.0, 8.0]
    too_large = expected({**LLAMA_8B, "model_weights": 141e9}, H100, load=None)
    assert len(too_large.loads) == 1
    assert too_large.gpus_needed == 4  # with its full context


def test_what_it_is_computed_from() -> None:
    assumed = {one.what: one for one in expected(LLAMA_8B, H100, load=None, max_num_seqs=8).assumptions}
    assert (assumed["weights of the model"].value, assumed["weights of the model"].unit) == (16_060_522_496.0, "bytes")
    assert assumed["concurrent requests, at most"].value == 8
    assert assumed["concurrent requests, at most"].origin != "default"
    assert assumed["tensor parallel size"].origin == "default"
    assert assumed["prompt tokens of a request"].origin == "assumed"
    assert "parameters that a token uses" not in assumed  # all


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ((LLAMA_8B,), "the GPU's memory"),
        ((H100,), "the size of the model"),
        ((LLAMA_8B, {name: value for name, value in H100.items() if name != "gpu_bandwidth"}), "memory bandwidth"),
    ],
    ids=["no-gpu", "no-model", "no-bandwidth"],
)
def test_what_is_not_known_is_said_with_how_to_give_it(told: tuple[Mapping[str, Value], ...], lacks: str) -> None:
    found = expected(*told)
    assert any(lacks in one.what for one in found.unknown)
    assert all(one.how for one in found.unknown)
    assert not found.loads[0].tpot.is_known
    if H100["gpu_name"] not in [value for one in told for value in one.values()]:
        assert found.fits is None


def test_a_load_is_told_whole_or_not_at_all() -> None:
    assert expectation.load_of(expectation.facts(LOAD)) == LOAD
    assert expectation.load_of({"load_requests": 4.0}) is None
    assert expectation.load_of({"goal": "throughput"}) is None
