"""What would be with other flags, and with what vLLM does not start: each refusal, against the server as it runs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.making import shipped_catalogue, window
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.prediction import Changed, Start

GIB = 2.0**30
FOUR = {"gpus_on_host": 4.0, "attention_heads": 32.0, "model_experts": 0.0}
ONE_GPU = {"gpu_memory_total": 80 * GIB, "gpu_memory_foreign": 20 * GIB}
ENGINE = (("engine", "0"), ("model_name", "m"))
ON = 'engine="0",model_name="m"'
PAGE = f"""\
vllm:num_requests_running{{{ON}}} 4
vllm:cache_config_info{{engine="0",gpu_memory_utilization="0.5",%s}} 1
vllm:request_prompt_tokens_sum{{{ON}}} 8000
vllm:request_prompt_tokens_count{{{ON}}} 10
vllm:request_generation_tokens_sum{{{ON}}} 2000
vllm:request_generation_tokens_count{{{ON}}} 10
"""  # a request of 1,000 tokens
LOGGED: dict[str, Value] = {"log": True, "--gpu-memory-utilization": 0.5, "gpu_memory_total": 80 * GIB}
KV: dict[str, Value] = {
    "hidden_layers": 32.0, "kv_cache_heads": 8.0, "kv_bytes_per_token": 131_072.0, "max_model_len": 8192.0,
    "kv_window_bytes_per_token": 0.0, "kv_window": 0.0, "kv_state_bytes": 0.0, "kv_state_page_bytes": 0.0,
    "kv_state_copies": 1.0,
}  # fmt: skip


def changed(flags: Mapping[str, Value | None], was: Mapping[str, Value], page: str = "") -> Changed:
    """A server that runs with `was`: flags and facts; its command line was read."""
    facts: dict[str, Reading] = {name: Known(value) for name, value in {"command": True, **was}.items()}
    catalogue = shipped_catalogue()
    subject = ENGINE if page else ()
    return Changed(catalogue.snapshot(window(page) if page else window(), facts), subject, catalogue, flags)


@pytest.mark.parametrize(
    ("was", "flags", "refused"),
    [
        ({}, {"--max-num-seqs": 4096, "--max-num-batched-tokens": 2048}, "(2,048) must not be below --max-num-seqs"),
        ({"--max-num-seqs": 512.0}, {"--max-num-batched-tokens": 256}, "(256) must not be below --max-num-seqs (512)"),
        ({"--max-num-batched-tokens": 64.0}, {"--max-num-seqs": 128}, "(64) must not be below --max-num-seqs (128)"),
        ({"--max-num-batched-tokens": 64.0}, {"--max-num-seqs": 64}, None),
        ({}, {"--max-num-seqs": 1024}, None),  # the least default is 2,048
        ({}, {"--max-num-batched-tokens": 64}, None),  # --max-num-seqs is then vLLM's own, and not above it
        (
            {"--enable-chunked-prefill": False, "max_model_len": 8192.0},
            {"--max-num-batched-tokens": 4096},
            "(4,096) must not be below the context limit (8,192)",
        ),
        ({"--enable-chunked-prefill": False, "max_model_len": 8192.0}, {"--max-num-batched-tokens": 8192}, None),
        (
            {"--max-num-batched-tokens": 4096.0, "max_model_len": 8192.0},
            {"--enable-chunked-prefill": False},
            "(4,096) must not be below the context limit (8,192)",
        ),
        ({"max_model_len": 8192.0}, {"--enable-chunked-prefill": False}, None),
        ({"max_model_len": 512.0}, {"--long-prefill-token-threshold": 1024}, "(1,024) must not be above"),
        ({"--long-prefill-token-threshold": 1024.0, "max_model_len": 2048.0}, {"--max-model-len": 512}, "limit (512)"),
        ({"max_model_len": 2048.0}, {"--long-prefill-token-threshold": 1024}, None),
        ({}, {"--gpu-memory-utilization": 1.02}, "a share of at most 1"),
        (ONE_GPU, {"--gpu-memory-utilization": 0.92}, "73.6 GiB of the GPU's memory; other processes leave 60 GiB"),
        (ONE_GPU, {"--gpu-memory-utilization": 0.75}, None),
        (FOUR, {"--tensor-parallel-size": 8}, "asks for 8 GPUs; this host has 4"),
        (FOUR, {"--tensor-parallel-size": 2, "--data-parallel-size": 4}, "asks for 8 GPUs; this host has 4"),
        (FOUR, {"--tensor-parallel-size": 8, "--distributed-executor-backend": "ray"}, None),
        (FOUR | {"--nnodes": 2.0}, {"--tensor-parallel-size": 8}, None),
        (FOUR | {"gpus_on_host": 0.0}, {"--tensor-parallel-size": 8}, None),
        (FOUR, {"--tensor-parallel-size": 4}, None),
        (FOUR, {"--tensor-parallel-size": 3}, "32 attention heads cannot be divided by --tensor-parallel-size (3)"),
        (
            FOUR | {"--decode-context-parallel-size": 4.0, "--tensor-parallel-size": 4.0},
            {"--tensor-parallel-size": 2},
            "--tensor-parallel-size (2) must be a multiple of --decode-context-parallel-size (4)",
        ),
        (
            {"--data-parallel-size-local": 4.0, "--data-parallel-size": 4.0},
            {"--data-parallel-size": 2},
            "--data-parallel-size-local (4) must not be above --data-parallel-size (2)",
        ),
        (FOUR, {"--enable-expert-parallel": True}, "the model has none"),
        (FOUR | {"model_experts": 64.0}, {"--enable-expert-parallel": True}, None),
    ],
)  # fmt: skip
def test_what_vllm_refuses(was: dict[str, Value], flags: dict[str, Value | None], refused: str | None) -> None:
    start = changed(flags, was).start()
    if refused is None:
        assert start.refused is None
    else:
        assert refused in str(start.refused)


def test_a_longer_context_than_the_pool_holds_is_refused() -> None:
    page = PAGE % 'kv_cache_memory_bytes="None"'
    was = (
        KV
        | LOGGED
        | {"log:kv-memory.gib": 1.0}
        | {"--gpu-memory-utilization": 0.5, "gpu_memory_total": 80 * GIB, "gpu_memory_foreign": 0.0}
    )
    assert changed({"--max-model-len": 8192}, was, page).start() == Start()  # 8,192 tokens of 128 KiB
    refused = changed({"--max-model-len": 16_384}, was, page).start().refused
    assert refused == "a request of 16,384 tokens needs 2 GiB of KV memory; there would be 1 GiB"
    assert changed({"--max-model-len": 16_384, "--gpu-memory-utilization": 0.6}, was, page).start().refused is None
    assert "there would be" in str(changed({"--gpu-memory-utilization": 0.49}, was, page).start().refused)


def test_a_context_limit_below_what_was_served_is_refused() -> None:
    """Single requests held 71 % of a pool of 150,528 tokens: 107,000, of which a twentieth may be rounding."""
    was = {"largest_request": 0.711, "log:kv-cache-size.tokens": 150_528.0, "log": True}
    assert "requests of 101,674 tokens were served" in str(changed({"--max-model-len": 50_176}, was).start().refused)
    assert changed({"--max-model-len": 102_400}, was).start().refused is None


def test_what_is_not_known_is_told_where_it_could_be() -> None:
    was = {"gpu_memory_total": 80 * GIB}
    facts: dict[str, Reading] = {"command": Known(True), "gpu_memory_total": Known(80 * GIB)}
    catalogue = shipped_catalogue()
    flags = {"--gpu-memory-utilization": 0.9}
    denied = catalogue.snapshot(window(), facts | {"gpu_memory_foreign": Unknown(Reason.DENIED)})
    start = Changed(denied, (), catalogue, flags).start()
    assert (start.refused, start.unknown) == (None, {"gpu_memory_at_start": Reason.DENIED})
    assert changed(flags, was).start() == Start()  # its host was not examined: that is said for all of it


def test_a_server_that_does_it_already_is_not_refused() -> None:
    runs = FOUR | {"--tensor-parallel-size": 8.0}
    assert changed({"--tensor-parallel-size": 8, "--max-num-seqs": 8}, runs).start().refused is None


def test_flags_that_no_refusal_asks_for_are_no_question() -> None:
    assert changed({"--stream-interval": 5}, {}).start() == Start()
    assert changed({}, {}).start() == Start()


def test_a_formula_is_computed_with_the_flag_and_the_rest_stays() -> None:
    was: dict[str, Value] = {"--tensor-parallel-size": 2.0, "--max-num-seqs": 64.0}
    then = changed({"--tensor-parallel-size": 4, "--max-num-seqs": None}, was)
    assert then("gpus_asked") == Known(4.0)
    assert then("tensor_parallel_size") == Known(4.0)
    assert then("max_num_seqs_given") == Unknown(Reason.NOT_SET)
    assert then("max_num_seqs_asked") == Known(0.0)
    assert then("pipeline_parallel_size") == Known(1.0)
    assert changed({}, was)("tensor_parallel_size") == Known(2.0)


def test_what_the_pool_then_holds() -> None:
    page = PAGE % 'kv_cache_memory_bytes="None",num_gpu_blocks_override="80"'
    was = (
        KV
        | LOGGED
        | {"log:kv-memory.gib": 10.0}
        | {"--num-gpu-blocks-override": 80.0, "--gpu-memory-utilization": 0.5, "gpu_memory_total": 80 * GIB}
    )

    def then(flags: Mapping[str, Value | None], name: str) -> Reading:
        return changed(flags, was, page)(name)

    uncapped: dict[str, Value | None] = {"--num-gpu-blocks-override": None}
    # 10 GiB / (1,008 tokens, whole blocks of 16, of 128 KiB) = 81.3 requests of 1,000
    assert then(uncapped, "requests_that_fit_next") == Known(81.0)
    assert then(uncapped, "kv_tokens_next") == Known(81_269.0)
    assert then(uncapped | {"--gpu-memory-utilization": 0.625}, "requests_that_fit_next") == Known(162.0)
    assert isinstance(then({"--gpu-memory-utilization": 0.625}, "requests_that_fit_next"), Unknown)  # still capped
    assert then(uncapped | {"--kv-cache-memory-bytes": GIB}, "requests_that_fit_next") == Known(8.0)
    page = PAGE % f'kv_cache_memory_bytes="{GIB:.0f}",num_gpu_blocks_override="80"'  # as every CPU server has
    assert then(uncapped | {"--gpu-memory-utilization": 0.625}, "requests_that_fit_next") == Known(8.0)
