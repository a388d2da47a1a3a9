"""A server beside its recipe, for a reader."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from vllm_doctor.vllm import recipes
from vllm_doctor.vllm.recipes import Beside, Difference

_WIDTH = 100


def render(found: Beside) -> str:
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Beside) -> Iterator[str]:
    if found.recipe is None or found.why_not:
        yield from textwrap.wrap(found.why_not, _WIDTH)
        return
    recipe = found.recipe
    where = f"{recipes.REPOSITORY}@{recipes.commit()[:12]} {recipe.source}"
    yield f"{where}, {recipe.gpu}, vLLM {recipe.since} and later"
    yield f"compared to {recipe.model} on vLLM {found.version}{'' if found.is_told else ', as the version is unknown'}"
    yield ""
    matter = [one for one in found.differences if one.matters]
    if not matter:
        yield "Nothing differs on which throughput depends, as far as it is known."
    for one in matter:
        yield f"  {_set(one):<46} here {_here(one)}"
        yield from textwrap.wrap(one.matters, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    others = [_set(one) for one in found.differences if not one.matters]
    if others:
        yield ""
        yield from textwrap.wrap(f"No matter of speed: {', '.join(others)}", _WIDTH, break_on_hyphens=False)
    yield ""
    yield from textwrap.wrap(
        "A recipe is a start that its authors found to work on that hardware, no measurement of each setting:"
        " try one at a time, under the same load (vllm-doctor compare).",
        _WIDTH,
    )


def _set(one: Difference) -> str:
    value = int(one.recipe) if isinstance(one.recipe, float) and one.recipe.is_integer() else one.recipe
    if one.name.startswith("--"):
        return one.name if value is True else f"{one.name} {value}"
    return f"{one.name}={value}"


def _here(one: Difference) -> str:
    said = f"{one.here:g}" if isinstance(one.here, float) else str(one.here)
    return f"{said}: {one.default}" if one.default else f"{said}: vLLM decides" if one.here == "not set" else said
