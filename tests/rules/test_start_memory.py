"""What a start lacked of the GPU's memory, computed from what its log says."""

from __future__ import annotations

from tests.making import shipped_catalogue, window
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.snapshot import Snapshot

GIB = 2.0**30


def known(facts: dict[str, Value], name: str) -> Value | None:
    """The signal's value; None where it is not known."""
    reading = read(facts, name)
    return reading.value if isinstance(reading, Known) else None


def read(facts: dict[str, Value], name: str) -> Reading:
    given: dict[str, Value] = {"command": True, "log": True, **facts}
    snapshot: Snapshot = shipped_catalogue().snapshot(window(), {key: Known(value) for key, value in given.items()})
    return snapshot.read(name, ())[1]


# A card of 6 GiB, with 70 % for vLLM: vLLM tells its estimate of the graphs in GiB, and as a share.
NO_KV: dict[str, Value] = {
    "log:kv-no-memory": 1.0,
    "log:kv-memory.gib": -2.14,
    "--gpu-memory-utilization": 0.7,
    "log:graph-memory-estimated.gib": 0.74,
    "log:graph-memory-counted.utilization": 0.7,
    "log:graph-memory-counted.equivalent": 0.576,
}


def test_how_much_is_missing_for_a_first_block() -> None:
    assert known(NO_KV, "kv_memory_missing") == 2.14
    assert known({**NO_KV, "log:kv-no-memory": 0.0}, "kv_memory_missing") is None
    assert known({**NO_KV, "log:kv-memory.gib": 42.5}, "kv_memory_missing") is None


def test_whether_a_larger_share_covers_it() -> None:
    size = known(NO_KV, "start_gpu_memory")
    assert isinstance(size, float)
    assert 5.9 < size < 6.0
    assert known(NO_KV, "kv_share_short") == 1
    assert known(NO_KV, "gpu_memory_utilization_for_kv_if") == 0
    large: dict[str, Value] = {**NO_KV, "gpu_memory_total": 80 * GIB, "log:kv-memory.gib": -1.5}
    assert known(large, "kv_share_short") == 0
    assert known(large, "gpu_memory_utilization_for_kv_if") == 0.73  # 2 GiB of 80 are 2.5 %
    # Where nothing tells how large the GPU is, nothing is said of a share.
    for name in ("log:graph-memory-estimated.gib", "log:kv-memory.gib"):
        unsized = {key: value for key, value in NO_KV.items() if key != name}
        assert known(unsized, "kv_share_short") == 0
        assert known(unsized, "gpu_memory_utilization_for_kv_if") == 0


def test_a_video_is_forbidden_only_where_nobody_asked_for_one() -> None:
    profiled: dict[str, Value] = {**NO_KV, "log:encoder-profile.modality": "video"}
    assert known(profiled, "video_profiled") == 1
    assert known({**profiled, "log:encoder-profile.modality": "image"}, "video_profiled") == 0
    assert known({**profiled, "--limit-mm-per-prompt.video": 1.0}, "video_profiled") == 0
    assert known(NO_KV, "video_profiled") == 0


TOO_SMALL: dict[str, Value] = {
    "log:kv-too-small": 1.0,
    "log:kv-too-small.request_tokens": 100000.0,
    "log:kv-too-small.needed_gib": 4.26,
    "log:kv-too-small.available_gib": 4.25,
}


def test_the_length_that_fits_is_of_whole_blocks() -> None:
    assert known(TOO_SMALL, "max_model_len_by_share_if") == 99520
    assert known({**TOO_SMALL, "--block-size": 64.0}, "max_model_len_by_share_if") == 99520 // 64 * 64
    assert known({**TOO_SMALL, "log:kv-too-small.fits": 99712.0}, "max_model_len_by_share_if") == 0
    del (cut := dict(TOO_SMALL))["log:kv-too-small.available_gib"]
    assert known(cut, "max_model_len_by_share_if") == 0


OUT: dict[str, Value] = {
    "log:cuda-oom": 1.0,
    "log:cuda-oom.total": 95.0,
    "log:cuda-oom.wanted_mib": 896.0,
    "log:cuda-oom.free_mib": 510.31,
    "log:model-loaded.gib": 67.56,
    "log:kv-memory.gib": 13.52,
    "log:max-concurrency.concurrency": 1.0,
    "log:engine-config.max_seq_len": 400000.0,
    "log:chunked-prefill.tokens": 8192.0,
    "--gpu-memory-utilization": 0.9,
    "--max-num-seqs": 1.0,
}


def test_less_memory_only_where_one_request_still_fits() -> None:
    assert known(OUT, "gpu_memory_utilization_less_if_fits") == 0
    assert known(OUT, "gpu_memory_utilization_cut") == 0.88
    tokens = known(OUT, "max_model_len_after_cut_if")
    assert tokens == 343776
    assert known({**OUT, "log:max-concurrency.concurrency": 3.0}, "gpu_memory_utilization_less_if_fits") == 0.85
    # A twentieth would be too much here, twice what was missing is not.
    assert known({**OUT, "log:max-concurrency.concurrency": 1.2}, "gpu_memory_utilization_less_if_fits") == 0.88
    assert known({**OUT, "log:max-concurrency.concurrency": 1.2}, "max_model_len_after_cut_if") == 0
    unknown = {key: value for key, value in OUT.items() if key != "log:max-concurrency.concurrency"}
    assert known(unknown, "gpu_memory_utilization_less_if_fits") == 0.85
    assert isinstance(read(unknown, "max_model_len_after_cut"), Unknown)


def test_a_smaller_step_is_computed_from_what_was_free() -> None:
    assert known(OUT, "warm_up_tokens_less_if") == 4096
    assert known({**OUT, "log:cuda-oom.free_mib": 100.0}, "warm_up_tokens_less_if") == 768
    assert known({**OUT, "log:cuda-oom.free_mib": 10.0}, "warm_up_tokens_less_if") == 0
    assert known({**OUT, "--max-num-seqs": 6000.0}, "warm_up_tokens_less_if") == 0
    assert known({**OUT, "log:cuda-oom.free_mib": 2000.0}, "warm_up_tokens_less_if") == 0


def test_a_draft_is_refused_where_the_model_has_its_backend() -> None:
    refused: dict[str, Value] = {"log:attention-refused": 1.0, "--speculative-config.num_speculative_tokens": 8.0}
    assert known(refused, "attention_refused_of_draft") == 0
    assert known({**refused, "log:attention-chosen.backend": "FLASHMLA_SPARSE"}, "attention_refused_of_draft") == 1
