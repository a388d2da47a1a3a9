"""One command against what was found, and against the limit behind it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.making import shipped_catalogue, shipped_rules, window
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import Correction
from vllm_doctor.rules.diagnose import diagnose
from vllm_doctor.session.cure import Cure

ON = 'engine="0",model_name="m"'


def page(at: float, running: int, prompt: int, out: int, blocks: int | None) -> str:
    """A server in which `running` of 24 requests run, each with a prompt and an output of so many tokens."""
    done, steps = 20 * at, 20 * at * out / running
    kv = running * (prompt + out / 2) / ((blocks or 4000) * 128)
    pool = f'kv_cache_size_tokens="{(blocks or 4000) * 128}",num_gpu_blocks_override="{blocks}"'
    return "\n".join((
        f"vllm:num_requests_running{{{ON}}} {running}",
        f"vllm:num_requests_waiting{{{ON}}} {24 - running}",
        f"vllm:kv_cache_usage_perc{{{ON}}} {min(1.0, kv)}",
        f"vllm:num_preemptions_total{{{ON}}} 0",
        f"vllm:generation_tokens_total{{{ON}}} {done * out}",
        f"vllm:prompt_tokens_total{{{ON}}} {done * prompt}",
        f"vllm:request_success_total{{{ON}}} {done}",
        f"vllm:request_prompt_tokens_sum{{{ON}}} {done * prompt}",
        f"vllm:request_prompt_tokens_count{{{ON}}} {done}",
        f"vllm:request_generation_tokens_sum{{{ON}}} {done * out}",
        f"vllm:request_generation_tokens_count{{{ON}}} {done}",
        f"vllm:iteration_tokens_total_count{{{ON}}} {steps}",
        f'vllm:cache_config_info{{engine="0",block_size="128",{pool}}} 1',
    ))  # fmt: skip


def cured(running: int, flags: Mapping[str, Value], prompt: int = 128, out: int = 200) -> Correction | None:
    """The one command for a server with these flags."""
    words = [word for flag, value in flags.items() for word in (flag, f"{value:g}")]
    blocks = flags.get("--num-gpu-blocks-override")
    pages = [page(1 + at, running, prompt, out, int(blocks) if blocks else None) for at in range(4)]
    facts: dict[str, Reading] = {
        "command": Known(True), "vllm_version": Known("0.32.0"), "goal": Known("throughput"),
        **{flag: Known(value) for flag, value in flags.items()},
    }  # fmt: skip
    snapshot = shipped_catalogue().snapshot(window(*pages, every=1.0), facts)
    found = diagnose(shipped_rules(), shipped_catalogue(), [snapshot]).findings
    cure = Cure([snapshot], shipped_rules(), shipped_catalogue(), "throughput")
    return cure(found, ["vllm", "serve", "m", *words])


def changes(correction: Correction | None) -> dict[str, Value | None]:
    return {change.name: change.now for change in correction.changes} if correction is not None else {}


def test_behind_the_slots_the_pool_is_dropped_and_the_slots_are_computed_without_it() -> None:
    correction = cured(4, {"--max-num-seqs": 4.0, "--num-gpu-blocks-override": 20.0})
    assert changes(correction) == {"--max-num-seqs": 32.0, "--num-gpu-blocks-override": None}
    assert correction is not None
    [cap] = correction.next_caps
    assert (cap.rule, cap.is_cured) == ("kv-cache-capped", True)
    assert cap.says.startswith("24 requests are in flight; the KV cache holds 10 of them")


def test_a_pool_with_room_for_all_is_left_alone() -> None:
    correction = cured(4, {"--max-num-seqs": 4.0, "--num-gpu-blocks-override": 200.0})
    assert changes(correction) == {"--max-num-seqs": 32.0}
    assert correction is not None
    assert correction.next_caps == ()


@pytest.mark.parametrize(("prompt", "out", "is_next"), [(1000, 64, True), (30, 200, False)])
def test_behind_the_slots_a_budget_that_so_many_requests_need_is_raised(prompt: int, out: int, is_next: bool) -> None:
    """24 requests with a prompt of 1,000 tokens for 64 of output need 400 tokens in a step; with 30 for 200, 28."""
    correction = cured(4, {"--max-num-seqs": 4.0, "--max-num-batched-tokens": 64.0}, prompt, out)
    assert changes(correction)["--max-num-seqs"] == 32
    assert ("--max-num-batched-tokens" in changes(correction)) is is_next


def test_what_no_flag_takes_away_is_said() -> None:
    """The pool is as large as the GPU's memory makes it, and holds 10 of the 24."""
    correction = cured(4, {"--max-num-seqs": 4.0}, prompt=40_000, out=200)
    assert correction is not None
    [cap] = correction.next_caps
    assert (cap.rule, cap.is_cured) == ("kv-cache-saturated", False)
