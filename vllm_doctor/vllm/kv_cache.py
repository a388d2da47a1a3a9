"""What a model keeps in vLLM's KV cache: bytes for a token and for a sequence, by its config.json.

The whole model, before it is divided over GPUs. Read off vLLM 0.32: AttentionSpec, MLAAttentionSpec and MambaSpec in
v1/kv_cache_interface.py, heads and head sizes in transformers_utils/model_arch_config_convertor.py, the state's shape
in model_executor/layers/mamba/mamba_utils.py. A sequence's last block is counted only as far as it is filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import model_config
from vllm_doctor.vllm.model_config import ORIGIN, Config, UnfitError, whole

_ALL, _WINDOW, _NONE = "all tokens", "a window", "none"
_MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class KvCache:
    """What a sequence of n tokens takes: `token` * n + `window_token` * min(n, `window`) + `state` bytes.

    With --disable-hybrid-kv-cache-manager a windowed layer keeps all tokens, if the model also has others
    (unify_hybrid_kv_cache_specs in v1/core/kv_cache_utils.py).
    """

    token: float
    """Bytes of a token in the layers that keep all of them."""
    window_token: float
    """Bytes of a token in the layers that keep a window."""
    window: int
    """Tokens of that window, the largest where layers differ; 0 where there is none."""
    state: float | None
    """Bytes of one copy of what a sequence keeps in Mamba, linear attention and convolution layers; None: not known."""
    heads: int
    """KV heads of a layer, the fewest where layers differ; 1 with MLA. More GPUs than this hold copies."""
    drafts_token: float
    """Bytes of a token in the model's own layers for multi-token prediction, which count where they draft."""
    state_page_token: float = 0.0
    """A copy takes at least this times the tokens of a block: states are padded to an attention layer's block."""
    state_copies: int = 2
    """Copies of the state where vLLM caches prefixes ("align"); one where it does not."""


FACTS = (
    "kv_bytes_per_token",
    "kv_window_bytes_per_token",
    "kv_window",
    "kv_state_bytes",
    "kv_state_page_bytes",
    "kv_state_copies",
    "kv_cache_heads",
    "kv_draft_bytes_per_token",
)


def facts(config: Config, flags: Mapping[str, Value]) -> dict[str, Reading]:
    """A KvCache as facts, for a server with these flags. kv_draft_bytes_per_token is 0 where nothing is drafted."""
    try:
        found = of_model(config, flags)
    except UnfitError as error:
        return dict.fromkeys(FACTS, Unknown(error.reason))
    state = Unknown(Reason.ABSENT) if found.state is None else Known(found.state, origin=ORIGIN)
    return {
        "kv_bytes_per_token": Known(found.token, origin=ORIGIN),
        "kv_window_bytes_per_token": Known(found.window_token, origin=ORIGIN),
        "kv_window": Known(float(found.window), origin=ORIGIN),
        "kv_state_bytes": state,
        "kv_state_page_bytes": Known(found.state_page_token, origin=ORIGIN),
        "kv_state_copies": Known(float(found.state_copies), origin=ORIGIN),
        "kv_cache_heads": Known(float(found.heads), origin=ORIGIN),
        "kv_draft_bytes_per_token": _drafted(found.drafts_token, flags),
    }


def of_model(config: Config, flags: Mapping[str, Value]) -> KvCache:
    """What a model keeps; the flags that count are those on data types (long names, as on the command line).

    Raises UnfitError: absent where config.json does not tell it or vLLM keeps something here that we cannot count,
    invalid where it lies.
    """
    text = model_config.text_part(config)
    model_type = model_config.model_type(text)
    text = {**_DEFAULTS.get(model_type, {}), **text}
    not_counted = _NOT_COUNTED_KEYS - ({"index_topk"} if model_type in _INDEXED else frozenset())
    if config.get("is_encoder_decoder") is True or model_type in _NOT_COUNTED or not_counted & _set(text):
        raise UnfitError(Reason.ABSENT)
    cache = _cache_dtype(config, flags)
    element = _model_bytes(flags)
    layers = _layers(text, model_type)
    sizes = _sizes(text, model_type, layers, cache, element)
    keeps = [size for layer, size in zip(layers, sizes, strict=True) if layer.keeps == _ALL]
    windows = [size for layer, size in zip(layers, sizes, strict=True) if layer.keeps == _WINDOW]
    heads = [size.heads for size in (*keeps, *windows)]
    states = sum(layer.state for layer in layers)
    state = _state(text, model_type, flags, element) if states else 0.0
    typical = (keeps or windows or [_Size(0.0, 1)])[-1]
    return KvCache(
        token=sum(size.bytes for size in keeps),
        window_token=sum(size.bytes for size in windows),
        window=whole(text, "sliding_window") if windows else 0,
        state=None if state is None else state * states,
        heads=min(heads, default=1),
        drafts_token=typical.bytes
        * whole(text, "num_nextn_predict_layers", "mtp_num_hidden_layers", least=0, default=0),
        state_page_token=typical.bytes * states,
        state_copies=3 if states and _is_mamba2(text) else 2,
    )


# ---- the flags


_PLAIN = {
    "float16": 2,
    "bfloat16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "int8": 1,
}
"""Bytes of an element: STR_DTYPE_TO_TORCH_DTYPE in utils/torch_utils.py."""
_DS_MLA = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
"""Bytes of a token in a layer, latent vector and scales in one: MLAAttention.get_kv_cache_spec."""


def _text_flag(flags: Mapping[str, Value], flag: str) -> str:
    value = flags.get(flag, "auto")
    if not isinstance(value, str):
        raise UnfitError(Reason.INVALID)
    return value


def _model_bytes(flags: Mapping[str, Value]) -> int:
    """Bytes of an activation: --dtype auto takes 16 bits for a model in float32, too (_resolve_auto_dtype)."""
    dtype = _text_flag(flags, "--dtype")
    if dtype == "auto":
        return 2
    if dtype not in ("float16", "bfloat16", "half", "float32", "float"):
        raise UnfitError(Reason.INVALID)
    return _PLAIN[dtype]


def _cache_dtype(config: Config, flags: Mapping[str, Value]) -> str:
    """--kv-cache-dtype; where it is auto, what the checkpoint was quantised for (resolve_kv_cache_dtype_string)."""
    if "--kv-cache-dtype-skip-layers" in flags:
        raise UnfitError(Reason.ABSENT)
    given = _text_flag(flags, "--kv-cache-dtype")
    if given != "auto":
        return given
    quantization = model_config.quantization_of(config) or {}
    inner = quantization.get("quantization")
    for part in (inner, quantization) if isinstance(inner, dict) else (quantization,):
        scheme = part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo")
        if isinstance(scheme, dict):
            bits = whole(scheme, "num_bits")
            return {8: "fp8", 4: "nvfp4"}.get(bits, "auto")
        if isinstance(scheme, str):
            return scheme.lower() if scheme.lower() in ("fp8", "nvfp4") else "auto"
    return "auto"


def _drafted(bytes_per_token: float, flags: Mapping[str, Value]) -> Reading:
    """What drafting adds: another model's layers are not known from here."""
    method = draft_method(flags)
    if method is not None and method.endswith("mtp"):
        return Known(bytes_per_token, origin=ORIGIN)
    return Known(0.0, origin=ORIGIN) if method in ("none", "ngram", "ngram_gpu", "suffix") else Unknown(Reason.ABSENT)


def draft_method(flags: Mapping[str, Value]) -> str | None:
    """How these flags make drafts: "none" without; None where they do, and do not say how."""
    if not any(name.startswith(("--speculative", "--spec-")) for name in flags):
        return "none"
    method = flags.get("--speculative-config.method", flags.get("--spec-method"))
    if method is None:
        try:
            told: Any = outside.json(str(flags.get("--speculative-config", "")))
        except ValueError:
            told = None
        method = told.get("method") if isinstance(told, dict) else None
    return method if isinstance(method, str) else None


# ---- the model


_QWEN: Config = {"use_sliding_window": False}
_QWEN_HYBRID: Config = {
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_DEFAULTS: Mapping[str, Config] = {
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "exaone4": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    "gemma3_text": {
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    "jamba": {
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "lfm2": {"conv_L_cache": 3},
    "lfm2_moe": {"conv_L_cache": 3},
    "mistral": {"sliding_window": 4096},
    "nemotron_h": {"mamba_ssm_cache_dtype": "float32"},
    "olmo3": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": _QWEN,
    "qwen3_next": _QWEN_HYBRID,
    "qwen3_5": _QWEN_HYBRID,
    "qwen3_5_text": _QWEN_HYBRID,
    "qwen3_5_moe": _QWEN_HYBRID,
    "qwen3_5_moe_text": _QWEN_HYBRID,
    "smollm3": {"use_sliding_window": False},
}
"""What transformers' classes fill in where a published config.json leaves it out."""

_MLA = frozenset(
    {
        "axk1", "bailing_hybrid", "deepseek_mtp", "deepseek_v2", "deepseek_v3", "dots3_note", "glm4_moe_lite",
        "kimi_k2", "kimi_linear", "longcat_flash", "pangu_ultra_moe",
    }
)  # fmt: skip
"""Model types whose attention is latent: is_deepseek_mla in transformers_utils/model_arch_config_convertor.py."""
_INDEXED = frozenset({"deepseek_v32", "glm_moe_dsa"})
"""Those with latent attention that reads only the tokens that an indexer picks, which has a cache of its own."""
_NOT_COUNTED = frozenset(
    {"mamba", "mamba2", "falcon_mamba", "rwkv", "longcat_flash", "plamo2", "zamba2", "bert", "roberta", "xlm-roberta"}
)
"""No attention at all, or layers that are counted in another way."""
_NOT_COUNTED_KEYS = frozenset(
    {
        "compress_ratios", "index_topk", "rswa_window", "per_layer_config", "swa_head_dim", "swa_num_key_value_heads",
        "cla_share_factor", "cross_attention_layers", "sparse_attention_config",
    }
)  # fmt: skip
"""What tells of caches besides K and V, of layers of different sizes, or of shared ones."""
_FULL_NAMES = frozenset({"full_attention", "attention", "chunked_attention"})
"""Chunked attention is local, but vLLM keeps all of it by default (config/vllm.py, for its latency)."""
_STATE_NAMES = frozenset({"linear_attention", "mamba", "mamba2", "conv", "short_conv"})
_NO_MEMORY_NAMES = frozenset({"mlp", "moe"})
_HYBRID_LETTERS = {"*": "attention", "M": "mamba", "-": "mlp", "E": "moe"}


@dataclass(frozen=True, slots=True)
class _Layer:
    keeps: str
    state: bool = False


@dataclass(frozen=True, slots=True)
class _Size:
    bytes: float
    """Of a token in this layer."""
    heads: int


_FULL, _STATE = _Layer(_ALL), _Layer(_NONE, state=True)


def _set(text: Config) -> frozenset[str]:
    return frozenset(key for key, value in text.items() if value not in (None, False, 0) and value != [])


def _layers(text: Config, model_type: str) -> list[_Layer]:
    """Each layer, first to last; those that share another's cache keep nothing (num_kv_shared_layers)."""
    layers = _hybrid(text) or _windowed(text)
    if model_type == "falcon_h1":  # each layer has attention and Mamba side by side
        layers = [_Layer(layer.keeps, state=True) for layer in layers]
    shared = whole(text, "num_kv_shared_layers", least=0, default=0)
    own = max(0, len(layers) - shared)
    return layers[:own] + [_Layer(_NONE)] * (len(layers) - own)


def _count(text: Config) -> int:
    found = model_config.hidden_layers(text)
    if found > _MAX_LAYERS:
        raise UnfitError(Reason.INVALID)
    return found


def _hybrid(text: Config) -> list[_Layer] | None:
    """By what names or counts the kinds of layers; None where nothing does."""
    named = text.get("layers_block_type") or text.get("layer_types")
    letters = text.get("hybrid_override_pattern")
    if named is None and isinstance(letters, str):
        named = [_HYBRID_LETTERS.get(letter) for letter in letters[: _MAX_LAYERS + 1]]
    if named is not None:
        if not isinstance(named, list) or not 0 < len(named) <= _MAX_LAYERS:
            raise UnfitError(Reason.INVALID)
        return [_by_name(name, text) for name in named]
    full = _indices(text)
    return None if full is None else [_FULL if layer in full else _STATE for layer in range(_count(text))]


def _indices(text: Config) -> Sequence[int] | frozenset[int] | None:
    """The layers with attention, where the others have a state."""
    for key in ("attn_layer_indices", "full_attn_idxs"):
        if text.get(key) is not None:
            return _whole_numbers(text[key])
    linear = text.get("linear_attn_config")
    if isinstance(linear, dict) and linear.get("full_attn_layers") is not None:
        return frozenset(layer - 1 for layer in _whole_numbers(linear["full_attn_layers"]))
    if text.get("attn_type_list") is not None:
        kinds = _whole_numbers(text["attn_type_list"])
        return frozenset(layer for layer, kind in enumerate(kinds) if kind == 1)
    if text.get("attn_layer_period") is not None:
        offset = whole(text, "attn_layer_offset", least=0)
        return range(offset, _count(text), whole(text, "attn_layer_period"))
    if text.get("full_attention_interval") is not None:
        interval = whole(text, "full_attention_interval")
        return range(interval - 1, _count(text), interval)
    return None


def _whole_numbers(value: object) -> list[int]:
    if not isinstance(value, list) or len(value) > _MAX_LAYERS or any(type(item) is not int for item in value):
        raise UnfitError(Reason.INVALID)
    return value


def _by_name(name: object, text: Config) -> _Layer:
    if not isinstance(name, str):
        raise UnfitError(Reason.INVALID)
    if name == "sliding_attention":
        return _Layer(_WINDOW if _window(text) else _ALL)
    if name in _FULL_NAMES:
        return _FULL
    if name in _STATE_NAMES:
        return _STATE
    if name in _NO_MEMORY_NAMES:
        return _Layer(_NONE)
    raise UnfitError(Reason.ABSENT)


def _windowed(text: Config) -> list[_Layer]:
    """A model of attention layers only: some, all or none with a window."""
    count = _count(text)
    if not _window(text):
        return [_FULL] * count
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, str) and 0 < len(pattern) <= count:  # "LLLG"; the last layer is global
        return [_Layer(_WINDOW if pattern[i % len(pattern)] == "L" and i < count - 1 else _ALL) for i in range(count)]
    if pattern is not None:
        period = whole(text, "sliding_window_pattern")
        return [_Layer(_WINDOW if (i + 1) % period else _ALL) for i in range(count)]
    first = whole(text, "max_window_layers", least=0) if text.get("use_sliding_window") is True else 0
    return [_Layer(_WINDOW if i >= first else _ALL) for i in range(count)]


def _window(text: Config) -> int:
    """Tokens of the sliding window; 0 where there is none, or where it holds the whole context."""
    if text.get("use_sliding_window") is False or text.get("sliding_window") is None:
        return 0
    window = whole(text, "sliding_window", least=0)
    context = model_config.context(text)
    return 0 if context is not None and window >= context else window


def _sizes(text: Config, model_type: str, layers: Sequence[_Layer], cache: str, element: int) -> list[_Size]:
    """What a token takes in each layer."""
    if text.get("block_configs") is not None:
        return _blocks(text, layers, cache, element)
    if not any(layer.keeps != _NONE for layer in layers):
        return [_Size(0.0, 1)] * len(layers)
    if text.get("kv_lora_rank") is not None:
        if model_type not in _MLA | _INDEXED:
            raise UnfitError(Reason.ABSENT)
        if model_type not in _INDEXED:
            return [_Size(_latent(text, cache, element), 1)] * len(layers)
        latent = _latent(text, "fp8_ds_mla" if cache.startswith("fp8") else cache, element)
        return [_Size(latent + index, 1) for index in _indices_kept(text, len(layers))]
    heads, dim = model_config.kv_heads(text), _head_dim(text)
    usual = _Size(heads * 2 * _vector(dim, cache, element), heads)
    if model_type not in ("gemma4", "gemma4_text", "gemma4_unified_text"):
        return [usual] * len(layers)
    # Gemma 4: layers that keep all tokens have heads of their own size. K and V are both kept, though they are equal.
    far_heads = whole(text, "num_global_key_value_heads", default=heads)
    far = _Size(far_heads * 2 * _vector(whole(text, "global_head_dim", default=512), cache, element), far_heads)
    return [far if layer.keeps == _ALL else usual for layer in layers]


def _blocks(text: Config, layers: Sequence[_Layer], cache: str, element: int) -> list[_Size]:
    """Nemotron-NAS: each layer its own number of heads, or no attention (get_total_num_kv_heads, has_noops)."""
    blocks, attention, dim = text["block_configs"], model_config.attention_heads(text), _head_dim(text)
    if not isinstance(blocks, list) or len(blocks) != len(layers):
        raise UnfitError(Reason.INVALID)
    sizes = []
    for block in blocks:
        told = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(told, dict):
            raise UnfitError(Reason.ABSENT)
        if told.get("no_op") is True or told.get("replace_with_linear") is True:
            sizes.append(_Size(0.0, attention))
            continue
        heads = max(1, attention // whole(told, "n_heads_in_group"))
        sizes.append(_Size(heads * 2 * _vector(dim, cache, element), heads))
    return sizes


def _head_dim(text: Config) -> int:
    """Elements of a K or V vector of one head: get_head_size in transformers_utils/model_arch_config_convertor.py."""
    told = whole(text, "head_dim", "hidden_size_per_head", least=0, default=0)
    if told:
        return told
    found = model_config.hidden_size(text) // model_config.attention_heads(text)
    if not found:
        raise UnfitError(Reason.INVALID)
    return found


def _vector(dim: int, cache: str, element: int) -> float:
    """Bytes of one K or V vector of one head: AttentionSpec, and the packed forms of the backends' customize_spec."""
    if cache == "auto":
        return dim * element
    if cache in _PLAIN:
        return dim * _PLAIN[cache]
    match cache:  # a scale is a float32; NVFP4 has one byte of scale for 16 values
        case "int8_per_token_head" | "fp8_per_token_head":
            return dim + 4
        case "int4_per_token_head":
            return dim // 2 + 4
        case "nvfp4" | "nvfp4_4over6":
            return dim // 2 + dim // 16
        case _:
            raise UnfitError(Reason.ABSENT)


def _latent(text: Config, cache: str, element: int) -> float:
    """Bytes of MLA's latent vector, which stands for all heads: MLAAttentionSpec, with no V of its own."""
    dim = whole(text, "kv_lora_rank") + whole(text, "qk_rope_head_dim", least=0, default=0)
    if cache in _DS_MLA:
        return _DS_MLA[cache]
    if cache != "auto" and cache not in _PLAIN:
        raise UnfitError(Reason.ABSENT)
    return _vector(dim, cache, element)


def _indices_kept(text: Config, layers: int) -> list[int]:
    """Bytes of a token's key for the indexer in each layer: FP8 and a scale for each 128 (DeepseekV32IndexerCache).

    Layers that are "shared" take what another one picked (GLM-5.2).
    """
    dim = whole(text, "index_head_dim")
    kept = dim + dim // 128 * 4
    kinds = text.get("indexer_types")
    if kinds is None:
        return [kept] * layers
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise UnfitError(Reason.INVALID)
    return [0 if kind == "shared" else kept for kind in kinds]


# ---- layers with a state


def _state(text: Config, model_type: str, flags: Mapping[str, Value], element: int) -> float | None:
    """Bytes of a sequence in one layer with a state; None where this kind of layer is not known."""
    conv = _state_bytes(_text_flag(flags, "--mamba-cache-dtype"), element)
    given = _text_flag(flags, "--mamba-ssm-cache-dtype")
    told = text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype")
    if given == "auto" and isinstance(told, str):  # NemotronHForCausalLMConfig, Qwen3_5ForConditionalGenerationConfig
        given = told.removeprefix("torch.")
    ssm = _state_bytes(given, conv)
    if text.get("linear_num_value_heads") is not None:
        return _gated_delta_net(text, conv, ssm)
    if model_type in ("lfm2", "lfm2_moe"):
        return whole(text, "conv_dim", "hidden_size") * (whole(text, "conv_L_cache", least=2) - 1) * conv
    if _is_mamba2(text):
        return _mamba2(text, conv, ssm)
    return _mamba1(text, conv, ssm) if text.get("mamba_expand") is not None else None


def _is_mamba2(text: Config) -> bool:
    """MambaMixer2 keeps one block more, for a checkpoint of the prompt (get_kv_cache_spec in mamba_mixer2.py)."""
    return text.get("mamba_n_heads") is not None or text.get("mamba_num_heads") is not None


def _state_bytes(dtype: str, auto: int) -> int:
    if dtype == "auto":
        return auto
    if dtype not in ("float16", "bfloat16", "float32"):
        raise UnfitError(Reason.INVALID)
    return _PLAIN[dtype]


def _mamba1(text: Config, conv: int, ssm: int) -> float:
    """mamba1_state_shape: Jamba."""
    inner = whole(text, "mamba_expand") * model_config.hidden_size(text)
    return inner * ((whole(text, "mamba_d_conv") - 1) * conv + whole(text, "mamba_d_state") * ssm)


def _mamba2(text: Config, conv: int, ssm: int) -> float:
    """mamba2_state_shape: Nemotron-H, Granite 4, Bamba, Falcon-H1."""
    heads = whole(text, "mamba_n_heads", "mamba_num_heads")
    size = whole(text, "mamba_d_state", "ssm_state_size", "mamba_state_dim")
    groups = whole(text, "mamba_n_groups", "n_groups", default=1)
    if text.get("mamba_head_dim") is not None:
        inner = heads * whole(text, "mamba_head_dim")
    else:
        expanded = whole(text, "mamba_expand", default=2) * model_config.hidden_size(text)
        inner = whole(text, "mamba_d_ssm", default=expanded)
    width = inner + 2 * groups * size
    return width * (whole(text, "mamba_d_conv", "conv_kernel", default=4) - 1) * conv + inner * size * ssm


def _gated_delta_net(text: Config, conv: int, ssm: int) -> float:
    """gated_delta_net_state_shape: Qwen3-Next, Qwen3.5."""
    key = whole(text, "linear_key_head_dim")
    value = whole(text, "linear_num_value_heads") * whole(text, "linear_value_head_dim")
    width = 2 * key * whole(text, "linear_num_key_heads") + value
    return width * (whole(text, "linear_conv_kernel_dim") - 1) * conv + value * key * ssm
