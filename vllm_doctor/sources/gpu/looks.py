"""What is printed of one host's GPUs, look by look, and all looks of one text together as a view.

Each tool's module reads its own forms as looks; any number of them, of any tools of one vendor, complete each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TypeVar

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import nvidia_smi_fields as smi
from vllm_doctor.sources.gpu.gpu import NOT_TOLD, Gpu, GpuProcess, GpuSample, GpuView

NO_CLOCKS = "what nvidia-smi printed shows neither clocks nor why they are low: nvidia-smi -q -x does"
NO_REASONS = "what nvidia-smi printed does not show why clocks are low: nvidia-smi -q -x does"
MORE = "the text of nvidia-smi leaves GPUs out: the host may have more than it lists"
NO_TABLE = "the text of nvidia-smi shows no GPU's load, memory or clocks: nvidia-smi -q -x does"

NVIDIA, AMD, INTEL, HUAWEI = "NVIDIA", "AMD", "Intel", "Huawei"


@dataclass
class Instance:
    """A MIG device. `place`: its GPU instance and compute instance."""

    profile: str = ""
    uuid: str = ""
    place: smi.Place | None = None
    total: Reading = NOT_TOLD
    used: Reading = NOT_TOLD


@dataclass
class Look:
    """One thing that was printed: a table, a list, a matrix, a row of each GPU, or a line about the driver.

    A GPU's uuid is "" where it is not told; instances go by GPU and the number of the MIG device.
    """

    origin: str = smi.ORIGIN
    vendor: str = NVIDIA
    line: int = 0
    gpus: dict[int, Gpu] = field(default_factory=dict)
    is_numbered: bool = True
    """Whether the numbers are the tool's; else the GPUs are numbered as they stand there."""
    instances: dict[tuple[int, int], Instance] = field(default_factory=dict)
    samples: dict[int, GpuSample] = field(default_factory=dict)
    processes: dict[int, list[tuple[smi.Place, GpuProcess]] | Reason] = field(default_factory=dict)
    has_all_processes: bool = False
    apps: list[tuple[str, GpuProcess]] = field(default_factory=list)
    """Processes on a GPU of this uuid, or at this bus address; "" where it is not told on which."""
    broken: dict[int, str] = field(default_factory=dict)
    lost_at: str = ""
    """The bus address of a GPU that does not answer, where its number is not told."""
    pairs: dict[tuple[int, int], bool] = field(default_factory=dict)
    p2p: dict[tuple[int, int], bool] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    time: datetime | None = None
    driver: str = ""
    cuda: str = ""
    attached: int | None = None
    """How many GPUs the host has, as the tool says it."""
    is_cut: bool = False
    """Whether it ends within a GPU."""

    @property
    def tells(self) -> bool:
        return bool(self.gpus or self.driver or self.apps or self.broken or self.lost_at)

    def processes_of(self, index: int) -> list[tuple[smi.Place, GpuProcess]] | Reason:
        """Those on one GPU; none is known where the table was cut off before its end."""
        return self.processes.get(index, [] if self.has_all_processes else Reason.NOT_SUPPORTED)

    def sample(self, index: int) -> GpuSample:
        return self.samples.get(index) or GpuSample(index, "", 0.0)

    def renumbered(self, to: Mapping[int, int]) -> Look:
        """The same with other numbers of its GPUs."""
        return replace(
            self,
            gpus={to[index]: replace(gpu, index=to[index]) for index, gpu in self.gpus.items()},
            samples={to[index]: replace(one, index=to[index]) for index, one in self.samples.items()},
            processes={to[index]: told for index, told in self.processes.items()},
            broken={to.get(index, index): said for index, said in self.broken.items()},
        )


@dataclass
class _Host:
    """What the looks say of one host."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
    instances: dict[tuple[int, int], Instance] = field(default_factory=dict)
    pairs: dict[tuple[int, int], bool] = field(default_factory=dict)
    p2p: dict[tuple[int, int], bool] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)

    def placed(self, look: Look) -> Look:
        """The look with the host's numbers, where a uuid or a bus address tells which GPU is meant."""
        if look.is_numbered or not self.gpus:
            return look
        names = {name: index for index, gpu in self.gpus.items() for name in (gpu.uuid, gpu.bus_id) if name}
        to = {
            index: names[name] for index, gpu in look.gpus.items() for name in (gpu.uuid, gpu.bus_id) if name in names
        }
        if not to:
            return look
        free = (number for number in range(2 * smi.MAX_TOLD) if number not in self.gpus)
        return look.renumbered(to | {index: next(free) for index in look.gpus if index not in to})

    def clash(self, look: Look) -> str:
        """Where the look contradicts, so that it is of another host; "" where it does not."""
        for index, gpu in look.gpus.items():
            known = self.gpus.get(index)
            if known is not None and not _is_same(known, gpu):
                return f"GPU {index} is {_described(known)} and further on {_described(gpu)}"
        for pair, is_linked in look.pairs.items():
            if self.pairs.get(pair, is_linked) != is_linked:
                return f"GPUs {pair[0]} and {pair[1]} have NVLink in one matrix and none in the other"
        for index, node in look.nodes.items():
            if self.nodes.get(index, node) != node:
                return f"GPU {index} is on NUMA node {self.nodes[index]} and further on {node}"
        return ""

    def add(self, look: Look) -> None:
        for index, gpu in look.gpus.items():
            self.gpus[index] = _both(self.gpus[index], gpu) if index in self.gpus else gpu
        for key, instance in look.instances.items():
            self.instances[key] = _both(self.instances[key], instance) if key in self.instances else instance
        self.pairs |= look.pairs
        self.nodes |= look.nodes
        for pair, can in look.p2p.items():  # one direction, or one way of access, may be missing
            self.p2p[pair] = self.p2p.get(pair, True) and can

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


_Told = TypeVar("_Told", Gpu, Instance)


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


def view(name: str, looks: Sequence[Look], notes: Sequence[str]) -> GpuView:
    """All looks together, in the order of their lines: those of one vendor, and of one host.

    Raises UsageError where they tell of more than a host can have. `name`: of the file.
    """
    vendor = next((look.vendor for look in looks if look.gpus), looks[0].vendor)
    others = sorted({look.vendor for look in looks} - {vendor})
    told = [*notes, *(f"GPUs of {other} are listed as well: only those of {vendor} are read" for other in others)]
    own = [look for look in looks if look.vendor == vendor]
    host = _Host()
    kept = sorted(_added(host, name, own, told), key=lambda look: look.line)
    _place_apps(host, kept, told)
    host.name_all()
    return _seen(name, vendor, host, kept, told)


def _seen(name: str, vendor: str, host: _Host, kept: list[Look], notes: list[str]) -> GpuView:
    tables = [look for look in kept if look.samples or look.processes]
    gpus: dict[str, Gpu] = {}
    samples: list[GpuSample] = []
    for table, sample in _looks(host, tables):
        for gpu, seen in _devices(host, table, sample):
            gpus[gpu.uuid] = gpu
            samples.append(seen)
        if len(samples) > smi.MAX_TOLD:
            raise UsageError(f"{name} lists a GPU more than {smi.MAX_TOLD:,} times; log less often (-l) or shorter")
    broken = {index: note for look in kept for index, note in look.broken.items()}
    boards = {gpu.bus_id: index for index, gpu in host.gpus.items() if gpu.bus_id}
    lost_at = {look.lost_at for look in kept if look.lost_at}
    attached = max((look.attached for look in kept if look.attached is not None), default=None)
    is_cut = bool(tables) and all(table.is_cut for table in tables)
    is_short = attached is not None and attached > len(host.gpus)
    more = is_cut or is_short or host.gpus.keys() - broken.keys() != set(range(len(host.gpus))) - broken.keys()
    return GpuView(
        next((look.origin for look in kept if look.gpus), kept[0].origin),
        tuple(sorted(gpus.values(), key=lambda gpu: gpu.index)),
        tuple(samples),
        driver=next((look.driver for look in reversed(kept) if look.driver), ""),
        cuda=next((look.cuda for look in reversed(kept) if look.cuda), ""),
        nvlink_pairs=host.pairs | _without_links(host),
        p2p_pairs=host.p2p,
        numa_nodes=host.nodes,
        lost=frozenset(broken) | {boards[bus] for bus in lost_at if bus in boards},
        lost_at=frozenset(bus for bus in lost_at if bus not in boards),
        notes=tuple(
            dict.fromkeys(
                [
                    *notes,
                    *broken.values(),
                    *(f"the GPU at {bus} does not answer: it is lost, or needs a reset" for bus in sorted(lost_at)),
                    *([MORE.replace(smi.ORIGIN, kept[0].origin)] if more else []),
                    *(_lacks(samples, bool(tables)) if vendor == NVIDIA else ()),
                ]
            )
        ),
        more=more,
        # a driver's version without a GPU does not say that there is none
        missing=None if gpus else Reason.NOT_SUPPORTED,
    )


def _lacks(samples: Sequence[GpuSample], is_sampled: bool) -> Iterator[str]:
    """What nvidia-smi could tell, and was not asked."""
    if not is_sampled:
        yield NO_TABLE
    elif not any(isinstance(one.event_reasons, Known) for one in samples):
        yield NO_REASONS if any(isinstance(one.sm_clock, Known) for one in samples) else NO_CLOCKS


def _without_links(host: _Host) -> dict[tuple[int, int], bool]:
    """The pairs of which one has no NVLink that is active."""
    alone = {
        i for i, gpu in host.gpus.items() if isinstance(gpu.nvlinks_active, Known) and not gpu.nvlinks_active.value
    }
    pairs = ((min(one, other), max(one, other)) for one in alone for other in host.gpus if one != other)
    return {pair: False for pair in pairs if pair not in host.pairs}


def _added(host: _Host, name: str, looks: Sequence[Look], notes: list[str]) -> Iterator[Look]:
    """The looks that are of one host, added to it; of another that clashes with them only a note is kept."""
    for look in sorted(looks, key=lambda look: not look.is_numbered):
        placed = host.placed(look)
        clash = host.clash(placed)
        if clash:
            notes.append(f"{clash}: only the first is read")
        else:
            host.add(placed)
            yield placed
        if len(host.gpus) + len(host.instances) > smi.MAX_GPUS:
            raise UsageError(f"{name} lists more GPUs than a host can have; {smi.HOW}")


def _place_apps(host: _Host, looks: Sequence[Look], notes: list[str]) -> None:
    """Processes that a list names with their GPU, on that GPU."""
    names = {name: index for index, gpu in host.gpus.items() for name in (gpu.uuid, gpu.bus_id) if name}
    left_out = 0
    for look in (look for look in looks if look.apps):
        if not host.gpus:
            names = {name: index for index, name in enumerate(dict.fromkeys(name for name, _ in look.apps if name))}
            host.gpus = {index: Gpu(index, name if ":" not in name else "", "") for name, index in names.items()}
        only = next(iter(host.gpus)) if len(host.gpus) == 1 else None
        found: dict[int, list[tuple[smi.Place, GpuProcess]]] = {}
        for name, process in look.apps:
            index = names.get(name) if name else only
            if index is None:
                left_out += 1
            else:
                found.setdefault(index, []).append((("N/A", "N/A"), process))
        look.processes |= found
    if left_out:
        notes.append(f"on which GPU {left_out} processes are is unknown: left out")


def _looks(host: _Host, tables: Sequence[Look]) -> Iterator[tuple[Look, GpuSample]]:
    """Each GPU in each table; once, empty, where none tells of it."""
    seen: set[int] = set()
    for at, table in zip(smi.times([table.time for table in tables]), tables, strict=True):
        for index in dict.fromkeys((*table.samples, *table.processes)):
            if index in host.gpus:
                seen.add(index)
                yield table, replace(table.sample(index), at=at)
    for index in host.gpus:
        if index not in seen:
            yield Look(), GpuSample(index, "", 0.0)


def _devices(host: _Host, table: Look, sample: GpuSample) -> Iterator[tuple[Gpu, GpuSample]]:
    """The GPU, or the MIG instances in its place."""
    gpu, processes = host.gpus[sample.index], table.processes_of(sample.index)
    own = sorted(key for key in host.instances if key[0] == sample.index)
    for key in own:
        whole, now = host.instances[key], table.instances.get(key, Instance())
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
