"""What a model's config.json says. Pure; the file is a stranger's: anything in it may be missing, or no number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason

MAX_SIZE = 1_000_000  # bytes of a config.json
ORIGIN = "model-files"

Config = Mapping[str, Any]

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "attention_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "hidden_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "model_context": ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"),
}
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k")
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_QUANTIZATIONS = ("quantization_config", "compression_config")
_SENSES = frozenset(
    {"vision_config", "audio_config", "video_config", "visual", "vision_tower", "mm_vision_tower", "img_processor"}
)
_MULTIMODAL = re.compile(r"VL(?=[A-Z0-9]|Model|For|$)|Vision|Llava|Audio|Omni|Whisper|PaliGemma|Pixtral|MultiModal")
_MULTI_QUERY = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
"""Model types whose `multi_query` counts though they tell a number of KV heads, unless `new_decoder_architecture`."""

FACTS = (
    *_NUMBERS, "kv_heads", "model_dtype", "model_quantization", "model_experts", "experts_per_token", "multimodal",
    "model_type",
)  # fmt: skip


class UnfitError(ValueError):
    """A config.json from which something cannot be computed; `reason`: absent, or invalid where it lies."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


def parse(text: str) -> dict[str, Any] | Reason:
    """config.json as a mapping; `invalid` where it is none."""
    try:
        found = outside.json(text)
    except ValueError:
        return Reason.INVALID
    return found if isinstance(found, dict) else Reason.INVALID


def overridden(config: Config, overrides: Value | None) -> dict[str, Any]:
    """The config with --hf-overrides, JSON, laid over it as vLLM does: a part (text_config) key by key."""
    changes = parse(overrides) if isinstance(overrides, str) else {}
    changed = dict(config)
    for key, value in ({} if isinstance(changes, Reason) else changes).items():
        old = changed.get(key)
        changed[key] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return changed


def facts(config: Config, modelopt: Config | None = None) -> dict[str, Reading]:
    """What it says outright: FACTS. `modelopt`: ModelOpt's own file beside it, hf_quant_config.json.

    attention_heads, kv_heads, hidden_layers, hidden_size, model_context (tokens), model_experts (0: none) and
    experts_per_token; model_dtype, model_quantization ("none") and model_type (of the language model) as text;
    multimodal (flag).
    """
    text = text_part(config)
    found = {name: _number(text, keys) for name, keys in _NUMBERS.items()}
    experts = _number(text, _EXPERTS)
    no_experts = experts == Unknown(Reason.ABSENT)
    return found | {
        "kv_heads": _kv_heads(text, found["attention_heads"]),
        "model_dtype": _word(_first((text, config), ("torch_dtype", "dtype"))),
        "model_quantization": _quantization((text, config), modelopt),
        "model_experts": Known(0.0, origin=ORIGIN) if no_experts else experts,
        "experts_per_token": Known(0.0, origin=ORIGIN) if no_experts else _number(text, _EXPERTS_PER_TOKEN),
        "multimodal": Known(_is_multimodal(config), origin=ORIGIN),
        "model_type": _word(model_type(text).removesuffix("_text") or None),
    }


def text_part(config: Config) -> dict[str, Any]:
    """The language model's part of the config, with what only the whole says."""
    found = dict(config)
    for _ in range(2):  # thinker_config has a text_config of its own
        inner = next((found[key] for key in _TEXT_PARTS if isinstance(found.get(key), dict)), None)
        if inner is None:
            break
        found = found | inner
        for key in _TEXT_PARTS:
            if key not in inner:
                found.pop(key, None)
    return found


def quantization_of(config: Config) -> Config | None:
    """How the weights are quantised: the mapping that says so, of the language model or of the whole."""
    found = _first((text_part(config), config), _QUANTIZATIONS)
    return found if isinstance(found, dict) else None


def whole(config: Config, *keys: str, least: int = 1, default: int | None = None) -> int:
    """The first of these keys that is set, a whole number from `least` to 2^31.

    Raises UnfitError: absent where none is set and there is no default, invalid where it is no such number.
    """
    value = _first((config,), keys)
    if value is None:
        if default is None:
            raise UnfitError(Reason.ABSENT)
        return default
    if type(value) not in (int, float) or not least <= value <= 2**31 or value != int(value):
        raise UnfitError(Reason.INVALID)
    return int(value)


def model_type(text: Config) -> str:
    """What transformers calls the architecture; "" where it is not told."""
    found = text.get("model_type")
    return found if isinstance(found, str) else ""


def attention_heads(text: Config) -> int:
    """Raises UnfitError."""
    return whole(text, *_NUMBERS["attention_heads"])


def hidden_layers(text: Config) -> int:
    """Raises UnfitError."""
    return whole(text, *_NUMBERS["hidden_layers"])


def hidden_size(text: Config) -> int:
    """Raises UnfitError."""
    return whole(text, *_NUMBERS["hidden_size"])


def context(text: Config) -> int | None:
    """Tokens for which the model was made; None where it does not say. Raises UnfitError."""
    return whole(text, *_NUMBERS["model_context"], default=0) or None


def kv_heads(text: Config) -> int:
    """Raises UnfitError."""
    found = _kv_heads(text, _number(text, _NUMBERS["attention_heads"]))
    if isinstance(found, Unknown):
        raise UnfitError(found.reason)
    return whole({"kv_heads": found.value}, "kv_heads")


def _kv_heads(text: Config, attention: Reading) -> Reading:
    """KV heads of a layer, as vLLM counts them: transformers_utils/model_arch_config_convertor.py."""
    is_falcon = model_type(text) in _MULTI_QUERY
    if is_falcon and text.get("multi_query", True) is True and text.get("new_decoder_architecture") is not True:
        return Known(1.0, origin=ORIGIN)
    found = _number(text, _KV_HEADS)
    if found != Unknown(Reason.ABSENT):
        return found
    return Known(1.0, origin=ORIGIN) if text.get("multi_query") is True and not is_falcon else attention


def _first(configs: Iterable[Config], keys: Iterable[str]) -> Any:
    return next((config[key] for config in configs for key in keys if config.get(key) is not None), None)


def _number(config: Config, keys: Iterable[str]) -> Reading:
    value = _first((config,), keys)
    if value is None:
        return Unknown(Reason.ABSENT)
    if type(value) not in (int, float) or not 0 <= value < 2**53 or not math.isfinite(value):
        return Unknown(Reason.INVALID)
    return Known(float(value), origin=ORIGIN)


def _word(value: Any) -> Reading:
    if value is None:
        return Unknown(Reason.ABSENT)
    if not isinstance(value, str) or not value.isprintable():
        return Unknown(Reason.INVALID)
    return Known(value.removeprefix("torch.")[:100], origin=ORIGIN)


def _quantization(configs: Iterable[Config], modelopt: Config | None) -> Reading:
    """How the weights are stored: quant_method of config.json, or ModelOpt's own file; "none"."""
    found = _first(configs, _QUANTIZATIONS)
    if isinstance(found, dict):
        return _word(found.get("quant_method"))
    is_modelopt = modelopt is not None and isinstance(modelopt.get("quantization"), dict)
    return Known("modelopt" if is_modelopt else "none", origin=ORIGIN)


def _is_multimodal(config: Config) -> bool:
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    parts = [config, *(part for key in _TEXT_PARTS if isinstance(part := config.get(key), dict))]
    return any(part.get(sense) for part in parts for sense in _SENSES) or any(
        isinstance(name, str) and _MULTIMODAL.search(name) is not None for name in names
    )
