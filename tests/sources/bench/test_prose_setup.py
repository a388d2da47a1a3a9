"""The model, the GPUs and how a model is split, as people write it."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.model.reading import Known
from vllm_doctor.sources.bench import prose_setup
from vllm_doctor.vllm import checkpoints


@pytest.mark.parametrize(
    ("text", "billions", "form"),
    [
        ("two cards serve llama 3.1 70b bfloat16", 70.6, "none"),
        ("Qwen2.5-72B-Instruct-GPTQ-Int4 crawls", 72.7, "gptq"),
        ("使用qwen32b模型", 32, None),
        ("meta-llama/Meta-Llama-3-70B-Instruct on two boxes", 70.6, "none"),
        ("Llama 3.1 8B in AWQ", 8.0, "awq"),
        ("a llama 3.1 70B GGUF Q4 model", 70.6, "gguf"),
        ("QwQ-32B-unsloth-bnb-4bit", 32.8, "bitsandbytes"),
        ("gpt-oss-120b at home", 116.8, "mxfp4"),
        ("Qwen3-32B-GPTQ-4bit 13 tokens/s", 32.8, "gptq"),
        ("/models/Meta-Llama-3.1-70B-Instruct-Q4_K_M.gguf", 70.6, "gguf"),
        ("GLM 4.5 Air fp8", 106.9, "fp8"),
    ],
)
def test_the_model(text: str, billions: float, form: str | None) -> None:
    model = prose_setup.model(text)
    assert model is not None
    facts = checkpoints.facts(model.name, {})
    assert model.parameters / 1e9 == pytest.approx(billions, abs=0.06)
    assert facts.get("model_quantization") == (None if form is None else Known(form, origin="model-name"))


@pytest.mark.parametrize(
    "text",
    [
        "we use vllm/vllm-openai:v0.8.4 and/or docker",
        "Qwen/Qwen3-8B or meta-llama/Llama-3.1-8B?",
        "on A100-80GB with torch-2.4.0",
        "Qwen3-32B-AWQ is as slow as Qwen3-32B-FP8",
        "see https://github.com/owner/repository/issues/123",
        "",
    ],
)
def test_none_or_several_is_no_model(text: str) -> None:
    assert prose_setup.model(text) is None


def test_the_model_is_the_one_before_the_figure() -> None:
    text = "I run meta-llama/Meta-Llama-3-70B-Instruct. It gives 3 tokens/s. Later I tried Qwen2-VL-7B-Instruct."
    model = prose_setup.model(text, text.index("3 tokens"))
    assert model is not None
    assert model.name == "meta-llama/Meta-Llama-3-70B-Instruct"


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("i have 2xa100 pcie for inference. 30 tokens per second for a100?", "A100 80GB PCIe", 2),
        ("(4x amd instinct mi 50)", "MI50 32GB", 4),
        ("I have 2 RTX5090 here", "RTX 5090", 2),
        ("GPU: NVIDIA GeForce RTX 4090, 24 GiB", "RTX 4090", None),
        ("在单张A800并发量在11", "A800-SXM4-80GB", 1),
        ("3 张 4090", "RTX 4090", 3),
        ("dual 3090 rig", "RTX 3090", 2),
        ("on a DGX Spark", "GB10", None),
        ("8xH100 node", "H100 80GB HBM3", 8),
        ("4x RTX PRO 6000 Blackwell", "RTX PRO 6000 Blackwell Workstation Edition", 4),
    ],
)
def test_the_gpus(text: str, name: str, count: int | None) -> None:
    found = prose_setup.gpu(text)
    assert found is not None
    assert (found[1].gpu.name, found[1].count) == (name, count)


@pytest.mark.parametrize(
    "text", ["port 8000, 24 GB, v0.6.3", "an H100 against a 4090", "max 4090 tokens", "CPU only", "4 of 8 users", ""]
)
def test_none_or_several_is_no_gpu(text: str) -> None:
    assert prose_setup.gpu(text) is None


def test_how_it_is_split() -> None:
    assert prose_setup.parallel("with tp=4 and pipeline parallel size 2") == (4, 2)
    assert prose_setup.parallel("tp 2 is slower than tp 4") == (None, None)
    assert prose_setup.parallel("http 2 and grpp 3") == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        "llama 3.1 70b a100 pcie 17 tok/s " * 6_000, "2x 4 a100 rtx " * 20_000, "a-" * 100_000, "a/" * 100_000,
        "llama " * 40_000, "1" * 200_000, "x " * 100_000, "q4 " * 60_000, "İ" * 100_000,
    ],
)  # fmt: skip
def test_hostile_texts_take_little_time(text: str) -> None:
    started = time.process_time()
    prose_setup.model(text, 50_000)
    prose_setup.gpu(text)
    prose_setup.parallel(text)
    assert time.process_time() - started < 10
