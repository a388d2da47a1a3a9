"""The GPUs in a screen of nvtop: a line with the name, one with what is measured, one with bars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from vllm_doctor.model.reading import Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuSample
from vllm_doctor.sources.gpu.looks import AMD, INTEL, NVIDIA, Look
from vllm_doctor.sources.gpu.printed_lines import Line

ORIGIN = "nvtop"
MARKS = ("Device 0 [", "Device 1 [")
_NAME = re.compile(r"Device {1,3}(\d{1,3}) \[([^\]]{1,100})\](?: PCIe GEN {1,3}(\d)@ ?(\d{1,2})x)?")
_CLOCK = re.compile(r"\bGPU {1,3}(\d{1,5}) ?MHz")
_TEMPERATURE = re.compile(r"\bTEMP {1,3}(\d{1,3}) ?.{0,2}C")
_POWER = re.compile(r"\bPOW {1,4}(\d{1,5}|N/A) ?/ ?(\d{1,5}|N/A) ?W")
_LOAD = re.compile(r"\bGPU\[[^%\]]{0,200}?(\d{1,3})%\]")
_MEMORY = re.compile(r"\bMEM\[[^\]]{0,200}?(\d{1,5}(?:\.\d{1,3})?)(Mi|Gi)/(\d{1,5}(?:\.\d{1,3})?)(Mi|Gi)\]")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """One look for each screen."""
    found: list[Look] = []
    index: int | None = None
    for line in lines:
        if len(found) > smi.ENOUGH:
            break
        named = _NAME.search(line.text)
        if named is not None:
            index = int(named[1])
            if not found or index in found[-1].gpus:
                found.append(Look(origin=ORIGIN, line=line.number))
            name = smi.clean(named[2])
            found[-1].vendor = next((vendor for vendor in (AMD, INTEL) if vendor in name), NVIDIA)
            found[-1].gpus[index] = Gpu(index, "", smi.name(name))
            found[-1].samples[index] = GpuSample(
                index, "", 0.0, pcie_generation=_quantity(named[3] or "", ""), pcie_width=_quantity(named[4] or "", "")
            )
        elif index is not None:
            _add(found[-1], index, line.text)
    return found


def _add(look: Look, index: int, text: str) -> None:
    """A line below the name."""
    gpu, sample = look.gpus[index], look.samples[index]
    if clock := _CLOCK.search(text):
        sample = replace(sample, sm_clock=_quantity(clock[1], "MHz"))
    if temperature := _TEMPERATURE.search(text):
        sample = replace(sample, temperature=_quantity(temperature[1], "C"))
    if power := _POWER.search(text):
        sample, gpu = (
            replace(sample, power=_quantity(power[1], "W")),
            replace(gpu, power_limit=_quantity(power[2], "W")),
        )
    if load := _LOAD.search(text):
        sample = replace(sample, utilization=_quantity(load[1], "%"))
    if memory := _MEMORY.search(text):
        sample = replace(sample, memory_used=_quantity(memory[1], f"{memory[2]}B"))
        gpu = replace(gpu, memory_total=_quantity(memory[3], f"{memory[4]}B"))
    look.gpus[index], look.samples[index] = gpu, sample


def _quantity(said: str, unit: str) -> Reading:
    return smi.quantity(said, unit, ORIGIN)
