"""The way in for whatever any tool printed. The texts have the tools' forms; the values are invented."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import printed
from vllm_doctor.sources.gpu.gpu import GpuUse, GpuView, facts

TABLE = """\
| NVIDIA-SMI 555.58.02    Driver Version: 555.58.02    CUDA Version: 12.5 |
|   0  NVIDIA L40S                    On  |   00000000:1B:00.0 Off |                    0 |
| N/A   66C    P0            298W /  350W |   40000MiB /  46068MiB |     97%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
CSV = "index, pci.bus_id, clocks.current.sm [MHz], clocks_event_reasons.active\n0, 00000000:1B:00.0, 1200 MHz, 0x4\n"
DMON = "# gpu    pwr  gtemp     sm   pclk\n# Idx      W      C      %    MHz\n    0    301     67     99   2100\n"
GPUSTAT = "[0] NVIDIA L40S | 66'C,  97 % | 40000 / 46068 MB | ann:python/77(39000M)\n"
ROCM = (
    "0       2     0x74a1,   1234   48.0°C      145.0W    NPS1, SPX, 0        "
    "132Mhz  900Mhz  0%   auto  750.0W  9%     7%\n"
)
NPU = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| 0     910B3               | OK            | 98.4        50                0    / 0             |
| 0                         | 0000:C1:00.0  | 3           0    / 0          3369 / 65536         |
"""


def view(text: str) -> GpuView:
    found = printed.view(text.encode(), "it.txt")
    assert found is not None
    return found


def test_tools_of_one_vendor_complete_each_other_in_any_order() -> None:
    for text in (TABLE + CSV + DMON + GPUSTAT, GPUSTAT + DMON + CSV + TABLE):
        seen = view(f"some words\n{text}")
        told = facts(seen, GpuUse())
        assert [(gpu.name, gpu.bus_id) for gpu in seen.gpus] == [("NVIDIA L40S", "0000:1b:00.0")]
        assert told["gpus_on_host"] == Known(1.0, origin=seen.origin)
        assert len(seen.samples) == 4


def test_gpus_of_two_vendors_are_of_two_hosts() -> None:
    seen = view(f"PwrCap  VRAM%\n{ROCM}\n{TABLE}")
    assert (seen.origin, len(seen.gpus)) == ("nvidia-smi", 1)
    assert "GPUs of AMD are listed as well: only those of NVIDIA are read" in seen.notes
    alone = view(f"PwrCap  VRAM%\n{ROCM}")
    assert (alone.origin, facts(alone, GpuUse())["gpu_memory_used_share"]) == (
        "rocm-smi", Known(0.09, origin="rocm-smi"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "prefix", ["> ", "vllm-1  | ", "2026-11-20T09:15:02.123Z ", "[2026-11-20 09:15:02] ", "\x1b[32m"]
)
@pytest.mark.parametrize("text", [TABLE, CSV, DMON, GPUSTAT, ROCM + "PwrCap  VRAM%", NPU + "npu-smi"])
def test_what_stands_around_does_not_matter(prefix: str, text: str) -> None:
    quoted = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    assert facts(view(quoted), GpuUse()) == facts(view(text), GpuUse())


@pytest.mark.parametrize("text", ["", "hello", "INFO 11-20 Avg prompt throughput: 1 tokens/s", '{"gpus": []}', "\0\1"])
def test_text_without_gpus_is_none(text: str) -> None:
    assert printed.view(text.encode(), "it.txt") is None


def test_the_signs_are_never_wrong_where_they_say_no() -> None:
    for text in (TABLE, CSV, DMON, GPUSTAT, "PwrCap  VRAM%\n" + ROCM, NPU, "<nvidia_smi_log>"):
        assert printed.holds(text.encode())
        assert printed.holds(text.encode("utf-16"))
    assert not printed.holds(b"INFO 11-20 Avg prompt throughput: 1 tokens/s, Running: 3 reqs\n" * 1000)


# --- the driver's own words -----------------------------------------------------------------------------------------


def test_a_gpu_that_fell_off_the_bus_is_lost_beside_a_table() -> None:
    seen = view(f"Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n{TABLE}")
    assert (set(seen.lost), set(seen.lost_at), len(seen.gpus)) == ({1}, set(), 1)
    assert 'GPU 1 answers "Unknown Error": it is lost, or needs a reset' in seen.notes


def test_a_gpu_known_by_its_address_alone_is_counted() -> None:
    seen = view("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system")
    told = facts(seen, GpuUse())
    assert (seen.missing, set(seen.lost_at)) == (Reason.NO_DRIVER, {"0000:3b:00.0"})
    origin = "nvidia-smi"
    assert (told["gpus_told"], told["gpus_lost"], told["gpus_lost_where"]) == (
        Known(1.0, origin=origin), Known(1.0, origin=origin), Known("the GPU at 0000:3b:00.0", origin=origin),
    )  # fmt: skip


def test_an_address_that_a_table_names_is_that_gpu() -> None:
    assert view(f"Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost.\n{TABLE}").lost == {0}


def test_xids_of_a_kernels_log_are_kept() -> None:
    line = "Nov 20 09:15:02 host kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
    assert view(line).xids == ((79, "0000:1b:00"),)
    assert view(TABLE + line).xids == ((79, "0000:1b:00"),)


def test_an_excuse_amid_other_text_is_found() -> None:
    seen = view("# a report\n" + "words\n" * 500 + "NVIDIA-SMI has failed because it couldn't communicate\nwords\n")
    assert (seen.missing, seen.detail) == (Reason.NO_DRIVER, "NVIDIA-SMI has failed because it couldn't communicate")


# --- hostile files --------------------------------------------------------------------------------------------------

SIZE = 6 << 20


def repeated(row: str, head: str = "") -> str:
    return head + row * (SIZE // len(row))


def numbered(row: str, head: str = "") -> str:
    parts = [head]
    length, each = 0, count()
    while length < SIZE // 4:
        parts.append(row.replace("#", str(next(each))))
        length += len(parts[-1])
    return "".join(parts)


MARKS = " ".join(mark for marks, _ in printed._READERS for mark in marks)
FLOODS: dict[str, Callable[[], str]] = {
    "dmon": lambda: repeated(DMON.splitlines(keepends=True)[2], DMON),
    "pmon": lambda: numbered("    0 # C 98 56 - - python\n", "# gpu pid type sm mem enc dec command\n"),
    "csv": lambda: repeated("0, NVIDIA L4, 1 MiB\n1, NVIDIA L4, 1 MiB\n", "index, name, memory.used [MiB]\n"),
    "columns": lambda: ", ".join(["memory.used [MiB]"] * 100_000) + "\n" + ", ".join(["1 MiB"] * 100_000),
    "commas": lambda: repeated("NVIDIA L4" + "," * 3990 + "\n", "index, name\n"),
    "bare": lambda: repeated("0, NVIDIA L4, 1 MiB, 24000 MiB\n"),
    "names": lambda: numbered("0, NVIDIA H#, 1 MiB, 24000 MiB\n"),
    "apps": lambda: numbered("#, python, 1 MiB\n", "pid, process_name, used_gpu_memory [MiB]\n"),
    "query": lambda: repeated("GPU 00000000:0B:00.0\n    Clocks\n        SM   : 5 MHz\n", "NVSMI LOG\n"),
    "keys": lambda: numbered("    Key #   : 1\n", "NVSMI LOG\nGPU 00000000:0B:00.0\n"),
    "starts": lambda: repeated("Performance State\n"),
    "rocm-smi": lambda: repeated(ROCM, "PwrCap  VRAM%"),
    "rocm-smi words": lambda: repeated("0 " + "1Mhz " * 700 + "\n", "PwrCap  VRAM%"),
    "rocm-smi lines": lambda: numbered("GPU[#] : # : 1\n", "GPU[0]"),
    "amd-smi monitor": lambda: repeated("  0    0  251 W   144 MHz\n", "GPU  XCP  POWER  GFX_CLK\n"),
    "amd-smi metric": lambda: repeated("GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 1 %\n", "AMD Instinct\n"),
    "xpu-smi": lambda: repeated("06:14:46.000,    0, 14.61\n", "Timestamp, DeviceId, GPU Power (W)\n"),
    "npu-smi": lambda: repeated(NPU),
    "gpustat": lambda: repeated(GPUSTAT),
    "nvtop": lambda: repeated("Device 0 [A]\nGPU 210MHz TEMP 3°C\n"),
    "handles": lambda: repeated("Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n"),
    "xids": lambda: repeated("NVRM: Xid (PCI:0000:01:00): 79, x\n"),
    "all signs": lambda: repeated("0 | a, b : c [d] GPU 0: x # e\n", MARKS + "\n"),
    "frames": lambda: repeated("│ a │ b │ c │\n", "npu-smi\n"),
    "json": lambda: '{"card0": ' + "[" * 3_000_000,
    "blank": lambda: "npu-smi\n" + "\n" * SIZE,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_the_time_grows_as_the_text(flood: Callable[[], str]) -> None:
    raw = flood().encode()
    quarter = raw[: len(raw) // 4]
    seconds(quarter)  # what is made once
    assert seconds(raw) < 10 * max(seconds(quarter), 0.02)  # 4 by a line, 16 by a square


def seconds(raw: bytes) -> float:
    start = time.process_time()
    with suppress(UsageError):
        printed.view(raw, "it.txt")
    return time.process_time() - start


def test_random_bytes_never_give_a_traceback() -> None:
    original = (TABLE + CSV + DMON + GPUSTAT + NPU + ROCM).encode()
    for turn in range(100):
        place = (turn * 43) % len(original)
        raw = original[:place] + os.urandom(8) + original[place + 8 :]
        found = printed.view(raw, "it.txt")
        assert found is None or facts(found, GpuUse())


def test_names_carry_nothing_that_moves_a_terminal() -> None:
    seen = view(GPUSTAT.replace("L40S", "L\u009b2J\u202e4\x07"))
    assert seen.gpus[0].name == "NVIDIA L 2J 4"
