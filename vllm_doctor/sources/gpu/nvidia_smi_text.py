"""The GPUs in what people post of nvidia-smi: plain text, alone or amid that of an issue.

Three forms, each any number of times and in any order: the table of plain `nvidia-smi` (drivers since 384, once or by
watch or -l), the list of `nvidia-smi -L` (vLLM's collect_env prints it, too), the matrix of `nvidia-smi topo -m`.
Each tells what it holds and nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import TypeVar

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample, GpuView
from vllm_doctor.vllm import gpus as data_sheets

NO_CLOCKS = "the table of nvidia-smi shows neither clocks nor why they are low: nvidia-smi -q -x does"
MORE = "the text of nvidia-smi leaves GPUs out: the host may have more than it lists"
NO_TABLE = "the text of nvidia-smi shows no GPU's load, memory or clocks: nvidia-smi -q -x does"

_MAX_LINES = 1_000_000
_MAX_LINE = 1000
_MAX_ROWS = 50_000
_MARKS = re.compile(r"NVIDIA-SMI|GPU \d|GPU\d|Nvidia driver|[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0 ")
_COLOURS = re.compile(r"\x1b?\[[0-9;]{0,20}m")  # a web page drops the escape and keeps the rest
_QUOTED = " \t>"

_DRIVER = re.compile(r"(?:Driver|KMD) Version: {0,40}(\d[\d.]{0,30})")  # KMD: drivers since 610
_CUDA = re.compile(r"CUDA (?:UMD )?Version: {0,40}(\d{1,3}\.\d{1,3})")
_COLLECTED_DRIVER = re.compile(r"Nvidia driver version {0,40}: {0,40}(\d[\d.]{0,30})", re.IGNORECASE)
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_PART = re.compile(r"N/A|[^\s/]+")
_MODELS = ("On", "Off", "N/A", "ERR!", "TCC", "WDDM", "MCDM")
"""What the column of the persistence mode says; on Windows it is that of the driver model."""
_TYPE = re.compile(r"[CGM](?:\+[CGM])?")

_LISTED = re.compile(r"(?:GPU models and configuration {0,40}: {0,40})?GPU (\d{1,3}): (\S.{0,300})")
_INSTANCE = re.compile(r"MIG (\S{1,40}) {1,40}Device {1,40}(\d{1,2}):(.{0,200})")
_UUID = re.compile(r"\(UUID: ((?:GPU|MIG)-[\w/-]{1,100})\)")
_BRAND = re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID)\b", re.IGNORECASE)
_MAX_WORDS = 8
"""Of a name: NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition."""

_GPU_COLUMN = re.compile(r"GPU(\d{1,3})")
_NVLINK = re.compile(r"NV\d{1,3}")
_OTHER_LINK = frozenset({"PIX", "PXB", "PHB", "PSB", "NODE", "SYS", "SOC"})
_LINKS = re.compile(r"(?:NV\d{1,3}|PIX|PXB|PHB|PSB|NODE|SYS|SOC|X)+")
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


def view(path: Path, text: str) -> GpuView | None:
    """What the text tells of the GPUs; None where it holds none of nvidia-smi's forms.

    Raises UsageError where it tells of more than a host can have.
    """
    if not _MARKS.search(text):
        return None
    scanner = _Scanner()
    for number, line in enumerate(StringIO(text, newline=None)):
        if number > _MAX_LINES or scanner.rows > _MAX_ROWS:
            raise UsageError(f"{path} holds more than a look at the GPUs needs; log less often (-l) or shorter")
        scanner.read(_COLOURS.sub("", line[:_MAX_LINE]))
    scanner.close()
    blocks = [block for block in scanner.blocks if block.gpus or block.driver]
    return _seen(path, blocks) if blocks else None


# --- what was printed -----------------------------------------------------------------------------------------------


@dataclass
class _Instance:
    """A MIG device. `place`: its GPU instance and compute instance."""

    profile: str = ""
    uuid: str = ""
    place: smi.Place | None = None
    total: Reading = NOT_TOLD
    used: Reading = NOT_TOLD


@dataclass
class _Block:
    """One thing that was printed: a table, a list, a matrix, or a line about the driver.

    A GPU's uuid is "" where it is not told; instances go by GPU and the number of the MIG device.
    """

    gpus: dict[int, Gpu] = field(default_factory=dict)
    instances: dict[tuple[int, int], _Instance] = field(default_factory=dict)
    samples: dict[int, GpuSample] = field(default_factory=dict)
    processes: dict[int, list[tuple[smi.Place, GpuProcess]] | Reason] = field(default_factory=dict)
    has_all_processes: bool = False
    broken: dict[int, str] = field(default_factory=dict)
    pairs: dict[tuple[int, int], bool] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    time: datetime | None = None
    driver: str = ""
    cuda: str = ""
    is_cut: bool = False
    """Whether it ends within a GPU."""

    def processes_of(self, index: int) -> list[tuple[smi.Place, GpuProcess]] | Reason:
        """Those on one GPU; none is known where the table was cut off before its end."""
        return self.processes.get(index, [] if self.has_all_processes else Reason.NOT_SUPPORTED)


class _Scanner:
    """Reads line by line; a line that fits nowhere is other people's text."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.rows = 0
        self._time: datetime | None = None
        self._table: _Block | None = None
        self._section = ""
        self._row: tuple[int, int] | None = None  # the GPU whose lines are read, and how many were
        self._list: _Block | None = None
        self._listed: int | None = None
        self._matrix: _Block | None = None
        self._columns: list[str] = []
        self._affinities: list[str] = []

    def read(self, line: str) -> None:
        line = line.strip(_QUOTED + "\n")
        if not line:
            return
        if "NVIDIA-SMI" in line and (driver := _DRIVER.search(line)):
            self._head(line, driver[1])
        elif line[-1] == "|":
            self._boxed(line.split("|")[:-1])
        elif line[-1] == "+":
            self._border()
        elif line.startswith(("GPU ", "GPU models", "MIG ")):
            self._in_list(line)
        elif line.startswith("GPU"):
            self._in_matrix(line)
        elif collected := _COLLECTED_DRIVER.match(line):
            self._new().driver = collected[1]
        elif _DATE.fullmatch(line):
            self._time = smi.moment(line)
        elif not line.startswith("NIC"):
            self._list = None

    def close(self) -> None:
        """A table that ends here, or where the next begins: without the line below its last GPU it was cut off."""
        if self._row is not None and self._table is not None:
            self._table.is_cut = True

    def _new(self) -> _Block:
        self.rows += 1
        self.blocks.append(_Block())
        return self.blocks[-1]

    # the table

    def _head(self, line: str, driver: str) -> None:
        cuda = _CUDA.search(line)
        table = self._new_table()
        table.driver, table.cuda = driver, cuda[1] if cuda else ""

    def _new_table(self) -> _Block:
        self.close()
        self._table, self._section, self._row = self._new(), "gpus", None
        self._table.time, self._time = self._time, None
        return self._table

    def _border(self) -> None:
        self._row = None
        if self._section == "processes" and self._table is not None:
            self._table.has_all_processes = True
            self._section = ""

    def _boxed(self, cells: list[str]) -> None:
        """A line of a table. Its cells are counted from the right: a log's prefix may stand before it."""
        last = cells[-1].strip()
        if last == "MIG devices:":
            self._section = "mig"
        elif last.startswith("Processes:"):
            self._section = "processes"
        elif self._section == "processes":
            self._process(last)
        elif self._section == "mig" and len(cells) >= 4:
            self._mig(cells[-4:])
        elif len(cells) >= 3:
            self._gpu(cells[-3:])

    def _gpu(self, cells: list[str]) -> None:
        left, middle, right = (cell.strip() for cell in cells)
        words, bus = left.split(), middle.split()
        if len(words) >= 2 and bus and words[0].isdecimal() and len(words[0]) <= 3 and smi.bus_id(bus[0]):
            self._first_line(int(words[0]), words[1:], smi.bus_id(bus[0]), right)
        elif self._row is not None and self._table is not None:
            index, lines = self._row
            self._row = (index, lines + 1)
            if lines == 1:
                self._second_line(self._table, index, _PART.findall(left), _PART.findall(middle), right)
            elif lines == 2 and not left and not middle:
                self._table.gpus[index] = replace(self._table.gpus[index], mig=smi.switch(right))

    def _first_line(self, index: int, words: list[str], bus: str, errors: str) -> None:
        table = self._table
        if table is None or self._section != "gpus" or index in table.gpus:
            table = self._new_table()  # its head was not copied
        self.rows += 1
        model = words.pop() if words[-1] in _MODELS else ""
        said = smi.clean(" ".join(words))
        table.gpus[index] = Gpu(
            index, "", smi.name(said), bus, persistence=smi.switch(model), ecc_uncorrected=smi.quantity(errors)
        )
        table.samples[index] = GpuSample(index, "", 0.0)
        self._row = (index, 1)
        self._note_broken(table, index, said)

    def _second_line(self, table: _Block, index: int, left: list[str], memory: list[str], right: str) -> None:
        """ "N/A   51C    P0   109W / 350W", "1024MiB / 81559MiB", "7%      Default"."""
        temperature, power, limit = (left[1], left[3], left[4]) if len(left) == 5 else ("", "", "")
        used, total = memory if len(memory) == 2 else ("", "")
        utilization = (right.split() or [""])[0]
        table.gpus[index] = replace(
            table.gpus[index], memory_total=smi.quantity(total), power_limit=smi.quantity(limit)
        )
        table.samples[index] = replace(
            table.samples[index],
            temperature=smi.quantity(temperature),
            power=smi.quantity(power),
            memory_used=smi.quantity(used),
            utilization=smi.quantity(utilization),
        )
        self._note_broken(table, index, temperature, *memory, utilization)

    def _note_broken(self, table: _Block, index: int, *said: str) -> None:
        broken = smi.broken(index, said)
        if broken:
            table.broken.setdefault(index, broken)

    def _mig(self, cells: list[str]) -> None:
        """ "0    1   0   0", "12MiB / 40192MiB", and what is counted and shared."""
        place, memory = cells[0].split(), _PART.findall(cells[1])
        if self._table is None or len(place) != 4 or not all(_is_count(part) for part in place):
            return
        self.rows += 1
        used, total = memory if len(memory) == 2 else ("", "")
        self._table.instances[int(place[0]), int(place[3])] = _Instance(
            place=(place[1], place[2]), total=smi.quantity(total), used=smi.quantity(used)
        )

    def _process(self, line: str) -> None:
        """ "0   N/A  N/A   4101      C   python3   10788MiB"; without the instances before driver 450."""
        if self._table is None:
            return
        words = line.split()
        if line.startswith("No running processes found"):
            self._table.has_all_processes = True
        if len(words) < 2 or not _is_count(words[0]):
            return
        self.rows += 1
        index = int(words[0])
        kind = next((at for at in (2, 4) if len(words) > at + 1 and _TYPE.fullmatch(words[at])), None)
        if kind is None or not re.fullmatch(r"[0-9]{1,10}", words[kind - 1]):
            self._table.processes.setdefault(index, Reason.NOT_SUPPORTED)  # there is one, and no more is known
            return
        place = (words[1], words[2]) if kind == 4 else ("N/A", "N/A")
        *named, memory = words[kind + 1 :]
        process = GpuProcess(int(words[kind - 1]), smi.name(smi.clean(" ".join(named))), smi.quantity(memory))
        known = self._table.processes.setdefault(index, [])
        if isinstance(known, list):
            known.append((place, process))

    # the list

    def _in_list(self, line: str) -> None:
        if instance := _INSTANCE.match(line):
            if self._list is not None and self._listed is not None:
                uuid = _UUID.search(instance[3])
                found = _Instance(smi.clean(instance[1]), uuid[1] if uuid else "")
                self._list.instances[self._listed, int(instance[2])] = found
                self.rows += 1
            return
        is_collected = line.startswith("GPU models")
        if is_collected:
            self._list, self._listed = self._new(), None
        listed = _LISTED.match(line)
        if listed is None:
            return
        index, uuid = int(listed[1]), _UUID.search(listed[2])
        said = smi.clean(listed[2].partition(" (UUID: ")[0])
        if not uuid and not self._is_name(said):
            return
        if self._list is None or index in self._list.gpus:
            self._list = self._new()
        self.rows += 1
        self._listed = index
        self._list.gpus[index] = Gpu(index, uuid[1] if uuid else "", smi.name(said))

    def _is_name(self, said: str) -> bool:
        """Whether a line without a UUID is of a list, and no sentence about a GPU."""
        if len(said.split()) > _MAX_WORDS or said.startswith(("AMD", "Intel")):
            return False
        return self._list is not None or bool(_BRAND.match(said)) or data_sheets.gpu(said) is not None

    # the matrix

    def _in_matrix(self, line: str) -> None:
        words = line.split()
        if not _GPU_COLUMN.fullmatch(words[0]):
            return
        if "X" in words:
            self._matrix_row(words)
        elif len(words) > 1 and (words[1] == "CPU" or _GPU_COLUMN.match(words[1]) or words[1].startswith("NIC")):
            # two names run together where a tab was lost
            named = re.sub(r"(?<=\d)(?=GPU\d|NIC\d|CPU )", " ", line).partition(" Affinity")[0].split()
            self._columns = named[: named.index("CPU")] if "CPU" in named else named
            self._affinities = [name for name in _AFFINITIES if name in " ".join(words)]
            self._matrix = self._new()

    def _matrix_row(self, words: list[str]) -> None:
        links = dict(zip(self._columns, words[1:], strict=False))
        own = _GPU_COLUMN.fullmatch(words[0])
        if self._matrix is None or own is None or links.get(words[0]) != "X":
            return
        self.rows += 1
        index = int(own[1])
        for column in filter(None, map(_GPU_COLUMN.fullmatch, self._columns)):  # also those whose own rows were cut off
            self._matrix.gpus[int(column[1])] = Gpu(int(column[1]), "", "")
        for name, link in links.items():
            other = _GPU_COLUMN.fullmatch(name)
            if other is not None and (_NVLINK.fullmatch(link) or link in _OTHER_LINK):
                pair = (min(index, int(other[1])), max(index, int(other[1])))
                self._matrix.pairs.setdefault(pair, link not in _OTHER_LINK)
        told = words[1 + len(self._columns) :]
        while told and _LINKS.fullmatch(told[0]):  # columns whose names ran together
            told = told[1:]
        if len(told) == len(self._affinities) and "NUMA Affinity" in self._affinities:
            node = told[self._affinities.index("NUMA Affinity")]
            if _is_count(node):
                self._matrix.nodes[index] = int(node)


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 4


# --- what it says together ------------------------------------------------------------------------------------------


@dataclass
class _Host:
    """What the blocks say of one host."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
    instances: dict[tuple[int, int], _Instance] = field(default_factory=dict)
    pairs: dict[tuple[int, int], bool] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)

    def clash(self, block: _Block) -> str:
        """Where the block contradicts, so that it is of another host; "" where it does not."""
        for index, gpu in block.gpus.items():
            known = self.gpus.get(index)
            if known is not None and not _is_same(known, gpu):
                return f"GPU {index} is {_described(known)} and further on {_described(gpu)}"
        for pair, is_linked in block.pairs.items():
            if self.pairs.get(pair, is_linked) != is_linked:
                return f"GPUs {pair[0]} and {pair[1]} have NVLink in one matrix and none in the other"
        for index, node in block.nodes.items():
            if self.nodes.get(index, node) != node:
                return f"GPU {index} is on NUMA node {self.nodes[index]} and further on {node}"
        return ""

    def add(self, block: _Block) -> None:
        for index, gpu in block.gpus.items():
            self.gpus[index] = _both(self.gpus[index], gpu) if index in self.gpus else gpu
        for key, instance in block.instances.items():
            self.instances[key] = _both(self.instances[key], instance) if key in self.instances else instance
        self.pairs |= block.pairs
        self.nodes |= block.nodes

    def name_all(self) -> None:
        """A UUID for each: its own where it was told, and is no other's (people blank them out)."""
        taken: set[str] = set()
        for index, gpu in self.gpus.items():
            uuid = _free(taken, gpu.uuid, gpu.bus_id, f"GPU {index}")
            self.gpus[index] = replace(gpu, uuid=uuid)
        for (index, device), instance in self.instances.items():
            parent = self.gpus[index].uuid if index in self.gpus else f"GPU {index}"
            by_place = smi.instance_uuid(parent, instance.place) if instance.place else ""
            by_number = smi.instance_uuid(parent, ("device", str(device)))
            self.instances[index, device] = replace(instance, uuid=_free(taken, instance.uuid, by_place, by_number))


def _free(taken: set[str], *names: str) -> str:
    name = next((name for name in names if name and name not in taken), names[-1])
    taken.add(name)
    return name


def _is_same(one: Gpu, other: Gpu) -> bool:
    told = [(one.uuid, other.uuid), (one.bus_id, other.bus_id)]
    return all(a == b for a, b in told if a and b) and _is_same_name(one.name, other.name)


def _is_same_name(one: str, other: str) -> bool:
    """A table cuts names; drivers before 465 leave the vendor out."""
    a, b = one.removeprefix("NVIDIA "), other.removeprefix("NVIDIA ")
    if not a or not b or a == b:
        return True
    return (_is_cut(a) and b.startswith(a[:-3].rstrip())) or (_is_cut(b) and a.startswith(b[:-3].rstrip()))


def _is_cut(name: str) -> bool:
    return name.endswith("...")


def _described(gpu: Gpu) -> str:
    return " ".join(part for part in (gpu.name, gpu.uuid or gpu.bus_id) if part) or "without a name"


_Told = TypeVar("_Told", Gpu, _Instance)


def _both(one: _Told, other: _Told) -> _Told:
    """What either tells; the later where both do, and the name that is whole."""
    told = {
        field.name: said
        for field in fields(one)
        if (said := getattr(other, field.name)) not in ("", None) and not isinstance(said, Unknown)
    }
    if isinstance(one, Gpu) and isinstance(other, Gpu) and _is_cut(other.name) and one.name:
        told["name"] = one.name
    return replace(one, **told)


def _seen(path: Path, blocks: list[_Block]) -> GpuView:
    host, notes = _Host(), list[str]()
    kept = list(_added(host, path, blocks, notes))
    host.name_all()
    tables = [block for block in kept if block.samples]
    gpus: dict[str, Gpu] = {}
    samples: list[GpuSample] = []
    for table, sample in _looks(host, tables):
        for gpu, seen in _devices(host, table, sample):
            gpus[gpu.uuid] = gpu
            samples.append(seen)
        if len(samples) > smi.MAX_TOLD:
            raise UsageError(f"{path} lists a GPU more than {smi.MAX_TOLD:,} times; log less often (-l) or shorter")
    broken = {index: note for table in tables for index, note in table.broken.items()}
    is_cut = bool(tables) and all(table.is_cut for table in tables)
    more = is_cut or host.gpus.keys() != set(range(len(host.gpus)))
    return GpuView(
        smi.ORIGIN,
        tuple(sorted(gpus.values(), key=lambda gpu: gpu.index)),
        tuple(samples),
        driver=next((block.driver for block in reversed(kept) if block.driver), ""),
        cuda=next((block.cuda for block in reversed(kept) if block.cuda), ""),
        nvlink_pairs=host.pairs,
        numa_nodes=host.nodes,
        lost=frozenset(broken),
        notes=tuple(
            dict.fromkeys([*notes, *broken.values(), *([MORE] if more else []), NO_CLOCKS if tables else NO_TABLE])
        ),
        more=more,
        # a driver's version without a GPU does not say that there is none
        missing=None if gpus else Reason.NOT_SUPPORTED,
    )


def _added(host: _Host, path: Path, blocks: list[_Block], notes: list[str]) -> Iterator[_Block]:
    """The blocks that are of one host, added to it; of another that clashes with them only a note is kept."""
    for block in blocks:
        clash = host.clash(block)
        if clash:
            notes.append(f"{clash}: only the first is read")
        else:
            host.add(block)
            yield block
        if len(host.gpus) + len(host.instances) > smi.MAX_GPUS:
            raise UsageError(f"{path} lists more GPUs than a host can have; {smi.HOW}")


def _looks(host: _Host, tables: list[_Block]) -> Iterator[tuple[_Block, GpuSample]]:
    """Each GPU in each table; once, empty, where none tells of it."""
    for at, table in zip(smi.times([table.time for table in tables]), tables, strict=True):
        for sample in table.samples.values():
            yield table, replace(sample, at=at)
    for index in host.gpus:
        if not any(index in table.samples for table in tables):
            yield _Block(), GpuSample(index, "", 0.0)


def _devices(host: _Host, table: _Block, sample: GpuSample) -> Iterator[tuple[Gpu, GpuSample]]:
    """The GPU, or the MIG instances in its place."""
    gpu, processes = host.gpus[sample.index], table.processes_of(sample.index)
    own = sorted(key for key in host.instances if key[0] == sample.index)
    for key in own:
        whole, now = host.instances[key], table.instances.get(key, _Instance())
        yield smi.instance(
            replace(gpu, mig=Known(True, origin=smi.ORIGIN), mig_profile=whole.profile),
            sample,
            whole.uuid,
            smi.here(processes, whole.place) if whole.place else Reason.NOT_SUPPORTED,
            whole.total,
            now.used,
        )
    if not own:
        yield gpu, replace(sample, uuid=gpu.uuid, processes=smi.here(processes))
