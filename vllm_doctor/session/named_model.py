"""What is known of a server's model by its name, where its config.json is not at hand; checked against its log. Pure.

The log is believed where the two do not agree: a name may be an alias, and weights may be stored in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import kv_cache, model_config, parameters

ROOT, BENCH_MODEL = "model_root", "bench_model"
"""Facts: which model is served, by /v1/models (not the name under which it is); and what a benchmark asked for."""
FROM = "model_facts_from"

_OFF = 0.25
"""How far the log's figure may be from the name's."""
_GIB = 1024.0**3
_LEAST, _MOST = 0.2, 2.3
"""Bytes of a parameter that a model in memory can have: less or more is another model's."""
_LOGGED_FLAGS: Mapping[str, str] = {
    "--quantization": "log:engine-config.quantization",
    "--dtype": "log:engine-config.dtype",
    "--kv-cache-dtype": "log:engine-config.kv_cache_dtype",
}


def completed(facts: Mapping[str, Reading], told: Sequence[str | None], served: Iterable[str]) -> dict[str, Reading]:
    """The facts, with what the model's name tells and they do not.

    `told`: names of what was loaded, the surest first; `served`: names under which it is served, which may be anything.
    """
    found = dict(facts)
    is_at_hand = isinstance(facts.get("hidden_layers"), Known)
    if is_at_hand:
        found[FROM] = Known("config.json", origin=model_config.ORIGIN)
        if isinstance(facts.get("parameters"), Known):
            return found
    named = _by_name(facts, (_text(facts, ROOT), *told, _text(facts, "--model"), _text(facts, "model")), served)
    if is_at_hand:  # which tells no count of this kind of model
        is_alike = all(facts.get(name) == named.get(name, False) for name in ("hidden_layers", "hidden_size"))
        return found | ({name: named[name] for name in parameters.FACTS if name in named} if is_alike else {})
    if not named:
        return found
    checked = _checked_kv(facts, _checked_weights(facts, named))
    return found | {name: fact for name, fact in checked.items() if not isinstance(facts.get(name), Known)}


def _by_name(facts: Mapping[str, Reading], told: Iterable[str | None], served: Iterable[str]) -> dict[str, Reading]:
    """What the first name tells of which anything is known."""
    from vllm_doctor.vllm import checkpoints  # late: who has the config.json needs no table

    flags: dict[str, Value] = {
        name: fact.value for name, fact in facts.items() if name.startswith("--") and isinstance(fact, Known)
    }
    for flag, logged in _LOGGED_FLAGS.items():
        value = _text(facts, logged)
        if value is not None and flag not in flags:
            flags[flag] = value
    for name in told:
        if name and (found := checkpoints.facts(name, flags)):
            return found
    for name in (*served, _text(facts, BENCH_MODEL) or ""):
        if found := checkpoints.facts(name, flags):
            # A name to be served under tells the model, but that it is not quantised only if it is the checkpoint's.
            if found.get("model_quantization") == Known("none"):
                del found["model_quantization"]
            return found
    return {}


def _checked_weights(facts: Mapping[str, Reading], named: dict[str, Reading]) -> dict[str, Reading]:
    """The name's facts, with the weights that the log tells where those are others."""
    loaded, weights = _number(facts, "log:model-loaded.gib"), _number(named, "model_weights")
    count = _number(named, "parameters")
    if loaded is None or loaded <= 0 or count is None or _is_divided_otherwise(facts):
        return named
    gpus = _size(facts, "tensor-parallel-size") * _size(facts, "pipeline-parallel-size")
    total = loaded * _GIB * gpus
    if weights is not None and abs(total / weights - 1) <= _OFF:
        return named
    source = f"{_text(named, FROM)}; the log: {loaded:.4g} GiB of weights on a GPU"
    if not _LEAST <= total / count <= _MOST:  # another model under that name
        return {FROM: Known(f"not from the name ({source})", origin="log")}
    told = {name: fact for name, fact in named.items() if weights is None or name != "model_quantization"}
    return told | {"model_weights": Known(total, origin="log"), FROM: Known(source, origin="log")}


def _is_divided_otherwise(facts: Mapping[str, Reading]) -> bool:
    """Whether a GPU holds another share of the weights than tensor and pipeline parallelism give it."""
    offloaded, experts = _number(facts, "--cpu-offload-gb"), facts.get("--enable-expert-parallel")
    return bool(offloaded) or experts == Known(True) or _size(facts, "data-parallel-size") > 1


def _checked_kv(facts: Mapping[str, Reading], named: dict[str, Reading]) -> dict[str, Reading]:
    """The name's facts, without those on the KV cache where the log's memory and tokens give other ones."""
    token, heads = _number(named, "kv_bytes_per_token"), _number(named, "kv_cache_heads")
    memory, tokens = _number(facts, "log:kv-memory.gib"), _number(facts, "log:kv-cache-size.tokens")
    is_even = not _number(named, "kv_window_bytes_per_token") and not _number(named, "kv_state_bytes")
    if not token or not heads or not memory or not tokens or not is_even or _size(facts, "pipeline-parallel-size") > 1:
        return named
    split = heads / max(1, heads // _size(facts, "tensor-parallel-size"))
    split *= _size(facts, "decode-context-parallel-size")
    if abs(memory * _GIB / tokens / (token / split) - 1) <= _OFF:
        return named
    return {name: fact for name, fact in named.items() if name not in kv_cache.FACTS}


def _size(facts: Mapping[str, Reading], flag: str) -> int:
    """Of a kind of parallelism; 1 where it is not told."""
    told = _number(facts, f"--{flag}") or _number(facts, f"log:engine-config.{flag.replace('-', '_')}") or 1
    return max(1, min(4096, int(told)))


def _number(facts: Mapping[str, Reading], name: str) -> float | None:
    fact = facts.get(name)
    return float(fact.value) if isinstance(fact, Known) and type(fact.value) in (int, float) else None


def _text(facts: Mapping[str, Reading], name: str) -> str | None:
    fact = facts.get(name)
    return fact.value if isinstance(fact, Known) and isinstance(fact.value, str) else None
