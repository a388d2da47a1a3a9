"""The GPUs in what rocm-smi prints: its table, the lines of --showallinfo and its parts, --showtopo, and their JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuSample
from vllm_doctor.sources.gpu.looks import AMD, Look
from vllm_doctor.sources.gpu.printed_lines import Line, rounds

ORIGIN = "rocm-smi"
MARKS = ("ROCm System Management", "ROCm SMI", "PwrCap  VRAM%", "GPU[0]", "GPU[1]", '"card0"', '"card1"')
NAMES = {
    "0x66a1": "Radeon Instinct MI50", "0x738c": "Instinct MI100", "0x740f": "Instinct MI210",
    "0x740c": "Instinct MI250", "0x7408": "Instinct MI250X", "0x74a0": "Instinct MI300A",
    "0x74a1": "Instinct MI300X", "0x74b5": "Instinct MI300X", "0x74a2": "Instinct MI308X",
    "0x74a5": "Instinct MI325X", "0x75a0": "Instinct MI350X", "0x75a3": "Instinct MI355X",
    "0x7551": "Radeon AI PRO R9700",
}  # fmt: skip
"""Of devices by their PCI number (pci.ids), which is all that the table tells; those that one name has alone."""

_ROW = re.compile(
    r"(\d{1,3}) .{0,120}? (\d{1,5}Mhz|N/A) {1,20}(\d{1,5}Mhz|N/A) {1,20}(\S{1,10}) {1,20}([a-z/_]{1,20}) {1,20}"
    r"(\S{1,12}) {1,20}(\d{1,3}%|N/A|Unsupported) {1,20}(\d{1,3}%|N/A|Unsupported)"
)
_POWER = re.compile(r"(?<![\w.])(\d{1,5}(?:\.\d{1,4})?)W(?!\w)")
_TEMPERATURE = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,2})?)[^\w\s]{0,3}[cC](?!\w)")
_DEVICE = re.compile(r"0x[0-9a-fA-F]{4}(?![0-9a-fA-F])")
_SAID = re.compile(r"GPU\[(\d{1,3})\][ \t]{0,20}:[ \t]{0,20}([^:\n]{1,80}?)[ \t]{0,20}:[ \t]{0,20}(.{1,200})")
_CARD = re.compile(r"card(\d{1,3})")
_MHZ = re.compile(r"\((\d{1,5})Mhz\)", re.IGNORECASE)
_LINKS = re.compile(r"GPU(\d{1,3})[ \t]{1,20}(\S.{0,2000})")
# vLLM's collect_env, which runs rocm-smi --showtopo below
_COLLECTED = re.compile(r"GPU models and configuration {0,20}: {0,20}(AMD [^(\n]{1,80}?) {0,3}(?:\(gfx.{0,60})?")
_DRIVER = re.compile(r"Driver version: {0,5}(\d[\w.-]{0,30})")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """The tables, each one look; and the lines of GPUs, together another."""
    rows: list[tuple[int, str]] = []
    said: dict[int, dict[str, str]] = {}
    first, driver, collected = 0, "", ""
    pairs: dict[tuple[int, int], bool] = {}
    is_links = False
    for line in lines:
        text = line.text.strip(" \t>#|")
        if "between two GPUs" in text:
            is_links = "Link Type" in text
        elif is_links and (row := _LINKS.fullmatch(text)):
            pairs |= _linked(int(row[1]), row[2].split())
        elif text[:10] == "GPU models" and (named := _COLLECTED.fullmatch(text)):
            collected = named[1]
        elif text[:4] == "GPU[":
            if told := _SAID.match(text):
                first = first or line.number
                said.setdefault(int(told[1]), {}).setdefault(told[2].lower(), told[3].strip())
        elif text[:1].isdigit() and _ROW.fullmatch(text):
            rows.append((int(text.split(" ", 1)[0]), f"{line.number}\n{text}"))
        elif text[:14] == "Driver version" and (version := _DRIVER.match(text)):
            driver = version[1]
    told_rows, every = rounds(rows, smi.ENOUGH)
    if every > 1:
        notes.append(f"of {len(rows):,} rows of rocm-smi one sample in {every} was read")
    found = [_table(some) for some in told_rows]
    if len(said) <= smi.MAX_GPUS and said:
        found.append(_lines(first, said, driver))
    if found:
        found[-1].pairs = pairs
    if collected and not any(gpu.name for look in found for gpu in look.gpus.values()):
        for look in found:
            look.gpus = {index: replace(gpu, name=smi.clean(collected)) for index, gpu in look.gpus.items()}
    return found


def _linked(index: int, links: Sequence[str]) -> dict[tuple[int, int], bool]:
    """The row of one GPU: its own cell is 0."""
    told = ((other, link == "XGMI") for other, link in enumerate(links) if link in ("XGMI", "PCIE") and other != index)
    return {(min(index, other), max(index, other)): is_own for other, is_own in told}


def of_json(document: Any) -> list[Look]:
    """The GPUs of --json: {"card0": {"GPU use (%)": "3", …}}."""
    if not isinstance(document, dict):
        return []
    said = {
        int(card[1]): {str(name).lower(): str(value) for name, value in told.items()}
        for name, told in document.items()
        if (card := _CARD.fullmatch(str(name))) and isinstance(told, dict)
    }
    return [_lines(0, said, "")] if 0 < len(said) <= smi.MAX_GPUS else []


def _table(rows: Sequence[tuple[int, str]]) -> Look:
    look = Look(origin=ORIGIN, vendor=AMD, line=int(rows[0][1].partition("\n")[0]))
    for index, row in rows:
        text = row.partition("\n")[2]
        found = _ROW.fullmatch(text)
        if found is None:
            continue
        before = text[: found.start(2)]
        device, power, temperature = _DEVICE.search(before), _POWER.search(before), _TEMPERATURE.search(before)
        limit = _quantity(found[6].removesuffix("W"), "W")
        look.gpus[index] = Gpu(
            index,
            "",
            NAMES.get(device[0].lower(), "") if device else "",
            power_limit=limit if isinstance(limit, Known) and limit.value else NOT_TOLD,
        )
        look.samples[index] = GpuSample(
            index,
            "",
            0.0,
            utilization=_quantity(found[8]),
            memory_used_share=_quantity(found[7]),
            sm_clock=_quantity(found[2].removesuffix("Mhz"), "MHz"),
            power=_quantity(power[1] if power else "", "W"),
            temperature=_quantity(temperature[1] if temperature else "", "C"),
        )
    return look


def _lines(line: int, said: Mapping[int, Mapping[str, str]], driver: str) -> Look:
    look = Look(origin=ORIGIN, vendor=AMD, line=line, driver=driver)
    for index, told in sorted(said.items()):
        device = told.get("device id", told.get("gpu id", "")).lower()
        named = (told.get(name, "") for name in ("card series", "device name", "card model"))
        name = next((name for name in named if name and not name.startswith("0x") and name != "N/A"), "")
        clock = _MHZ.search(" ".join(text for key, text in told.items() if key.startswith("sclk clock")))
        look.gpus[index] = Gpu(
            index,
            "",
            smi.name(smi.clean(name)) or NAMES.get(device, ""),
            smi.bus_id(told.get("pci bus", "")),
            memory_total=_bytes(told.get("vram total memory (b)", "")),
            power_limit=_quantity(told.get("max graphics package power (w)", ""), "W"),
        )
        sample = GpuSample(
            index,
            "",
            0.0,
            utilization=_quantity(told.get("gpu use (%)", ""), "%"),
            memory_used=_bytes(told.get("vram total used memory (b)", "")),
            memory_used_share=_quantity(told.get("gpu memory allocated (vram%)", ""), "%"),
            sm_clock=_quantity(clock[1] if clock else "", "MHz"),
            power=_first(
                told, "current socket graphics package power (w)", "average graphics package power (w)", unit="W"
            ),
            temperature=_first(
                told, "temperature (sensor junction) (c)", "temperature (sensor edge) (c)", "temperature", unit="C"
            ),
        )
        if sample != GpuSample(index, "", 0.0):
            look.samples[index] = sample
        if re.fullmatch(r"\d{1,2}", told.get("(topology) numa node", "")):
            look.nodes[index] = int(told["(topology) numa node"])
    return look


def _first(told: Mapping[str, str], *names: str, unit: str) -> Reading:
    readings = [_quantity(told.get(name, ""), unit) for name in names]
    return next((reading for reading in readings if isinstance(reading, Known)), readings[0])


def _quantity(said: str, unit: str = "") -> Reading:
    return smi.quantity(said, unit, ORIGIN)


def _bytes(said: str) -> Reading:
    return Known(float(said), origin=ORIGIN) if re.fullmatch(r"\d{1,15}", said) else NOT_TOLD
