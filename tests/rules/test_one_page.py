"""What one page of /metrics tells by what it counted since the server's start."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules, window
from vllm_doctor.model.reading import Known
from vllm_doctor.rules.diagnose import Diagnosis, diagnose

ON = 'engine="0",model_name="m"'


def page(labels: dict[str, str] | None = None, **values: float) -> Diagnosis:
    """One page with these samples; a name's labels beyond the engine's are in `labels`."""
    held = {
        "num_requests_running": 0,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0,
        "generation_tokens_total": 1e6,
    }
    more = labels or {}
    text = "\n".join(
        f"vllm:{name}{{{','.join(part for part in (ON, more.get(name, '')) if part)}}} {value}"
        for name, value in (held | values).items()
    )
    snapshot = shipped_catalogue().snapshot(window(text), {"goal": Known("throughput")})
    return diagnose(shipped_rules(), shipped_catalogue(), [snapshot])


def roots(diagnosis: Diagnosis) -> list[str]:
    return [finding.rule for finding in diagnosis.findings if finding.is_grave]


def queue(**other: float) -> Diagnosis:
    """64 run and 64 wait; 600 requests ended, 664 have their first token, and steps of prompts were larger."""
    values = {
        "num_requests_running": 64,
        "num_requests_waiting": 64,
        "num_requests_waiting_by_reason": 0,
        "kv_cache_usage_perc": 0.11,
        "time_to_first_token_seconds_count": 664,
        "request_success_total": 600,
        "iteration_tokens_total_count": 2829,
        "iteration_tokens_total_bucket": 2639,
    }
    labels = {"num_requests_waiting_by_reason": 'reason="deferred"', "iteration_tokens_total_bucket": 'le="512.0"'}
    return page(labels, **(values | other))


def test_who_waits_while_all_that_run_have_their_first_token_waits_for_a_slot() -> None:
    diagnosis = queue()
    assert roots(diagnosis) == ["max-num-seqs-cap"]
    assert "All 64 that run have their first token" in diagnosis.findings[0].here


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"time_to_first_token_seconds_count": 660}, id="four have none: prompts are computed"),
        pytest.param({"time_to_first_token_seconds_count": 670}, id="six were given up, so it cannot be told"),
        pytest.param({"kv_cache_usage_perc": 0.6}, id="a long prompt may not fit"),
        pytest.param({"num_requests_waiting_by_reason": 20}, id="some are deferred"),
        pytest.param({"iteration_tokens_total_bucket": 2829}, id="no step was ever larger: it may be the budget"),
    ],
)
def test_a_queue_of_which_that_is_not_known_is_no_slots(other: dict[str, float]) -> None:
    assert roots(queue(**other)) == []


def prompts(seconds: float, first_token: float, caching: bool = False) -> Diagnosis:
    """90 requests whose prompts took so long; 70 prompt tokens for each one generated."""
    return page(
        {"cache_config_info": f'enable_prefix_caching="{caching}",block_size="16"'},
        cache_config_info=1,
        prompt_tokens_total=7e7,
        request_prefill_time_seconds_sum=90 * seconds,
        request_prefill_time_seconds_count=90,
        request_queue_time_seconds_sum=9,
        request_queue_time_seconds_count=90,
        time_to_first_token_seconds_sum=90 * first_token,
        time_to_first_token_seconds_count=90,
    )


def test_prompts_that_took_seconds_without_a_cache() -> None:
    diagnosis = prompts(24, 25)
    assert roots(diagnosis) == ["prefix-cache-off"]
    assert "Since the start 70 prompt tokens were computed for each one generated" in diagnosis.findings[0].here


@pytest.mark.parametrize(
    "diagnosis",
    [
        pytest.param(prompts(0.05, 0.06), id="prompts are quick"),
        pytest.param(prompts(2, 25), id="the time to the first token is something else"),
        pytest.param(prompts(24, 25, caching=True), id="the cache is on"),
    ],
)
def test_prompts_of_which_nothing_is_grave(diagnosis: Diagnosis) -> None:
    assert roots(diagnosis) == []


def test_a_draft_of_which_little_is_accepted_is_made_shorter_by_its_value() -> None:
    diagnosis = page(
        spec_decode_num_drafts_total=17_807,
        spec_decode_num_draft_tokens_total=106_842,
        spec_decode_num_accepted_tokens_total=27_189,
    )
    assert roots(diagnosis) == ["spec-decode-low-acceptance"]
    assert diagnosis.findings[0].remedies[0].set == {"--speculative-config.num_speculative_tokens": 2}
