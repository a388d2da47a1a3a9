"""Each tool's own forms. The columns are the tools'; the values are invented."""

from __future__ import annotations

import pytest

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import printed
from vllm_doctor.sources.gpu.gpu import GpuProcess, GpuUse, GpuView, facts

MIB = 2.0**20


def view(text: str) -> GpuView:
    found = printed.view(text.encode(), "it.txt")
    assert found is not None
    return found


def values(*readings: Reading) -> list[float | str | None]:
    return [round(r.value, 4) if isinstance(r, Known) and isinstance(r.value, float) else None for r in readings]


def told(text: str, name: str) -> object:
    reading = facts(view(text), GpuUse())[name]
    return reading.value if isinstance(reading, Known) else reading.reason


# --- nvidia-smi -q --------------------------------------------------------------------------------------------------

QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Fri Nov 20 09:15:02 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
    Minor Number                          : 5
    GPU Reset Status
        Reset Required                    : No
        Drain and Reset Recommended       : No
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 4
            Link Width
                Max                       : 16x
                Current                   : 8x
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 70000 MiB
        Free                              : 11000 MiB
    Utilization
        GPU                               : 97 %
        Memory                            : 40 %
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 1
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Uncorrectable            : 90
    Remapped Rows
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 84 C
    GPU Power Readings
        Power Draw                        : 690.10 W
        Current Power Limit               : 600.00 W
        Default Power Limit               : 700.00 W
    GPU Memory Power Readings
        Power Draw                        : 50.00 W
    Clocks
        SM                                : 1400 MHz
    Max Clocks
        SM                                : 1980 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4101
            Type                          : C
            Name                          : VLLM::Worker_TP0
            Used GPU Memory               : 69000 MiB
"""


def test_the_text_of_q_is_read_whole() -> None:
    seen = view(QUERY)
    assert (seen.driver, seen.cuda, seen.notes, seen.more) == ("570.86.15", "12.8", (), False)
    gpu, sample = seen.gpus[0], seen.samples[0]
    assert (gpu.index, gpu.name, gpu.uuid[:8], gpu.bus_id) == (0, "NVIDIA H100 80GB HBM3", "GPU-1111", "0000:1b:00.0")
    assert values(gpu.memory_total, gpu.power_limit, gpu.power_limit_default, gpu.sm_clock_max) == [
        81559 * MIB, 600, 700, 1980,
    ]  # fmt: skip
    assert values(gpu.pcie_generation_max, gpu.pcie_width_max, gpu.ecc_uncorrected) == [5, 16, 3]
    assert [getattr(gpu, name).value for name in ("persistence", "mig", "remap_pending", "remap_failed")] == [
        True, False, True, False,
    ]  # fmt: skip
    assert values(sample.utilization, sample.memory_used, sample.sm_clock, sample.power, sample.temperature) == [
        0.97, 70000 * MIB, 1400, 690.1, 84,
    ]  # fmt: skip
    assert values(sample.event_reasons, sample.pcie_generation, sample.pcie_width) == [0x24, 4, 8]
    assert isinstance(sample.processes, tuple)
    assert [(process.pid, process.name) for process in sample.processes] == [(4101, "VLLM::Worker_TP0")]
    assert told(QUERY, "gpu_thermal_share") == 1.0
    assert told(QUERY, "pcie_width_share") == 0.5


def test_q_that_lost_its_indentation_tells_the_same() -> None:
    flat = "".join(f"{line.strip()}\n" for line in QUERY.splitlines())
    for name in ("gpu_clock_max", "gpu_utilization", "gpu_memory_free", "pcie_width_max", "gpu_thermal_share"):
        assert told(flat, name) == told(QUERY, name)


def test_two_logs_of_q_are_two_looks() -> None:
    later = QUERY.replace("09:15:02", "09:15:07").replace("97 %", "3 %")
    assert [(one.at, *values(one.utilization)) for one in view(QUERY + later).samples] == [(0, 0.97), (5, 0.03)]


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("Reset Required                    : No", "Reset Required                    : Yes", True),
        ("Performance State                     : P0", "GPU Recovery Action                   : Reset", True),
        ("Performance State                     : P0", "GPU Recovery Action                   : None", False),
        ("Recommended       : No", "Recommended       : Yes", False),
        (": NVIDIA H100 80GB HBM3", ": GPU is lost", True),
    ],
)
def test_a_gpu_that_needs_a_reset_is_noted(old: str, new: str, lost: bool) -> None:
    assert (view(QUERY.replace(old, new)).lost == {0}) is lost


def test_some_gpus_of_many_have_the_numbers_of_their_devices() -> None:
    seen = view(QUERY.replace("Attached GPUs                             : 1", "Attached GPUs   : 8"))
    assert ([gpu.index for gpu in seen.gpus], seen.more) == ([5], True)


def test_a_piece_of_q_without_its_head_is_read() -> None:
    piece = QUERY[QUERY.index("    Clocks Event") : QUERY.index("    FB Memory")]
    assert values(*(one.event_reasons for one in view(piece + piece).samples)) == [0x24, 0x24]
    assert isinstance(view(piece.partition("HW Slowdown")[0]).samples[0].event_reasons, Known) is False


# --- nvidia-smi: CSV, dmon, pmon, topo, nvlink ----------------------------------------------------------------------


def test_csv_is_read_by_its_header() -> None:
    seen = view(
        "timestamp, index, name, memory.used [MiB], utilization.gpu [%], clocks_throttle_reasons.active\n"
        "2026/11/20 09:15:02.100, 0, NVIDIA L4, 100 MiB, 50 %, 0x0000000000000004\n"
        "2026/11/20 09:15:02.120, 1, NVIDIA L4, 200 MiB, [N/A], [N/A]\n"
        "2026/11/20 09:15:03.100, 0, NVIDIA L4, 300 MiB, 60 %, 0x0\n"
    )
    assert [(one.index, round(one.at)) for one in seen.samples] == [(0, 0), (1, 0), (0, 1)]
    assert values(*(one.memory_used for one in seen.samples)) == [100 * MIB, 200 * MIB, 300 * MIB]
    assert values(*(one.event_reasons for one in seen.samples)) == [4, None, 0]


def test_numbers_without_units_have_those_of_the_header() -> None:
    assert values(view("index, memory.total [MiB], power.draw [W]\n0, 24564, 71.5\n").gpus[0].memory_total) == [
        24564 * MIB
    ]


def test_without_a_header_the_command_tells_the_columns() -> None:
    seen = view("$ nvidia-smi --query-gpu=index,memory.free,utilization.gpu --format=csv,noheader\n0, 5 MiB, 7 %\n")
    assert values(seen.samples[0].memory_free, seen.samples[0].utilization) == [5 * MIB, 0.07]


def test_without_both_only_what_is_sure_is_read() -> None:
    seen = view("0, NVIDIA A100-SXM4-80GB, 45 %, 12345 MiB, 81920 MiB, 35\n")
    assert (seen.gpus[0].name, values(seen.gpus[0].memory_total)) == ("NVIDIA A100-SXM4-80GB", [81920 * MIB])
    assert values(seen.samples[0].utilization, seen.samples[0].memory_used) == [None, None]
    assert any("have no header" in note for note in seen.notes)


def test_processes_of_csv_are_on_the_gpu_of_their_uuid() -> None:
    seen = view(
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-b, 7, python -c a, b, 30 MiB\n"
        "index, uuid, name\n0, GPU-a, NVIDIA L4\n1, GPU-b, NVIDIA L4\n"
    )
    held = {one.index: one.processes for one in seen.samples}
    assert held[1] == (GpuProcess(7, "python -c a, b", Known(30 * MIB, origin="nvidia-smi")),)


def test_dmon_and_pmon_are_rounds() -> None:
    seen = view(
        "#Date       Time        gpu    pwr  gtemp     sm    mem   pclk     fb\n"
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      %      %    MHz     MB\n"
        " 20261120   09:15:02      0    301     67     99     50   2100   1000\n"
        " 20261120   09:15:02      1      -     60      0      0    210      5\n"
        " 20261120   09:15:04      0    302     68     98     50   2110   1001\n"
        "# gpu         pid   type     sm    mem    enc    dec    command\n"
        "    0       4101     C     98     56      -      -    VLLM::EngineCore\n"
        "    1          -     -      -      -      -      -    -\n"
    )
    assert [(one.index, one.at) for one in seen.samples][:3] == [(0, 0), (1, 0), (0, 2)]
    assert values(*(one.power for one in seen.samples))[:3] == [301, None, 302]
    assert values(*(one.memory_used for one in seen.samples))[:3] == [1000 * MIB, 5 * MIB, 1001 * MIB]
    last = {one.index: one.processes for one in seen.samples[3:]}
    assert last == {0: (GpuProcess(4101, "VLLM::EngineCore"),), 1: ()}


@pytest.mark.parametrize(
    ("asked", "cell", "p2p", "nvlink"),
    [
        ("r", "OK", {(0, 1): True}, {}),
        ("w", "GNS", {(0, 1): False}, {}),
        ("n", "OK", {}, {(0, 1): True}),
        ("n", "NS", {}, {(0, 1): False}),
        ("", "CNS", {(0, 1): False}, {}),
        ("", "NS", {}, {}),
        ("a", "NS", {}, {}),
        ("r", "U", {}, {}),
    ],
)
def test_what_topo_p2p_says(asked: str, cell: str, p2p: dict[object, bool], nvlink: dict[object, bool]) -> None:
    command = f"$ nvidia-smi topo -p2p {asked}\n" if asked else ""
    seen = view(f"{command} \tGPU0\tGPU1\n GPU0\tX\t{cell}\n GPU1\t{cell}\tX\n")
    assert (dict(seen.p2p_pairs), dict(seen.nvlink_pairs)) == (p2p, nvlink)


def test_the_links_of_nvlink_are_counted() -> None:
    seen = view(
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
    )
    assert values(*(gpu.nvlinks_active for gpu in seen.gpus)) == [1, 0]
    assert dict(seen.nvlink_pairs) == {(0, 1): False}


# --- others that watch NVIDIA's -------------------------------------------------------------------------------------


def test_gpustat_tells_a_gpu_a_line() -> None:
    seen = view("[3] NVIDIA L4 | 45'C,  30 %,  98 %,   70 /  72 W | 20000 / 23034 MB | ann:python/77(19000M) gdm(4M)\n")
    gpu, sample = seen.gpus[0], seen.samples[0]
    assert (seen.origin, gpu.index, gpu.name) == ("gpustat", 3, "NVIDIA L4")
    assert values(gpu.memory_total, gpu.power_limit, sample.utilization, sample.power, sample.temperature) == [
        23034 * MIB, 72, 0.98, 70, 45,
    ]  # fmt: skip
    assert isinstance(sample.processes, tuple)
    assert [(process.pid, process.name) for process in sample.processes] == [(77, "python")]


def test_nvtop_and_nvitop_are_screens() -> None:
    seen = view(
        " Device 0 [NVIDIA GeForce RTX 3090] PCIe GEN 4@16x RX: 1.000 KiB/s\n"
        " GPU 1695MHz MEM 9501MHz TEMP  61°C FAN  50% POW 301 / 350 W\n"
        " GPU[||||||||||||||  97%] MEM[|||||||| 21.2Gi/24.0Gi]\n"
    )
    assert values(seen.gpus[0].memory_total, seen.samples[0].utilization, seen.samples[0].sm_clock) == [
        24 * 1024 * MIB, 0.97, 1695,
    ]  # fmt: skip
    seen = view(
        "│ NVITOP 1.3.2      Driver Version: 550.90.07      CUDA Driver Version: 12.4 │\n"
        "│   0  NVIDIA L4   On   │ 00000000:1B:00.0 Off │                  0 │\n"
        "│ N/A   35C    P0    20W / 72W  │   18MiB / 22.49GiB   │      0%      Default │\n"
    )
    assert (seen.driver, seen.gpus[0].name, values(seen.samples[0].utilization)) == ("550.90.07", "NVIDIA L4", [0])


# --- AMD ------------------------------------------------------------------------------------------------------------


def test_rocm_smi_tells_tables_and_lines() -> None:
    seen = view(
        "GPU  Temp   AvgPwr  SCLK    MCLK    Fan     Perf  PwrCap  VRAM%  GPU%\n"
        "0    61.0c  290.0W  1502Mhz 1200Mhz 13.73%  auto  300.0W   80%   99%\n"
        "GPU[0]\t\t: Card Series: \t\tAMD Instinct MI210\n"
        "GPU[0]\t\t: VRAM Total Memory (B): 68702699520\nGPU[0]\t\t: VRAM Total Used Memory (B): 17179869184\n"
    )
    assert (seen.gpus[0].name, values(seen.gpus[0].memory_total)) == ("AMD Instinct MI210", [68702699520])
    assert values(*(one.utilization for one in seen.samples)) == [0.99, None]
    assert values(seen.samples[0].temperature, seen.samples[0].power, seen.samples[0].sm_clock) == [61, 290, 1502]
    as_json = '{"card0": {"Card Series": "AMD Instinct MI210", "GPU use (%)": "99"}, "system": {}}'
    assert (view(as_json).gpus[0].name, values(view(as_json).samples[0].utilization)) == ("AMD Instinct MI210", [0.99])


def test_rocm_smi_tells_links_and_nodes_to_collect_env() -> None:
    seen = view(
        "GPU models and configuration: AMD Instinct MI300X (gfx942:sramecc+:xnack-)\n"
        "====== ROCm System Management Interface ======\n=== Weight between two GPUs ===\n"
        "       GPU0         GPU1\nGPU0   0            15\nGPU1   15           0\n"
        "=== Link Type between two GPUs ===\n"
        "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n=== Numa Nodes ===\n"
        "GPU[0]          : (Topology) Numa Node: 0\nGPU[1]          : (Topology) Numa Node: 1\n"
        "GPU[1]          : (Topology) Numa Affinity: -1\n"
    )
    assert [gpu.name for gpu in seen.gpus] == ["AMD Instinct MI300X"] * 2
    assert (dict(seen.nvlink_pairs), dict(seen.numa_nodes)) == ({(0, 1): True}, {0: 0, 1: 1})


def test_amd_smi_tells_table_monitor_and_outline() -> None:
    table = view(
        "| AMD-SMI 26.2.1    amdgpu version: 6.16.6   ROCm version: 7.2.0    |\n"
        "| 0000:03:00.0 ...Radeon AI PRO R9700 | 1 %      79 °C   0           103/300 W |\n"
        "|   0       0     N/A             N/A | 95 %   38.82           29777/32624 MB |\n"
        "+----+\n| Processes: |\n"
        "|    0    77  python3   2.0 MB    29.0 GB   29.1 GB   0.0 % |\n"
    )
    gpu, sample = table.gpus[0], table.samples[0]
    assert (gpu.name, gpu.bus_id, table.driver) == ("Radeon AI PRO R9700", "0000:03:00.0", "6.16.6")
    assert values(gpu.memory_total, gpu.power_limit, sample.utilization, sample.power, sample.temperature) == [
        32624 * MIB, 300, 0.95, 103, 79,
    ]  # fmt: skip
    assert isinstance(sample.processes, tuple)
    assert [process.pid for process in sample.processes] == [77]
    monitor = view(
        "GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE\n"
        "  0    0  183 W   49 °C   48 °C  1427 MHz   12 %    0 %    N/A    0 %   23.6/ 24.0 GB\n"
    )
    assert values(monitor.gpus[0].memory_total, monitor.samples[0].utilization, monitor.samples[0].sm_clock) == [
        24 * 1024 * MIB, 0.12, 1427,
    ]  # fmt: skip
    outline = (
        "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n    VRAM:\n        SIZE: 196592 MB\n"
        "    POWER:\n        SOCKET_POWER: 140 W\n    USAGE:\n        GFX_ACTIVITY: 7 %\n"
    )
    as_json = (
        '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}, "vram": {"size": {"value": 196592, "unit": "MB"}},'
        ' "power": {"socket_power": {"value": 140, "unit": "W"}},'
        ' "usage": {"gfx_activity": {"value": 7, "unit": "%"}}}]'
    )
    for text in (outline, as_json):
        seen = view(text)
        assert (seen.gpus[0].name, values(seen.gpus[0].memory_total)) == ("AMD Instinct MI300X", [196592 * MIB])
        assert values(seen.samples[0].power, seen.samples[0].utilization) == [140, 0.07]


# --- Intel, Huawei --------------------------------------------------------------------------------------------------


def test_xpu_smi_tells_boxes_dump_and_table() -> None:
    seen = view(
        "| 0         | Device Name: Intel(R) Arc(TM) B580 Graphics     |\n"
        "|           | PCI BDF Address: 0000:03:00.0                   |\n"
        "|           | Memory Physical Size: 12216.00 MiB              |\n"
        "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Memory Used (MiB)\n"
        "06:14:46.000,    0, 50.00, 14.61, 100.5\n06:14:48.000,    0, N/A, 14.61, 100.5\n| Device ID | 0 |\n"
    )
    assert (seen.origin, seen.gpus[0].name, values(seen.gpus[0].memory_total)) == (
        "xpu-smi", "Intel Arc B580", [12216 * MIB],
    )  # fmt: skip
    assert [(one.at, *values(one.utilization)) for one in seen.samples] == [(0, 0.5), (2, None)]
    seen = view(
        "|   Intel XPU-SMI v2.0    Driver: 9FF4708    Level Zero: 1.27.0 |\n"
        "|   0  Intel(R) Arc(TM) A770   Off  | 0000:03:00.0   Off  | Disabled |\n"
        "|      Graphics                     |                     |          |\n"
        "| N/A   55C  45W / 190W             | 3642MiB / 16288MiB  |  12%  Default |\n"
    )
    assert (seen.gpus[0].name, values(seen.samples[0].utilization, seen.samples[0].power)) == (
        "Intel Arc A770", [0.12, 45],
    )  # fmt: skip


def test_npu_smi_tells_two_lines_a_chip() -> None:
    seen = view(
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
        "| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
        "| 0     Ascend910           | OK            | 178.9       36                0    / 0             |\n"
        "| 0     0                   | 0000:9D:00.0  | 55          0    / 0          3412 / 65536         |\n"
        "| 0     Ascend910           | Alarm         | -           36                0    / 0             |\n"
        "| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3189 / 65536         |\n"
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
        "| 0       1                 | 77            | python                   | 17400                   |\n"
    )
    assert [(gpu.index, gpu.name) for gpu in seen.gpus] == [(0, "Ascend910"), (1, "Ascend910")]
    assert values(*(gpu.memory_total for gpu in seen.gpus)) == [65536 * MIB] * 2
    assert values(*(one.utilization for one in seen.samples), seen.samples[1].power) == [0.55, 0, None]
    assert isinstance(seen.samples[1].processes, tuple)
    assert [process.pid for process in seen.samples[1].processes] == [77]
    assert seen.samples[0].processes is Reason.NOT_SUPPORTED
    assert seen.notes == ('npu-smi says of the health of NPU 0: "Alarm"',)
