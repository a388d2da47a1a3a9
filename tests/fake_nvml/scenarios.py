"""The fake GPU hosts, by name, as texts for nvml.c. In each text the first line that matches a question answers it."""

from __future__ import annotations

GIB = 1 << 30

# What every GPU of a kind tells. Power in mW, as NVML has it.
_H100 = f"""
gpu/*/Name                                  NVIDIA H100 80GB HBM3
gpu/*/MemoryInfo                            {80 * GIB} {1 * GIB} {70 * GIB}
gpu/*/CudaComputeCapability                 9 0
gpu/*/EnforcedPowerLimit                    700000
gpu/*/PowerManagementDefaultLimit           700000
gpu/*/MaxClockInfo/*                        1980
gpu/*/ApplicationsClock/*                   1980
gpu/*/DefaultApplicationsClock/*            1980
gpu/*/MaxPcieLinkGeneration                 5
gpu/*/MaxPcieLinkWidth                      16
gpu/*/PersistenceMode                       1
gpu/*/TotalEccErrors                        0
gpu/*/RemappedRows                          0 0 0 0
gpu/*/MigMode                               0 0
gpu/*/MaxMigDeviceCount                     7
gpu/*/NvLinkState/[0-9]                     1
gpu/*/NvLinkState/1[0-7]                    1
gpu/*/P2PStatus/*/*                         0
gpu/*/UtilizationRates                      97 61
gpu/*/ClockInfo/*                           1935
gpu/*/CurrentClocksEventReasons             0
gpu/*/PowerUsage                            534250
gpu/*/Temperature                           61
gpu/*/CurrPcieLinkGeneration                5
gpu/*/CurrPcieLinkWidth                     16
"""
_A100 = f"""
gpu/*/Name                                  NVIDIA A100-SXM4-80GB
gpu/*/MemoryInfo                            {80 * GIB} {1 * GIB} {20 * GIB}
gpu/*/CudaComputeCapability                 8 0
gpu/*/EnforcedPowerLimit                    400000
gpu/*/PowerManagementDefaultLimit           400000
gpu/*/MaxClockInfo/*                        1410
gpu/*/ApplicationsClock/*                   1410
gpu/*/DefaultApplicationsClock/*            1275
gpu/*/MaxPcieLinkGeneration                 4
gpu/*/PowerUsage                            212000
gpu/*/ClockInfo/*                           1395
gpu/*/CurrPcieLinkGeneration                4
{_H100}
"""
_L40S = f"""
gpu/*/Name                                  NVIDIA L40S
gpu/*/MemoryInfo                            {45 * GIB} {GIB // 2} {38 * GIB}
gpu/*/CudaComputeCapability                 8 9
gpu/*/EnforcedPowerLimit                    350000
gpu/*/PowerManagementDefaultLimit           350000
gpu/*/MaxClockInfo/*                        2520
gpu/*/ApplicationsClock/*                   2520
gpu/*/DefaultApplicationsClock/*            2520
gpu/*/MaxPcieLinkGeneration                 4
gpu/*/MigMode                               !3
gpu/*/NvLinkState/*                         !3
gpu/*/P2PStatus/*/*                         1
gpu/*/PowerUsage                            298000
gpu/*/ClockInfo/*                           2490
gpu/*/CurrPcieLinkGeneration                4
{_H100}
"""
_A10G = f"""
gpu/*/Name                                  NVIDIA A10G
gpu/*/MemoryInfo                            {23 * GIB} {GIB // 4} {20 * GIB}
gpu/*/CudaComputeCapability                 8 6
gpu/*/EnforcedPowerLimit                    300000
gpu/*/PowerManagementDefaultLimit           300000
gpu/*/MaxClockInfo/*                        1710
gpu/*/ApplicationsClock/*                   1710
gpu/*/DefaultApplicationsClock/*            1710
gpu/*/PowerUsage                            231000
gpu/*/ClockInfo/*                           1695
{_L40S}
"""
# A GeForce tells what moves, and little else.
_RTX_4090 = f"""
gpu/*/Name                                  NVIDIA GeForce RTX 4090
gpu/*/MemoryInfo                            {24 * GIB} {GIB // 4} {20 * GIB}
gpu/*/EnforcedPowerLimit                    450000
gpu/*/PowerManagementDefaultLimit           450000
gpu/*/MaxClockInfo/*                        3105
gpu/*/ApplicationsClock/*                   !3
gpu/*/DefaultApplicationsClock/*            !3
gpu/*/PersistenceMode                       0
gpu/*/TotalEccErrors                        !3
gpu/*/RemappedRows                          !3
gpu/*/P2PStatus/*/*                         !3
gpu/*/PowerUsage                            381000
gpu/*/ClockInfo/*                           2730
{_L40S}
"""


def _host(count: int, kind: str, more: str = "", driver: str = "550.54.15", cuda: int = 12040) -> str:
    """`count` GPUs of one kind. GPU i: UUID GPU-0000000i-…, bus 0000:(0x17 + i):00.0. First lines win: `more`."""
    own = "\n".join(
        f"gpu/{index}/UUID GPU-{index:08x}-5a1e-4b0f-9d3c-0123456789ab\n"
        f"gpu/{index}/PciInfo 0:{0x17 + index:x}:0\n"
        f"gpu/{index}/ComputeRunningProcesses"
        for index in range(count)
    )
    system = f"system/Count {count}\nsystem/DriverVersion {driver}\nsystem/CudaDriverVersion {cuda}"
    return f"{more}\n{system}\n{own}\n{kind}"


def _each(count: int, pattern: str) -> str:
    """A line for each GPU: {i} is its index."""
    return "\n".join(pattern.format(i=index) for index in range(count))


_WORKERS = _each(8, f"gpu/{{i}}/ComputeRunningProcesses 410{{i}}:{70 * GIB}\nprocess/410{{i}} VLLM::Worker_TP{{i}}")
_SERVED = f"gpu/0/ComputeRunningProcesses 4100:{20 * GIB}\nprocess/4100 VLLM::EngineCore\n"
_MIG = """
gpu/*/MigMode                               1 1
gpu/*/UtilizationRates                      !3
gpu/*/P2PStatus/*/*                         !3
"""


def _slice(slot: int, used: int, processes: str) -> str:
    """A MIG instance 1g.10gb of GPU 0."""
    return f"""
gpu/0/mig/{slot}/Name                       NVIDIA A100-SXM4-80GB MIG 1g.10gb
gpu/0/mig/{slot}/UUID                       MIG-0000000{slot}-77d1-5e0c-8f4e-0123456789ab
gpu/0/mig/{slot}/MemoryInfo                 {9728 << 20} 0 {used}
gpu/0/mig/{slot}/UtilizationRates           !3
gpu/0/mig/{slot}/ComputeRunningProcesses    {processes}
"""


SCENARIOS: dict[str, str] = {
    # Eight GPUs on NVLink, one vLLM with a worker on each (pids 4100 to 4107), all well.
    "h100x8": _host(8, _H100, _WORKERS),
    # One small GPU with one vLLM (pid 4100), all well.
    "a10g": _host(1, _A10G, _SERVED),
    # Two GPUs that reach each other only through the host.
    "l40s-pair": _host(
        2, _L40S, _SERVED + f"gpu/1/ComputeRunningProcesses 4101:{38 * GIB}\nprocess/4101 VLLM::Worker_TP1"
    ),
    # Too hot (0x28: thermal, HW), capped below its default (0x4), and braked by the power supply (0x80).
    "throttled": _host(
        3,
        _H100,
        """
gpu/0/CurrentClocksEventReasons             40
gpu/0/ClockInfo/*                           1140
gpu/0/Temperature                           88
gpu/1/CurrentClocksEventReasons             4
gpu/1/EnforcedPowerLimit                    400000
gpu/1/PowerUsage                            399500
gpu/1/ClockInfo/*                           1410
gpu/2/CurrentClocksEventReasons             136
gpu/2/ClockInfo/*                           990
"""
        + _WORKERS,
    ),
    # A notebook (pid 5000, 12 GiB) on the GPU of a vLLM, and a process whose memory is not told (5001).
    "shared": _host(
        1,
        _A10G,
        f"gpu/0/ComputeRunningProcesses 4100:{8 * GIB} 5000:{12 * GIB} 5001\n"
        "process/5000 /usr/bin/python3 -m train --token secret\n" + _SERVED,
    ),
    # GPU 0 is split: slots 0, 1 and 3 hold 1g.10gb instances, a vLLM (4100) on the first. GPU 1 is split, but empty.
    "mig": _host(
        2,
        _A100,
        _SERVED.replace("gpu/0/", "gpu/0/mig/0/")
        + _MIG
        + _slice(0, 8 * GIB, f"4100:{8 * GIB}")
        + _slice(1, 0, "")
        + _slice(3, 2 * GIB, f"5000:{2 * GIB}"),
    ),
    # Two gaming GPUs, which tell little.
    "geforce": _host(2, _RTX_4090, _SERVED),
    # A driver of 2019: old names only, no MIG, no second version of the memory.
    "old-driver": _host(
        1,
        _A10G,
        """
gpu/*/CurrentClocksEventReasons             !13
gpu/*/CurrentClocksThrottleReasons          32
gpu/*/MemoryInfo_v2                         !13
gpu/*/MigMode                               !13
gpu/*/RemappedRows                          !13
"""
        + _SERVED,
        "418.87",
        10010,
    ),
    # A driver of the future: names that CUDA 14 drops are gone.
    "new-driver": _host(
        1,
        _A10G,
        """
gpu/*/Temperature                           !13
gpu/*/TemperatureV                          55
gpu/*/ApplicationsClock/*                   !13
gpu/*/DefaultApplicationsClock/*            !13
"""
        + _SERVED,
        "700.10",
        14000,
    ),
    # Four GPUs of which GPU 3 falls off the bus in the middle of the second sample.
    "lost": _host(4, _H100, "gpu/3/lost_after 2\n" + _WORKERS),
    # Four GPUs of which GPU 1 had fallen off the bus before.
    "lost-before": _host(4, _H100, "gpu/1/HandleByIndex !15\n" + _WORKERS),
    # Busy, but linked as PCIe 1.0 x4.
    "pcie-degraded": _host(1, _A10G, "gpu/0/CurrPcieLinkGeneration 1\ngpu/0/CurrPcieLinkWidth 4\n" + _SERVED),
    # Memory errors: GPU 0 waits for a reset to remap a row, GPU 1 could not remap one.
    "unhealthy": _host(
        2,
        _H100,
        "gpu/0/TotalEccErrors 3\ngpu/0/RemappedRows 0 1 1 0\ngpu/1/RemappedRows 0 9 0 1\n" + _WORKERS,
    ),
    # Two GPUs on which nothing runs.
    "idle": _host(
        2,
        _H100,
        f"""
gpu/*/UtilizationRates                      0 0
gpu/*/ClockInfo/*                           345
gpu/*/CurrentClocksEventReasons             1
gpu/*/PowerUsage                            71000
gpu/*/Temperature                           28
gpu/*/CurrPcieLinkGeneration                1
gpu/*/MemoryInfo                            {80 * GIB} {1 * GIB} 0
""",
    ),
    # A container that may not ask of processes, clocks and power.
    "denied-calls": _host(
        1,
        _A10G,
        """
gpu/*/ComputeRunningProcesses               !4
gpu/*/CurrentClocksEventReasons             !4
gpu/*/PowerUsage                            !4
gpu/*/PersistenceMode                       !4
""",
    ),
    # Numbers that mean "not available".
    "sentinels": _host(
        1,
        _A10G,
        """
gpu/*/UtilizationRates                      4294967295 4294967295
gpu/*/PowerUsage                            4294967295
gpu/*/ClockInfo/*                           4294967295
gpu/*/CurrPcieLinkWidth                     4294967295
gpu/*/CurrPcieLinkGeneration                0
gpu/*/MaxPcieLinkGeneration                 0
gpu/*/EnforcedPowerLimit                    0
gpu/*/CurrentClocksEventReasons             18446744073709551615
gpu/*/MemoryInfo                            18446744073709551615 0 0
""",
    ),
    # The library is there, its driver is not; or was updated without a reboot; or is closed to us; or is ill.
    "driver-not-loaded": "system/Init !9",
    "driver-mismatch": "system/Init !18",
    "driver-denied": "system/Init !4",
    "driver-ill": "system/Init !999",
    # A driver without a GPU; and two GPUs that one may not open.
    "no-gpu": "system/Count 0",
    "gpus-denied": "system/Count 2\ngpu/*/HandleByIndex !4",
}
