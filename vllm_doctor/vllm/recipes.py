"""The recipes of vllm-project/recipes as facts (data/recipes.jsonl, written by tests/lab/recipes.py): what they set for
a model on a GPU, and where a server is set otherwise. Pure.

A recipe is a start that its authors found to work on that hardware; it is no measurement of each setting.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from vllm_doctor.model import outside
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import flags, gpu_names

REPOSITORY = "vllm-project/recipes"
MATTERS: Mapping[str, str] = {
    "--tensor-parallel-size": "over how many GPUs each layer is divided",
    "--data-parallel-size": "how many copies of the model there are",
    "--enable-expert-parallel": "whether experts are divided over the GPUs whole",
    "--kv-cache-dtype": "how many tokens the KV cache holds; FP8 may cost quality",
    "--block-size": "in which steps the KV cache is given out, and which attention backends fit",
    "--attention-backend": "the kernels of attention",
    "--moe-backend": "the kernels of the experts",
    "--linear-backend": "the kernels of linear layers",
    "--mamba-backend": "the kernels of recurrent layers",
    "--quantization": "how the weights are stored",
    "--dtype": "in which type it computes",
    "--compilation-config": "what is compiled, and captured as graphs",
    "--max-cudagraph-capture-size": "up to which batch steps run as a graph",
    "--enforce-eager": "whether anything is compiled or captured",
    "--max-num-batched-tokens": "how many tokens a step takes",
    "--max-num-seqs": "how many requests run at a time",
    "--enable-prefix-caching": "whether shared beginnings are computed once",
    "--enable-chunked-prefill": "whether long prompts are cut",
    "--async-scheduling": "whether the next step is prepared while one runs",
    "--gpu-memory-utilization": "how much memory is left for the KV cache",
    "--speculative-config": "whether tokens are drafted",
    "--mm-encoder-tp-mode": "how the vision encoder is divided",
    "--mm-processor-cache-gb": "whether processed pictures are kept",
}
"""The flags of a recipe on which throughput depends, and how."""
_NO_MATTER = ("VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_VIDEO_LOADER_BACKEND")
Here = Literal["not set", "not known"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What it sets for one model on one GPU. `since`: the least vLLM that it asks for."""

    model: str
    gpu: str
    since: str
    flags: Mapping[str, Value]
    env: Mapping[str, str]
    source: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting of the recipe, what there is in its place, and what depends on it ("": nothing of speed).

    `default`: what the release takes where it is not set; "" where vLLM decides as it starts, or that is not known."""

    name: str
    recipe: Value
    here: Value | Here
    matters: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """A server, and the recipe of its model on its GPU. `why_not`: in a sentence, where there is none to compare;
    `is_told`: whether the version is the server's own."""

    recipe: Recipe | None
    version: str
    why_not: str = ""
    differences: tuple[Difference, ...] = ()
    is_told: bool = True


@functools.cache
def _read() -> tuple[Mapping[str, tuple[Recipe, ...]], str]:
    """By the model's name, and the commit."""
    lines = resources.files("vllm_doctor.vllm").joinpath("data", "recipes.jsonl").read_text("utf-8").splitlines()
    head, *rows = map(outside.json, lines)
    found: dict[str, list[Recipe]] = {}
    for row in rows:
        for gpu in row["gpus"]:
            recipe = Recipe(row["model"], gpu, row["since"], row["flags"], row["env"], row["source"])
            found.setdefault(recipe.model.lower(), []).append(recipe)
    return {model: tuple(recipes) for model, recipes in found.items()}, head["commit"]


def commit() -> str:
    """That of the repository, from which they are."""
    return _read()[1]


def of_model(model: str) -> tuple[Recipe, ...]:
    """One for each GPU on which the model was run."""
    return _read()[0].get(model.lower(), ())


def of_gpu(recipes: Iterable[Recipe], gpu: str) -> Recipe | None:
    """That for the GPU of this name, as its driver or a person names it."""
    named = gpu_names.named(gpu)
    if named is None:
        return None
    return next((one for one in recipes if (it := gpu_names.named(one.gpu)) and it.gpu.name == named.gpu.name), None)


def beside(model: str | None, gpu: str, version: str, facts: Mapping[str, Reading]) -> Beside:
    """`model`: its name on the Hub; `gpu`: "" where none is known. Nothing is compared across hardware or releases."""
    known = of_model(model or "")
    if not known:
        return Beside(None, version, f"No recipe of {REPOSITORY} that is known here is for {model or 'this model'}.")
    if not gpu:
        return Beside(None, version, f"The GPU is not known: name it with --gpu. The recipes are for {_names(known)}.")
    recipe = of_gpu(known, gpu)
    if recipe is None:
        return Beside(None, version, f"{known[0].model} has recipes for {_names(known)}, and none for {gpu}.")
    if not is_for(recipe, version):
        asks = f"The recipe ({recipe.source}) asks for vLLM {recipe.since} and later"
        return Beside(recipe, version, f"{asks}: {version} is older, and not compared.")
    return Beside(recipe, version, "", tuple(differences(recipe, facts, version)))


def _names(known: Iterable[Recipe]) -> str:
    return ", ".join(dict.fromkeys(one.gpu for one in known))


def is_for(recipe: Recipe, version: str) -> bool:
    """Whether the release has all that the recipe asks for, as far as its authors say."""
    asked, has = flags.number(recipe.since), flags.number(flags.judged_as(version) or "")
    return asked is not None and has is not None and has >= asked


def differences(recipe: Recipe, facts: Mapping[str, Reading], version: str) -> list[Difference]:
    """Where the server is set otherwise; what matters comes first. What is set as its release has it anyway is no
    difference."""
    found = []
    for name, value in recipe.flags.items():
        here = _here(name, facts, COMMAND)
        default = flags.flag(version, name)
        if here == "not set" and default is not None and _is_same(value, default.default):
            continue
        if not _is_same(value, here):
            taken = default.default if default is not None and here == "not set" else None
            matters = MATTERS.get(name.partition(".")[0], "")
            found.append(Difference(name, value, here, matters, taken if taken not in (None, "None") else ""))
    for name, text in recipe.env.items():
        here = _here(f"${name}", facts, ENVIRONMENT)
        if not _is_same(text, here):
            matters = "which kernels are taken, or how" if name.startswith("VLLM_") and name not in _NO_MATTER else ""
            found.append(Difference(name, text, here, matters))
    return sorted(found, key=lambda one: not one.matters)


def _here(name: str, facts: Mapping[str, Reading], whole: str) -> Value | Here:
    reading = facts.get(name)
    if isinstance(reading, Known):
        return reading.value
    return "not set" if reading is None and isinstance(facts.get(whole), Known) else "not known"


def _is_same(one: object, other: object) -> bool:
    """As people write values: 8 and 8.0, flashinfer and FLASHINFER, 1 and "1"."""
    return _plain(one) == _plain(other)


def _plain(value: object) -> str:
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return text.strip().lower().replace(" ", "")
