"""The table of checkpoints: its own figures, names as people write them, and what follows from a name alone."""

import math
from typing import Any

import pytest

from vllm_doctor.model.reading import Known
from vllm_doctor.vllm import checkpoints, kv_cache, model_name, parameters
from vllm_doctor.vllm.checkpoints import Checkpoint
from vllm_doctor.vllm.model_config import UnfitError

ROWS = checkpoints.rows()
GIB = 1024.0**3


def by_name(row: Checkpoint) -> str:
    return row.names[0]


def of(name: str, **flags: str) -> dict[str, Any]:
    """What the name tells, as plain values; flags as quantization="awq"."""
    given = {f"--{flag.replace('_', '-')}": value for flag, value in flags.items()}
    return {key: fact.value for key, fact in checkpoints.facts(name, given).items() if isinstance(fact, Known)}


def meant(name: str) -> str:
    """The first name of the row that is meant; "" for none."""
    found = checkpoints.find(model_name.parse(name))
    return found[0].names[0] if found else ""


# ---- the table


def test_the_table_is_large_and_each_name_stands_once() -> None:
    names = [name.lower() for row in ROWS for name in row.names]
    assert len(ROWS) >= 200
    assert len(names) == len(set(names))
    assert all(row.source for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_a_row_is_found_by_each_of_its_names(row: Checkpoint) -> None:
    for name in row.names:
        found = checkpoints.find(model_name.parse(name))
        assert found is not None
        assert found[0] == row


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_each_name_has_a_word_of_letters(row: Checkpoint) -> None:
    """By which the rows are chosen that are looked through for a name (checkpoints.find)."""
    for name in map(model_name.parse, row.names):
        assert any(word.isalpha() and word in str(row.names).lower() for word in name.core)


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_what_we_count_is_what_is_published(row: Checkpoint) -> None:
    try:
        counted = parameters.of_model(row.config)
    except UnfitError:
        assert set(row.counts) == {"expert_parameters", "parameters_used"}
        return
    assert counted.all + row.vision == pytest.approx(row.parameters, rel=0.03)


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_each_row_gives_counts_and_weights(row: Checkpoint) -> None:
    told = of(row.names[0])
    assert 0 <= told["expert_parameters"] < told["parameters"]
    assert 0 < told["parameters_used"] <= told["parameters"]
    assert 0.4 <= told["model_weights"] / told["parameters"] <= 2.0
    assert all(math.isfinite(value) for value in told.values() if isinstance(value, float))
    assert bool(told["model_experts"]) == bool(told["expert_parameters"])


@pytest.mark.parametrize("name", ["4B", "7B", "14B", "32B", "70B", "123B"])
def test_the_usual_shape_is_near_that_of_real_models(name: str) -> None:
    real = {"4B": 36, "7B": 32, "14B": 40, "32B": 64, "70B": 80, "123B": 88}[name]
    told = of(f"acme/foo-{name}")
    assert told["hidden_layers"] == pytest.approx(real, rel=0.25)
    assert told["kv_bytes_per_token"] == told["hidden_layers"] * 2 * 8 * 128 * 2


# ---- figures that others have published or logged


@pytest.mark.parametrize(
    ("name", "kv"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("meta-llama/Llama-3.3-70B-Instruct", 327_680),
        ("meta-llama/Llama-2-7b-chat-hf", 524_288),
        ("deepseek-ai/DeepSeek-V3", 70_272),
        ("deepseek-ai/DeepSeek-V3.2", 61 * (1152 + 132)),
        ("Qwen/Qwen2.5-7B-Instruct", 57_344),
        ("Qwen/Qwen3-30B-A3B", 98_304),
        ("Qwen/Qwen3-235B-A22B", 192_512),
        ("MiniMaxAI/MiniMax-M2.5", 253_952),
    ],
)
def test_kv_bytes_of_a_token(name: str, kv: int) -> None:
    assert of(name)["kv_bytes_per_token"] == kv


def test_half_of_the_layers_of_gpt_oss_keep_a_window() -> None:
    told = of("openai/gpt-oss-120b")
    assert told["kv_bytes_per_token"] == told["kv_window_bytes_per_token"] == 36_864
    assert told["kv_window"] == 128


def test_an_fp8_cache_takes_half() -> None:
    assert of("meta-llama/Llama-3.1-8B", kv_cache_dtype="fp8")["kv_bytes_per_token"] == 65_536


# What vLLM said on loading ("Model loading took"), GiB on all GPUs.
LOADED = [
    ("meta-llama/Meta-Llama-3.1-8B-Instruct", 14.99),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", 29.08),
    ("/models/Qwen3-Coder-30B-A3B-Instruct/", 56.93),
    ("/models/Qwen3-235B-A22B-FP8", 221.3),
    ("Qwen3-30B-A3B-Instruct-2507-Int4-W4A16", 15.79),
    ("casperhansen/deepseek-r1-distill-qwen-14b-awq", 9.49),
    ("Qwen/Qwen2.5-14B-Instruct-AWQ", 9.38),
    ("Qwen/Qwen2.5-1.5B-Instruct", 2.89),
    ("Qwen3.6-27B-FP8", 27.67),
    ("microsoft/Phi-3-mini-4k-instruct", 7.12),
    ("Qwen/Qwen2.5-32B-Instruct", 61.56),
    ("llava-1.5-7b-hf-awq", 4.25),
    ("RedHatAI/Qwen3.8-27B-INT4", 18.5),
    ("RedHatAI/gemma-4-26B-A4B-it-NVFP4", 15.88),
    ("deepseek-r1", 645.1),
    ("google/gemma-3-4b-it", 8.58),
    ("openai/gpt-oss-20b", 13.72),
]


@pytest.mark.parametrize(("name", "gib"), LOADED)
def test_weights_are_what_vllm_loads(name: str, gib: float) -> None:
    assert of(name)["model_weights"] / GIB == pytest.approx(gib, rel=0.08)


# ---- names


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen/Qwen2.5-72B"),
        ("/models/llama-3-70b-instruct-gptq/", "meta-llama/Meta-Llama-3-70B"),
        ("TheBloke/Llama-2-13B-chat-GPTQ", "meta-llama/Llama-2-13b-hf"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "mistralai/Mixtral-8x7B-v0.1"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-70B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-8B"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen/Qwen3-32B"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-ai/DeepSeek-V3"),
        ("Qwen2.5-7B-Instruct-Q4_K_M.gguf", "Qwen/Qwen2.5-7B"),
        ("bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M", "Qwen/Qwen2.5-7B"),
        ("/data/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46dd6066d109eabc6255188de91218", "Qwen/Qwen3-8B"),
        ("s3://bucket/models/Qwen3-14B/", "Qwen/Qwen3-14B"),
        ("Qwen3-8B/awq", "Qwen/Qwen3-8B"),
        ("/root/.cache/modelscope/hub/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("meta.llama3-1-8b-instruct-v1:0", "meta-llama/Llama-3.1-8B"),
        ("mixtral-8x7b-32768", "mistralai/Mixtral-8x7B-v0.1"),
        ("QuantTrio/GLM-4.5-Air-AWQ-FP16Mix", "zai-org/GLM-4.5-Air"),
        ("qwen2.5:7b-instruct-q5_K_M", "Qwen/Qwen2.5-7B"),
        ("/mnt/qwen3/8b/1", "Qwen/Qwen3-8B"),
        ("qwen2.5-vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct"),
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B"),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", "meta-llama/Llama-3.1-8B"),
        ("qwen3:30b", "Qwen/Qwen3-30B-A3B"),
        ("gpt-oss:20b", "openai/gpt-oss-20b"),
        ("gemma3:27b", "google/gemma-3-27b-it"),
        ("deepseek-r1:671b", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-r1-14b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "meta-llama/Llama-3.1-8B"),
        ("GLM-4.5-Air-106B-A12B", "zai-org/GLM-4.5-Air"),
        ("Mistral-Small-3.2-24B", "mistralai/Mistral-Small-3.1-24B-Instruct-2503"),
        ("some-company/sales-llama-3.1-8b-v2", "meta-llama/Llama-3.1-8B"),
        ("QuantTrio/Qwen3-VL-30B-A3B-Instruct-AWQ", "Qwen/Qwen3-VL-30B-A3B-Instruct"),
        ("huihui-ai/Huihui-gpt-oss-20b-mxfp4-abliterated-v2", "openai/gpt-oss-20b"),
    ],
)
def test_names_that_people_write(name: str, row: str) -> None:
    assert meant(name) == row


@pytest.mark.parametrize(
    "name",
    [
        "my-model",
        "gpt-4",
        "gpt-4o",
        "llm",
        "default",
        "llama",
        "qwen",
        "/opt/ml/model",
        "",
        "/",
        "...",
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "acme/llama-3.1-8b-lora",
        "cerebras/GLM-4.5-Air-REAP-82B-A12B",
        "microsoft/Phi-4-mini-flash-reasoning",
        "acme/foo-8x70b",
        "acme/merge-7b-13b",
        "google/gemma-9n-E4B",
        "poolside/Laguna-S-2.1-INT4",
    ],
)
def test_names_that_tell_nothing(name: str) -> None:
    assert of(name) == {}


@pytest.mark.parametrize(
    ("name", "not_row"),
    [
        ("Qwen/Qwen2.5-70B", "Qwen/Qwen2.5-72B"),
        ("Qwen3.9-27B", "Qwen/Qwen3.5-27B"),
        ("llama-3.1-80b", "meta-llama/Llama-3.1-8B"),
        ("Qwen3-8B-VL", "Qwen/Qwen3-8B"),
        ("llama-4-8b", "meta-llama/Meta-Llama-3-8B"),
        ("Qwen3-1.8B", "Qwen/Qwen3-8B"),
    ],
)
def test_a_near_name_is_another_model(name: str, not_row: str) -> None:
    assert meant(name) != not_row


def test_a_size_in_the_name_is_better_than_nothing() -> None:
    told = of("acme/foo-72B-Chat")
    assert told["parameters"] == told["parameters_used"] == 72e9
    assert told["model_facts_from"] == "the size in the name: 72B"
    assert "model_context" not in told
    assert "model_dtype" not in told


def test_a_mixture_by_its_name() -> None:
    told = of("acme/foo-40B-A4B-FP8")
    assert (told["parameters"], told["parameters_used"]) == (40e9, 4e9)
    chosen = told["experts_per_token"] / told["model_experts"]
    assert told["expert_parameters"] * (1 - chosen) == pytest.approx(36e9, rel=0.01)
    assert told["model_weights"] == pytest.approx(40e9, rel=0.1)


def test_what_is_told_says_whence() -> None:
    told = checkpoints.facts("Qwen/Qwen3-8B", {})
    assert {getattr(fact, "origin", None) for fact in told.values()} == {"model-name"}
    assert set(told) <= set(checkpoints.FACTS)
    assert told["model_facts_from"] == Known("checkpoint table: Qwen/Qwen3-8B")


# ---- how the weights are stored


@pytest.mark.parametrize(
    ("name", "flags", "method", "bytes_of_one"),
    [
        ("Qwen/Qwen3-32B", {}, "none", 2.0),
        ("Qwen/Qwen3-32B", {"dtype": "float32"}, "none", 4.0),
        ("Qwen/Qwen3-32B", {"quantization": "fp8"}, "fp8", 1.05),
        ("Qwen/Qwen3-32B", {"quantization": "bitsandbytes"}, "bitsandbytes", 0.63),
        ("Qwen/Qwen3-32B-AWQ", {"quantization": "awq_marlin"}, "awq", 0.6),
        ("Qwen/Qwen3-32B-GPTQ-Int8", {}, "gptq", 1.08),
        ("Qwen/Qwen3-32B-Q8_0.gguf", {}, "gguf", 1.06),
        ("deepseek-ai/DeepSeek-R1", {}, "fp8", 1.007),
        ("cognitivecomputations/DeepSeek-R1-AWQ", {}, "awq", 0.535),
        ("openai/gpt-oss-120b", {}, "mxfp4", 0.5585),
        ("unsloth/gpt-oss-120b-BF16", {}, "none", 2.0),
        ("cpatonn/Qwen3-30B-A3B-AWQ-8bit", {}, "awq", 1.05),
        ("qwen2.5:7b-instruct-q5_K_M", {}, "gguf", 0.7125),
    ],
)
def test_bytes_of_a_parameter(name: str, flags: dict[str, str], method: str, bytes_of_one: float) -> None:
    told = of(name, **flags)
    assert told["model_quantization"] == method
    assert told["model_weights"] / told["parameters"] == pytest.approx(bytes_of_one, rel=0.01)


def test_a_form_of_unknown_bits_leaves_the_weights_open() -> None:
    assert "model_weights" not in of("acme/Llama-3.1-8B-exl2")
    assert "model_weights" not in of("acme/Llama-3.1-8B-GGUF")


def test_overrides_make_it_another_model() -> None:
    told = of("Qwen/Qwen3-8B", hf_overrides='{"num_hidden_layers": 4}')
    assert told["hidden_layers"] == 4
    assert told["parameters"] < 3e9


# ---- a stranger's text


@pytest.mark.parametrize(
    "name",
    [
        "8b" * 100_000,
        "-" * 100_000 + "7b",
        "q4_k_" * 50_000,
        "/" * 100_000,
        "models--" * 20_000,
        "llama-3.1-8b-" * 20_000,
        "\x1b]0;8b\x07",
        "٨b-7b",
        "9" * 5000 + "b",
        "1e999b",
        "0b",
        "a" * 1000 + "8b",
        "\ud8007b",
    ],
)
def test_hostile_names_end_and_give_finite_figures(name: str) -> None:
    told = of(name)
    assert all(math.isfinite(value) for value in told.values() if isinstance(value, float))
    assert all(value.isprintable() for value in told.values() if isinstance(value, str))


def test_hostile_flags_do_no_harm() -> None:
    for flags in ({"hf_overrides": "{"}, {"hf_overrides": '{"num_hidden_layers": -1}'}, {"kv_cache_dtype": "x" * 999}):
        assert of("Qwen/Qwen3-8B", **flags)["model_facts_from"]
    assert checkpoints.facts("Qwen/Qwen3-8B", {"--quantization": True, "--kv-cache-dtype": 3.0})


def test_kv_of_the_usual_shape_follows_the_flags() -> None:
    assert set(kv_cache.FACTS) <= set(of("acme/foo-8B"))
    assert of("acme/foo-8B", kv_cache_dtype="fp8")["kv_bytes_per_token"] * 2 == of("acme/foo-8B")["kv_bytes_per_token"]
