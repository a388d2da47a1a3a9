"""A model's facts by its name, where its config.json is not at hand, and what the log says against them."""

from __future__ import annotations

import pytest

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.rules import rule_set
from vllm_doctor.session import named_model
from vllm_doctor.session.patients import Examined

GIB = 1024.0**3
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def of(told: list[str | None], served: tuple[str, ...] = (), **known: Value) -> dict[str, Value]:
    """The facts with the name's; `known` without the dashes: tensor_parallel_size=2.0, log__kv_memory__gib=…"""
    facts: dict[str, Reading] = {}
    for name, value in known.items():
        fact = name.replace("__", ".").replace("_", "-") if name.startswith("log") else f"--{name.replace('_', '-')}"
        facts[fact.replace("log.", "log:")] = Known(value)
    found = named_model.completed(facts, told, served)
    return {name: fact.value for name, fact in found.items() if isinstance(fact, Known)}


def test_what_was_loaded_comes_before_what_it_is_served_as() -> None:
    assert of(["/models/Qwen3-8B"], (LLAMA,))["model_facts_from"] == "checkpoint table: Qwen/Qwen3-8B"
    assert of(["/models/prod"], (LLAMA,))["model_facts_from"] == f"checkpoint table: {LLAMA}"
    assert of([None], ("gpt-4",)) == {}


def test_a_root_comes_before_all() -> None:
    facts: dict[str, Reading] = {"model_root": Known("Qwen/Qwen3-8B"), "--model": Known(LLAMA)}
    assert named_model.completed(facts, (), ())["hidden_layers"] == Known(36.0)


def test_a_served_name_does_not_say_that_nothing_is_quantised() -> None:
    assert of([LLAMA])["model_quantization"] == "none"
    assert "model_quantization" not in of([], (LLAMA,))
    assert of([], (f"{LLAMA}-FP8",))["model_quantization"] == "fp8"


def test_a_benchmark_names_what_is_served() -> None:
    found = named_model.completed({"bench_model": Known(LLAMA)}, (), ())
    assert found["model_facts_from"] == Known(f"checkpoint table: {LLAMA}")
    assert "model_quantization" not in found


def test_config_json_is_believed() -> None:
    facts: dict[str, Reading] = {"hidden_layers": Known(2.0), "--model": Known(LLAMA)}
    found = named_model.completed(facts, (LLAMA,), ())
    assert found["hidden_layers"] == Known(2.0)
    assert found["model_facts_from"] == Known("config.json")
    assert "parameters" not in found


def test_a_config_json_that_we_cannot_count_has_the_published_counts() -> None:
    facts: dict[str, Reading] = {"hidden_layers": Known(43.0), "hidden_size": Known(4096.0)}
    found = named_model.completed(facts, ("deepseek-ai/DeepSeek-V4-Flash",), ())
    assert found["parameters"] == Known(284e9)
    assert "kv_heads" not in found
    other = named_model.completed({**facts, "hidden_layers": Known(4.0)}, ("deepseek-ai/DeepSeek-V4-Flash",), ())
    assert "parameters" not in other


def test_the_flags_count() -> None:
    assert of([LLAMA], kv_cache_dtype="fp8")["kv_bytes_per_token"] == 65_536
    assert of([LLAMA], quantization="fp8")["model_weights"] == pytest.approx(9.1e9, rel=0.02)


def test_the_log_agrees() -> None:
    told = of([LLAMA], log__model_loaded__gib=7.51, tensor_parallel_size=2.0)
    assert told["model_facts_from"] == f"checkpoint table: {LLAMA}"
    assert told["model_weights"] == pytest.approx(16.06e9)


def test_the_log_says_that_the_weights_are_stored_otherwise() -> None:
    told = of([LLAMA], log__model_loaded__gib=2.8, tensor_parallel_size=2.0)
    assert told["model_weights"] == pytest.approx(5.6 * GIB)
    assert "model_quantization" not in told
    assert told["hidden_layers"] == 32
    assert told["model_facts_from"] == f"checkpoint table: {LLAMA}; the log: 2.8 GiB of weights on a GPU"


@pytest.mark.parametrize("gib", [61.0, 0.5])
def test_the_log_says_that_it_is_another_model(gib: float) -> None:
    told = of([LLAMA], log__model_loaded__gib=gib)
    assert "hidden_layers" not in told
    assert "model_weights" not in told
    assert str(told["model_facts_from"]).startswith("not from the name")


def test_offloaded_weights_are_not_compared() -> None:
    told = of([LLAMA], log__model_loaded__gib=5.0, cpu_offload_gb=10.0)
    assert told["model_weights"] == pytest.approx(16.06e9)


def test_a_pool_of_other_tokens_is_not_that_of_the_name() -> None:
    tokens = 100_000.0
    alike = of([LLAMA], log__kv_memory__gib=tokens * 131_072 / GIB, log__kv_cache_size__tokens=tokens)
    assert alike["kv_bytes_per_token"] == 131_072
    told = of([LLAMA], log__kv_memory__gib=tokens * 65_536 / GIB, log__kv_cache_size__tokens=tokens)
    assert "kv_bytes_per_token" not in told
    assert told["hidden_layers"] == 32


def test_a_patient_has_the_facts_of_its_name() -> None:
    command = Observation(
        SourceKind.COMMAND,
        "--command",
        facts={"command": Known(True), "gpu_memory_total": Known(80 * GIB)},
        models=("Qwen/Qwen2.5-72B-Instruct-AWQ",),
        patient="s",
        command=("vllm", "serve", "Qwen/Qwen2.5-72B-Instruct-AWQ"),
    )
    snapshot = Examined((command,)).snapshot(rule_set.load(()).catalogue, {}, is_tagged=False)
    values = {name: snapshot.read(name, ())[1] for name in ("gpus_needed", "weights_per_gpu", "model_facts_from")}
    assert values["gpus_needed"] == Known(1.0)
    assert values["model_facts_from"] == Known("checkpoint table: Qwen/Qwen2.5-72B-Instruct")
