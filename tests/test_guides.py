"""docs/guides.md holds what the doctor says today of what the five public guides advise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import guides
from tests.paths import ROOT
from vllm_doctor.vllm import flags

PAGE = ROOT / "docs" / "guides.md"


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_the_page_is_what_the_doctor_says() -> None:
    """The page may be of an older release, which then stands in it where no version is named."""
    kept, now = PAGE.read_text("utf-8"), guides.page()
    written_with = re.findall(r"The newest release known then: (\S+)\.", kept)[0]
    if written_with != flags.newest():
        kept, now = (" ".join(text.split()) for text in (kept.replace(written_with, flags.newest()), now))
    assert kept == now, "write it anew: python -m tests.guides > docs/guides.md"


def found(*ask: str) -> dict[str, str]:
    _, out, _ = guides.asked((*ask, "--json"))
    report: dict[str, Any] = json.loads(out)
    return {finding["rule"]: finding["severity"] for finding in report["findings"]}


def image(version: str, flags: str) -> str:
    return f"docker run --gpus all --ipc=host vllm/vllm-openai:v{version} --model M {flags}"


@pytest.mark.parametrize(
    ("command", "gpu", "expected"),
    [
        ("vllm serve M --num-speculative-decoder-samples 4", "H100", {"flag-unknown": "warning"}),
        ("vllm serve M --swap-space 4", "H100", {}),
        ("vllm serve M --swap-space 4 --watermark 0.1", "H100", {"flag-unknown": "warning"}),
        (image("0.7.3", "--num-speculative-decoder-samples 4"), "H100", {"flag-unknown": "critical"}),
        (image("0.8.2", "--speculative-model d"), "H100", {}),
        (image("0.8.3", "--speculative-model d"), "H100", {"flag-unknown": "critical"}),
        (image("0.17.1", "--swap-space 4"), "H100", {}),
        (image("0.18.0", "--swap-space 4"), "H100", {"flag-unknown": "critical"}),
        ("vllm serve M \\ # why\n --max-num-seqs 256", "H100", {"command-broken": "warning"}),
        ("vllm serve M --gpu-memory-utilization 0.85", "H100", {"gpu-mem-util-lowered": "info"}),
        (image("0.19.1", "--gpu-memory-utilization 0.9"), "H100", {}),
        (image("0.20.0", "--gpu-memory-utilization 0.9"), "H100", {"gpu-mem-util-lowered": "info"}),
        ("vllm serve M --gpu-memory-utilization 0.92", "H100", {}),
        ("vllm serve M --gpu-memory-utilization 0.9", "H100", {}),
        (image("0.23.0", "--quantization awq"), "H100", {"quant-kernel-unoptimised": "warning"}),
        (image("0.23.0", "-qgptq"), "L4", {"quant-kernel-unoptimised": "warning"}),
        (image("0.23.0", "--quantization awq_marlin"), "H100", {}),
        (image("0.23.0", "--quantization awq"), "T4", {}),
        (image("0.23.0", "--quantization awq"), "MI300X", {"aiter-unset": "info"}),
        (image("0.24.0", "--quantization awq"), "H100", {}),
        ("vllm serve M --quantization awq", "H100", {"quant-kernel-unoptimised": "info"}),
        ("vllm serve M --max-num-seqs 256", "H100", {"max-num-seqs-lowered": "info"}),
        ("vllm serve M --max-num-seqs 256", "A100-SXM4-80GB", {}),
        ("vllm serve M --max-num-seqs 255", "A100-SXM4-80GB", {"max-num-seqs-lowered": "info"}),
        ("vllm serve M --max-num-batched-tokens 4096", "H100", {"batched-tokens-lowered": "info"}),
        ("vllm serve M --max-num-batched-tokens 4096", "L40S", {}),
        ("vllm serve M --block-size 32", "H100", {"block-size-by-hand": "info"}),
        ("vllm serve M --block-size 128 --attention-backend TRITON_ATTN", "H100", {}),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M --block-size 64", "H100", {}),
        ("vllm serve M --enforce-eager", "H100", {"enforce-eager": "warning"}),
        ("vllm serve M --cpu-offload-gb 10", "H100", {"cpu-offload": "warning"}),
        ("vllm serve M --dtype float32", "H100", {"dtype-float32": "warning"}),
        ("vllm serve M --no-enable-chunked-prefill", "H100", {"chunked-prefill-off": "warning"}),
        ("vllm serve M --no-enable-prefix-caching", "H100", {"prefix-cache-off": "info"}),
        ("vllm serve M -tp 4 --disable-custom-all-reduce", "8xH100", {"custom-allreduce-off": "info"}),
        ("vllm serve M -tp 8", "4xH100", {"gpus-short": "warning"}),
        (image("0.32.0", "-tp 8"), "4xH100", {"gpus-short": "critical"}),
        ("vllm serve M -tp 8", "8xH100", {}),
        ("vllm serve M -tp 8 -pp 2 --distributed-executor-backend ray", "8xH100", {}),
        ("vllm serve M -tp 8 -pp 2 --nnodes 2", "8xH100", {}),
        (image("0.11.2", "-tp 8 -pp 2"), "8xH100", {}),
        ("vllm serve M -O0", "H100", {"compile-off": "warning"}),
        ('{"enable-chunked-prefill": False, "max-num-batched-tokens": 0}', "H100",
         {"flag-value-refused": "critical", "chunked-prefill-off": "warning"}),
    ],
)  # fmt: skip
def test_advice_and_its_truth_by_version_and_gpu(command: str, gpu: str, expected: dict[str, str]) -> None:
    assert found("--command", command, "--gpu", gpu) == expected


def test_what_two_servers_share_is_not_too_little() -> None:
    pair = "vllm serve a --gpu-memory-utilization 0.45 &\nvllm serve b --gpu-memory-utilization 0.45\n"
    assert found("--command", pair, "--gpu", "H100") == {}


def test_whoever_wants_latency_may_have_small_batches() -> None:
    small = "vllm serve M --max-num-seqs 64 --max-num-batched-tokens 2048"
    assert found("--command", small, "--gpu", "H100", "--goal", "latency") == {}


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("vllm:num_generate_tokens_total", 1, ("no known version", "vllm:generation_tokens_total")),
        ("vllm:gpu_cache_usage_perc", 1, ("0.4.3 to 0.11.2", "vllm:kv_cache_usage_perc")),
        ("--num-speculative-decoder-samples", 1, ("no known version", "--speculative-config")),
        ("--speculative-model", 1, ("0.4.3 to 0.8.2", "--speculative-config, key model")),
        ("--swap-space", 1, ("0.4.3 to 0.17.1",)),
        ("--uvicorn-log-level", 0, ("takes it",)),
    ],
)
def test_names_that_guides_give(name: str, code: int, words: tuple[str, ...]) -> None:
    asked, out, _ = guides.asked(("flags", "0.32.0", name))
    assert asked == code
    assert all(word in out for word in words)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("docker run vllm/vllm-openai-rocm:v0.20.0 --model M --quantization awq", {}),
        ("docker run rocm/vllm:v0.20.0 --model M --quantization awq --enforce-eager", {"enforce-eager": "warning"}),
        (
            "docker run vllm/vllm-openai-cpu:v0.20.0 --model M --enforce-eager --dtype float32 --block-size 32",
            {"enforce-eager": "warning"},
        ),
        ("VLLM_CPU_KVCACHE_SPACE=8 vllm serve M --dtype float32 --block-size 32", {}),
        ("docker run vllm/vllm-openai:v0.20.0 --model M --enforce-eager", {"enforce-eager": "warning"}),
    ],
)
def test_what_is_no_nvidia_gpu(command: str, expected: dict[str, str]) -> None:
    assert found("--command", command) == expected
