"""The GPUs in the rows of nvidia-smi dmon, and their processes in those of pmon: each round is one look."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from vllm_doctor.model.reading import Known
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.printed_lines import Line, rounds

MARKS = ("# gpu", "#gpu", "# Idx", "#Time", "#Date", " gpu  ")
_OF_SAMPLE = {
    "pwr": ("power", "W"),
    "gtemp": ("temperature", "C"),
    "temp": ("temperature", "C"),
    "sm": ("utilization", "%"),
    "pclk": ("sm_clock", "MHz"),
    "fb": ("memory_used", "MiB"),
}
"""Columns of dmon, and their units. Those that say how long a limit held do not say which others did not."""
_VALUE = re.compile(r"[\d.:/-]{1,20}|N/A|[CGM](?:\+[CGM]){0,2}")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,3})?")
_Row = tuple[int, Sequence[str], str]
"""A line's number, the names of its columns, and itself."""


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """The rounds of both, each thinned out where they are very many."""
    rows = list(_rows(lines))
    of_gpus = [row for row in rows if "pid" not in row[1]]
    of_processes = [row for row in rows if "pid" in row[1]]
    return [*_dmon(of_gpus, notes), *_pmon(of_processes)]


def _rows(lines: Sequence[Line]) -> Iterator[_Row]:
    """The rows below a header, which says gpu and what else there is."""
    names: Sequence[str] = ()
    for line in lines:
        text = line.text.strip(" \t>`")
        if text[:1] == "#":
            words = text.lstrip("# ").replace(",", " ").lower().split()
            if "gpu" in words[:3] and len(words) < 60:
                names = words
        elif names and text[:1].isdigit():
            words = text.replace(",", " ").split()
            at = names.index("gpu")
            enough = len(words) == len(names) or ("command" in names and len(words) >= len(names))
            values = words[: len(names) - 1] if "command" in names else words
            if enough and words[at].isdigit() and len(words[at]) <= 3 and all(map(_VALUE.fullmatch, values)):
                yield line.number, names, text


def _dmon(rows: Sequence[_Row], notes: list[str]) -> list[Look]:
    told, every = rounds(((int(_said(row)["gpu"]), str(at)) for at, row in enumerate(rows)), smi.ENOUGH)
    if every > 1:
        notes.append(f"of {len(rows):,} rows of nvidia-smi dmon one round in {every} was read")
    found = []
    for some in told:
        first = rows[int(some[0][1])]
        look = Look(line=first[0], time=_moment(first))
        for index, at in some:
            said = _said(rows[int(at)])
            look.gpus[index] = Gpu(index, "", "")
            readings = {
                place: smi.quantity(said[name], unit)
                for name, (place, unit) in _OF_SAMPLE.items()
                if _NUMBER.fullmatch(said.get(name, ""))
            }
            look.samples[index] = replace(GpuSample(index, "", 0.0), **readings)  # type: ignore[arg-type]
        found.append(look)
    return found


def _said(row: _Row) -> dict[str, str]:
    """By the columns; the last, a command, may have blanks."""
    _, names, text = row
    return dict(zip(names, text.replace(",", " ").split(maxsplit=len(names) - 1), strict=False))


def _moment(row: _Row) -> datetime | None:
    """With -o DT; the time alone with -o T."""
    said = _said(row)
    day = said.get("date", "19700101").replace("-", "").replace("/", "")
    try:
        return datetime.strptime(f"{day} {said['time']}", "%Y%m%d %H:%M:%S")
    except (KeyError, ValueError):
        return None


def _pmon(rows: Sequence[_Row]) -> list[Look]:
    """A process comes once a round, so the round ends where one comes again; only the last is kept."""
    last: list[_Row] = []
    seen: set[tuple[str, str]] = set()
    before = 0
    for row in rows:
        said = _said(row)
        who, gpu = (said["gpu"], said["pid"]), int(said["gpu"])
        if who in seen or gpu < before:
            seen.clear()
            last = []
        seen.add(who)
        last.append(row)
        before = gpu
    if not last:
        return []
    look = Look(line=last[0][0])
    for row in last[: smi.ENOUGH]:
        said = _said(row)
        index = int(said["gpu"])
        look.gpus[index] = Gpu(index, "", "")
        known = look.processes.setdefault(index, [])
        if isinstance(known, list) and re.fullmatch(r"\d{1,10}", said["pid"]):
            name = smi.clean(said.get("command", ""))
            held = smi.quantity(said.get("fb", ""), "MiB")
            memory = held if isinstance(held, Known) else GpuProcess(0).memory
            known.append((("N/A", "N/A"), GpuProcess(int(said["pid"]), smi.name(name), memory)))
    return [look]
