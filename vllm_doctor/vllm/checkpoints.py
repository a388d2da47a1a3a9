"""What is known of a model by its name alone: a table of well-known checkpoints, or the size that the name tells.

data/checkpoints.jsonl holds a row for each shape: its names, the part of its config.json that counts here, and its
published number of parameters. Read at the first question; who has the model's own config.json needs none of this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import kv_cache, model_config, model_name, parameters
from vllm_doctor.vllm.model_config import Config, UnfitError
from vllm_doctor.vllm.model_name import Form, ModelName
from vllm_doctor.vllm.parameters import Parameters

ORIGIN = "model-name"
FROM = "model_facts_from"
"""The fact that says where the others come from."""
FACTS = (*model_config.FACTS, *kv_cache.FACTS, *parameters.FACTS, "model_weights", FROM)

_PATH = Path(__file__).parent / "data" / "checkpoints.jsonl"
_NEAR = 0.07
"""How far the size in a name may be from the count: 7B of 7.6 is written, and 30B of 32 is not."""
_NATIVE: Mapping[str, float] = {"fp8": 8.03, "mxfp4": 4.25, "compressed-tensors": 4.25}
"""Bits of a weight of checkpoints that are published so."""
_DATE = re.compile(r"2[3-9](?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])[0-3]\d")
"""2507, 0528: the month, or the day, of a release."""
_EXPERTS = re.compile(r"\d+x\d+b")
_WRITTEN = re.compile(r"(?:[a-z0-9._-]{1,100}/)?[a-z0-9._-]{4,200}")
_CHOSEN = 8 / 128
"""Share of the experts that a token chooses, where only the active parameters are told: that of most mixtures."""


@dataclass(frozen=True)
class Checkpoint:
    """A row of the table. Counts are of parameters.

    `vision`: those beside the language model (pictures, sound), which config.json's text part does not count.
    `counts`: what we cannot count, as published. `weights`: bytes as published, where they follow from no rule.
    """

    names: tuple[str, ...]
    parameters: int
    vision: int
    counts: Mapping[str, int]
    weights: int | None
    source: str
    config: Config


Named = tuple[Checkpoint, str]
"""A row, and by which of its names it was found."""


def facts(name: str, flags: Mapping[str, Value]) -> dict[str, Reading]:
    """What the name tells: those of FACTS that are known, with origin "model-name". Empty: nothing.

    `flags`: of the server, long names; --quantization, --dtype, --kv-cache-dtype and --hf-overrides count.
    model_weights: bytes of the whole model in memory. And multimodal_named, where it takes pictures or sound.
    """
    parsed = model_name.parse(name)
    meant = find(parsed)
    if meant is not None:
        found = _of_row(*meant, parsed, flags)
    else:
        size = parsed.size
        found = {} if size is None else _of_size(*size, parsed, flags)
    if (meant is not None and meant[0].vision) or _SEES.intersection(parsed.words):
        found["multimodal_named"] = _told(True)
    return {key: replace(fact, origin=ORIGIN) for key, fact in found.items() if isinstance(fact, Known)}


def find(name: ModelName) -> Named | None:
    """The row that is meant: of this repository, of this name, or of the one from which a fine-tune took its name."""
    found = _as_written(name)
    if found is not None:
        return found
    table = _table(frozenset(word for word in name.words if word.isalpha()))
    found = table.repositories.get(name.repository) or table.words.get(name.words) or table.cores.get(name.core)
    if found is not None:
        return found
    return None if name.is_other else _within(table, name)


def _as_written(name: ModelName) -> Named | None:
    """A row that has this very name: found without reading the others, which takes most of the time."""
    text = _text()
    lowered = text.lower()
    for wanted, before in ((name.repository, '"'), (name.plain, "/")):
        at = lowered.find(f'{before}{wanted}"') if _WRITTEN.fullmatch(wanted) else -1
        if at >= 0:
            row = _row(outside.json(text[text.rfind("\n", 0, at) + 1 : text.find("\n", at)]))
            return next(((row, one) for one in row.names if one.lower().endswith(wanted)), None)
    return None


@cache
def rows() -> tuple[Checkpoint, ...]:
    """The whole table."""
    return tuple(_row(outside.json(line)) for line in _text().splitlines())


def nearest(name: str, most: int = 3) -> list[str]:
    """The names of the table that are most like this one."""
    from difflib import get_close_matches  # late: only for a mistake

    wanted = name[:100].rpartition("/")[2].lower()
    known = {row.names[0].rpartition("/")[2].lower(): row.names[0] for row in reversed(rows())}
    return [known[like] for like in get_close_matches(wanted, known, most, 0.5)]


@dataclass(frozen=True)
class _Table:
    """Rows by what may name them."""

    repositories: Mapping[str, Named]
    words: Mapping[tuple[str, ...], Named]
    cores: Mapping[tuple[str, ...], Named]
    """By the words that make the shape; also without a date, and without what is active, where a size is told."""


@cache
def _text() -> str:
    return _PATH.read_text("utf-8")


@lru_cache(16)
def _table(letters: frozenset[str]) -> _Table:
    """The rows that one of these words may mean: most names are in no row, and to parse the others' takes long.

    A row is found by words of its names, at least one of them of letters.
    """
    lines = (line for line in _text().splitlines() if any(word in line.lower() for word in letters))
    repositories: dict[str, Named] = {}
    words: dict[tuple[str, ...], Named] = {}
    cores: dict[tuple[str, ...], Named] = {}
    short: dict[tuple[str, ...], Named] = {}
    for row in (_row(outside.json(line)) for line in lines):
        for name in row.names:
            parsed, named = model_name.parse(name), (row, name)
            if parsed.repository:
                repositories.setdefault(parsed.repository, named)
            words.setdefault(parsed.words, named)
            cores.setdefault(parsed.core, named)
            if parsed.sizes:  # qwen3:30b
                undated = tuple(word for word in parsed.core if not _DATE.fullmatch(word))
                short.setdefault(undated, named)
                short.setdefault(tuple(word for word in undated if not _is_active(word)), named)
    return _Table(repositories, words, {**short, **cores})


def _tells_size(word: str) -> bool:
    return model_name.size_of(word) is not None or _EXPERTS.fullmatch(word) is not None


def _is_active(word: str) -> bool:
    return word[:1] == "a" and word[1:2].isdigit()


def _row(told: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        tuple(told["names"]),
        told["parameters"],
        told.get("vision", 0),
        {key: told[key] for key in parameters.FACTS[1:] if key in told},
        told.get("weights"),
        told["source"],
        told["config"],
    )


def _within(table: _Table, name: ModelName) -> Named | None:
    """The row whose name stands in this one, the longest: Qwen3-8B in a fine-tune's name.

    Sizes beside it must be its own. A row that is named without a size is meant only where nothing else is said.
    """
    core = name.core
    for start, end in _spans(len(core)):
        meant = table.cores.get(core[start:end])
        if meant is None:
            continue
        inside, beside = core[start:end], core[:start] + core[end:]
        sizes = [size for word in beside if (size := model_name.size_of(word)) is not None]
        others = [word for word in beside if not _is_active(word)]
        if any(abs(size / meant[0].parameters - 1) > _NEAR for size in sizes):
            return None
        if len(others) < len(beside) and not sizes:
            return None
        if any(_tells_size(word) for word in inside) and _SENSES.isdisjoint(beside):
            return meant
        if len(inside) > 1 and len(sizes) == len(others):
            return meant
    return None


_SENSES = frozenset({"vl", "vision", "audio", "omni", "llava", "embedding", "embed", "reranker", "vlm", "ocr", "asr"})
"""Words beside a name, after which it is another model that was built on it."""


_SEES = frozenset({"vl", "vision", "omni", "llava", "vlm", "ocr", "pixtral", "internvl"})
"""Words of models that take pictures."""


def _spans(length: int) -> Iterator[tuple[int, int]]:
    """All parts of at most twelve words, the longest first."""
    for size in range(min(length, 12), 0, -1):
        for start in range(min(length, 40) - size + 1):
            yield start, start + size


# ---- a row of the table


def _of_row(row: Checkpoint, found_by: str, name: ModelName, flags: Mapping[str, Value]) -> dict[str, Reading]:
    config = model_config.overridden(row.config, flags.get("--hf-overrides"))
    form, counted = _form(row.config, name, flags), _counted(row, config)
    found: dict[str, Reading] = {**model_config.facts(config), **kv_cache.facts(config, flags)}
    if counted is not None:
        counts = (counted.all, counted.experts, counted.used)
        found |= {key: _told(float(count)) for key, count in zip(parameters.FACTS, counts, strict=True)}
        published = row.weights is not None and form is _AS_PUBLISHED
        weights = row.weights if published else _weights(config, row.vision, counted, form, flags)
        if weights is not None:
            found["model_weights"] = _told(float(weights))
    if form is not _AS_PUBLISHED:
        found["model_quantization"] = _told("none" if form is None else form.method)
    if name.form is not None and form is not _AS_PUBLISHED:
        del found["model_dtype"]  # another checkpoint's activations may be of another type: AWQ's are float16
    return found | {FROM: _told(f"checkpoint table: {found_by}")}


_AS_PUBLISHED = Form("published", None)


def _form(config: Config, name: ModelName, flags: Mapping[str, Value]) -> Form | None:
    """How the weights are stored: by the name, by --quantization, or as the checkpoint is published; None: 16 bits."""
    native = model_config.quantization_of(config)
    if name.form is not None:
        return _AS_PUBLISHED if native is not None and native.get("quant_method") == name.form.method else name.form
    if name.is_plain:
        return None
    if native is not None:
        return _AS_PUBLISHED
    return model_name.asked(flags.get("--quantization"))


def _counted(row: Checkpoint, config: Config) -> Parameters | None:
    """The published counts; ours where --hf-overrides made it another model."""
    try:
        ours = parameters.of_model(config)
    except UnfitError:
        ours = None
    if ours is not None and config != row.config and ours != parameters.of_model(row.config):
        return ours
    experts = row.counts.get("expert_parameters", ours.experts if ours else None)
    used = row.counts.get("parameters_used", ours.used if ours else None)
    return None if experts is None or used is None else Parameters(row.parameters, experts, min(used, row.parameters))


def _weights(
    config: Config, vision: int, counted: Parameters, form: Form | None, flags: Mapping[str, Value]
) -> float | None:
    """Bytes in memory; None where the form does not tell how many bits a weight has."""
    plain = 4.0 if flags.get("--dtype") in ("float32", "float") else 2.0
    if form is None:
        return counted.all * plain
    text = model_config.text_part(config)
    bits = form.bits
    if form is _AS_PUBLISHED:
        native = model_config.quantization_of(config) or {}
        bits = _NATIVE.get(str(native.get("quant_method")))
    if bits is None:
        return None
    if form.whole:
        return (counted.all - vision) * bits / 8 + vision * plain
    try:
        embedding = parameters.vocabulary(text) * model_config.hidden_size(text)
    except UnfitError:
        embedding = 0
    kept = min(counted.all, vision + embedding * (1 if parameters.is_tied(config) else 2))
    return (counted.all - kept) * bits / 8 + kept * plain


# ---- a size alone


def _of_size(size: float, used: float, name: ModelName, flags: Mapping[str, Value]) -> dict[str, Reading]:
    """A model of the usual shape of its size: layers and width as in the table's dense models with 8 KV heads."""
    is_mixture = used < size
    shape = math.sqrt(size * used)  # a mixture has fewer layers than a dense model of all its parameters
    config: dict[str, Any] = {
        "model_type": "llama",
        "num_hidden_layers": round(_usual("num_hidden_layers", shape)),
        "hidden_size": 128 * max(1, round(_usual("hidden_size", shape) / 128)),
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128_000,
    }
    config["num_attention_heads"] = max(8, config["hidden_size"] // 128)
    experts = (size - used) / (1 - _CHOSEN) if is_mixture else 0.0
    counted = Parameters(round(size), round(experts), round(used))
    form = name.form or (None if name.is_plain else model_name.asked(flags.get("--quantization")))
    weights = _weights(config, 0, counted, form, flags)
    told = model_config.facts(config)
    # how many attention heads there are decides whether vLLM starts: no usual shape tells that
    found: dict[str, Reading] = {key: told[key] for key in ("hidden_layers", "hidden_size", "kv_heads")}
    found |= kv_cache.facts(config, flags)
    counts = (counted.all, counted.experts, counted.used)
    found |= {key: _told(float(count)) for key, count in zip(parameters.FACTS, counts, strict=True)}
    found |= {
        "model_experts": _told(128.0 if is_mixture else 0.0),
        "experts_per_token": _told(8.0 if is_mixture else 0.0),
        FROM: _told(f"the size in the name: {_billions(size)}" + (f"-A{_billions(used)}" if is_mixture else "")),
    }
    if weights is not None:
        found["model_weights"] = _told(weights)
    if form is not None:
        found["model_quantization"] = _told(form.method)
    return found


def _billions(size: float) -> str:
    return f"{size / 1e9:g}B" if size >= 1e9 else f"{size / 1e6:g}M"


def _usual(key: str, size: float) -> float:
    """The line through the table's models, both axes logarithmic."""
    factor, power = _line(key)
    return float(factor * size**power)


@cache
def _line(key: str) -> tuple[float, float]:
    """(factor, power) of factor * parameters ** power, by least squares."""
    points = [(math.log(row.parameters), math.log(row.config[key])) for row in rows() if _is_usual(row.config)]
    return _fitted(points)


def _fitted(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    x = sum(point[0] for point in points) / len(points)
    y = sum(point[1] for point in points) / len(points)
    power = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return math.exp(y - power * x), power


def _is_usual(config: Config) -> bool:
    """A dense model with 8 KV heads of 128."""
    if config["model_type"] not in ("llama", "mistral", "qwen2", "qwen3") or config.get("num_key_value_heads") != 8:
        return False
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return bool(dim == 128 and not config.get("vision_config"))


def _told(value: Value) -> Known:
    return Known(value, origin=ORIGIN)
