"""How many parameters a model has, and how many of them a token uses: by its config.json. Pure.

Of decoders whose layers are attention and a gated MLP, or experts: Llama, Mistral, Qwen, Gemma, DeepSeek, GLM, gpt-oss.
Norms, biases and routers of experts are left out: together less than half a per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import model_config
from vllm_doctor.vllm.model_config import ORIGIN, Config, UnfitError, whole

_TYPES = frozenset(
    {
        "llama", "mistral", "mixtral", "ministral3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2",
        "gemma3_text", "phi3", "olmo2", "olmo3", "smollm3", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe",
        "gpt_oss",
    }
)  # fmt: skip
_TIED = frozenset({"gemma", "gemma2", "gemma3_text"})
"""Model types that share the embedding with the output where config.json does not say."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts. A token computes with `used`; a step reads all but the experts that none of its tokens chose."""

    all: int
    experts: int
    """Of all routed experts; 0 where there are none."""
    used: int
    """By one token: all, less the experts that it does not choose, and less an embedding that is only looked up."""


FACTS = ("parameters", "expert_parameters", "parameters_used")


def facts(config: Config) -> dict[str, Reading]:
    """A Parameters as facts."""
    try:
        found = of_model(config)
    except UnfitError as error:
        return dict.fromkeys(FACTS, Unknown(error.reason))
    counts = (found.all, found.experts, found.used)
    return {name: Known(float(count), origin=ORIGIN) for name, count in zip(FACTS, counts, strict=True)}


def of_model(config: Config) -> Parameters:
    """Raises UnfitError: absent for another kind of model, or where a number is missing; invalid where one lies."""
    text = model_config.text_part(config)
    model_type = model_config.model_type(text)
    if model_type not in _TYPES:
        raise UnfitError(Reason.ABSENT)
    hidden, layers = model_config.hidden_size(text), model_config.hidden_layers(text)
    embedding = whole(text, "vocab_size") * hidden
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", model_type in _TIED)) is True
    tables = embedding if tied else 2 * embedding
    experts = whole(text, "num_experts", "num_local_experts", "n_routed_experts", least=0, default=0)
    chosen = whole(text, "num_experts_per_tok") if experts else 0
    sparse = _sparse_layers(text, layers) if experts else 0
    if chosen > experts:
        raise UnfitError(Reason.INVALID)
    dense_layers = layers - sparse
    dense = dense_layers * 3 * hidden * whole(text, "intermediate_size") if dense_layers else 0
    expert = 3 * hidden * whole(text, "moe_intermediate_size", "intermediate_size") if sparse else 0
    shared = sparse * _shared(text, hidden, expert) if sparse else 0
    routed = sparse * experts * expert
    rest = layers * _attention(text, hidden) + dense + shared
    return Parameters(tables + rest + routed, routed, embedding + rest + sparse * chosen * expert)


def _attention(text: Config, hidden: int) -> int:
    heads = model_config.attention_heads(text)
    if text.get("kv_lora_rank") is None:
        dim = whole(text, "head_dim", least=0, default=0) or hidden // heads
        return 2 * hidden * dim * (heads + model_config.kv_heads(text))  # Q and the output, K and V
    latent, rope = whole(text, "kv_lora_rank"), whole(text, "qk_rope_head_dim")
    nope, value = whole(text, "qk_nope_head_dim"), whole(text, "v_head_dim")
    rank = whole(text, "q_lora_rank", least=0, default=0)
    query = heads * (nope + rope)
    queries = rank * (hidden + query) if rank else hidden * query
    return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def _sparse_layers(text: Config, layers: int) -> int:
    """Layers with experts: all but the first ones (DeepSeek, GLM), every n-th, less those named (Qwen)."""
    dense = text.get("mlp_only_layers")
    step = whole(text, "decoder_sparse_step", default=1)
    first = whole(text, "first_k_dense_replace", least=0, default=0)
    named = len(dense) if isinstance(dense, list) else 0
    return max(0, layers // step - first - named)


def _shared(text: Config, hidden: int, expert: int) -> int:
    """Parameters of the experts that each token uses besides the chosen ones, in one layer."""
    size = whole(text, "shared_expert_intermediate_size", least=0, default=0)
    return 3 * hidden * size or whole(text, "n_shared_experts", least=0, default=0) * expert
