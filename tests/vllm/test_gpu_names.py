from __future__ import annotations

import re

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm.gpu_names import Counted, completed, counted, in_text, named

GIB = 1024.0**3

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
2x RTX 3090 PCIe                    2     RTX 3090
2x RTX 3090 with NVLink             2     RTX 3090
A100 NVLink 80GB                    -     A100-SXM4-80GB     ?
AWS g5.12xlarge                     4     A10G
8x L4 (g6.48xlarge)                 8     L4                 ?
AMD Instinct MI210 (gfx90a)         -     MI210              ?
4070S                               -     RTX 4070 SUPER
HGX H200                            -     H200
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
        "NVIDIA", "RTX", "RTX A6000 Ada", "A100X", "4090 Ti", "Max-Q", "PCIe", "80GB", "cpu 38",
        "cpu 0 GB/s", "cpu 0 x 4800", "A" * 5000, "H100\x1b[0m", "p5.",
    ],
)  # fmt: skip
def test_what_no_gpu_is_called(text: str) -> None:
    assert named(text) is None


@pytest.mark.parametrize(
    ("text", "count", "name", "bandwidth", "flops", "memory"),
    [
        ("my cpu 18GB/s 0.3TFLOPS", None, "CPU 18 GB/s", 18e9, 0.3e12, None),
        ("2x foo 900GB/s 100TFLOPS 24GB", 2, "foo", 900e9, 100e12, 24 * GIB),
        ("foo, 0.9 TB/s, 1 PFLOP/s", None, "foo", 900e9, 1e15, None),
        ("900 GB/s", None, "GPU", 900e9, None, None),
        ("4xH200 3 TB/s", 4, "H200", 3e12, 989e12, 141 * GIB),
        ("RTX 4090 48GB 900GB/s", None, "RTX 4090 48GB", 900e9, 165.2e12, 48 * GIB),
    ],
)
def test_a_device_with_its_figures(
    text: str, count: int | None, name: str, bandwidth: float, flops: float | None, memory: float | None
) -> None:
    found = named(text)
    assert found is not None
    assert (found.count, found.gpu.name) == (count, name)
    assert (found.gpu.bandwidth, found.gpu.bf16, found.gpu.memory) == (bandwidth, flops, memory)


@pytest.mark.parametrize(
    ("text", "name", "bandwidth", "memory"),
    [
        ("cpu 8 x DDR5-4800", "CPU 8 x 4800 MT/s", 307.2e9, None),
        ("CPU: 12ch 6400", "CPU 12 x 6400 MT/s", 614.4e9, None),
        ("cpu 64GB 12ch 6400", "CPU 12 x 6400 MT/s", 614.4e9, 64 * GIB),
        ("cpu 38.5 GB/s", "CPU 38.5 GB/s", 38.5e9, None),
        ("cpu 64 GB, 38 GB/s", "CPU 38 GB/s", 38e9, 64 * GIB),
    ],
)
def test_a_cpu_by_its_memory(text: str, name: str, bandwidth: float, memory: float | None) -> None:
    found = named(text)
    assert found is not None
    assert (found.gpu.name, found.gpu.architecture, found.gpu.memory, found.count) == (name, "cpu", memory, None)
    assert found.gpu.bandwidth == pytest.approx(bandwidth)
    for operations in ("1.2", "20", "0.5"):
        computing = named(f"{text}, {operations} TFLOPS")
        assert computing is not None
        assert computing.gpu.bf16 == pytest.approx(float(operations) * 1e12)


def test_what_a_name_leaves_open_is_told() -> None:
    found = named("2 nodes x 8 A100 80GB")
    assert found is not None
    assert found.assumptions == (
        "2 servers with as many GPUs each",
        "'A100 80GB' is taken for A100-SXM4-80GB; there is A100 80GB PCIe, too",
    )


@pytest.mark.parametrize(
    ("text", "link"), [("2x RTX 3090", "pcie"), ("2x RTX 3090 NVLink", "nvlink"), ("L4 NVLink", "pcie")]
)
def test_a_bridge_that_is_named(text: str, link: str) -> None:
    found = named(text)
    assert found is not None
    assert found.gpu.link == link


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


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("GPU models and configuration: \nGPU 0: NVIDIA L20\nGPU 1: NVIDIA L20\n", "NVIDIA L20"),
        ("> GPU models and configuration: GPU 0: NVIDIA A100-SXM4-80GB\n", "NVIDIA A100-SXM4-80GB"),
        ("GPU models and configuration : AMD Instinct MI210 (gfx90a:sramecc+:xnack-)", "AMD Instinct MI210"),
        ("GPU 0: NVIDIA H20 (UUID: GPU-1)", "NVIDIA H20"),
        ("|   0  NVIDIA A10                     On  |   00000000:00:04.0 Off |     0 |", "NVIDIA A10"),
        ("GPU models and configuration: No CUDA", None),
        ("NVIDIA H100 is what I use, GPU 0: NVIDIA H100", None),
        ("", None),
    ],
)
def test_the_gpu_that_a_text_lists(text: str, gpu: str | None) -> None:
    assert in_text(f"my environment\n{text}\nand more\n") == gpu
