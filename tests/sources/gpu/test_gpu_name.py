from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.sources.gpu import gpu_name
from vllm_doctor.vllm import gpus as data_sheets

GIB = 1024.0**3


@pytest.mark.parametrize(
    ("text", "name", "count", "memory"),
    [
        ("H100", "H100", None, 80 * GIB),
        ("h100 pcie", "H100 PCIe", None, 80 * GIB),
        ("8xH100", "H100", 8, 80 * GIB),
        ("4 × L40S", "L40S", 4, 48 * GIB),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", None, 80 * GIB),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB", None, 40 * GIB),
        ("NVIDIA H100 80GB HBM3", "H100", None, 80 * GIB),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", None, 24 * GIB),
        ("2xTesla T4", "T4", 2, 16 * GIB),
    ],
)
def test_names(text: str, name: str, count: int | None, memory: float) -> None:
    named = gpu_name.parse(text)
    facts = gpu_name.facts(named)
    assert (named.name, named.count) == (name, count)
    assert facts["gpu_memory_total"] == Known(memory)
    assert ("gpus_on_host" in facts) is (count is not None)
    assert {fact.origin for fact in facts.values() if isinstance(fact, Known)} == {"--gpu"}


def test_what_a_data_sheet_does_not_tell_is_left_out() -> None:
    assert "gpu_memory_total" not in gpu_name.facts(gpu_name.parse("V100-SXM2"))
    assert "gpu_compute_capability" not in gpu_name.facts(gpu_name.parse("MI300X"))


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("A100", "A100-SXM4-80GB"),  # which of them is not told
        ("4090", "RTX 4090"),
        ("H101", "H100"),
        ("L40X", "L40"),
    ],
)
def test_an_unknown_name_gets_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(UsageError, match="no GPU of that name is known; the nearest: ") as raised:
        gpu_name.parse(text)
    assert nearest in str(raised.value).partition("nearest: ")[2].split(", ")


@pytest.mark.parametrize(
    "text", ["", " ", "x", "8x", "0xH100", "9999xH100", "-1xH100x", "\x1b[31mH100\x07", "x" * 9999]
)
def test_what_is_no_name_is_one_short_line(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        gpu_name.parse(text)
    line = str(raised.value)
    assert line.isprintable()
    assert len(line) < 250


def test_each_known_gpu_can_be_named() -> None:
    """By the names that are offered where another was not known."""
    for gpu in data_sheets.gpus():
        assert gpu_name.parse(gpu.name).gpu.memory == gpu.memory, gpu.name
