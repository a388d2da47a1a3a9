"""How many parameters a model has, and how many of them a token uses: by its config.json. Pure.

Of decoders whose layers are attention (or a state: Mamba 2, gated delta net) and an MLP, or experts. Norms, biases,
positions, routers of experts and the towers for pictures and sound are left out: what remains of a language model is
short by less than half a per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import model_config
from vllm_doctor.vllm.model_config import ORIGIN, Config, UnfitError, whole

_GATED = frozenset(
    {
        "llama", "mistral", "mixtral", "ministral3", "qwen", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3",
        "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gemma",
        "gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text", "phi3", "phimoe", "olmo", "olmo2", "olmo3",
        "olmoe", "smollm3", "deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4", "glm4_moe",
        "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "llama4_text", "minimax_m2", "mimo", "internlm2", "internlm3",
        "baichuan", "chatglm", "cohere", "cohere2", "granite", "seed_oss", "ernie4_5", "ernie4_5_moe", "dots1",
        "bailing_moe_v2", "hunyuan_v1_moe", "exaone", "exaone4", "dbrx", "hy_v3",
    }
)  # fmt: skip
"""Model types whose MLP and experts have three matrices: gate, up and down."""
_PLAIN = frozenset(
    {
        "opt", "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "bloom", "mpt", "falcon", "phi", "starcoder2", "nemotron",
        "nemotron_h", "apertus", "bert", "xlm-roberta",
    }
)  # fmt: skip
"""Those whose MLP has two."""
_TIED = frozenset(
    {
        "gemma", "gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text", "cohere", "cohere2", "opt", "gpt2",
        "gpt_bigcode", "bloom", "mpt", "falcon", "bert", "xlm-roberta",
    }
)  # fmt: skip
"""Model types that share the embedding with the output where config.json does not say."""
_GATED_QUERIES = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
"""Attention whose output has a gate as wide as its queries."""
_INNER = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")


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
    if model_type not in _GATED | _PLAIN or text.get("hidden_size_per_layer_input"):  # Gemma's E2B
        raise UnfitError(Reason.ABSENT)
    hidden = model_config.hidden_size(text)
    mlp = (3 if model_type in _GATED else 2) * hidden  # of each of its inner elements
    embedding = vocabulary(text) * hidden
    tables = embedding * (1 if is_tied(config) else 2)
    if model_type == "nemotron_h":
        rest, routed, chosen = _nemotron_h(text, hidden)
    else:
        rest, routed, chosen = _uniform(text, model_type, hidden, mlp)
    return Parameters(tables + rest + routed, routed, embedding + rest + chosen)


def vocabulary(text: Config) -> int:
    """Rows of the embedding. Raises UnfitError."""
    return whole(text, "vocab_size", "padded_vocab_size")


def is_tied(config: Config) -> bool:
    """Whether the embedding is the output's matrix as well."""
    text = model_config.text_part(config)
    default = model_config.model_type(text) in _TIED
    return text.get("tie_word_embeddings", config.get("tie_word_embeddings", default)) is True


def _uniform(text: Config, model_type: str, hidden: int, mlp: int) -> tuple[int, int, int]:
    """What each token uses, all routed experts, and those that a token chooses: of layers of attention and an MLP."""
    layers = model_config.hidden_layers(text)
    experts = whole(text, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", least=0, default=0)
    chosen = whole(text, "num_experts_per_tok", "top_k_experts", "moe_k") if experts else 0
    sparse = _sparse_layers(text, layers) if experts else 0
    if chosen > experts:
        raise UnfitError(Reason.INVALID)
    beside = model_type.startswith("gemma4")  # its experts stand beside an MLP in each layer
    dense_layers = layers if beside else layers - sparse
    dense = dense_layers * mlp * _inner(text, model_type, hidden) if dense_layers else 0
    expert = mlp * whole(text, "moe_intermediate_size", "intermediate_size") if sparse else 0
    shared = sparse * _shared(text, model_type, hidden, expert) if sparse and not beside else 0
    rest = _mixing(text, model_type, hidden, layers) + dense + shared
    return rest, sparse * experts * expert, sparse * chosen * expert


def _inner(text: Config, model_type: str, hidden: int) -> int:
    """Inner elements of a dense layer's MLP."""
    if model_type == "falcon" and text.get("ffn_hidden_size") is None:
        return 4 * hidden
    told = whole(text, "intermediate_size_mlp", *_INNER, default=4 * hidden if model_type in _PLAIN else None)
    return told // 2 if model_type == "qwen" else told  # gate and up together


def _mixing(text: Config, model_type: str, hidden: int, layers: int) -> int:
    """What mixes the tokens, attention or a state, in all layers."""
    attention = _attention(text, model_type, hidden)
    if text.get("linear_num_value_heads") is not None:
        interval = whole(text, "full_attention_interval", default=4)
        full = layers // interval
        return full * attention + (layers - full) * _delta_net(text, hidden)
    if model_type.startswith("gemma4"):
        named = text.get("layer_types")
        full = named.count("full_attention") if isinstance(named, list) else layers // 6
        return (layers - full) * attention + full * _global_attention(text, hidden)
    return layers * attention


def _attention(text: Config, model_type: str, hidden: int) -> int:
    heads = model_config.attention_heads(text)
    if text.get("kv_lora_rank") is None:
        dim = whole(text, "head_dim", "attention_head_dim", least=0, default=0) or hidden // heads
        queries = 3 * heads if model_type in _GATED_QUERIES else 2 * heads
        return hidden * dim * (queries + 2 * model_config.kv_heads(text))  # Q and the output, K and V
    latent, rope = whole(text, "kv_lora_rank"), whole(text, "qk_rope_head_dim")
    nope, value = whole(text, "qk_nope_head_dim"), whole(text, "v_head_dim")
    rank = whole(text, "q_lora_rank", least=0, default=0)
    query = heads * (nope + rope)
    queries = rank * (hidden + query) if rank else hidden * query
    indexer = 0
    if text.get("index_n_heads") is not None:  # DeepSeek's sparse attention
        seekers, width = whole(text, "index_n_heads"), whole(text, "index_head_dim")
        indexer = (rank or hidden) * seekers * width + hidden * (width + seekers)
    return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden + indexer


def _global_attention(text: Config, hidden: int) -> int:
    """Gemma 4: layers that see all tokens have heads of their own size, and K may serve as V."""
    heads = model_config.attention_heads(text)
    kv = whole(text, "num_global_key_value_heads", default=model_config.kv_heads(text))
    matrices = 1 if text.get("attention_k_eq_v") is True else 2
    return hidden * whole(text, "global_head_dim", default=512) * (2 * heads + matrices * kv)


def _delta_net(text: Config, hidden: int) -> int:
    """Qwen3-Next, Qwen3.5: Q, K, V and the gate, two numbers for each head, and the output."""
    key = whole(text, "linear_num_key_heads") * whole(text, "linear_key_head_dim")
    heads = whole(text, "linear_num_value_heads")
    value = heads * whole(text, "linear_value_head_dim")
    return hidden * (2 * key + 3 * value + 2 * heads)


def _nemotron_h(text: Config, hidden: int) -> tuple[int, int, int]:
    """As _uniform, of layers that are each one thing: attention, Mamba 2, an MLP or experts."""
    letters = text.get("hybrid_override_pattern")
    if not isinstance(letters, str):
        raise UnfitError(Reason.ABSENT)
    heads, state = whole(text, "mamba_num_heads"), whole(text, "ssm_state_size")
    inner = heads * whole(text, "mamba_head_dim")
    mamba = hidden * (3 * inner + 2 * whole(text, "n_groups", default=8) * state + heads)
    rest = letters.count("M") * mamba + letters.count("*") * _attention(text, "nemotron_h", hidden)
    rest += letters.count("-") * 2 * hidden * whole(text, "intermediate_size")
    sparse = letters.count("E")
    if not sparse:
        return rest, 0, 0
    latent = whole(text, "moe_latent_size", default=hidden)  # what the experts see of a token
    expert = 2 * latent * whole(text, "moe_intermediate_size")
    rest += sparse * 2 * hidden * whole(text, "moe_shared_expert_intermediate_size", least=0, default=0)
    rest += 0 if latent == hidden else sparse * 2 * hidden * latent
    return (
        rest,
        sparse * whole(text, "n_routed_experts") * expert,
        sparse * whole(text, "num_experts_per_tok") * expert,
    )


def _sparse_layers(text: Config, layers: int) -> int:
    """Layers with experts: all but the first ones (DeepSeek, GLM), every n-th, less those named (Qwen)."""
    dense = text.get("mlp_only_layers")
    step = whole(text, "decoder_sparse_step", "interleave_moe_layer_step", default=1)
    first = whole(text, "first_k_dense_replace", "moe_layer_start_index", least=0, default=0)
    named = len(dense) if isinstance(dense, list) else 0
    return max(0, layers // step - first - named)


def _shared(text: Config, model_type: str, hidden: int, expert: int) -> int:
    """Parameters of the experts that each token uses besides the chosen ones, in one layer."""
    if model_type == "llama4_text":
        return expert
    size = whole(text, "shared_expert_intermediate_size", least=0, default=0)
    return 3 * hidden * size or whole(text, "n_shared_experts", "moe_num_shared_experts", least=0, default=0) * expert
