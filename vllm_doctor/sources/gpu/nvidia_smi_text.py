"""The GPUs in what people post of nvidia-smi: plain text, alone or amid that of an issue.

Three forms, each any number of times and in any order: the table of plain `nvidia-smi` (drivers since 384, once or by
watch or -l; nvitop draws the same), the list of `nvidia-smi -L` (vLLM's collect_env prints it, too; with its links that
of `nvlink -s`), the matrices of `nvidia-smi topo`. Each tells what it holds and nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample
from vllm_doctor.sources.gpu.looks import Instance, Look
from vllm_doctor.sources.gpu.printed_lines import Line
from vllm_doctor.vllm import gpus as data_sheets

_MAX_ROWS = 20_000
MARKS = (
    *("NVIDIA-SMI", "NVITOP", "GPU0\t", "GPU0 ", "GPU models and config", "vidia driver version"),
    *(" 00000000:", "| 0000:", *(f"GPU {number}: " for number in range(10))),
)
_QUOTED = " \t>"

_DRIVER = re.compile(r"(?:Driver|KMD) Version: {0,40}(\d[\d.]{0,30})")  # KMD: drivers since 610
_CUDA = re.compile(r"CUDA (?:UMD |Driver )?Version: {0,40}(\d{1,3}\.\d{1,3})")
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
_P2P = re.compile(r"topo {1,4}(?:-m|-p2p {1,4}([a-z]{1,3})\b)")
_P2P_NOT = frozenset({"CNS", "GNS", "TNS", "NS", "DR"})
_ACTIVE = re.compile(
    r"Link \d{1,3}: (?:(\d{1,5}(?:\.\d{1,3})?) GB/s|<inactive)"
)  # the quote sign at its end is taken off
_AFFINITIES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


def looks(lines: Sequence[Line], notes: list[str]) -> list[Look]:
    """What the lines tell of the GPUs, where they hold one of these forms."""
    scanner = _Scanner()
    for line in lines:
        if scanner.rows > _MAX_ROWS:
            notes.append(f"only the first {_MAX_ROWS:,} rows of nvidia-smi were read")
            break
        scanner.read(line)
    scanner.close()
    return [look for look in scanner.looks if look.tells]


class _Scanner:
    """Reads line by line; a line that fits nowhere is other people's text."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.rows = 0
        self._line = 0
        self._time: datetime | None = None
        self._table: Look | None = None
        self._section = ""
        self._row: tuple[int, int] | None = None  # the GPU whose lines are read, and how many were
        self._list: Look | None = None
        self._listed: int | None = None
        self._matrix: Look | None = None
        self._columns: list[str] = []
        self._affinities: list[str] = []
        self._asked = ""  # of topo -p2p: r, w, n (NVLink), a, p
        self._doubted: set[tuple[int, int]] = set()

    def read(self, whole: Line) -> None:
        line = whole.text.strip(_QUOTED)
        self._line = whole.number
        if not line:
            return
        if "topo" in line and (asked := _P2P.search(line)):
            self._asked = asked[1] or ""
        elif ("NVIDIA-SMI" in line or "NVITOP" in line) and (driver := _DRIVER.search(line)):
            self._head(line, driver[1])
        elif line[-1] == "|":
            self._boxed(line.split("|")[:-1])
        elif line[-1] == "+":
            self._border()
        elif line.startswith(("GPU ", "GPU models", "MIG ")):
            self._in_list(line)
        elif line.startswith("GPU"):
            self._in_matrix(line)
        elif line.startswith("Link "):
            self._in_links(line)
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

    def _new(self) -> Look:
        self.rows += 1
        self.looks.append(Look(line=self._line))
        return self.looks[-1]

    # the table

    def _head(self, line: str, driver: str) -> None:
        cuda = _CUDA.search(line)
        table = self._new_table()
        table.driver, table.cuda = driver, cuda[1] if cuda else ""

    def _new_table(self) -> Look:
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
        is_named = len(words) >= 2 and words[0].isdecimal() and len(words[0]) <= 3 and _is_nvidia(words[1:])
        if is_named and bus and smi.bus_id(bus[0]):
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

    def _second_line(self, table: Look, index: int, left: list[str], memory: list[str], right: str) -> None:
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

    def _note_broken(self, table: Look, index: int, *said: str) -> None:
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
        self._table.instances[int(place[0]), int(place[3])] = Instance(
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
                found = Instance(smi.clean(instance[1]), uuid[1] if uuid else "")
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

    def _in_links(self, line: str) -> None:
        """ "Link 0: 26.562 GB/s", below its GPU."""
        link = _ACTIVE.match(line)
        if link is None or self._list is None or self._listed is None:
            return
        gpu = self._list.gpus[self._listed]
        active = gpu.nvlinks_active.value if isinstance(gpu.nvlinks_active, Known) else 0.0
        more = 1.0 if link[1] and float(link[1]) else 0.0
        self._list.gpus[self._listed] = replace(gpu, nvlinks_active=Known(float(active) + more, origin=smi.ORIGIN))

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
            self._doubted = set()

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
            elif other is not None and (link == "OK" or link in _P2P_NOT):
                pair = (min(index, int(other[1])), max(index, int(other[1])))
                self._can_reach(self._matrix, pair, link)
        told = words[1 + len(self._columns) :]
        while told and _LINKS.fullmatch(told[0]):  # columns whose names ran together
            told = told[1:]
        if len(told) == len(self._affinities) and "NUMA Affinity" in self._affinities:
            node = told[self._affinities.index("NUMA Affinity")]
            if _is_count(node):
                self._matrix.nodes[index] = int(node)

    def _can_reach(self, matrix: Look, pair: tuple[int, int], status: str) -> None:
        """What topo -p2p says of two GPUs. Whatever was asked, OK means that they can; what is missing is told where
        it was asked for, or the chipset forbids it."""
        if "n" in self._asked:
            matrix.pairs[pair] = status == "OK" and matrix.pairs.get(pair, True)
        elif status != "OK" and status != "CNS" and not set("rw") & set(self._asked):
            self._doubted.add(pair)
            matrix.p2p.pop(pair, None)
        elif pair not in self._doubted:
            matrix.p2p[pair] = status == "OK" and matrix.p2p.get(pair, True)


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 4


def _is_nvidia(words: Sequence[str]) -> bool:
    """Whether this can be its GPU's name: others draw tables like these, with numbers there, or their own names."""
    return any(any(char.isalpha() for char in word) for word in words) and not words[0].startswith(("Intel", "AMD"))
