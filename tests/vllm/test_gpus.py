from __future__ import annotations

import re

import pytest

from vllm_doctor.vllm.gpus import gpu, gpus

GIB = 1024.0**3


@pytest.mark.parametrize(
    ("name", "memory", "bandwidth", "bf16"),
    [
        ("NVIDIA H100 80GB HBM3", 79.65 * GIB, 3350e9, 989e12),
        ("NVIDIA H100 PCIe", 79.65 * GIB, 2000e9, 756e12),
        ("NVIDIA H100 NVL", 93.6 * GIB, 3900e9, 835e12),
        ("NVIDIA H200", 139.8 * GIB, 4800e9, 989e12),
        ("NVIDIA B200", 178.4 * GIB, 8000e9, 2250e12),
        ("NVIDIA GB200", 184.0 * GIB, 8000e9, 2500e12),
        ("NVIDIA A100-SXM4-80GB", 80 * GIB, 2039e9, 312e12),
        ("NVIDIA A100 80GB PCIe", 80 * GIB, 1935e9, 312e12),
        ("NVIDIA A100-SXM4-40GB", 40 * GIB, 1555e9, 312e12),
        ("NVIDIA A100-PCIE-40GB", 40 * GIB, 1555e9, 312e12),
        ("NVIDIA A10G", 22.5 * GIB, 600e9, 70e12),
        ("NVIDIA A10", 22.5 * GIB, 600e9, 125e12),
        ("NVIDIA L4", 22.5 * GIB, 300e9, 121e12),
        ("NVIDIA L40", 45 * GIB, 864e9, 181e12),
        ("NVIDIA L40S", 45 * GIB, 864e9, 362e12),
        ("NVIDIA GeForce RTX 4090", 24 * GIB, 1008e9, 165.2e12),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 94.97 * GIB, 1597e9, None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95.6 * GIB, 1792e9, None),
        ("NVIDIA RTX 6000 Ada Generation", 48 * GIB, 960e9, 364e12),
        ("Tesla T4", 14.7 * GIB, 320e9, 65e12),
        ("Tesla V100-SXM2-16GB", 16 * GIB, 900e9, 125e12),
        ("Tesla V100-SXM2-32GB", 32 * GIB, 900e9, 125e12),
        ("AMD Instinct MI300X", 192 * GIB, 5300e9, 1307.4e12),
        ("AMD Instinct MI250X", 64 * GIB, 1638e9, 191.5e12),
        ("nvidia h200", None, 4800e9, 989e12),
        ("NVIDIA A100-SXM...", 80 * GIB, 2039e9, 312e12),  # as the table of nvidia-smi cuts it
        ("NVIDIA A100-SXM...", 40 * GIB, 1555e9, 312e12),
        ("NVIDIA A100 80G...", 80 * GIB, 1935e9, 312e12),
        ("Tesla V100-SXM2...", 16 * GIB, 900e9, 125e12),
        ("NVIDIA H100 80G...", 79.65 * GIB, 3350e9, 989e12),
    ],
)
def test_a_gpu_by_its_name_and_memory(name: str, memory: float | None, bandwidth: float, bf16: float | None) -> None:
    found = gpu(name, memory)
    assert found is not None
    assert (found.bandwidth, found.bf16) == (bandwidth, bf16)


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA A100-SXM-64GB", 64 * GIB),  # a build of one customer
        ("NVIDIA H100", 64 * GIB),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.75 * GIB),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16 * GIB),
        ("NVIDIA GeForce RTX 4090 D", 24 * GIB),
        ("NVIDIA GeForce RTX 3090 Ti", 24 * GIB),
        ("NVIDIA GH200 480GB", 96 * GIB),
        ("NVIDIA L400", None),
        ("Tesla V100-SXM3-32GB", 32 * GIB),
        ("NVIDIA A100-SXM...", None),
        ("NVIDIA A100-SXM...", 64 * GIB),
        ("NVIDIA GeForce ...", 24 * GIB),
        ("NVIDIA GeForce RTX 3090...", 24 * GIB),  # perhaps a Ti
        ("NVIDIA RTX PRO ...", 96 * GIB),
        ("...", 80 * GIB),
        ("", None),
    ],
)
def test_a_gpu_that_we_do_not_know(name: str, memory: float | None) -> None:
    assert gpu(name, memory) is None


def test_the_table_is_sound() -> None:
    assert len(gpus()) > 25
    for known in gpus():
        re.compile(known.pattern)
        assert 100e9 < known.bandwidth < 10_000e9, known
        if known.bf16 is not None:
            assert 50e12 < known.bf16 < 3000e12, known
        if known.fp8 is not None:
            assert known.bf16 is not None
            assert known.fp8 / known.bf16 == pytest.approx(2, rel=0.02), known
        if known.capability is not None:
            assert (known.fp8 is not None) == (float(known.capability) >= 8.9) or known.bf16 is None, known
        assert known.source
