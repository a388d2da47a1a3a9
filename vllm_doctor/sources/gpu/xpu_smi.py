"""The GPUs in what Intel's xpu-smi prints: its table, discovery, stats, and the CSV of dump."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import INTEL, Look
from vllm_doctor.sources.gpu.printed_lines import Line, fields, rounds

ORIGIN = "xpu-smi"
MARKS = ("XPU-SMI", "xpu-smi", "xpumcli", "DeviceId,", "Device ID |", "| Device ID", "Device Information")
_COLUMNS = {
    "gpu utilization (%)": ("utilization", "%"),
    "gpu power (w)": ("power", "W"),
    "gpu frequency (mhz)": ("sm_clock", "MHz"),
    "gpu core temperature (celsius degree)": ("temperature", "C"),
    "gpu core temperature (c)": ("temperature", "C"),
    "gpu memory utilization (%)": ("memory_used_share", "%"),
    "gpu memory used (mib)": ("memory_used", "MiB"),
    "gpu memory util (%)": ("memory_used_share", "%"),
}
"""Of dump and stats, as they stand in a sample."""
_ROW = re.compile(r"(\d{1,3}) {1,6}(\S.{0,60}?) {1,30}(?:On|Off|N/A)")
_MEMORY = re.compile(r"(\d{1,9}) ?MiB / (\d{1,9}) ?MiB")
_POWER = re.compile(r"(\d{1,5}) ?W / (\d{1,5}) ?W")
_DRIVER = re.compile(r"Driver: {1,4}([\w.-]{1,60})")
_PROCESS = re.compile(r"(\d{1,3}) {1,12}(\d{1,10}) {1,12}[CG+]{1,3} {1,30}(\S.{0,60}?) {1,60}(\d{1,9}) MiB")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """All of these forms."""
    return [*islice(_tables(lines), smi.ENOUGH), *_told(lines), *_dumped(lines, notes)]


def _quantity(said: str, unit: str = "") -> Reading:
    return smi.quantity(said, unit, ORIGIN)


def _number(said: str) -> int | None:
    return int(said) if re.fullmatch(r"\d{1,3}", said) else None


# --- discovery and stats --------------------------------------------------------------------------------------------


def _told(lines: Sequence[Line]) -> Iterator[Look]:
    """Boxes of two columns: the number of a device beside its "Name: value", or names beside values."""
    look: Look | None = None
    index: int | None = None
    said: dict[int, dict[str, str]] = {}
    for line in lines:
        text = line.text.strip(" \t>#")
        cells = fields(text) if text[:1] == "|" else []
        if len(cells) != 2:
            continue
        look = look or Look(origin=ORIGIN, vendor=INTEL, line=line.number)
        left, right = cells
        if left == "Device ID":
            index = _number(right)
        elif _number(left) is not None:
            index = _number(left)
        name, colon, value = (left.lower(), ":", right) if left.lower() in _COLUMNS else right.lower().partition(":")
        if index is not None and colon and len(said) <= smi.MAX_GPUS:
            own = right.partition(":")[2] if left.lower() not in _COLUMNS else value
            said.setdefault(index, {}).setdefault(name.strip(), own.strip())
    if look is None or not said:
        return
    for index, told in said.items():
        _add(look, index, told)
    if look.gpus:
        yield look


def _add(look: Look, index: int, told: Mapping[str, str]) -> None:
    device = told.get("device name", "")
    if not device and not set(told) & _COLUMNS.keys():
        return
    uuid = told.get("soc uuid", told.get("uuid", ""))
    look.driver = look.driver or smi.clean(told.get("driver version", ""))
    look.gpus[index] = Gpu(
        index,
        smi.clean(uuid) if re.fullmatch(r"[0-9a-fA-F-]{36}", uuid) else "",
        _name(device),
        smi.bus_id(told.get("pci bdf address", "")),
        memory_total=_quantity(told.get("memory physical size", "")),
        sm_clock_max=_quantity(told.get("core clock rate", "")),
        pcie_generation_max=_quantity(told.get("pcie generation", "")),
        pcie_width_max=_quantity(told.get("pcie max link width", "")),
    )
    readings = {place: _quantity(told[name], unit) for name, (place, unit) in _COLUMNS.items() if name in told}
    sample = replace(GpuSample(index, "", 0.0), **readings)  # type: ignore[arg-type]
    if any(isinstance(reading, Known) for reading in readings.values()):
        look.samples[index] = sample


def _name(said: str) -> str:
    """ "Intel(R) Arc(TM) B580 Graphics" as people call it; the table has no room for the last word."""
    return smi.name(smi.clean(re.sub(r"\((?:R|TM)\)", "", said)).removesuffix(" Graphics"))


# --- dump -----------------------------------------------------------------------------------------------------------


def _dumped(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    names: list[str] = []
    rows: list[tuple[int, str]] = []
    said: list[tuple[int, dict[str, str]]] = []
    for line in lines:
        text = line.text.strip(" \t>#`")
        cells = [cell.strip() for cell in text.split(",", 200)]
        if text.startswith("Timestamp") and "DeviceId" in cells:
            names = [cell.lower() for cell in cells]
        elif names and len(cells) == len(names):
            index = _number(cells[names.index("deviceid")])
            if index is not None:
                rows.append((index, str(len(said))))
                said.append((line.number, dict(zip(names, cells, strict=True))))
        else:
            names = []
    told, every = rounds(rows, smi.ENOUGH)
    if every > 1:
        notes.append(f"of {len(rows):,} rows of xpu-smi dump one round in {every} was read")
    return [_round([(index, said[int(at)]) for index, at in some]) for some in told]


def _round(rows: Sequence[tuple[int, tuple[int, Mapping[str, str]]]]) -> Look:
    look = Look(origin=ORIGIN, vendor=INTEL, line=rows[0][1][0])
    for index, (_, said) in rows:
        look.time = look.time or _moment(said.get("timestamp", ""))
        look.gpus[index] = Gpu(index, "", "")
        readings = {place: _quantity(said[name], unit) for name, (place, unit) in _COLUMNS.items() if name in said}
        look.samples[index] = replace(GpuSample(index, "", 0.0), **readings)  # type: ignore[arg-type]
    return look


def _moment(said: str) -> datetime | None:
    """The time of a day, mostly without the day."""
    try:
        return datetime.strptime(said.rpartition("T")[2].partition(".")[0], "%H:%M:%S")
    except ValueError:
        return None


# --- the table ------------------------------------------------------------------------------------------------------


def _tables(lines: Sequence[Line]) -> Iterator[Look]:
    look: Look | None = None
    index: int | None = None
    for line in lines:
        if "XPU-SMI" in line.text:
            if look is not None and look.gpus:
                yield look
            look, index = Look(origin=ORIGIN, vendor=INTEL, line=line.number), None
            if driver := _DRIVER.search(line.text):
                look.driver = driver[1]
        elif look is not None and "|" in line.text:
            cells = fields(line.text.strip(" \t>#"))
            if len(cells) == 3:
                index = _gpu(look, cells, index)
            elif len(cells) == 1 and (process := _PROCESS.fullmatch(cells[0])) and int(process[1]) in look.gpus:
                known = look.processes.setdefault(int(process[1]), [])
                if isinstance(known, list):
                    held = _quantity(process[4], "MiB")
                    known.append((("N/A", "N/A"), GpuProcess(int(process[2]), smi.clean(process[3]), held)))
    if look is not None and look.gpus:
        yield look


def _gpu(look: Look, cells: Sequence[str], index: int | None) -> int | None:
    """A line of a GPU: its first, the rest of a long name, or its last; and the GPU that is read."""
    row, memory = _ROW.fullmatch(cells[0]), _MEMORY.search(cells[1])
    bus = smi.bus_id((cells[1].split() or [""])[0])
    if row is not None and bus and len(look.gpus) < smi.MAX_GPUS:
        look.gpus[int(row[1])] = Gpu(int(row[1]), "", _name(row[2]), bus)
        return int(row[1])
    if index is None:
        return None
    gpu, power = look.gpus[index], _POWER.search(cells[0])
    if memory is None:
        look.gpus[index] = replace(gpu, name=_name(f"{gpu.name} {cells[0]}".strip()))
        return index
    temperature = re.search(r"(?<!\w)(\d{1,3})C\b", cells[0])
    look.gpus[index] = replace(
        gpu,
        memory_total=_quantity(memory[2], "MiB"),
        power_limit=_quantity(power[2] if power else "", "W"),
    )
    look.samples[index] = GpuSample(
        index,
        "",
        0.0,
        utilization=_quantity((cells[2].split() or [""])[0]),
        memory_used=_quantity(memory[1], "MiB"),
        power=_quantity(power[1] if power else "", "W"),
        temperature=_quantity(temperature[1] if temperature else "", "C"),
    )
    return None
