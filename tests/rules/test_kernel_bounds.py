"""A step's kernels beside the least that the GPU needs: by hand from the data sheet and the model, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests import trace_files
from tests.cli.test_main import Doctor, doctor
from tests.session.sources.test_trace import SCHEMA
from tests.trace_files import FLASH, GEMM, Made

__all__ = ["doctor"]

_COMMAND = ("--command", "vllm serve Qwen/Qwen3-8B")
_WEIGHTS = 2 * (8.191e9 - 151_936 * 4096)
"""Bytes: all but the embedding."""
_KV = 36 * 8 * 128 * 2 * 2
"""Bytes of a token."""
_BANDWIDTH = 3.35e12
"""Of an H100."""


def _decode(mark: str, gemm: float = 9000.0) -> Made:
    made = Made()
    for step in range(5):
        at = 20_000.0 * step
        made.add("user_annotation", mark, at, 200.0, {})
        kernels = [(GEMM, at + 100 + each * gemm / 30, gemm / 30) for each in range(30)]
        made.launch(at + 10, *kernels, (FLASH, at + 100 + gemm, 1000.0), call="cudaGraphLaunch")
    return made


def _bounds(doctor: Doctor, path: Path, *words: str) -> dict[str, Any]:
    report = doctor(str(path), "--json", *words).report
    jsonschema.validate(report, SCHEMA)
    found: dict[str, Any] = report["trace"]["bounds"]
    return found


def test_weights_and_the_kv_cache_are_read_once(doctor: Doctor, tmp_path: Path) -> None:
    mark = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk64000sqsq32sqsk64000)"
    path = _decode(mark).write(tmp_path / "t.json")
    bounds = _bounds(doctor, path, *_COMMAND)
    gemm, attention = bounds["families"]
    assert (bounds["kind"], gemm["family"], attention["family"]) == ("decode", "gemm", "attention")
    assert gemm["seconds"] == pytest.approx(9e-3)
    assert gemm["least"] == pytest.approx(_WEIGHTS / _BANDWIDTH, rel=0.01)
    assert gemm["factor"] == pytest.approx(9e-3 * _BANDWIDTH / _WEIGHTS, rel=0.01)
    assert attention["least"] == pytest.approx(64_000 * _KV / _BANDWIDTH, rel=0.01)
    text = doctor(str(path), *_COMMAND).out
    assert "What a decode step of 32 tokens takes" in text
    assert "weights, 14.1 GiB" in text


def test_prompts_are_bound_by_what_they_compute(doctor: Doctor, tmp_path: Path) -> None:
    path = _decode("execute_context_2(8000)_generation_0(0)", gemm=19_000.0).write(tmp_path / "t.json")
    gemm, attention = _bounds(doctor, path, *_COMMAND)["families"]
    inner = _WEIGHTS / 2 - 151_936 * 4096
    operations = 2 * (8000 * inner + 2 * 151_936 * 4096)
    assert gemm["least"] == pytest.approx(operations / 989e12, rel=0.01)
    assert (attention["least"], attention["because"]) == (None, "what attention to prompts computes is not known")


def test_without_tokens_the_weights_still_are_read(doctor: Doctor, tmp_path: Path) -> None:
    bounds = _bounds(doctor, _decode("gpu_model_runner: forward").write(tmp_path / "t.json"), *_COMMAND)
    assert bounds["families"][0]["least"] == pytest.approx(_WEIGHTS / _BANDWIDTH, rel=0.01)
    assert bounds["families"][1]["least"] is None


def test_lengths_that_a_trace_does_not_tell_bound_no_attention(doctor: Doctor, tmp_path: Path) -> None:
    path = _decode("execute_context_0(0)_generation_32(32)").write(tmp_path / "t.json")
    attention = _bounds(doctor, path, *_COMMAND)["families"][1]
    assert (attention["least"], attention["because"]) == (None, "the trace does not show the requests' lengths")


def test_what_is_faster_than_can_be_is_said_and_has_no_factor(doctor: Doctor, tmp_path: Path) -> None:
    path = _decode("execute_context_0(0)_generation_1(1)", gemm=900.0).write(tmp_path / "t.json")
    gemm = _bounds(doctor, path, *_COMMAND)["families"][0]
    assert gemm["least"] > gemm["seconds"]
    assert gemm["factor"] is None
    assert "faster than can be" in " ".join(doctor(str(path), *_COMMAND).out.split())


@pytest.mark.parametrize(
    ("mark", "words", "lacks"),
    [
        ("execute_context_0(0)_generation_1(1)", (), "the model is not known: add --command, or the server's log"),
        (
            "execute_context_0(0)_generation_1(1)",
            ("--command", "vllm serve Qwen/Qwen3-8B --pipeline-parallel-size 2"),
            "a stage of a pipeline holds a part of the layers",
        ),
    ],
    ids=["model", "stages"],
)
def test_what_lacks_is_said(doctor: Doctor, tmp_path: Path, mark: str, words: tuple[str, ...], lacks: str) -> None:
    path = _decode(mark).write(tmp_path / "t.json")
    assert _bounds(doctor, path, *words) == {"kind": "decode", "lacks": lacks, "families": []}
    assert "not compared with what the GPU could do" in doctor(str(path), *words).out


def test_the_profilers_steps_may_hold_any_work(doctor: Doctor, tmp_path: Path) -> None:
    assert _bounds(doctor, _decode("ProfilerStep#3").write(tmp_path / "t.json"), *_COMMAND) is None


def test_steps_of_which_kernels_lack_are_not_compared(doctor: Doctor, tmp_path: Path) -> None:
    made = _decode("execute_context_0(0)_generation_1(1)")
    for place in range(5):
        made.launch(20_000.0 * place + 20, call="cudaGraphLaunch")
    assert _bounds(doctor, made.write(tmp_path / "t.json"), *_COMMAND) is None


def test_a_command_beside_a_trace_leaves_its_headline(doctor: Doctor, tmp_path: Path) -> None:
    ran = doctor(str(trace_files.busy().write(tmp_path / "t.json")), *_COMMAND)
    assert ran.out.startswith("OK  The device works 100 % of the time, most of it GEMM")
    assert "nothing was measured" not in ran.out
