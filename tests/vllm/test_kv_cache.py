"""Bytes in the KV cache, computed by hand from each model's published config.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_doctor.model.reading import Known, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import kv_cache
from vllm_doctor.vllm.kv_cache import KvCache
from vllm_doctor.vllm.model_config import UnfitError

Config = dict[str, Any]

LLAMA_8B: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}
MISTRAL_7B = LLAMA_8B | {"model_type": "mistral", "max_position_embeddings": 32768}
QWEN2_7B: Config = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": 131072,
    "use_sliding_window": False,
}
GEMMA2_9B: Config = {
    "model_type": "gemma2",
    "head_dim": 256,
    "hidden_size": 3584,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}
GEMMA3_4B: Config = {  # published without heads: transformers' defaults hold
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "num_hidden_layers": 27},
}
GEMMA3_27B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
    },
}
DEEPSEEK_V2_LITE: Config = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V3 = DEEPSEEK_V2_LITE | {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
}
PHI3_MINI_128K: Config = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "sliding_window": 262144,
}
GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "sliding_window": 128,
}
QWEN3_NEXT_80B: Config = {
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 2048,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
}
JAMBA: Config = {
    "model_type": "jamba",
    "attn_layer_offset": 4,
    "attn_layer_period": 8,
    "hidden_size": 4096,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "max_position_embeddings": 262144,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}
NEMOTRON_H_8B: Config = {
    "model_type": "nemotron_h",
    "conv_kernel": 4,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "mamba_head_dim": 64,
    "mamba_num_heads": 128,
    "max_position_embeddings": 8192,
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
}
GRANITE_4_H_TINY: Config = {
    "model_type": "granitemoehybrid",
    "hidden_size": 1536,
    "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 48,
    "max_position_embeddings": 131072,
    "num_attention_heads": 12,
    "num_hidden_layers": 40,
    "num_key_value_heads": 4,
}
MODELS: dict[str, tuple[Config, KvCache]] = {
    # layers × (K and V) × KV heads × head_dim × bytes of an element
    "Llama 3.1 8B": (LLAMA_8B, KvCache(32 * 2 * 8 * 128 * 2, 0, 0, 0.0, 8, 0)),  # 131,072
    "Llama 3.1 70B": (
        LLAMA_8B | {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80},
        KvCache(80 * 2 * 8 * 128 * 2, 0, 0, 0.0, 8, 0),  # 327,680
    ),
    "Llama 3.2 1B": (
        LLAMA_8B | {"hidden_size": 2048, "head_dim": 64, "num_hidden_layers": 16},
        KvCache(16 * 2 * 8 * 64 * 2, 0, 0, 0.0, 8, 0),  # 32,768
    ),
    "Llama 2 7B": (
        LLAMA_8B | {"num_key_value_heads": 32, "max_position_embeddings": 4096},
        KvCache(32 * 2 * 32 * 128 * 2, 0, 0, 0.0, 32, 0),  # 524,288
    ),
    "Qwen2.5 7B": (QWEN2_7B, KvCache(28 * 2 * 4 * 128 * 2, 0, 0, 0.0, 4, 0)),  # 57,344
    "Qwen3 8B": (
        LLAMA_8B | {"model_type": "qwen3", "head_dim": 128, "num_hidden_layers": 36, "sliding_window": None},
        KvCache(36 * 2 * 8 * 128 * 2, 0, 0, 0.0, 8, 0),  # 147,456
    ),
    "Qwen3 30B-A3B": (
        LLAMA_8B
        | {"model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048}
        | {"num_hidden_layers": 48, "num_key_value_heads": 4, "num_experts": 128},
        KvCache(48 * 2 * 4 * 128 * 2, 0, 0, 0.0, 4, 0),  # 98,304
    ),
    "Mistral 7B v0.1": (MISTRAL_7B | {"sliding_window": 4096}, KvCache(0, 131_072, 4096, 0.0, 8, 0)),  # all windowed
    "Mistral 7B v0.3": (MISTRAL_7B | {"sliding_window": None}, KvCache(131_072, 0, 0, 0.0, 8, 0)),
    "Mixtral 8x7B": (
        MISTRAL_7B | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 8},
        KvCache(131_072, 0, 0, 0.0, 8, 0),
    ),
    # a layer 2 × 8 × 256 × 2 = 8,192; every second has a window: 21 and 21
    "Gemma 2 9B": (GEMMA2_9B, KvCache(21 * 8192, 21 * 8192, 4096, 0.0, 8, 0)),
    # a layer 2 × 4 × 256 × 2 = 4,096; the 6th, 12th, … 30th keep all: 5 of 34
    "Gemma 3 4B": (GEMMA3_4B, KvCache(5 * 4096, 29 * 4096, 1024, 0.0, 4, 0)),
    # a layer 2 × 16 × 128 × 2 = 8,192; 10 of 62
    "Gemma 3 27B": (GEMMA3_27B, KvCache(10 * 8192, 52 * 8192, 1024, 0.0, 16, 0)),
    "DeepSeek V2 Lite": (DEEPSEEK_V2_LITE, KvCache(27 * (512 + 64) * 2, 0, 0, 0.0, 1, 0)),  # 31,104
    "DeepSeek V3": (DEEPSEEK_V3, KvCache(61 * (512 + 64) * 2, 0, 0, 0.0, 1, 1152)),  # 70,272
    "Phi-3 mini 4k": (
        PHI3_MINI_128K | {"max_position_embeddings": 4096, "sliding_window": 2047},
        KvCache(0, 32 * 2 * 32 * 96 * 2, 2047, 0.0, 32, 0),  # 393,216
    ),
    "Phi-3 mini 128k": (PHI3_MINI_128K, KvCache(393_216, 0, 0, 0.0, 32, 0)),  # a window longer than the context is none
    "Falcon 7B": (
        {"model_type": "falcon", "hidden_size": 4544, "multi_query": True, "new_decoder_architecture": False}
        | {"num_attention_heads": 71, "num_hidden_layers": 32, "num_kv_heads": 71},
        KvCache(32 * 2 * 1 * 64 * 2, 0, 0, 0.0, 1, 0),  # 8,192
    ),
    "Falcon 40B": (
        {"model_type": "falcon", "hidden_size": 8192, "multi_query": True, "new_decoder_architecture": True}
        | {"num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8},
        KvCache(60 * 2 * 8 * 64 * 2, 0, 0, 0.0, 8, 0),  # 122,880
    ),
    "GPT-2": (
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024},
        KvCache(12 * 2 * 12 * 64 * 2, 0, 0, 0.0, 12, 0),  # 36,864
    ),
    # a layer 2 × 8 × 64 × 2 = 2,048; 12 and 12
    "gpt-oss 20B": (GPT_OSS_20B, KvCache(12 * 2048, 12 * 2048, 128, 0.0, 8, 0)),
    "GLM 4.5 Air": (
        {"model_type": "glm4_moe", "head_dim": 128, "hidden_size": 4096, "num_attention_heads": 96}
        | {"num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1},
        KvCache(46 * 2 * 8 * 128 * 2, 0, 0, 0.0, 8, 2 * 8 * 128 * 2),  # 188,416
    ),
    # 12 of 48 layers × 2 × 2 × 256 × 2; the others: conv (2 × 16 × 128 + 32 × 128) × 3 × 2, state 32 × 128 × 128 × 2
    "Qwen3-Next 80B-A3B": (
        QWEN3_NEXT_80B,
        KvCache(12 * 2048, 0, 0, 36 * (8192 * 3 * 2 + 32 * 128 * 128 * 2), 2, 0, 36 * 2048),
    ),
    # 4 of 32 layers × 2 × 8 × 128 × 2; the others: 8,192 wide × (3 of conv and 16 of state) × 2
    "Jamba v0.1": (JAMBA, KvCache(4 * 4096, 0, 0, 28 * 8192 * (3 + 16) * 2, 8, 0, 28 * 4096)),
    # 4 attention, 24 Mamba, 24 MLP; conv (8,192 + 2 × 8 × 128) × 3 × 2, state 128 × 64 × 128 in float32
    "Nemotron-H 8B": (
        NEMOTRON_H_8B,
        KvCache(4 * 4096, 0, 0, 24 * (10240 * 3 * 2 + 128 * 64 * 128 * 4), 8, 0, 24 * 4096, 3),
    ),
    # 4 of 40 layers × 2 × 4 × 128 × 2; the others: conv (3,072 + 2 × 128) × 3 × 2, state 48 × 64 × 128 × 2
    "Granite 4.0 H Tiny": (
        GRANITE_4_H_TINY,
        KvCache(4 * 2048, 0, 0, 36 * (3328 * 3 * 2 + 48 * 64 * 128 * 2), 4, 0, 36 * 2048, 3),
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_what_a_model_keeps(model: str) -> None:
    config, expected = MODELS[model]
    assert kv_cache.of_model(config, {}) == expected


@pytest.mark.parametrize(
    ("flags", "bytes_per_token"),
    [
        ({}, 131_072),
        ({"--kv-cache-dtype": "auto", "--dtype": "auto"}, 131_072),
        ({"--dtype": "half"}, 131_072),
        ({"--dtype": "float32"}, 262_144),
        ({"--dtype": "float32", "--kv-cache-dtype": "bfloat16"}, 131_072),
        ({"--kv-cache-dtype": "fp8"}, 65_536),
        ({"--kv-cache-dtype": "fp8_e5m2"}, 65_536),
        ({"--kv-cache-dtype": "int8_per_token_head"}, 32 * 2 * 8 * (128 + 4)),
        ({"--kv-cache-dtype": "int4_per_token_head"}, 32 * 2 * 8 * (64 + 4)),
        ({"--kv-cache-dtype": "nvfp4"}, 32 * 2 * 8 * (64 + 8)),
    ],
)
def test_data_types(flags: dict[str, Value], bytes_per_token: int) -> None:
    assert kv_cache.of_model(LLAMA_8B, flags).token == bytes_per_token


@pytest.mark.parametrize("dtype", ["turboquant_k8v4", "ultraquant_4bit", "fp8_ds_mla", "", "no such"])
def test_a_data_type_whose_size_is_not_known(dtype: str) -> None:
    with pytest.raises(UnfitError, match="absent"):
        kv_cache.of_model(LLAMA_8B, {"--kv-cache-dtype": dtype})


@pytest.mark.parametrize(
    ("dtype", "of_layer"), [("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352), ("bfloat16", 1152)]
)
def test_data_types_of_latent_attention(dtype: str, of_layer: int) -> None:
    assert kv_cache.of_model(DEEPSEEK_V3, {"--kv-cache-dtype": dtype}).token == 61 * of_layer


@pytest.mark.parametrize(
    ("quantization", "bytes_per_token"),
    [
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 65_536),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, 65_536),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, 32 * 2 * 8 * 72),
        ({"quant_method": "fp8", "kv_cache_scheme": None}, 131_072),
        ({"quant_method": "awq"}, 131_072),
    ],
)
def test_a_checkpoint_quantised_with_its_cache(quantization: Config, bytes_per_token: int) -> None:
    config = LLAMA_8B | {"quantization_config": quantization}
    assert kv_cache.of_model(config, {}).token == bytes_per_token
    assert kv_cache.of_model(config, {"--kv-cache-dtype": "bfloat16"}).token == 131_072


def test_the_states_data_types() -> None:
    def state(config: Config, **flags: Value) -> float | None:
        named = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
        return kv_cache.of_model(config, named).state

    conv, recurrent = 36 * 8192 * 3, 36 * 32 * 128 * 128  # elements
    assert state(QWEN3_NEXT_80B, mamba_ssm_cache_dtype="float32") == conv * 2 + recurrent * 4
    assert state(QWEN3_NEXT_80B, mamba_cache_dtype="float32") == (conv + recurrent) * 4
    assert state(QWEN3_NEXT_80B, kv_cache_dtype="fp8") == (conv + recurrent) * 2
    assert state(QWEN3_NEXT_80B | {"mamba_ssm_dtype": "float32"}) == conv * 2 + recurrent * 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # Qwen2: the layers from max_window_layers on have a window
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 21}, (21 * 2048, 7 * 2048)),
        ({"use_sliding_window": True, "sliding_window": 4096}, (28 * 2048, 0)),
        ({"use_sliding_window": None, "sliding_window": None}, (28 * 2048, 0)),
        ({"layer_types": ["full_attention"] * 28}, (28 * 2048, 0)),
        ({"layer_types": ["full_attention", "chunked_attention"] * 14}, (28 * 2048, 0)),
    ],
)
def test_windows(change: Config, expected: tuple[float, float]) -> None:
    found = kv_cache.of_model(QWEN2_7B | change, {})
    assert (found.token, found.window_token) == expected


def test_a_pattern_in_letters() -> None:
    config = GEMMA2_9B | {"model_type": "exaone4", "sliding_window_pattern": "LLLG", "num_hidden_layers": 7}
    found = kv_cache.of_model(config, {})
    assert (found.token, found.window_token) == (2 * 8192, 5 * 8192)  # the 4th and the last


def test_layers_of_different_sizes() -> None:
    gemma4: Config = {
        "model_type": "gemma4_text",
        "global_head_dim": 512,
        "head_dim": 256,
        "hidden_size": 2816,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "num_attention_heads": 16,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "sliding_window": 1024,
    }
    far, near = 2 * 2 * 512 * 2, 2 * 8 * 256 * 2
    assert kv_cache.of_model(gemma4, {}) == KvCache(5 * far, 25 * near, 1024, 0.0, 2, 0)
    # the last ten layers read what others keep
    assert kv_cache.of_model(gemma4 | {"num_kv_shared_layers": 12}, {}) == KvCache(3 * far, 15 * near, 1024, 0.0, 2, 0)
    blocks = [
        {"attention": {"n_heads_in_group": 8}},
        {"attention": {"no_op": True}},
        {"attention": {"n_heads_in_group": 4}},
    ]
    nas = LLAMA_8B | {"model_type": "nemotron-nas", "num_hidden_layers": 3, "block_configs": blocks}
    assert kv_cache.of_model(nas, {}) == KvCache((4 + 8) * 2 * 128 * 2, 0, 0, 0.0, 4, 8 * 0)


def test_attention_and_mamba_in_one_layer() -> None:
    falcon_h1 = GRANITE_4_H_TINY | {"model_type": "falcon_h1", "layer_types": None, "num_hidden_layers": 2}
    assert kv_cache.of_model(falcon_h1, {}) == KvCache(
        2 * 2048, 0, 0, 2 * (3328 * 3 * 2 + 48 * 64 * 128 * 2), 4, 0, 2 * 2048, 3
    )


@pytest.mark.parametrize(
    ("change", "full"),
    [
        ({"attn_layer_indices": [1, 5]}, 2),
        ({"full_attn_idxs": [0, 2, 4]}, 3),
        ({"attn_type_list": [0, 1] * 16}, 16),
        ({"linear_attn_config": {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3]}}, 2),
        ({"layers_block_type": ["attention"] + ["mamba"] * 31}, 1),
    ],
)
def test_layers_with_a_state_that_is_not_known(change: Config, full: int) -> None:
    found = kv_cache.of_model(LLAMA_8B | change, {})
    assert (found.token, found.state) == (full * 4096, None)


def test_short_convolutions() -> None:
    lfm2 = LLAMA_8B | {"model_type": "lfm2", "conv_L_cache": 3, "layer_types": ["conv", "full_attention"] * 16}
    assert kv_cache.of_model(lfm2, {}).state == 16 * 4096 * 2 * 2


# ---- what cannot be computed


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": 32, "num_key_value_heads": 8},
        LLAMA_8B | {"is_encoder_decoder": True},
        LLAMA_8B | {"model_type": "mamba2"},
        LLAMA_8B | {"layer_types": ["something new"] * 32},
        LLAMA_8B | {"kv_lora_rank": 256, "model_type": "minicpm3"},
        DEEPSEEK_V3 | {"index_topk": 2048},
        LLAMA_8B | {"block_configs": [{}] * 32},
    ],
    ids=range(8),
)
def test_a_model_that_we_cannot_count(config: Config) -> None:
    assert set(kv_cache.facts(config, {}).values()) == {Unknown(Reason.ABSENT)}


LIES = (0, -1, "32", True, 1.5, 1e300, 2**60, float("nan"), float("inf"), [1], {"a": 1})


@pytest.mark.parametrize("lie", LIES, ids=repr)
@pytest.mark.parametrize("key", ["num_hidden_layers", "num_key_value_heads", "num_attention_heads", "hidden_size"])
def test_a_number_that_lies(key: str, lie: object) -> None:
    config = {name: value for name, value in LLAMA_8B.items() if name != "num_key_value_heads" or key == name}
    assert set(kv_cache.facts(config | {key: lie}, {}).values()) == {Unknown(Reason.INVALID)}


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 8},  # fewer than heads
        {"layer_types": []},
        {"layer_types": "full_attention"},
        {"layer_types": [7] * 32},
        {"layer_types": ["full_attention"] * 10_001},
        {"num_hidden_layers": 10_001},
        {"sliding_window": "4096"},
        {"sliding_window": 4096, "sliding_window_pattern": 0},
        {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": -1},
        {"attn_layer_indices": "all"},
        {"attn_layer_indices": [0.5]},
        {"attn_layer_period": 0, "attn_layer_offset": 0},
        {"full_attention_interval": "4"},
        {"num_kv_shared_layers": -4},
        {"num_nextn_predict_layers": "one"},
        {"block_configs": {"a": 1}},
        {"block_configs": [1]},
        {"model_type": "deepseek_v3", "kv_lora_rank": 0},
        {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": "64"},
        {"layers_block_type": ["mamba"] * 32, "mamba_n_heads": "x"},
        {"quantization_config": {"kv_cache_scheme": {"num_bits": "8"}}},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_config_that_lies(change: Config) -> None:
    assert set(kv_cache.facts(LLAMA_8B | change, {}).values()) == {Unknown(Reason.INVALID)}


@pytest.mark.parametrize(
    "key", ["model_type", "is_encoder_decoder", "quantization_config", "text_config", "multi_query"]
)
@pytest.mark.parametrize("value", [None, 7, [], [1], {}, "x", True], ids=repr)
def test_any_value_is_read_without_a_crash(key: str, value: object) -> None:
    assert set(kv_cache.facts(LLAMA_8B | {key: value}, {})) == set(kv_cache.FACTS)


@pytest.mark.parametrize("model", MODELS)
def test_no_value_of_any_key_crashes_it(model: str) -> None:
    config = MODELS[model][0]
    text = config.get("text_config", config)
    values: tuple[object, ...] = (*LIES, None, "", [], {}, "\0", [[]], [None], 10**400, {"num_bits": []})
    for key in text:
        for value in values:
            changed = text | {key: value}
            assert set(kv_cache.facts(changed if text is config else config | {"text_config": changed}, {})) == set(
                kv_cache.FACTS
            )


@pytest.mark.parametrize("flag", ["--dtype", "--kv-cache-dtype", "--mamba-ssm-cache-dtype"])
@pytest.mark.parametrize("value", [True, 8.0, "float64"], ids=repr)
def test_flags_that_are_none(flag: str, value: Value) -> None:
    found = kv_cache.facts(JAMBA, {flag: value})
    assert not [reading for reading in found.values() if isinstance(reading, Known)]


# ---- as facts


def test_facts() -> None:
    found = kv_cache.facts(GPT_OSS_20B, {})
    assert found == {
        "kv_bytes_per_token": Known(24_576.0),
        "kv_window_bytes_per_token": Known(24_576.0),
        "kv_window": Known(128.0),
        "kv_state_bytes": Known(0.0),
        "kv_state_page_bytes": Known(0.0),
        "kv_state_copies": Known(2.0),
        "kv_cache_heads": Known(8.0),
        "kv_draft_bytes_per_token": Known(0.0),
    }
    assert {reading.origin for reading in found.values() if isinstance(reading, Known)} == {"model-files"}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, Known(0.0)),
        ({"--speculative-config": json.dumps({"method": "mtp", "num_speculative_tokens": 1})}, Known(1152.0)),
        ({"--speculative-config": json.dumps({"method": "deepseek_mtp"})}, Known(1152.0)),
        ({"--speculative-config.method": "mtp"}, Known(1152.0)),
        ({"--speculative-config": json.dumps({"method": "ngram"})}, Known(0.0)),
        ({"--speculative-config": json.dumps({"method": "eagle3", "model": "m"})}, Unknown(Reason.ABSENT)),
        ({"--speculative-config": json.dumps({"model": "m"})}, Unknown(Reason.ABSENT)),
        ({"--speculative-config": "{"}, Unknown(Reason.ABSENT)),
        ({"--speculative-config": "[" * 100_000}, Unknown(Reason.ABSENT)),
        ({"--speculative-model": "m"}, Unknown(Reason.ABSENT)),
    ],
)
def test_drafts(flags: dict[str, Value], expected: object) -> None:
    assert kv_cache.facts(DEEPSEEK_V3, flags)["kv_draft_bytes_per_token"] == expected
