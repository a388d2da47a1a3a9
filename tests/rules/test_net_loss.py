"""spec_decode_gain: what drafts bring at most, by the batch."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, window
from tests.rules.test_costs import facts
from vllm_doctor.model.reading import Known, Reading


def gain(batch: float, accepted: float, drafted: float) -> Reading:
    """Of Llama-3.1-8B on an H100: so many requests, which draft `drafted` tokens a step and accept `accepted`."""

    def page(steps: float) -> str:
        values = {
            "vllm:num_requests_running": batch,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": 0.1,
            "vllm:generation_tokens_total": steps * batch * (1 + accepted),
            "vllm:prompt_tokens_total": 1000,
            "vllm:spec_decode_num_drafts_total": steps * batch,
            "vllm:spec_decode_num_draft_tokens_total": steps * batch * drafted,
            "vllm:spec_decode_num_accepted_tokens_total": steps * batch * accepted,
        }
        return "\n".join(f'{name}{{engine="0",model_name="m"}} {value}' for name, value in values.items())

    snapshot = shipped_catalogue().snapshot(window(page(100), page(600), every=10), facts())
    [subject] = [one for one in snapshot.subjects if one]
    return snapshot.read("spec_decode_gain", subject)[1]


def test_one_request_gains_what_is_accepted() -> None:
    found = gain(1, accepted=2.0, drafted=3)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(3.0, rel=0.1)


def test_a_large_batch_loses_with_many_drafts_of_which_few_are_accepted() -> None:
    found = gain(512, accepted=1.0, drafted=7)
    assert isinstance(found, Known)
    assert isinstance(found.value, float)
    assert found.value < 0.9
