from __future__ import annotations

from typing import Any

import pytest

from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import model_config
from vllm_doctor.vllm.model_config import UnfitError

# What a config.json says outright is tested with the files that it stands in: tests/sources/host/test_model_files.py.


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (32, 32), (32.0, 32), (2**31, 2**31)])
def test_a_whole_number(value: float, expected: int) -> None:
    assert model_config.whole({"n": value}, "n") == expected


@pytest.mark.parametrize("value", [0, -1, 2**31 + 1, 10**400, 1.5, float("nan"), float("inf"), "1", True, [], {}])
def test_a_whole_number_that_is_none(value: object) -> None:
    with pytest.raises(UnfitError) as refused:
        model_config.whole({"n": value}, "n", default=7)
    assert refused.value.reason is Reason.INVALID


def test_a_number_that_is_missing() -> None:
    assert model_config.whole({"n": None, "m": 3}, "n", "m") == 3
    assert model_config.whole({}, "n", default=7) == 7
    assert model_config.whole({"n": 0}, "n", least=0) == 0
    with pytest.raises(UnfitError) as refused:
        model_config.whole({}, "n")
    assert refused.value.reason is Reason.ABSENT


@pytest.mark.parametrize(
    ("change", "heads"),
    [
        ({}, 71.0),
        ({"num_kv_heads": 8}, 8.0),
        ({"multi_query": True}, 1.0),
        ({"multi_query": True, "num_kv_heads": 8}, 8.0),
        ({"model_type": "falcon"}, 1.0),
        ({"model_type": "falcon", "num_kv_heads": 71}, 1.0),
        ({"model_type": "falcon", "num_kv_heads": 8, "multi_query": False}, 8.0),
        ({"model_type": "falcon", "num_kv_heads": 8, "new_decoder_architecture": True}, 8.0),
    ],
)
def test_kv_heads(change: dict[str, Any], heads: float) -> None:
    assert model_config.facts({"num_attention_heads": 71} | change)["kv_heads"] == Known(heads)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "[" * 100_000])
def test_a_config_that_is_none(text: str) -> None:
    assert model_config.parse(text) is Reason.INVALID
