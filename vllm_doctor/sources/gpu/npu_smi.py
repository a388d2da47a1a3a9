"""Huawei's NPUs in the table of npu-smi info: two lines a chip, then the processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import HUAWEI, Look
from vllm_doctor.sources.gpu.printed_lines import Line, fields

ORIGIN = "npu-smi"
MARKS = ("npu-smi", "HBM-Usage", "AICore(%)")
_FIRST = re.compile(r"(\d{1,3}) {1,12}(\S.{0,40})")
_SECOND = re.compile(r"(\d{1,3})(?: {1,20}(\d{1,4}|NA))?")
_PARTS = re.compile(r"(\d{1,9}) {0,6}/ {0,6}(\d{1,9})")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """One look for each table."""
    return list(islice(_tables(lines, notes), smi.ENOUGH))


def _tables(lines: Sequence[Line], notes: list[str]) -> Iterator[Look]:
    look: Look | None = None
    first: list[str] | None = None
    chips: dict[tuple[int, int], int] = {}
    of_processes = False
    for line in lines:
        cells = fields(line.text.strip(" \t>#")) if "|" in line.text else []
        if not cells or cells[0].startswith(("npu-smi", "NPU ", "Chip", "No running")):
            if cells and cells[0].startswith("NPU ") and "Process" in line.text:
                of_processes = True
            elif cells and cells[0].startswith("NPU ") and (look is None or look.gpus):
                if look is not None:
                    yield look
                look, first, chips, of_processes = _new(line), None, {}, False
            continue
        if look is None:
            continue
        if of_processes:
            _process(look, cells, chips)
        elif len(cells) == 3 and smi.bus_id((cells[1].split() or [""])[0]):
            if first is not None and len(look.gpus) < smi.MAX_GPUS:
                _chip(look, first, cells, chips, notes)
            first = None
        elif len(cells) == 3 and _FIRST.fullmatch(cells[0]):
            first = cells
    if look is not None:
        yield look


def _new(line: Line) -> Look:
    return Look(origin=ORIGIN, vendor=HUAWEI, line=line.number)


def _chip(
    look: Look, first: Sequence[str], cells: Sequence[str], chips: dict[tuple[int, int], int], notes: list[str]
) -> None:
    """ "0 910B3 | OK | 98.4 50 0 / 0" above "0 | 0000:C1:00.0 | 0 0 / 0 3369 / 65536"."""
    named, placed = _FIRST.fullmatch(first[0]), _SECOND.fullmatch(cells[0])
    if named is None or placed is None:
        return
    npu, chip, physical = int(named[1]), int(placed[1]), placed[2]
    index = (
        int(physical) if physical and physical != "NA" else (npu if not chip else max(chips.values(), default=0) + 1)
    )
    chips[npu, chip] = index
    name = smi.name(smi.clean(named[2]))
    measured = first[2].split()
    sizes = _PARTS.findall(cells[2])
    # the second pair is of the HBM, where there is one
    used, total = next(((used, total) for used, total in reversed(sizes) if total != "0"), ("", ""))
    look.gpus[index] = Gpu(
        index,
        "",
        name if not name or name.startswith("Ascend") else f"Ascend {name}",
        smi.bus_id((cells[1].split() or [""])[0]),
        memory_total=_quantity(total, "MB"),
    )
    look.samples[index] = GpuSample(
        index,
        "",
        0.0,
        utilization=_quantity((cells[2].split() or [""])[0], "%"),
        memory_used=_quantity(used, "MB"),
        power=_quantity(measured[0] if measured else "", "W"),
        temperature=_quantity(measured[1] if len(measured) > 1 else "", "C"),
    )
    if first[1].lower() not in ("ok", ""):
        notes.append(f'npu-smi says of the health of NPU {npu}: "{smi.clean(first[1])}"')


def _process(look: Look, cells: Sequence[str], chips: dict[tuple[int, int], int]) -> None:
    """ "0 0 | 124528 | python3.8 | 17400"."""
    place = re.fullmatch(r"(\d{1,3}) {1,12}(\d{1,3})", cells[0])
    if place is None or len(cells) != 4 or not re.fullmatch(r"\d{1,10}", cells[1]):
        return
    index = chips.get((int(place[1]), int(place[2])))
    if index is None:
        return
    known = look.processes.setdefault(index, [])
    if isinstance(known, list):
        held = _quantity(cells[3], "MB")
        if isinstance(held, Known):
            known.append((("N/A", "N/A"), GpuProcess(int(cells[1]), smi.name(smi.clean(cells[2])), held)))


def _quantity(said: str, unit: str = "") -> Reading:
    return smi.quantity(said, unit, ORIGIN)
