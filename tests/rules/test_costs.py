"""rules/signals/speed.yaml, costs.yaml: what is compared, and what a cause costs, of the shipped signals."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.making import shipped_catalogue, window
from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.session import named_model
from vllm_doctor.sources.gpu import gpu_name

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def facts(gpu: str = "H100", model: str = MODEL, gpus: float = 1) -> dict[str, Reading]:
    """Of a server of that model, without further flags."""
    named: Mapping[str, Reading] = gpu_name.facts(gpu_name.parse(gpu))
    started: dict[str, Reading] = {COMMAND: Known("vllm serve"), "--tensor-parallel-size": Known(gpus)}
    return dict(named_model.completed({**named, **started}, [model], ()))


def server(
    known: Mapping[str, Reading],
    running: float = 8,
    tpot: float = 0.008,
    waiting: float = 0,
    itl: bool = True,
    preempted: float | None = None,
) -> Snapshot:
    """Two scrapes, ten seconds apart, of so many requests that each get a token every `tpot` seconds."""

    def page(share: float) -> str:
        tokens = share * 10.0 / tpot * running
        values = [
            ("vllm:num_requests_running", running),
            ("vllm:num_requests_waiting", waiting),
            ("vllm:kv_cache_usage_perc", 0.1),
            ("vllm:generation_tokens_total", 1000 + tokens),
            ("vllm:prompt_tokens_total", 5000 + tokens),
            ("vllm:request_prompt_tokens_sum", 1000 * (1 + share)),
            ("vllm:request_prompt_tokens_count", 1 + share),
            ("vllm:request_generation_tokens_sum", 1000 * (1 + share)),
            ("vllm:request_generation_tokens_count", 1 + share),
        ]
        if preempted is not None:
            values.append(("vllm:num_preemptions_total", preempted * share))
        if itl:
            values += [
                ("vllm:inter_token_latency_seconds_sum", tokens * tpot),
                ("vllm:inter_token_latency_seconds_count", tokens),
            ]
        return "\n".join(f'{name}{{engine="0",model_name="m"}} {value}' for name, value in values)

    return shipped_catalogue().snapshot(window(*(page(n / 3) for n in range(4)), every=10 / 3), known)


def value(snapshot: Snapshot, name: str) -> float | None:
    reading = snapshot.read(name, snapshot.subjects[0])[1]
    return reading.value if isinstance(reading, Known) and isinstance(reading.value, float) else None


def known(snapshot: Snapshot, name: str) -> float:
    found = value(snapshot, name)
    assert found is not None, name
    return found


def test_launches_cost_most_where_the_gpu_has_least_to_do() -> None:
    """A step that takes long on the GPU hides what its layers take to launch."""
    fast, slow = server(facts("H100"), running=1), server(facts("L4"), running=64)
    assert known(fast, "launch_cost") > 2 * known(fast, "tpot_bound")
    assert known(slow, "launch_cost") == 0
    assert 0.005 < known(fast, "eager_cost") < 0.04


def test_without_a_model_the_bound_is_wide() -> None:
    assert known(server({}), "launch_cost") == pytest.approx(0.048)


def test_offloaded_weights_cost_what_pcie_carries() -> None:
    given = {"--cpu-offload-gb": Known(35.0), COMMAND: Known("vllm serve")}
    assert known(server(given), "offload_cost") == pytest.approx(35 * 2**30 / 25e9)
    wide = {**given, "pcie_width": Known(16.0), "pcie_generation": Known(5.0)}
    assert known(server(wide), "offload_cost") == pytest.approx(35 * 2**30 / 51.2e9)


def test_a_clock_costs_the_share_that_it_lacks() -> None:
    assert known(server({"gpu_busy_clock_share": Known(0.25)}, tpot=0.04), "gpu_clock_cost") == pytest.approx(0.03)
    assert value(server({}), "gpu_clock_cost") is None


def test_a_gain_of_more_requests_is_no_more_than_the_gpu_can() -> None:
    near = server(facts(), running=8, waiting=8000, tpot=0.006)
    assert known(near, "batch_growth") == pytest.approx(1001)
    assert known(near, "batch_gain") < 100
    assert known(server({}, running=8, waiting=8000), "batch_gain") == pytest.approx(1001)
    beyond = server(facts(), running=8, waiting=8000, tpot=0.001)  # no such server: nothing is known of its GPU
    assert known(beyond, "batch_gain") == pytest.approx(1001)
    few = server(facts(), running=8, waiting=8, tpot=0.02)
    assert known(few, "batch_gain") == pytest.approx(2)


def test_what_is_slow_hangs_on_gpu_and_model() -> None:
    fast, slow = server(facts()), server(facts(), tpot=0.08)
    assert (value(fast, "token_slow"), value(slow, "token_slow")) == (0.0, 1.0)
    assert known(slow, "speed_ratio") > 1
    assert known(fast, "speed_known") == 1
    assert (value(server({}, tpot=0.08), "token_slow"), value(server({}, tpot=0.2), "token_slow")) == (0.0, 1.0)


def test_without_latencies_slow_is_only_a_steady_load() -> None:
    """The batch over the tokens holds idle times: few requests in a short time are not enough to call it slow."""
    assert value(server(facts(), running=1, tpot=0.08, itl=False), "tpot_judged") is None
    assert value(server(facts(), running=1, itl=False), "tpot_judged") == pytest.approx(0.008)
    assert value(server(facts(), running=16, tpot=0.08, itl=False), "tpot_judged") == pytest.approx(0.08)
    assert value(server(facts(), running=1, tpot=0.08), "tpot_judged") == pytest.approx(0.08)


def test_what_logging_requests_costs_is_bounded_and_what_blocks_each_launch_is_not() -> None:
    assert known(server(facts()), "log_overhead_cost") == pytest.approx(0.001 * 8)
    assert value(server({**facts(), "$CUDA_LAUNCH_BLOCKING": Known("1")}), "log_overhead_cost") is None


def test_gguf_with_more_than_one_request_has_no_bound() -> None:
    def cost(weights: str, running: float) -> float | None:
        told: dict[str, Reading] = {**facts(), "model_quantization": Known(weights)}
        return value(server(told, running=running), "quantization_cost")

    assert cost("gguf", 8) is None
    assert cost("gguf", 1) is not None
    assert cost("bitsandbytes", 8) == cost("gguf", 1)


@pytest.mark.parametrize("gpu_told", [True, False])
def test_four_tokens_a_second_of_a_short_log_are_slow_where_nothing_is_expected(gpu_told: bool) -> None:
    told = facts() if gpu_told else {}
    assert value(server(told, running=1, tpot=0.6, itl=False), "tpot_judged") == (
        None if gpu_told else pytest.approx(0.6)
    )
    assert value(server(told, running=1, tpot=0.1, itl=False), "tpot_judged") is None
