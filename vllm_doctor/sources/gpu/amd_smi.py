"""The GPUs in what amd-smi prints: its table, monitor, and static, metric and list, as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from vllm_doctor.model.outside import is_time, moment
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import AMD, Look
from vllm_doctor.sources.gpu.outline import Outline
from vllm_doctor.sources.gpu.printed_lines import Line, fields, rounds

ORIGIN = "amd-smi"
MARKS = (
    *("AMD-SMI", "GFX_CLK", "PWR_CAP", "VRAM_USED", "VRAM_USAGE", "MARKET_NAME", "SOCKET_POWER", "TOTAL_VRAM"),
    *('"market_name"', '"socket_power"', '"total_vram"', "AMD Instinct"),
)
_COLUMNS = {
    "POWER": "power",
    "GPU_T": "temperature",
    "GFX_CLK": "sm_clock",
    "GFX%": "utilization",
    "GFX_UTIL": "utilization",
    "VRAM_USED": "memory_used",
    "VRAM_FREE": "memory_free",
    "VRAM%": "memory_used_share",
}
"""Of monitor, as they stand in a sample."""
_GPU = re.compile(r"GPU: {1,4}(\d{1,3})")
_KEY = re.compile(r"[A-Za-z][\w .-]{0,60}")
_VALUE = re.compile(
    r"N/A|\d{1,9}(?:\.\d{1,4})? {0,4}/ {0,4}\d{1,9}(?:\.\d{1,4})? {0,2}[GM]B"
    r"|\d{1,12}(?:\.\d{1,4})? {0,2}(?:W|°C|MHz|%|[GMK]?B|Mb/s)(?![\w])|\d{1,12}(?:\.\d{1,4})?|\S{1,30}"
)
_FIRST = re.compile(r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]) {1,12}(\S.{0,60})")
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,4})?|N/A)/(\d{1,9}) (W|MB)")
_PROCESS = re.compile(
    r"(\d{1,3}) {1,12}(\d{1,10}) {1,12}(\S{1,60}) .{0,60}? (\d{1,6}(?:\.\d{1,3})? [GMK]?B)(?: .{0,60})?"
)


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """All of these forms."""
    outlined = islice(_outlines(lines), smi.ENOUGH)
    return [*islice(_tables(lines), smi.ENOUGH), *_monitored(lines, notes), *outlined]


def of_json(document: Any) -> list[Look]:
    """The GPUs of --json: a list of {"gpu": 0, "asic": {"market_name": …}}, or that below "gpu_data"."""
    told = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(told, list):
        return []
    look = Look(origin=ORIGIN, vendor=AMD)
    for one in told[: smi.MAX_GPUS]:
        if isinstance(one, dict) and isinstance(one.get("gpu"), int) and 0 <= one["gpu"] < 1000:
            outline = Outline(0)
            _fill(outline, one, 0)
            _add(look, one["gpu"], outline)
    return [look] if look.gpus else []


def _fill(outline: Outline, told: Mapping[Any, Any], depth: int) -> None:
    for name, value in told.items():
        key = str(name)[:60].upper()
        if isinstance(value, dict) and "value" in value:
            outline.value(depth, key, f"{value['value']} {value.get('unit', '')}".strip())
        elif isinstance(value, dict) and depth < 6:
            outline.heading(depth, key)
            _fill(outline, value, depth + 1)
        elif isinstance(value, str | int | float):
            outline.value(depth, key, str(value))


# --- static, metric, list -------------------------------------------------------------------------------------------


def _outlines(lines: Sequence[Line]) -> Iterator[Look]:
    look: Look | None = None
    index, outline = 0, Outline(0)
    is_open = False
    for line in (*lines, Line(0, "CPU: 0")):
        text = line.text.lstrip("> \t")
        depth = len(line.text) - len(text)
        name, colon, said = text.partition(":")
        head = _GPU.fullmatch(text)
        if head is None and is_open and colon and name != "CPU" and _KEY.fullmatch(name):
            if said.strip():
                outline.value(depth, name.upper().replace(" ", "_"), said.strip())
            else:
                outline.heading(depth, name.upper())
            continue
        if is_open and (head is not None or name == "CPU" or not text.startswith("...")):
            look = look or Look(origin=ORIGIN, vendor=AMD, line=outline.line)
            if index in look.gpus and (("POWER", "SOCKET_POWER") in outline or ("USAGE", "GFX_ACTIVITY") in outline):
                yield look  # metric once more
                look = Look(origin=ORIGIN, vendor=AMD, line=outline.line)
            if len(look.gpus) < smi.MAX_GPUS:
                _add(look, index, outline)
            is_open = False
        if head is not None:
            index, outline, is_open = int(head[1]), Outline(line.number), True
    if look is not None:
        yield look


def _add(look: Look, index: int, said: Outline) -> None:
    limit = _first(
        said,
        ("LIMIT", "SOCKET_POWER"),
        ("PPT0", "SOCKET_POWER_LIMIT"),
        ("LIMIT", "MAX_POWER"),
        ("PPT0", "MAX_POWER_LIMIT"),
    )
    known = look.gpus.get(index, Gpu(index, "", ""))
    gpu = replace(
        known,
        uuid=known.uuid or smi.clean(said.said(("UUID",))),
        name=known.name or smi.name(smi.clean(said.said(("ASIC", "MARKET_NAME"), ("MARKET_NAME",)))),
        bus_id=known.bus_id or smi.bus_id(said.said(("BDF",))),
    )
    told = {
        "memory_total": _first(said, ("VRAM", "SIZE"), ("MEM_USAGE", "TOTAL_VRAM"), ("TOTAL_VRAM",)),
        "power_limit": limit,
        "sm_clock_max": _first(said, ("GFX_0", "MAX_CLK")),
        "pcie_width_max": _first(said, ("BUS", "MAX_PCIE_WIDTH")),
        "ecc_uncorrected": _first(said, ("ECC", "TOTAL_UNCORRECTABLE_COUNT"), ("ECC", "TOTAL_UNCORRECTABLE")),
    }
    look.gpus[index] = replace(gpu, **{name: value for name, value in told.items() if isinstance(value, Known)})  # type: ignore[arg-type]
    sample = GpuSample(
        index,
        "",
        0.0,
        utilization=_first(said, ("USAGE", "GFX_ACTIVITY")),
        memory_used=_first(said, ("MEM_USAGE", "USED_VRAM"), ("USED_VRAM",)),
        memory_free=_first(said, ("MEM_USAGE", "FREE_VRAM"), ("FREE_VRAM",)),
        sm_clock=_first(said, ("GFX_0", "CLK")),
        power=_first(said, ("POWER", "SOCKET_POWER"), ("POWER", "CURRENT_POWER"), ("POWER", "AVERAGE_POWER")),
        temperature=_first(said, ("TEMPERATURE", "HOTSPOT"), ("TEMPERATURE", "EDGE")),
        pcie_width=_first(said, ("PCIE", "WIDTH")),
    )
    if sample != GpuSample(index, "", 0.0):
        look.samples[index] = sample


def _first(said: Outline, *paths: tuple[str, ...]) -> Reading:
    readings = [_quantity(said.said(path)) for path in paths]
    return next((one for one in readings if isinstance(one, Known) and one.value), readings[0])


# --- monitor --------------------------------------------------------------------------------------------------------


def _monitored(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    names: list[str] = []
    rows: list[tuple[int, str]] = []
    said: list[tuple[int, dict[str, str]]] = []
    for line in lines:
        text = line.text.strip(" \t>#`")
        if "GPU" in text and ("GFX" in text or "POWER" in text or "VRAM" in text) and "|" not in text:
            words = text.split()
            names = words if "GPU" in words[:2] and len(words) > 1 else names
        elif names and text[:1].isdigit():
            values = _VALUE.findall(text)
            if len(values) == len(names) and values[names.index("GPU")].isdigit():
                rows.append((int(values[names.index("GPU")]), str(len(said))))
                said.append((line.number, dict(zip(names, values, strict=True))))
        else:
            names = []
    told, every = rounds(rows, smi.ENOUGH)
    if every > 1:
        notes.append(f"of {len(rows):,} rows of amd-smi monitor one round in {every} was read")
    return [_round([(index, said[int(at)]) for index, at in some]) for some in told]


def _round(rows: Sequence[tuple[int, tuple[int, Mapping[str, str]]]]) -> Look:
    look = Look(origin=ORIGIN, vendor=AMD, line=rows[0][1][0])
    for index, (_, said) in rows:
        if index > 999:
            continue
        look.time = look.time or _moment(said.get("TIMESTAMP", ""))
        used, _, total = next((said[name] for name in ("VRAM_USAGE", "GTT_USAGE") if name in said), "").partition("/")
        unit = total.strip()[-2:] if total else ""
        readings = {place: _quantity(said[name]) for name, place in _COLUMNS.items() if name in said}
        if total:
            readings["memory_used"] = _quantity(used.strip(), unit)
        sample = replace(GpuSample(index, "", 0.0), **readings)  # type: ignore[arg-type]
        look.gpus[index] = Gpu(
            index,
            "",
            "",
            memory_total=_quantity(said.get("VRAM_TOTAL", total.strip())),
            power_limit=_quantity(said.get("PWR_CAP", said.get("MAX_PWR", ""))),
        )
        look.samples[index] = sample
    return look


def _moment(said: str) -> datetime | None:
    seconds = float(said) if re.fullmatch(r"\d{9,11}", said) else None
    return moment(seconds).astimezone(UTC).replace(tzinfo=None) if seconds is not None and is_time(seconds) else None


# --- the table ------------------------------------------------------------------------------------------------------


def _tables(lines: Sequence[Line]) -> Iterator[Look]:
    """Of amd-smi without a command: two lines a GPU, then the processes."""
    look: Look | None = None
    first: tuple[str, str, list[str]] | None = None
    of_processes = False
    for line in lines:
        if "|" not in line.text:
            continue
        if "AMD-SMI" in line.text:
            if look is not None and look.gpus:
                yield look
            look, first, of_processes = Look(origin=ORIGIN, vendor=AMD, line=line.number), None, False
        if look is None:
            continue
        cells = fields(line.text.strip(" \t>#"))
        if version := re.search(r"amdgpu version: {1,12}(\d[\w.-]{1,30})", cells[0], re.IGNORECASE):
            look.driver = version[1]
        of_processes = of_processes or cells[0].startswith("Processes:")
        if of_processes:
            _process(look, cells[0])
        elif len(cells) == 2 and (found := _FIRST.fullmatch(cells[0])):
            first = smi.bus_id(found[1]), found[2].strip(), [cells[1]]
        elif len(cells) == 2 and first is not None and cells[0][:1].isdigit():
            _second(look, first, cells)
            first = None
    if look is not None and (look.gpus or look.driver):
        look.is_cut = first is not None
        yield look


def _second(look: Look, first: tuple[str, str, list[str]], cells: Sequence[str]) -> None:
    """ "0 % 30 °C 0 103/300 W" above "100 % 38.82 29777/32624 MB"."""
    bus, name, (above,) = first
    number = cells[0].split(" ", 1)[0]
    if not re.fullmatch(r"\d{1,3}", number) or len(look.gpus) >= smi.MAX_GPUS:
        return
    index = int(number)
    temperature = re.search(r"(\d{1,3}) ?°?C\b", above)
    errors = re.search(r"C {1,6}(\d{1,9}) ", above)
    power, memory = _PARTS.search(above), _PARTS.search(cells[1])
    drawn = power[1] if power else next(iter(re.findall(r"(\d{1,5}) W", above)), "")
    load = re.match(r"(\d{1,3}) %", cells[1])
    look.gpus[index] = Gpu(
        index,
        "",
        smi.name(smi.clean(name.removeprefix("..."))),
        bus,
        memory_total=_quantity(memory[2] if memory else "", "MB"),
        power_limit=_quantity(power[2] if power and power[2] != "0" else "", "W"),
        ecc_uncorrected=_quantity(errors[1] if errors else ""),
    )
    look.samples[index] = GpuSample(
        index,
        "",
        0.0,
        utilization=_quantity(load[1] if load else "", "%"),
        memory_used=_quantity(memory[1] if memory else "", "MB"),
        power=_quantity(drawn, "W"),
        temperature=_quantity(temperature[1] if temperature else "", "C"),
    )


def _process(look: Look, text: str) -> None:
    if text.startswith("No running processes"):
        look.has_all_processes = True
    found = _PROCESS.fullmatch(text)
    if found is not None and int(found[1]) in look.gpus:
        sizes = re.findall(r"\d{1,6}(?:\.\d{1,3})? [GMK]?B", text)
        known = look.processes.setdefault(int(found[1]), [])
        if isinstance(known, list):
            held = _quantity(sizes[-1])
            known.append((("N/A", "N/A"), GpuProcess(int(found[2]), smi.name(smi.clean(found[3])), held)))


def _quantity(said: str, unit: str = "") -> Reading:
    return smi.quantity(said.replace("°", ""), unit, ORIGIN)
