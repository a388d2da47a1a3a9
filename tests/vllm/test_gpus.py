from __future__ import annotations

import pytest

from vllm_doctor.vllm.gpus import figures, gpu, gpus, nearest

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
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 94.97 * GIB, 1597e9, 480e12),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95.6 * GIB, 1792e9, 503.8e12),
        ("NVIDIA RTX 6000 Ada Generation", 48 * GIB, 960e9, 364e12),
        ("Tesla T4", 14.7 * GIB, 320e9, 65e12),
        ("Tesla V100-SXM2-16GB", 16 * GIB, 900e9, 125e12),
        ("Tesla V100-SXM2-32GB", 32 * GIB, 900e9, 125e12),
        ("AMD Instinct MI300X", 192 * GIB, 5300e9, 1307.4e12),
        ("AMD Instinct MI250X", 64 * GIB, 1638e9, 191.5e12),
        ("nvidia h200", None, 4800e9, 989e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16 * GIB, 576e9, None),
        ("NVIDIA GeForce RTX 4090 D", 24 * GIB, 1008e9, 147.1e12),
        ("NVIDIA GeForce RTX 4090", 48 * GIB, 1008e9, 165.2e12),
        ("NVIDIA GeForce RTX 3090 Ti", 24 * GIB, 1008e9, 80e12),
        ("NVIDIA GH200 480GB", 96 * GIB, 4000e9, 989e12),
        ("NVIDIA GH200 144G HBM3e", 143.7 * GIB, 4900e9, 989e12),
        ("NVIDIA H20", 95.6 * GIB, 4000e9, 148e12),
        ("NVIDIA H20-3e", 139.8 * GIB, 4800e9, 148e12),
        ("NVIDIA B300 SXM6 AC", 268.6 * GIB, 8000e9, 2250e12),
        ("NVIDIA GB10", 119.7 * GIB, 273e9, 125e12),
        ("NVIDIA Thor", 122.8 * GIB, 273e9, 258.8e12),
        ("NVIDIA GeForce RTX 5060 Ti", 15.9 * GIB, 448e9, 47.4e12),
        ("AMD Radeon RX 7900 XTX", 24 * GIB, 960e9, 122.8e12),
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
        ("NVIDIA L400", None),
        ("NVIDIA GeForce RTX 4090 Ti", 24 * GIB),
        ("NVIDIA H100 80GB HBM3 and more", 80 * GIB),
        ("NVIDIA A100-SXM4-80GB MIG 7g.80gb", None),
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


@pytest.mark.parametrize(("text", "near"), [("H101", "H100 80GB HBM3"), ("L40X", "L40"), ("RTX 4095", "RTX 4090")])
def test_the_nearest_names(text: str, near: str) -> None:
    assert near in nearest(text)


def test_a_link_counts_one_direction() -> None:
    h100 = gpu("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert h100.nvlink == 450e9
    assert h100.pcie == pytest.approx(63e9, rel=0.01)


def test_the_table_is_sound() -> None:
    assert len(gpus()) >= 200
    assert len({known.name for known in gpus()}) == len(gpus())
    for known in gpus():
        assert gpu(known.name) is known
        assert known.bandwidth is None or 80e9 < known.bandwidth <= 8000e9, known
        assert known.link in ("nvlink", "pcie", "none", "unified"), known
        assert known.link != "nvlink" or known.nvlink is not None or known.architecture == "xe", known
        for known_flops in (known.bf16, known.fp8, known.fp4, known.int8):
            assert known_flops is None or 10e12 < known_flops < 20_000e12, known
        if known.bf16 is not None and known.fp8 is not None and known.architecture not in ("gaudi", "neuron"):
            assert known.fp8 / known.bf16 == pytest.approx(2, rel=0.02), known
        if known.capability is not None and known.bf16 is not None:
            assert (known.fp8 is not None) == (float(known.capability) >= 8.9), known
            assert (known.fp4 is not None) == (float(known.capability) >= 10), known
        assert (known.capability is None) == (known.architecture not in NVIDIA), known
        assert known.source


NVIDIA = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")


@pytest.mark.parametrize(("name", "usable"), [("H100", 79.2), ("RTX 4090", 23.5), ("L40S", 44.5), ("T4", 14.6)])
def test_memory_that_programs_get_is_what_logs_say(name: str, usable: float) -> None:
    found = gpu(name)
    assert found is not None
    assert figures(found)["gpu_memory_usable"] == pytest.approx(usable * 2**30, rel=0.015)
