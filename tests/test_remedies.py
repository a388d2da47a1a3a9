"""What the shipped rules tell a person to set: the values, their arithmetic, and their order."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.making import shipped_catalogue, shipped_rules
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.report import Finding, Remedy
from vllm_doctor.model.snapshot import Series, Snapshot
from vllm_doctor.rules.diagnose import diagnose

GIB = 2.0**30
VERSION: Mapping[str, Value] = {"vllm_version": "0.32.0", "goal": "throughput"}

PREEMPTED: Mapping[str, Value] = {
    "preemptions_per_request": 1.4, "preemptions_per_second": 5.9, "kv_cache_usage": 1.0, "kv_cache_usage_usual": 0.98,
    "recompute_factor": 1.8, "recompute_factor_if_seen": 1.8, "requests_in_flight": 24.0, "requests_that_fit": 6.0,
    "kv_tokens": 12288.0, "tokens_per_request": 1900.0, "max_num_seqs_for_throughput": 8.0, "watermark_wanted": 0.1,
    "kv_blocks_override": 0.0, "kv_cache_memory_by_hand": 0.0, "gpu_memory_utilization": 0.8,
    "gpu_memory_utilization_if_free": 0.9, "gpu_memory_utilization_wanted": 0.9, "gpu_memory_utilization_growth": 0.1,
    "gpu_memory_free": 10 * GIB, "gpu_memory_total": 80 * GIB, "kv_memory_growth": 0.0, "kv_memory_wanted_if_seen": 0.0,
    "queue_per_running": 1.0, "requests_that_fit_then": 30.0,
    "requests_that_ran_full": 1e12, "requests_in_flight_peak": 24.0, "requests_running_max": 6.0,
}  # fmt: skip


def finding(rule: str, signals: Mapping[str, Value]) -> Finding:
    """What the rule finds where only these signals are known."""
    known = {name: Series({(): Known(value)}) for name, value in {**VERSION, **signals}.items()}
    rules = [one for one in shipped_rules() if one.id == rule]
    [found] = diagnose(rules, shipped_catalogue(), [Snapshot(((),), known)]).findings
    return found


def settings(rule: str, signals: Mapping[str, Value]) -> list[dict[str, Value]]:
    """What each of its remedies sets, in their order."""
    return [dict(remedy.set) for remedy in finding(rule, signals).remedies]


def first(rule: str, signals: Mapping[str, Value]) -> Remedy:
    return finding(rule, signals).remedies[0]


def test_a_larger_pool_goes_before_fewer_requests() -> None:
    assert settings("preemption", PREEMPTED) == [
        {"--gpu-memory-utilization": 0.9},
        {"--max-num-seqs": 6},
        {"--watermark": 0.1},
    ]
    capped = finding("preemption", {**PREEMPTED, "kv_blocks_override": 96.0, "kv_block_size": 128.0}).remedies
    assert capped[0].unset == ("--num-gpu-blocks-override",)
    assert [dict(remedy.set) for remedy in capped[1:]] == [{"--max-num-seqs": 6}, {"--watermark": 0.1}]


def test_where_the_larger_pool_is_still_too_small_both_are_set() -> None:
    short = {**PREEMPTED, "requests_that_fit_then": 9.0, "kv_tokens_gained": 5000.0}
    assert settings("preemption", short)[0] == {"--gpu-memory-utilization": 0.9, "--max-num-seqs": 9}
    computed = first("preemption", short).computed
    assert computed is not None
    assert computed.endswith("(12,288 + 5,000) / 1,900 for a request = 9")


@pytest.mark.parametrize("goal", ["throughput", "latency"])
def test_what_is_preempted_is_admitted_by_its_full_length(goal: str) -> None:
    found = finding("preemption", {**PREEMPTED, "goal": goal, "kv_tokens": 12_288.0})
    [remedy] = [remedy for remedy in found.remedies if "--max-num-seqs" in remedy.set]
    assert remedy.set == {"--max-num-seqs": 6}
    assert remedy.computed == "12,288 tokens / 1,900 for a request"
    assert "measured" in remedy.expect


def test_a_sentence_whose_number_is_not_known_is_left_out() -> None:
    long = {**PREEMPTED, "tokens_per_request_p90": 2500.0, "requests_that_fit_p90": 4.0}
    [remedy] = [remedy for remedy in finding("preemption", long).remedies if "--max-num-seqs" in remedy.set]
    assert remedy.computed == ("12,288 tokens / 1,900 for a request; of long requests (p90: 2,500 tokens) 4 fit")


@pytest.mark.parametrize("rule", ["preemption", "kv-cache-saturated"])
def test_memory_is_given_only_where_it_is_free(rule: str) -> None:
    none_free = {"gpu_memory_utilization_if_free": 0.8, "gpu_memory_utilization_growth": 0.0}
    flags = {flag for one in settings(rule, {**PREEMPTED, **none_free}) for flag in one}
    assert "--gpu-memory-utilization" not in flags
    unseen = {"gpu_memory_utilization_if_free": 0.0, "gpu_memory_utilization_growth": 0.0}
    assert ("--gpu-memory-utilization",) in [r.unset for r in finding(rule, {**PREEMPTED, **unseen}).remedies]
    default = {**unseen, "gpu_memory_utilization": 0.92}
    assert ("--gpu-memory-utilization",) not in [r.unset for r in finding(rule, {**PREEMPTED, **default}).remedies]


FREE = 29_634_849_177.0  # bytes
BY_HAND: Mapping[str, Value] = {
    **PREEMPTED,
    "kv_cache_memory_by_hand": 20 * GIB,
    "kv_memory": 20 * GIB,
    "kv_memory_growth": 0.38,
    "kv_memory_wanted": FREE,
    "kv_memory_wanted_if_seen": FREE,
    "gpu_memory_reserve": 2.4 * GIB,
    "gpu_memory_utilization_growth": 0.1,
}


def test_a_cache_that_was_given_by_hand_is_given_more() -> None:
    bytes_wanted = {"--kv-cache-memory-bytes": FREE}
    assert settings("preemption", BY_HAND)[0] == bytes_wanted
    assert settings("kv-cache-saturated", BY_HAND)[0] == bytes_wanted
    quiet = {**BY_HAND, "preemptions_per_second": 0.0, "preemptions_per_request": 0.0}
    assert settings("kv-cache-capped", quiet) == [bytes_wanted]
    remedy = first("kv-cache-capped", quiet)
    assert remedy.computed == "20 GiB now; 10 GiB of 80 GiB are free, and 2.4 GiB stay free"
    before = settings("preemption", {**BY_HAND, "vllm_version": "0.9.2"})
    assert [list(one) for one in before] == [["--max-num-seqs"]]  # that flag is of 0.10.2, --watermark of 0.24


def test_free_memory_beside_a_cache_that_binds() -> None:
    low = {**PREEMPTED, "gpu_memory_spare": 0.1, "kv_memory_whole_gpu_if_seen": 0.0, "kv_memory": 20 * GIB}
    assert settings("gpu-mem-util-low", low) == [{"--gpu-memory-utilization": 0.9}]
    told = {**low, "kv_memory_whole_gpu_if_seen": 28 * GIB, "kv_memory_whole_gpu": 28 * GIB}
    assert settings("gpu-mem-util-low", told) == [
        {"--gpu-memory-utilization": 0.9},
        {"--kv-cache-memory-bytes": int(28 * GIB)},
    ]


@pytest.mark.parametrize(("goal", "value"), [("throughput", 30), ("latency", 20)])
def test_a_cap_is_raised_by_what_is_held_on_average_or_at_full_length(goal: str, value: int) -> None:
    signals: Mapping[str, Value] = {
        "queue_per_running": 11.0, "kv_cache_usage": 0.3, "cap_reached": 1.0, "running_to_cap": 1.0,
        "prompt_share": 0.4, "running_cap": 8.0, "max_num_seqs_wanted": 20.0, "requests_in_flight_peak": 48.0,
        "max_num_seqs_wanted_for_throughput": 30.0, "goal": goal, "token_budget_in_the_way": 1e12,
    }  # fmt: skip
    assert settings("max-num-seqs-cap", signals) == [{"--max-num-seqs": value}]
    assert first("max-num-seqs-cap", signals).computed == "48 concurrent requests, to the next power of two"


@pytest.mark.parametrize(
    ("length", "expected"),
    [(3000.0, [{"--max-model-len": 4096}]), (5000.0, [])],
    ids=["shorter", "requests that are longer are not refused"],
)
def test_the_context_limit(length: float, expected: list[dict[str, Value]]) -> None:
    signals: Mapping[str, Value] = {
        "max_len_requests": 1.5, "queue_per_running": 0.5, "requests_running_max": 2.0, "max_model_len": 8192.0,
        "max_model_len_that_fits": 4096.0, "tokens_per_request_if_seen": length, "kv_blocks_override": 0.0,
        "gpu_memory_utilization_growth": 0.0, "max_len_requests_unmeasured": 1000.0,
    }  # fmt: skip
    assert settings("max-model-len-too-large", signals) == expected


def test_what_never_fits_is_refused() -> None:
    signals: Mapping[str, Value] = {
        "max_len_requests": 0.5, "requests_waiting_steady": 3.0, "requests_running_max": 0.0, "kv_blocks_override": 0.0,
        "max_model_len_of_pool": 4096.0,
    }  # fmt: skip
    assert settings("request-exceeds-kv-capacity", signals) == [{"--max-model-len": 4096}]


@pytest.mark.parametrize(("wanted", "now", "expected"), [(3.0, 1.0, 3), (1.0, 1.0, None)])
def test_api_servers_only_where_there_are_cores(wanted: float, now: float, expected: int | None) -> None:
    signals: Mapping[str, Value] = {
        "api_server_cpu": 0.95, "generation_tokens_per_second": 9000.0, "queue_per_running": 0.0,
        "api_servers_wanted": wanted, "api_servers_now": now,
    }  # fmt: skip
    remedy = first("api-server-bound", signals)
    assert remedy.set == ({} if expected is None else {"--api-server-count": expected})
    assert remedy.cost == ("capacity" if expected is None else "restart")


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.32.0", ["--max-cudagraph-capture-size"]),
        ("0.10.2", ["--cuda-graph-sizes"]),
        ("0.8.5", []),
    ],
)
def test_the_graph_size_by_the_flag_of_the_version(version: str, flags: list[str]) -> None:
    signals: Mapping[str, Value] = {
        "device_assumed": "cuda", "largest_graph": 40.0, "largest_full_graph": 40.0, "decode_tokens": 100.0,
        "requests_running_max": 120.0, "graphs_truncated": 0.0, "largest_graph_wanted": 208.0, "vllm_version": version,
        "graph_sizes_listed": 0.0, "decode_tokens_unseen": 0.0,
    }  # fmt: skip
    assert [list(one) for one in settings("cudagraph-uncovered-batch", signals) if one] == [[flag] for flag in flags]


def test_the_step_that_the_target_allows() -> None:
    small: Mapping[str, Value] = {
        "queue_per_running": 2.0, "kv_cache_usage": 0.2, "prompt_share": 0.95, "step_tokens": 2000.0,
        "token_budget_fill": 0.98, "token_budget_seen": 2048.0, "pooling_if_told": 0.0,
    }  # fmt: skip
    found = {**small, "max_num_batched_tokens_wanted": 8192.0}
    assert settings("max-num-batched-tokens-small", found) == [{"--max-num-batched-tokens": 8192}]
    assert settings("max-num-batched-tokens-small", {**small, "max_num_batched_tokens_wanted": 1536.0}) == []


BOUND: Mapping[str, Value] = {
    "gpus": 1.0, "decode_of_bound": 0.72, "model_quantization": "none", "quantization_asked": 0.0,
    "gpu_memory_foreign_if_seen": 0.0, "kv_cache_dtype": "auto", "gpu_generation": 9.0,
    "weights_of_step": 0.6, "weights_of_time": 0.0, "weights_read_per_gpu": 15e9,
}  # fmt: skip


def test_at_the_bandwidth_bound_smaller_weights_or_more_gpus_help() -> None:
    assert [remedy.do[:30] for remedy in finding("unquantised-bandwidth-bound", BOUND).remedies] == [
        "Serve a checkpoint in FP8, whi",
        "Spread the model over more GPU",
    ]
    assert settings("unquantised-bandwidth-bound", BOUND) == [{}, {}]
    alone = finding("unquantised-bandwidth-bound", {**BOUND, "weights_of_time": 0.7})
    assert "speculative decoding" in alone.remedies[-1].do
    ampere = finding("unquantised-bandwidth-bound", {**BOUND, "gpu_generation": 8.0})
    assert "4-bit" in ampere.remedies[0].do
    assert settings("unquantised-bandwidth-bound", {**BOUND, "weights_of_step": 0.3})[0] == {"--kv-cache-dtype": "fp8"}
    assert ampere.role == "opportunity"
    small = {**BOUND, "weights_of_step": 0.3, "kv_cache_dtype": "fp8"}
    assert settings("unquantised-bandwidth-bound", small) == [{}]  # it is in FP8 already


@pytest.mark.parametrize(
    ("version", "left_out"),
    [
        ("0.32.0", ("--speculative-config", "--spec-method", "--spec-model", "--spec-tokens")),
        ("0.20.0", ("--speculative-config",)),  # the short flags are of 0.22
    ],
)
def test_only_flags_that_this_vllm_has_are_told_to_be_left_out(version: str, left_out: tuple[str, ...]) -> None:
    signals: Mapping[str, Value] = {
        "vllm_version": version, "speculative_decoding": True, "drafts_per_second": 100.0, "draft_acceptance": 0.05,
        "acceptance_length": 1.2, "draft_length": 5.0,
    }  # fmt: skip
    remedy = first("spec-decode-low-acceptance", signals)
    assert (remedy.unset, remedy.validated_for) == (left_out, version)


def test_where_only_a_log_tells_how_many_ran_these_are_admitted() -> None:
    logged = {name: value for name, value in PREEMPTED.items() if not name.startswith("requests_that_fit")}
    ran = {**logged, "requests_that_ran_full": 20.0, "requests_running_usual": 20.4}
    assert {"--max-num-seqs": 20} in settings("preemption", ran)


def test_no_flag_is_dropped_that_may_not_be_there() -> None:
    untold = {name: value for name, value in PREEMPTED.items() if not name.startswith("gpu_memory_utilization")}
    assert all("--gpu-memory-utilization" not in one.unset for one in finding("preemption", untold).remedies)
    assert all("low" not in one.do for one in finding("kv-cache-saturated", untold).remedies)


# ---- a start that failed --------------------------------------------------------------------------------------------

DIED: Mapping[str, Value] = {
    "engine_deaths": 1.0, "engine_dead": True, "death_phase": "start", "death_told": True, "death_part": 0.0,
    "death_killed": False, "death_lacks_module": False, "start_refusals": 1.0, "ecc_errors_logged": 0.0,
    "attention_refused": 0.0,
    **dict.fromkeys(
        (
            "gpu_memory_taken", "gpu_memory_moved", "mm_items_above_budget", "kv_too_small", "kv_no_memory",
            "out_of_gpu_memory", "out_of_tpu_memory", "vllm_missing", "arguments_refused", "remote_code_untrusted",
            "builds_failed", "context_above_models", "heads_indivisible", "gpus_fewer_than_ranks", "bf16_not_here",
            "quantization_not_here", "model_type_unknown", "model_not_found", "model_gated", "hub_unreachable",
            "disk_full", "checkpoint_broken", "no_gpu_seen", "kernel_image_missing", "kernel_cache_broken",
            "library_broken", "illegal_accesses", "other_cuda_errors", "host_out_of_memory", "workers_killed",
            "shm_full", "ports_taken", "driver_too_old", "nccl_errors", "worker_timeouts", "collective_timeouts",
            "engine_start_wrapped", "host_memory_refused", "devices_refused", "lora_slots_many",
        ),
        0.0,
    ),
}  # fmt: skip

WARMED_UP: Mapping[str, Value] = {
    **DIED, "out_of_gpu_memory": 1.0, "death_stage": "warm-up", "weights_beyond_share": 0.0,
    "gpu_memory_utilization_less_if_fits": 0.0, "warm_up_tokens_less_if": 0.0, "max_model_len_after_cut_if": 0.0,
    "seqs_at_most": 1.0, "max_num_seqs": 1.0,
}  # fmt: skip


def test_what_no_longer_fits_a_request_is_not_offered_alone() -> None:
    """Less memory where one request of the limit only just fits: a smaller step, or both values."""
    ways = settings(
        "engine-died",
        {
            **WARMED_UP, "warm_up_tokens_less_if": 4096.0, "oom_wanted": 0.875, "oom_free": 0.5,
            "warm_up_tokens": 8192.0, "max_model_len_after_cut_if": 343744.0, "gpu_memory_utilization_cut": 0.88,
            "kv_memory_logged": 13.5, "max_len_requests": 1.0, "max_model_len": 400000.0,
        },
    )  # fmt: skip
    assert ways == [
        {"--max-num-batched-tokens": 4096},
        {"--gpu-memory-utilization": 0.88, "--max-model-len": 343744},
    ]
    assert settings("engine-died", {**WARMED_UP, "gpu_memory_utilization_less_if_fits": 0.85})[0] == {
        "--gpu-memory-utilization": 0.85
    }


def test_one_request_at_a_time_cannot_be_fewer() -> None:
    def says(seqs: float) -> list[str]:
        return [one.do for one in finding("engine-died", {**WARMED_UP, "seqs_at_most": seqs}).remedies]

    assert not any("Warm up with fewer requests" in one for one in says(1.0))
    assert any("Warm up with fewer requests" in one for one in says(16.0))


NO_KV: Mapping[str, Value] = {
    **DIED, "kv_no_memory": 1.0, "kv_memory_missing": 2.14, "kv_memory_by_share": 1.49, "kv_share_short": 1.0,
    "gpu_memory_utilization_for_kv_if": 0.0, "video_profiled": 0.0,
}  # fmt: skip


def test_no_kv_cache_at_all_is_no_matter_of_the_context() -> None:
    [short] = finding("engine-died", NO_KV).remedies
    assert "alone does not cover it" in short.do
    assert short.computed == "2.14 GiB were missing; --gpu-memory-utilization 0.95 gives 1.49 GiB"
    assert settings("engine-died", {**NO_KV, "video_profiled": 1.0})[0] == {"--limit-mm-per-prompt": '{"video": 0}'}
    slots = {**NO_KV, "lora_slots_many": 256.0, "weights_missed": 52.7 * GIB}
    assert settings("engine-died", slots)[0] == {"--max-loras": 8}
    enough = {
        **NO_KV, "kv_share_short": 0.0, "gpu_memory_utilization_for_kv_if": 0.74, "kv_memory_lacking": 2.64,
        "start_gpu_memory": 80.0,
    }  # fmt: skip
    assert settings("engine-died", enough)[0] == {"--gpu-memory-utilization": 0.74}
    for way in finding("engine-died", enough).remedies:
        assert "--max-model-len" not in way.set


def test_a_context_that_is_a_little_too_long_is_a_little_shorter() -> None:
    short: Mapping[str, Value] = {
        **DIED, "kv_too_small": 1.0, "max_model_len_estimated_if": 0.0, "max_model_len_by_share_if": 99520.0,
        "max_model_len_by_share": 99520.0, "kv_too_small_tokens": 100000.0, "kv_available_at_start": 4.25,
        "kv_needed_at_start": 4.26,
    }  # fmt: skip
    assert settings("engine-died", short)[0] == {"--max-model-len": 99520}


REFUSED: Mapping[str, Value] = {
    **DIED, "attention_refused": 1.0, "attention_refused_kv_dtype": False, "attention_refused_block": False,
    "attention_refused_gpu": False, "attention_refused_selected": False, "attention_refused_of_draft": 0.0,
    "attention_refused_dtype": "fp8_ds_mla", "attention_refused_head": 64.0,
}  # fmt: skip


def test_what_an_attention_backend_lacks_alone_is_what_is_changed() -> None:
    by_dtype = {**REFUSED, "attention_refused_kv_dtype": True}
    assert settings("engine-died", by_dtype) == [{"--kv-cache-dtype": "auto"}]
    of_draft = finding("engine-died", {**by_dtype, "attention_refused_of_draft": 1.0}).remedies
    assert [one.unset for one in of_draft] == [("--speculative-config",), ()]
    assert first("engine-died", {**REFUSED, "attention_refused_block": True}).unset == ("--block-size",)
    assert first("engine-died", {**REFUSED, "attention_refused_selected": True}).unset == ("--attention-backend",)
    [of_gpu] = finding("engine-died", {**REFUSED, "attention_refused_gpu": True}).remedies
    assert (dict(of_gpu.set), of_gpu.unset) == ({}, ())
    [other] = finding("engine-died", REFUSED).remedies
    assert other.do.startswith("See in the exception what each attention backend lacks")


def test_what_to_expect_is_said_in_words() -> None:
    """A person looks for "the router's own time" in a report, not for the name of a signal."""
    names = set(shipped_catalogue().signals)
    told = {
        f"{rule.id}: {remedy.expect}"
        for rule in shipped_rules()
        for remedy in rule.remedies
        if names & {word for word in re.findall(r"\w+", re.sub(r"\{\w+\}", "", remedy.expect)) if "_" in word}
    }
    assert told == set()
