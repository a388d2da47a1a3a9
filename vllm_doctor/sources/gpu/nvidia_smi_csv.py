"""The GPUs in the CSV of nvidia-smi: --query-gpu=… and --query-compute-apps=… with --format=csv, once or with -l.

The header tells what the columns are; where it was left out, the command that was copied with them does. Without both,
only what a value says by itself is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import Look
from vllm_doctor.sources.gpu.printed_lines import Line
from vllm_doctor.vllm import gpus as data_sheets

# fields by the names of nvidia-smi --help-query-gpu, without what newer drivers renamed: where they go, and their unit
_OF_GPU = {
    "memory.total": ("memory_total", "MiB"),
    "power.limit": ("power_limit", "W"),
    "enforced.power.limit": ("power_limit", "W"),
    "power.default_limit": ("power_limit_default", "W"),
    "clocks.max.sm": ("sm_clock_max", "MHz"),
    "clocks.max.graphics": ("sm_clock_max", "MHz"),
    "clocks.applications.graphics": ("applications_clock", "MHz"),
    "clocks.default_applications.graphics": ("applications_clock_default", "MHz"),
    "pcie.link.gen.max": ("pcie_generation_max", ""),
    "pcie.link.gen.gpumax": ("pcie_generation_max", ""),
    "pcie.link.width.max": ("pcie_width_max", ""),
    "compute_cap": ("compute_capability", ""),
}
_OF_SAMPLE = {
    "utilization.gpu": ("utilization", "%"),
    "memory.used": ("memory_used", "MiB"),
    "memory.free": ("memory_free", "MiB"),
    "clocks.current.sm": ("sm_clock", "MHz"),
    "clocks.sm": ("sm_clock", "MHz"),
    "clocks.current.graphics": ("sm_clock", "MHz"),
    "clocks.gr": ("sm_clock", "MHz"),
    "power.draw": ("power", "W"),
    "power.draw.average": ("power", "W"),
    "power.draw.instant": ("power", "W"),
    "temperature.gpu": ("temperature", "C"),
    "pcie.link.gen.current": ("pcie_generation", ""),
    "pcie.link.gen.gpucurrent": ("pcie_generation", ""),
    "pcie.link.width.current": ("pcie_width", ""),
}
_SWITCHES = {
    "persistence_mode": "persistence",
    "mig.mode.current": "mig",
    "remapped_rows.pending": "remap_pending",
    "retired_pages.pending": "remap_pending",
    "remapped_rows.failure": "remap_failed",
}
_UNCORRECTED = ("ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.volatile.device_memory")
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_NAMES = {
    "name": "name",
    "gpu_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "bus",
    "gpu_bus_id": "bus",
}
_OTHERS = frozenset(
    {"index", "timestamp", "driver_version", "count", "pstate", "serial", "pid", "process_name", "used_gpu_memory",
     "used_memory", "reset_status.reset_required", "reset_status.drain_and_reset_recommended", "gpu_recovery_action",
     "utilization.memory", "clocks.mem", "clocks.current.memory", "fan.speed", "temperature.memory", "cuda_version"}
)  # fmt: skip
_FIELDS = frozenset({*_OF_GPU, *_OF_SAMPLE, *_SWITCHES, *_UNCORRECTED, *_REASONS, *_NAMES, *_OTHERS})
_DISTINCT = _FIELDS - {"index", "name", "uuid", "count", "timestamp", "pid", "serial"}
MARKS = (
    *("--query-gpu", "--query-compute-apps", " [MiB]", " [%]", " [W]", " [MHz]", "_reasons.active", "memory.used"),
    *("index, name", "name, index", "name, uuid", "uuid, name", "index, uuid", ", NVIDIA ", ", GPU-", " MiB, ", "_cap"),
)

MOST_COLUMNS = 300
_MOST_ROWS = smi.ENOUGH
_MOST_UNTOLD = 16
"""Rows below one header, without an index, a name or a time, that are taken for one GPU each."""
_HEADER_CELL = re.compile(r"([a-z][a-z0-9_.]{1,60})(?: \[(%|W|MHz|MiB|KB|us|ms)\])?")
_ASKED = re.compile(r"--query-(?:gpu|compute-apps)[= ][\"']?([a-z0-9_.,]{2,2000})")
_MOMENT = re.compile(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)(?:\.(\d{3}))?")
_VALUE = re.compile(
    r"-?\d{1,15}(?:\.\d{1,9})?(?: ?(?:%|W|MHz|MiB|GiB|C))?|\[?(?:N/A|Not Supported|Unknown Error|GPU is lost)\]?"
    r"|0x[0-9a-fA-F]{4,16}|P\d{1,2}|Enabled|Disabled|Active|Not Active|Yes|No|Default|GPU-[\w-]{4,60}"
    r"|\d{1,4}(?:\.\d{1,4}){1,3}|[0-9a-fA-F]{8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9]"
)
_BRAND = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|RTX|A\d{2,3}-) {0,2}[\w. ()/-]{1,60}")
_MOST_KINDS = 32
"""Names of GPUs in one host."""
_QUOTED = " \t>#|`"
NO_INDEX = "rows of nvidia-smi's CSV without index, name and time are taken for one GPU each"


@dataclass(frozen=True)
class _Header:
    """`names`: of the columns; `units`: of values that stand alone, by the column."""

    names: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def is_of_apps(self) -> bool:
        return "pid" in self.names

    @property
    def tells_which(self) -> bool:
        return not {"index", "uuid", "bus", "name"}.isdisjoint(_NAMES.get(name, name) for name in self.names)


_Row = Mapping[str, str]


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """The tables below each header, each look at all GPUs by itself."""
    reader = _Reader(notes)
    for line in lines:
        reader.read(line)
    reader.end()
    return [look for look in reader.looks if look.tells]


class _Reader:
    def __init__(self, notes: list[str]) -> None:
        self.looks: list[Look] = []
        self._notes = notes
        self._asked: _Header | None = None
        self._header: _Header | None = None
        self._rows: list[tuple[int, _Row]] = []
        self._bare: list[tuple[int, list[str]]] = []

    def read(self, line: Line) -> None:
        text = line.text.strip(_QUOTED)
        if "--query-" in text and (asked := _ASKED.search(text)):
            self._end_table()
            self._asked = _header(asked[1].strip(",").split(","))
            return
        cells = [cell.strip() for cell in text.split(",", MOST_COLUMNS)]
        header = _header(cells) if text[:1].islower() else None
        if header is not None:
            self._end_table()
            self._header = header
        elif (above := self._header or self._asked) is not None and (row := _row(above, cells)):
            self._rows.append((line.number, row))
        elif self._header is None and len(cells) > 1 and _is_bare(cells):
            if len(self._bare) < _MOST_ROWS:
                self._bare.append((line.number, cells))
        else:
            self._end_table()

    def end(self) -> None:
        self._end_table()
        self._read_bare()

    def _end_table(self) -> None:
        rows, header = self._rows, self._header or self._asked
        if self._header is not None or rows:
            self._header, self._asked, self._rows = None, None, []
        if not rows or header is None:
            return
        if header.is_of_apps:
            self.looks.append(_apps(rows, header))
            return
        told = _rounds(rows, header)
        if not header.tells_which and "timestamp" not in header.names and len(rows) > 1:
            if len(rows) > _MOST_UNTOLD:
                self._notes.append(f"{len(rows):,} rows of nvidia-smi's CSV do not name their GPU: left out")
                return
            self._notes.append(NO_INDEX)
        every = -(-len(rows) // _MOST_ROWS)
        if every > 1:
            self._notes.append(f"of {len(told):,} samples in nvidia-smi's CSV one in {every} was read")
        self.looks += [look for rows in told[::every] if (look := _look(rows, header, self._notes)).tells]

    def _read_bare(self) -> None:
        """Rows without a header: what a value says by itself."""
        rows = self._bare
        if not rows:
            return
        if len({cell for _, cells in rows for cell in cells if _BRAND.fullmatch(cell)}) > _MOST_KINDS:
            return
        seen = [(line, _by_itself(cells)) for line, cells in rows]
        names = tuple(dict.fromkeys(name for _, row in seen for name in row))
        header = _Header(names, ("",) * len(names))
        told = [look for some in _rounds(seen, header) if (look := _look(some, header, self._notes)).tells]
        if told:
            self._notes.append("columns of nvidia-smi's CSV have no header: only name, index and memory were read")
        self.looks += told


def _header(cells: Sequence[str]) -> _Header | None:
    """The columns that a row names; None where it is no header."""
    if len(cells) > MOST_COLUMNS:
        return None
    found = [_HEADER_CELL.fullmatch(cell.strip()) for cell in cells]
    names = [match[1] for match in found if match is not None]
    known = sum(name in _FIELDS for name in names)
    if len(names) < len(cells) or not known or (len(names) > 1 and known * 2 < len(names)):
        return None
    if not any(match is not None and (match[2] or match[1] in _DISTINCT) for match in found) and len(names) < 2:
        return None
    return _Header(tuple(names), tuple(match[2] or "" for match in found if match is not None))


def _row(header: _Header, cells: list[str]) -> _Row | None:
    """A row below its header; None for what is none. Where there are more cells, a process's name has commas."""
    more = len(cells) - len(header.names)
    if more > 0 and "process_name" in header.names:
        place = header.names.index("process_name")
        cells = [*cells[:place], ", ".join(cells[place : place + more + 1]), *cells[place + more + 1 :]]
    if len(cells) != len(header.names):
        return None
    free = {"name", "gpu_name", "process_name", "serial", "timestamp"}
    told = [_VALUE.fullmatch(cell) for cell, name in zip(cells, header.names, strict=True) if name not in free]
    if sum(value is not None for value in told) * 2 < len(told) or (not told and not _BRAND.fullmatch(cells[0])):
        return None
    return dict(zip(header.names, cells, strict=True))


def _rounds(rows: Sequence[tuple[int, _Row]], header: _Header) -> list[list[tuple[int, _Row]]]:
    """The rows, cut where a GPU comes again, or time has passed."""
    by = next(
        (name for name in ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id") if name in header.names), None
    )
    found: list[list[tuple[int, _Row]]] = []
    seen: set[str] = set()
    last: datetime | None = None
    for line, row in rows:
        now = _moment(row.get("timestamp", ""))
        has_passed = by is None and now is not None and last is not None and (now - last).total_seconds() > 0.5
        if not found or has_passed or (by is not None and row.get(by, "") in seen):
            found.append([])
            seen.clear()
        seen.add(row.get(by, "") if by is not None else "")
        last = now
        found[-1].append((line, row))
    return found


def _moment(said: str) -> datetime | None:
    found = _MOMENT.fullmatch(said)
    try:
        return datetime.strptime(f"{found[1]}.{found[2] or '0'}", "%Y/%m/%d %H:%M:%S.%f") if found else None
    except ValueError:
        return None


def _look(rows: Sequence[tuple[int, _Row]], header: _Header, notes: list[str]) -> Look:
    numbered = "index" in header.names
    look = Look(line=rows[0][0], is_numbered=numbered, time=_moment(rows[0][1].get("timestamp", "")))
    units = dict(zip(header.names, header.units, strict=True))
    for place, (_, row) in enumerate(rows):
        said = row.get("index", "")
        index = int(said) if re.fullmatch(r"\d{1,3}", said) else place
        look.gpus[index] = gpu = _gpu(index, row, units)
        sample = _sample(index, row, units)
        if sample != GpuSample(index, "", 0.0):
            look.samples[index] = sample
        look.driver = look.driver or (
            row.get("driver_version", "") if _is_version(row.get("driver_version", "")) else ""
        )
        telling = [gpu.name or row.get("name", ""), *(row.get(name, "") for name in ("temperature.gpu", "memory.used"))]
        broken = smi.broken(index, [text.strip("[]") for text in telling])
        needs, should = smi.reset(
            index,
            row.get("reset_status.reset_required", ""),
            row.get("gpu_recovery_action", ""),
            row.get("reset_status.drain_and_reset_recommended", ""),
        )
        if broken or needs:
            look.broken[index] = broken or needs
        notes += [should] if should and should not in notes else []
    return look


def _is_version(said: str) -> bool:
    return re.fullmatch(r"\d[\d.]{1,30}", said) is not None


def _gpu(index: int, row: _Row, units: Mapping[str, str]) -> Gpu:
    names = {_NAMES[name]: said for name, said in row.items() if name in _NAMES}
    told: dict[str, Reading] = {}
    for name, (place, unit) in _OF_GPU.items():
        if name in row and not isinstance(told.get(place), Known):
            told[place] = smi.quantity(row[name], units.get(name) or unit)
    for name, place in _SWITCHES.items():
        if name in row and not isinstance(told.get(place), Known):
            told[place] = smi.switch(row[name])
    for name in _UNCORRECTED:
        if name in row:
            told.setdefault("ecc_uncorrected", smi.quantity(row[name]))
    uuid = names.get("uuid", "")
    gpu = Gpu(
        index,
        smi.clean(uuid) if re.fullmatch(r"(?:GPU|MIG)-[\w/-]{1,100}", uuid) else "",
        smi.name(smi.clean(names.get("name", ""))),
        smi.bus_id(names.get("bus", "")),
    )
    return replace(gpu, **told)  # type: ignore[arg-type]


def _sample(index: int, row: _Row, units: Mapping[str, str]) -> GpuSample:
    told: dict[str, Reading] = {}
    for name, (place, unit) in _OF_SAMPLE.items():
        if name in row and not isinstance(told.get(place), Known):
            told[place] = smi.quantity(row[name], units.get(name) or unit)
    for name in _REASONS:
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", row.get(name, "")):
            told["event_reasons"] = Known(float(int(row[name], 16)), origin=smi.ORIGIN)
    return replace(GpuSample(index, "", 0.0), **told)  # type: ignore[arg-type]


def _apps(rows: Sequence[tuple[int, _Row]], header: _Header) -> Look:
    units = dict(zip(header.names, header.units, strict=True))
    look = Look(line=rows[0][0], is_numbered=False)
    for _, row in rows[:_MOST_ROWS]:
        if not re.fullmatch(r"\d{1,10}", row["pid"]):
            continue
        where = row.get("gpu_uuid", "") or smi.bus_id(row.get("gpu_bus_id", ""))
        memory = next((name for name in ("used_gpu_memory", "used_memory") if name in row), "")
        held = smi.quantity(row[memory], units.get(memory) or "MiB") if memory else NOT_TOLD
        look.apps.append((where, GpuProcess(int(row["pid"]), smi.name(smi.clean(row.get("process_name", ""))), held)))
    return look


# --- rows without a header ------------------------------------------------------------------------------------------


def _is_bare(cells: Sequence[str]) -> bool:
    """Whether a row is of GPUs by itself: one cell is a name that is known, or a uuid, and the others are values."""
    if len(cells) > MOST_COLUMNS:
        return False
    named = [cell for cell in cells if _BRAND.fullmatch(cell) and not _VALUE.fullmatch(cell)]
    own = any(cell.startswith("GPU-") for cell in cells)
    if len(named) > 1:
        return False
    return bool(named or own) and all(_VALUE.fullmatch(cell) for cell in cells if cell not in named)


def _by_itself(cells: Sequence[str]) -> _Row:
    row: dict[str, str] = {}
    sizes = sorted((float(cell[:-4]), cell) for cell in cells if re.fullmatch(r"\d{1,8} MiB", cell))
    for cell in cells:
        if cell.startswith("GPU-"):
            row.setdefault("uuid", cell)
        elif smi.bus_id(cell):
            row.setdefault("pci.bus_id", cell)
        elif _BRAND.fullmatch(cell) and not _VALUE.fullmatch(cell):
            row.setdefault("name", cell)
        elif re.fullmatch(r"\d{1,3}", cell) and cell is cells[0]:
            row["index"] = cell
        elif re.fullmatch(r"\d{3}\.\d{1,3}(?:\.\d{1,2})?", cell):
            row.setdefault("driver_version", cell)
    if sizes and _is_all(sizes[-1][0], row.get("name", "")):
        row["memory.total"] = sizes[-1][1]
    return row


@lru_cache(maxsize=64)
def _is_all(mib: float, name: str) -> bool:
    """Whether this is all the memory that such a GPU has."""
    return bool(name) and data_sheets.gpu(name) is not None and data_sheets.gpu(name, mib * 2**20) is not None
