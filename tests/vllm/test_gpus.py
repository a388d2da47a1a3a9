from __future__ import annotations

import re

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm.gpus import Counted, completed, counted, gpu, gpus, named, nearest

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


NAMES = """
4xH100                              4     H100 80GB HBM3     ?
8x H100                             8     H100 80GB HBM3     ?
H100:8                              8     H100 80GB HBM3     ?
H100 x8                             8     H100 80GB HBM3     ?
H100 (8x)                           8     H100 80GB HBM3     ?
8 H100s                             8     H100 80GB HBM3     ?
2 nodes x 8 H100                    8     H100 80GB HBM3     ?
2x8xH100                            8     H100 80GB HBM3     ?
h100-80gb                           -     H100 80GB HBM3     ?
H100 SXM5                           -     H100 80GB HBM3
h100-sxm-80gb                       -     H100 80GB HBM3
H100 80GB HBM3                      -     H100 80GB HBM3
8x NVIDIA H100 80GB HBM3            8     H100 80GB HBM3
NVIDIA-H100-80GB-HBM3               -     H100 80GB HBM3
nvidia-h100-80gb                    -     H100 80GB HBM3
2x nvidia-l4                        2     L4
nvidia-h100-mega-80gb               -     H100 80GB HBM3
H100 80GB PCIe                      -     H100 PCIe
h100 pcie                           -     H100 PCIe
H100NVL                             -     H100 NVL
H100 94GB                           -     H100 NVL           ?
8 x A100 80GB                       8     A100-SXM4-80GB     ?
A100                                -     A100-SXM4-80GB     ?
a100-80g                            -     A100-SXM4-80GB     ?
a10080gb                            -     A100-SXM4-80GB     ?
NVIDIA-A100-SXM4-80GB               -     A100-SXM4-80GB
NVIDIA-A100-SXM4-80GB-SHARED        -     A100-SXM4-80GB     ?
A100 PCIe                           -     A100 80GB PCIe     ?
A100-PCIE-40GB                      -     A100-PCIE-40GB
A100 40GB                           -     A100-SXM4-40GB     ?
nvidia-tesla-a100                   -     A100-SXM4-40GB
A800                                -     A800-SXM4-80GB     ?
8×H20                               8     H20
H20 141GB                           -     H20-3e
H20-3e                              -     H20-3e
H200 NVL                            -     H200 NVL
nvidia-h200-141gb                   -     H200
H800                                -     H800
GH200                               -     GH200 480GB        ?
GH200 96GB                          -     GH200 480GB
GB300 NVL72                         -     GB300
B300                                -     B300
DGX Spark                           -     GB10
2x DGX Spark                        2     GB10
Jetson AGX Thor                     -     Thor
2* RTX4090                          2     RTX 4090
RTX4090                             -     RTX 4090
4090                                -     RTX 4090
4090D                               -     RTX 4090 D
GeForce RTX 4090                    -     RTX 4090
RTX 4090 48GB                       -     RTX 4090 48GB
RTX 4090 x2                         2     RTX 4090
dual 3090                           2     RTX 3090
24 GB RTX 3090                      -     RTX 3090
3090ti                              -     RTX 3090 Ti
4070 ti super                       -     RTX 4070 Ti SUPER
5060 Ti 16GB                        -     RTX 5060 Ti 16GB
RTX 5060 Ti                         -     RTX 5060 Ti 16GB   ?
4x NVIDIA L40S 48GB                 4     L40S
L40s                                -     L40S
L20                                 -     L20
NVIDIA A10G Tensor Core GPU         -     A10G
Tesla T4                            -     T4
Tesla-V100-SXM2-32GB                -     V100-SXM2-32GB
V100                                -     V100-SXM2-16GB     ?
V100S                               -     V100S-PCIE-32GB
A6000                               -     RTX A6000
rtx6000ada                          -     RTX 6000 Ada Generation
RTX 6000                            -     RTX 6000 Ada Generation   ?
Quadro RTX 6000                     -     Quadro RTX 6000
RTX PRO 6000                        -     RTX PRO 6000 Blackwell Workstation Edition   ?
RTX PRO 6000 Max-Q                  -     RTX PRO 6000 Blackwell Max-Q Workstation Edition
MI300X                              -     MI300X
8xMI355X OAM                        8     MI355X
7900XTX                             -     Radeon RX 7900 XTX
Strix Halo                          -     Radeon 8060S
Ryzen AI Max+ 395                   -     Radeon 8060S
Arc B60                             -     Arc Pro B60
gaudi3                              -     Gaudi 3
Ascend 910B3                        -     Ascend 910B
TPU v6e                             -     TPU v6e
v5e-8                               8     TPU v5e
cpu                                 -     CPU
Xeon Sapphire Rapids                -     CPU Xeon Sapphire Rapids
p5.48xlarge                         8     H100 80GB HBM3
2 x p5.48xlarge                     8     H100 80GB HBM3     ?
p4de                                8     A100-SXM4-80GB
g6.12xlarge                         4     L4
a3-highgpu-8g                       8     H100 80GB HBM3
Standard_NC24ads_A100_v4            1     A100 80GB PCIe
BM.GPU.H100.8                       8     H100 80GB HBM3
DGX H100                            8     H100 80GB HBM3
"""
"""What people write; how many; what it is; "?" where that leaves something open."""


@pytest.mark.parametrize("line", NAMES.strip().splitlines(), ids=lambda line: line.split("  ")[0])
def test_a_gpu_by_any_name(line: str) -> None:
    text, count, name, *is_open = re.split(r" {2,}", line)
    for said in (text, text.lower(), f" {text} "):
        found = named(said)
        assert found is not None
        assert (str(found.count or "-"), found.gpu.name) == (count, name)
        assert bool(found.assumptions) == bool(is_open), found.assumptions


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "8x", "XYZ", "H101", "L40X", "4x", "H100 64GB", "H100 MIG", "H100 80GB HBM3 MIG 1g.10gb", "GPU",
        "NVIDIA", "RTX", "RTX A6000 Ada", "A100X", "4090 Ti", "Max-Q", "PCIe", "80GB", "A" * 5000, "H100\x1b[0m", "p5.",
    ],
)  # fmt: skip
def test_what_no_gpu_is_called(text: str) -> None:
    assert named(text) is None


def test_what_a_name_leaves_open_is_told() -> None:
    found = named("2 nodes x 8 A100 80GB")
    assert found is not None
    assert found.assumptions == (
        "2 servers with as many GPUs each",
        "'A100 80GB' is taken for A100-SXM4-80GB; there is A100 80GB PCIe, too",
    )


@pytest.mark.parametrize(
    ("text", "count", "nodes", "name"),
    [
        ("4xH100", 4, None, "H100"),
        ("9999xH100", 9999, None, "H100"),
        ("2 nodes x 8 XYZ", 8, 2, "XYZ"),
        ("XYZ:3", 3, None, "XYZ"),
        ("RTX 4090", None, None, "RTX 4090"),
        ("7900 XTX", None, None, "7900 XTX"),
        ("four XYZ", 4, None, "XYZ"),
        ("", None, None, ""),
    ],
)
def test_how_many(text: str, count: int | None, nodes: int | None, name: str) -> None:
    assert counted(text) == Counted(count, nodes, name)


@pytest.mark.parametrize(("text", "near"), [("H101", "H100 80GB HBM3"), ("L40X", "L40"), ("RTX 4095", "RTX 4090")])
def test_the_nearest_names(text: str, near: str) -> None:
    assert near in nearest(text)


def written(name: str) -> dict[str, Reading]:
    return {"gpu_written": Known(name, origin="log")}


def test_a_gpu_that_a_log_names_has_the_figures_of_its_data_sheet() -> None:
    found = completed(written("NVIDIA_H100_80GB_HBM3") | {"gpu_memory_total": Known(79 * GIB, origin="nvml")})
    assert found["gpu_name"] == Known("H100 80GB HBM3", origin="log")
    assert found["gpu_bandwidth"] == Known(3350e9, origin="log")
    assert not {"gpu_memory_total", "gpus_on_host"} & found.keys()
    assert completed(written("p5.48xlarge") | {"gpus_on_host": Unknown(Reason.NO_DRIVER)})["gpus_on_host"] == Known(
        8.0, origin="log"
    )


@pytest.mark.parametrize(
    "facts",
    [
        {},
        written("of nobody"),
        written("NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        written("H100") | {"gpu_name": Known("NVIDIA L4", origin="nvml")},
        {"gpu_written": Unknown(Reason.NO_LOG)},
    ],
)
def test_else_nothing_is_added(facts: dict[str, Reading]) -> None:
    assert completed(facts) == {}


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
