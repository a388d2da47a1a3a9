"""The recipes of vllm-project/recipes beside a server."""

from __future__ import annotations

from vllm_doctor.model.facts import COMMAND, ENVIRONMENT
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import flags, recipes

MODEL = "Qwen/Qwen3.6-27B-FP8"
GPU = "RTX PRO 6000"


def _facts(**written: Value) -> dict[str, Reading]:
    named = {name.replace("_", "-") if name.startswith("--") else name: value for name, value in written.items()}
    return {name: Known(value, origin="") for name, value in {COMMAND: True, ENVIRONMENT: True, **named}.items()}


def _differences(facts: dict[str, Reading], version: str = "0.25.1") -> dict[str, recipes.Difference]:
    found = recipes.beside(MODEL, GPU, version, facts)
    assert found.recipe is not None
    return {one.name: one for one in found.differences}


def test_what_is_not_set_and_what_is_set_otherwise() -> None:
    nothing = _differences(_facts())
    assert (nothing["VLLM_USE_DEEP_GEMM"].recipe, nothing["VLLM_USE_DEEP_GEMM"].here) == ("0", "not set")
    assert nothing["--max-num-seqs"].matters
    assert not nothing["--trust-remote-code"].matters
    other = _differences(_facts(**{"--max-num-seqs": 8.0, "$VLLM_USE_DEEP_GEMM": 0.0}))
    assert other["--max-num-seqs"].here == 8.0
    assert "VLLM_USE_DEEP_GEMM" not in other


def test_an_environment_that_nobody_saw_is_not_known() -> None:
    facts = _facts()
    del facts[ENVIRONMENT]
    assert _differences(facts)["VLLM_USE_DEEP_GEMM"].here == "not known"


def test_nothing_is_compared_across_hardware_or_releases() -> None:
    assert recipes.beside(MODEL, "L4", "0.25.1", _facts()).differences == ()
    assert "none for L4" in recipes.beside(MODEL, "L4", "0.25.1", _facts()).why_not
    older = recipes.beside(MODEL, GPU, "0.12.0", _facts())
    assert older.differences == ()
    assert "0.12.0 is older" in older.why_not
    assert "name it with --gpu" in recipes.beside(MODEL, "", "0.25.1", _facts()).why_not
    assert recipes.beside("foo/bar", GPU, "0.25.1", _facts()).recipe is None


def test_each_recipe_is_of_a_known_gpu_and_of_vllms_flags() -> None:
    every = [one for model in ("openai/gpt-oss-120b", MODEL, "moonshotai/Kimi-K2.5") for one in recipes.of_model(model)]
    assert every
    for recipe in every:
        assert recipes.of_gpu([recipe], recipe.gpu) is recipe
        assert flags.number(recipe.since) is not None
        assert all(flags.is_flag(name.partition(".")[0]) for name in recipe.flags)
        assert not any(word in name for name in recipe.env for word in ("TOKEN", "SECRET", "PASSWORD"))
    assert all(flags.is_flag(name) for name in recipes.MATTERS)
    assert len(recipes.commit()) == 40
