"""The GPUs in the lines of gpustat: [0] NVIDIA L4 | 45°C, 98 % | 70000 / 81920 MB | user:python/4101(69000M)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vllm_doctor.model.reading import Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.printed_lines import Line, rounds

ORIGIN = "gpustat"
MARKS = ("'C, ", "°C, ", "gpustat")
_GPU = re.compile(r"\[(\d{1,3})\] {1,3}([^|]{1,100})\|([^|]{1,100})\|([^|]{1,60})(?:\|(.{0,2000}))?")
_TEMPERATURE = re.compile(r"(\d{1,3}) ?.{0,2}C\b")
_SHARE = re.compile(r"(\d{1,3}) ?%")
_POWER = re.compile(r"(\d{1,5}) {0,4}/ {0,4}(\d{1,5}) ?W")
_MEMORY = re.compile(r"(\d{1,8}) {0,4}/ {0,4}(\d{1,8}) ?MB")
_PROCESS = re.compile(r"([\w.:+ -]{1,60})/(\d{1,10})\((\d{1,8})M\)")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """One look for each time that its lines stand there."""
    rows = []
    numbers: dict[str, int] = {}
    for line in lines:
        found = _GPU.search(line.text) if "[" in line.text and "|" in line.text else None
        if found is not None and _MEMORY.search(found[4]):
            key = f"{line.number}\n{found[0]}"
            numbers[key] = line.number
            rows.append((int(found[1]), key))
    told, every = rounds(rows, smi.ENOUGH)
    if every > 1:
        notes.append(f"of {len(rows):,} lines of gpustat one sample in {every} was read")
    return [_look(some) for some in told]


def _look(rows: Sequence[tuple[int, str]]) -> Look:
    look = Look(origin=ORIGIN, line=int(rows[0][1].partition("\n")[0]))
    for index, row in rows:
        found = _GPU.search(row)
        if found is None:
            continue
        name, state, memory = found[2].partition(" (UUID")[0], found[3], found[4]
        held, drawn = _MEMORY.search(memory), _POWER.search(state)
        # with a fan's speed there are two shares, and the load is the last
        temperature, shares = _TEMPERATURE.search(state), _SHARE.findall(state)
        look.gpus[index] = Gpu(
            index,
            "",
            smi.name(smi.clean(name)),
            memory_total=_quantity(held[2] if held else "", "MiB"),
            power_limit=_quantity(drawn[2] if drawn else "", "W"),
        )
        look.samples[index] = GpuSample(
            index,
            "",
            0.0,
            utilization=_quantity(shares[-1] if shares else "", "%"),
            memory_used=_quantity(held[1] if held else "", "MiB"),
            power=_quantity(drawn[1] if drawn else "", "W"),
            temperature=_quantity(temperature[1] if temperature else "", "C"),
        )
        processes = _PROCESS.findall(found[5] or "")
        if processes:
            look.processes[index] = [
                (
                    ("N/A", "N/A"),
                    GpuProcess(int(pid), smi.name(smi.clean(who.rpartition(":")[2])), _quantity(mib, "MiB")),
                )
                for who, pid, mib in processes
            ]
    return look


def _quantity(said: str, unit: str) -> Reading:
    return smi.quantity(said, unit, ORIGIN)
