"""Counts against those that the models' makers give."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import parameters
from vllm_doctor.vllm.model_config import UnfitError

Config = dict[str, Any]

LLAMA_8B: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
MIXTRAL = LLAMA_8B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}
QWEN3_30B: Config = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
}
QWEN25_7B: Config = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 152064,
}


@pytest.mark.parametrize(
    ("config", "billions", "used"),
    [
        pytest.param(LLAMA_8B, 8.03, 7.5, id="Llama 3.1 8B"),
        pytest.param(LLAMA_70B, 70.6, 69.5, id="Llama 3.1 70B"),
        pytest.param(QWEN25_7B, 7.62, 7.07, id="Qwen2.5 7B"),
        pytest.param(MIXTRAL, 46.7, 12.75, id="Mixtral 8x7B"),
        pytest.param(QWEN3_30B, 30.5, 3.04, id="Qwen3 30B-A3B"),
        pytest.param(DEEPSEEK_V3, 671, 36.6, id="DeepSeek V3"),
        pytest.param(GPT_OSS_20B, 20.9, 3.6, id="gpt-oss 20B"),
    ],
)
def test_counts(config: Config, billions: float, used: float) -> None:
    found = parameters.of_model(config)
    assert found.all / 1e9 == pytest.approx(billions, rel=0.005)
    assert found.used / 1e9 == pytest.approx(used, rel=0.02)


def test_facts() -> None:
    found = parameters.of_model(MIXTRAL)
    assert parameters.facts(MIXTRAL) == {
        "parameters": Known(float(found.all)),
        "expert_parameters": Known(float(found.experts)),
        "parameters_used": Known(float(found.used)),
    }
    assert set(parameters.facts({}).values()) == {Unknown(Reason.ABSENT)}


def test_experts() -> None:
    assert parameters.of_model(QWEN3_30B).experts == 48 * 128 * 3 * 2048 * 768
    assert parameters.of_model(DEEPSEEK_V3).experts == 58 * 256 * 3 * 7168 * 2048
    assert parameters.of_model(LLAMA_8B).experts == 0


def test_one_table_for_both_ends() -> None:
    two, one = parameters.of_model(LLAMA_8B), parameters.of_model(LLAMA_8B | {"tie_word_embeddings": True})
    assert two.all - one.all == 128256 * 4096
    assert two.used == one.used  # the output's is computed with either way
    gemma = LLAMA_8B | {"model_type": "gemma2", "head_dim": 128}
    assert parameters.of_model(gemma) == one


def test_layers_without_experts() -> None:
    qwen = QWEN3_30B | {"decoder_sparse_step": 2, "mlp_only_layers": [1]}
    assert parameters.of_model(qwen).experts == 23 * 128 * 3 * 2048 * 768
    shared = QWEN3_30B | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}
    assert parameters.of_model(shared).used - parameters.of_model(QWEN3_30B).used == 48 * 3 * 2048 * 5632


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "jamba"}, "absent"),
        ({"model_type": None}, "absent"),
        ({"vocab_size": None}, "absent"),
        ({"vocab_size": "128256"}, "invalid"),
        ({"num_hidden_layers": 0}, "invalid"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "invalid"),
        ({"num_experts": 8}, "absent"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 0}, "invalid"),
        ({"kv_lora_rank": 512}, "absent"),
    ],
)
def test_a_config_from_which_it_cannot_be_counted(change: Config, reason: str) -> None:
    with pytest.raises(UnfitError, match=reason):
        parameters.of_model(LLAMA_8B | change)
