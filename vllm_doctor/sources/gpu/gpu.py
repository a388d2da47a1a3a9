"""GPUs as NVIDIA's driver tells of them, whoever asked it (nvml.py) or wrote it down (nvidia_smi.py); and the facts.

A field that this GPU or driver does not tell is Unknown, with the reason. Units: bytes, MHz, W, shares 0..1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

from vllm_doctor.model.observation import GpuSeen
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.text.words import number
from vllm_doctor.vllm import gpus as data_sheets

# Clock event reasons, https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
IDLE, APPLICATIONS_CLOCKS, SW_POWER_CAP, HW_SLOWDOWN = 0x1, 0x2, 0x4, 0x8
SYNC_BOOST, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 0x10, 0x20, 0x40, 0x80
DISPLAY_CLOCKS = 0x100

NOT_TOLD = Unknown(Reason.NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that has memory on a GPU. `pid` as the host counts; `name` may be ""."""

    pid: int
    name: str = ""
    memory: Reading = NOT_TOLD


@dataclass(frozen=True, slots=True)
class Gpu:
    """What does not change while one looks: one physical GPU, or one MIG instance of it."""

    index: int
    """NVML's, in order of the PCI bus: what CUDA_VISIBLE_DEVICES means to vLLM."""
    uuid: str
    """ "GPU-…" or "MIG-…"."""
    name: str
    bus_id: str = ""
    """Lower case, with four digits of domain as /sys/bus/pci has it: "0000:17:00.0"."""
    memory_total: Reading = NOT_TOLD
    power_limit: Reading = NOT_TOLD  # W, enforced
    power_limit_default: Reading = NOT_TOLD
    sm_clock_max: Reading = NOT_TOLD  # MHz
    applications_clock: Reading = NOT_TOLD  # MHz, of the SMs
    applications_clock_default: Reading = NOT_TOLD
    pcie_generation_max: Reading = NOT_TOLD  # of GPU and slot together
    pcie_width_max: Reading = NOT_TOLD
    persistence: Reading = NOT_TOLD  # True, False
    ecc_uncorrected: Reading = NOT_TOLD  # since the driver was loaded
    remap_pending: Reading = NOT_TOLD  # True, False
    remap_failed: Reading = NOT_TOLD
    nvlinks_active: Reading = NOT_TOLD  # how many
    mig: Reading = NOT_TOLD  # True: MIG mode is on
    mig_profile: str = ""
    """ "1g.10gb" for a MIG instance."""
    compute_capability: Reading = NOT_TOLD  # 9.0


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment."""

    index: int
    uuid: str
    at: float
    """Seconds on the clock of the samples; in a file, since its first."""
    utilization: Reading = NOT_TOLD
    """Share of the last moments in which some kernel ran."""
    memory_used: Reading = NOT_TOLD
    memory_free: Reading = NOT_TOLD
    memory_used_share: Reading = NOT_TOLD
    """Of its memory; for those that tell no size of it."""
    sm_clock: Reading = NOT_TOLD
    event_reasons: Reading = NOT_TOLD
    """Bits, as a float: int(value) & SW_THERMAL."""
    power: Reading = NOT_TOLD
    temperature: Reading = NOT_TOLD  # °C
    pcie_generation: Reading = NOT_TOLD
    pcie_width: Reading = NOT_TOLD
    processes: tuple[GpuProcess, ...] | Reason = Reason.NOT_SUPPORTED


@dataclass(frozen=True)
class GpuView:
    """All that one source says of the host's GPUs.

    `missing` says why there is nothing to see: `no-driver`, `denied`, `absent` (the host has no NVIDIA GPU).
    """

    origin: str
    """nvml or nvidia-smi: becomes the origin of each fact."""
    gpus: tuple[Gpu, ...] = ()
    samples: tuple[GpuSample, ...] = ()
    driver: str = ""
    cuda: str = ""
    """The newest CUDA the driver speaks: "12.4"."""
    nvlink_pairs: Mapping[tuple[int, int], bool] = field(default_factory=dict)
    """(i, j), i < j: whether the two GPUs reach each other over NVLink. Pairs that were not told are left out."""
    p2p_pairs: Mapping[tuple[int, int], bool] = field(default_factory=dict)
    """(i, j), i < j: whether each can read the other's memory."""
    numa_nodes: Mapping[int, int] = field(default_factory=dict)
    """GPU index -> NUMA node, where the host has several."""
    lost: frozenset[int] = frozenset()
    """Indices of GPUs that do not answer, or stopped to while watched."""
    lost_at: frozenset[str] = frozenset()
    """The bus addresses of those that do not answer, and whose index is not known."""
    xids: tuple[tuple[int, str], ...] = ()
    """Xids that the kernel logged, each with the bus address, where the source holds them."""
    notes: tuple[str, ...] = ()
    """For people: "GPU 3 fell off the bus while watched"."""
    more: bool = False
    """Whether the host has GPUs that the source leaves out, or may have: it was cut off, or of some GPUs only."""
    missing: Reason | None = None
    detail: str = ""
    """The driver's own words where it did not answer: "Driver/library version mismatch"."""


@dataclass(frozen=True)
class GpuUse:
    """What is known of the server when its GPUs are picked out.

    `pids`: of all its processes. `visible`: CUDA_VISIBLE_DEVICES as set, None where it is not set or not known.
    `wanted`: how many GPUs the server uses here (TP x PP x DP), None where not known.
    """

    pids: frozenset[int] = frozenset()
    visible: str | None = None
    wanted: int | None = None


FACTS = (
    "gpus_on_host", "gpus_told", "gpus",
    "gpu_name", "gpu_compute_capability", "gpu_bandwidth", "gpu_flops", "gpu_flops_fp8", "gpu_flops_fp4", "gpu_link",
    "gpu_link_bandwidth", "gpu_architecture",
    "mig", "mig_profile",
    "gpu_memory_total", "gpu_memory_used_share", "gpu_memory_free", "gpu_memory_foreign", "gpu_foreign_processes",
    "gpu_utilization", "gpu_utilization_least",
    "gpu_thermal_share", "gpu_thermal_where", "gpu_power_cap_share", "gpu_power_cap_where",
    "gpu_hw_slowdown_share", "gpu_hw_slowdown_where", "gpu_temperature",
    "gpu_power_share", "gpu_power_limit", "gpu_power_limit_default", "gpu_power_limit_share", "gpu_power_limit_where",
    "gpu_clock_share", "gpu_clock", "gpu_clock_max", "gpu_clock_where", "gpu_applications_clock_share",
    "gpu_busy_clock_share",
    "pcie_width_share", "pcie_width", "pcie_width_max",
    "pcie_generation_share", "pcie_generation", "pcie_generation_max", "pcie_where",
    "gpu_remap_pending", "gpu_remap_failed", "gpu_ecc_uncorrected", "gpu_unhealthy_where",
    "gpus_lost", "gpus_lost_where",
    "gpu_persistence", "nvlink", "gpu_p2p",
    "gpus_unused", "gpus_unused_where", "driver_version", "driver_cuda",
)  # fmt: skip
"""The names of all facts."""

UNUSED_BELOW = 2.0**30
"""Bytes: a GPU with less memory in use and no process is idle; the driver itself needs some hundred MB."""
BUSY = 0.5
"""Utilization from which a GPU is at work for good: neither its clock nor its PCIe link saves power then."""

_SLOWED = SW_POWER_CAP | HW_SLOWDOWN | SYNC_BOOST | SW_THERMAL | HW_THERMAL | HW_POWER_BRAKE
_MAX_NAMED = 3


def chosen(view: GpuView, use: GpuUse) -> tuple[Gpu, ...]:
    """The GPUs that the server uses, by index; () where none can be told apart from the others.

    Those that hold memory of its processes; else those that CUDA_VISIBLE_DEVICES names; else the first `wanted`,
    which vLLM takes; else the only one there is.
    """
    gpus = tuple(sorted(view.gpus, key=lambda gpu: gpu.index))
    held = {sample.uuid for sample in view.samples if _holds(sample, use.pids)}
    if any(gpu.uuid in held for gpu in gpus):
        return tuple(gpu for gpu in gpus if gpu.uuid in held)
    if use.visible is not None:
        return _visible(gpus, use.visible)[: use.wanted]
    if use.wanted is not None:
        return gpus[: use.wanted]
    return gpus if len(gpus) == 1 else ()


def facts(view: GpuView, use: GpuUse) -> dict[str, Reading]:
    """The facts about the server's GPUs, by the names that rules/signals/ gives them: always all of FACTS.

    Each is the worst over the chosen GPUs, and a mean over a GPU's samples. `_where` names the GPUs that are meant.
    A GPU that does not tell is passed over where another one does. Without a GPU to speak of, all is unknown:
    for `view.missing`, or `absent` where the server's GPUs cannot be told; but of what kind they are is known where all
    are of one kind, and how they are linked where all are linked alike.
    """
    gpus = chosen(view, use) if view.missing is None else ()
    readings: dict[str, Reading] = dict.fromkeys(FACTS, Unknown(view.missing or Reason.ABSENT))
    readings |= _host(view, gpus)
    if gpus:
        watched = [_Watched(gpu, tuple(_of(view.samples, gpu.uuid))) for gpu in gpus]
        for part in (_identity, _memory, _load, _slowdowns, _power, _clocks, _pcie, _health):
            readings |= part(watched)
        readings |= _foreign(watched, use.pids)
        readings |= {
            "nvlink": _nvlink(_linked(gpus, view.nvlink_pairs), gpus),
            "gpu_p2p": _linked(gpus, view.p2p_pairs),
        }
        readings["gpu_link"] = _link(readings["gpu_link"], readings["nvlink"])
    elif view.missing is None and len({(gpu.name, gpu.memory_total, gpu.mig_profile) for gpu in view.gpus}) == 1:
        readings |= _kind([_Watched(gpu, ()) for gpu in view.gpus])
        readings["nvlink"] = _nvlink(_linked_alike(view.gpus, view.nvlink_pairs), view.gpus)
        readings["gpu_link"] = _link(readings["gpu_link"], readings["nvlink"])
    return {
        name: replace(reading, origin=view.origin) if isinstance(reading, Known) else reading
        for name, reading in readings.items()
    }


def rows(view: GpuView, use: GpuUse) -> tuple[GpuSeen, ...]:
    """The server's GPUs one by one, as they were last seen."""
    seen = []
    for gpu in chosen(view, use) if view.missing is None else ():
        watched = _Watched(gpu, tuple(_of(view.samples, gpu.uuid)))
        now = {
            "utilization": watched.last(lambda sample: sample.utilization),
            "memory_used": watched.last(lambda sample: sample.memory_used),
            "clock": watched.last(lambda sample: sample.sm_clock),
            "power": watched.last(lambda sample: sample.power),
            "temperature": watched.last(lambda sample: sample.temperature),
        }
        fixed = {"memory_total": gpu.memory_total, "clock_max": gpu.sm_clock_max, "power_limit": gpu.power_limit}
        seen.append(GpuSeen(gpu.index, gpu.mig_profile or gpu.name, {**now, **fixed}))
    return tuple(seen)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A GPU with its own samples, in order of time."""

    gpu: Gpu
    samples: tuple[GpuSample, ...]

    def last(self, field_of: Callable[[GpuSample], Reading]) -> Reading:
        """The newest sample's reading, of those that tell it."""
        readings = [field_of(sample) for sample in self.samples]
        return _fold(lambda values: values[-1], readings)

    def mean(self, field_of: Callable[[GpuSample], Reading]) -> Reading:
        return _fold(fmean, [field_of(sample) for sample in self.samples])

    @property
    def loaded(self) -> list[GpuSample]:
        """The samples in which some kernel ran."""
        return [sample for sample in self.samples if _is_loaded(sample)]

    @property
    def busy(self) -> list[GpuSample]:
        return [sample for sample in self.samples if (_number(sample.utilization) or 0) > BUSY]

    @property
    def utilizations(self) -> list[Reading]:
        return [sample.utilization for sample in self.samples]

    @property
    def load(self) -> list[Reading]:
        """All that tells whether it is loaded."""
        return [told for sample in self.samples for told in (sample.utilization, sample.event_reasons)]

    @property
    def processes(self) -> tuple[GpuProcess, ...] | Reason:
        """The newest sample's that tells of them."""
        told: tuple[GpuProcess, ...] | Reason = Reason.NOT_SUPPORTED
        for sample in self.samples:
            if not isinstance(sample.processes, Reason) or isinstance(told, Reason):
                told = sample.processes
        return told


# --- what is picked out ---------------------------------------------------------------------------------------------


def _visible(gpus: Sequence[Gpu], text: str) -> tuple[Gpu, ...]:
    """The GPUs of a CUDA_VISIBLE_DEVICES, in its order. As CUDA reads it, the first invalid entry ends the list."""
    found: list[Gpu] = []
    for entry in text.split(","):
        gpu = _named(gpus, entry.strip())
        if gpu is None:
            break
        if gpu not in found:
            found.append(gpu)
    return tuple(found)


def _named(gpus: Sequence[Gpu], name: str) -> Gpu | None:
    """An index, or the beginning of one UUID. A partitioned GPU's index means its first MIG instance."""
    if name.isascii() and name.isdigit():
        return next((gpu for gpu in gpus if str(gpu.index) == (name.lstrip("0") or "0")), None)
    if not name.startswith(("GPU-", "MIG-")):
        return None
    fitting = [gpu for gpu in gpus if gpu.uuid.lower().startswith(name.lower())]
    return fitting[0] if len(fitting) == 1 else None


def _holds(sample: GpuSample, pids: frozenset[int]) -> bool:
    return not isinstance(sample.processes, Reason) and any(process.pid in pids for process in sample.processes)


def _is_loaded(sample: GpuSample) -> bool:
    """Whether some kernel runs. MIG tells no utilization: there it is that the GPU does not call itself idle."""
    utilization, reasons = _number(sample.utilization), _bits(sample)
    return utilization > 0 if utilization is not None else reasons is not None and not reasons & IDLE


def _is_instance(gpu: Gpu) -> bool:
    return bool(gpu.mig_profile) or gpu.uuid.startswith("MIG-")


# --- readings -------------------------------------------------------------------------------------------------------


def _number(reading: Reading) -> float | None:
    return float(reading.value) if isinstance(reading, Known) and not isinstance(reading.value, str) else None


def _bits(sample: GpuSample) -> int | None:
    value = _number(sample.event_reasons)
    return None if value is None else int(value)


def _fold(fold: Callable[[list[float]], float], readings: Iterable[Reading]) -> Reading:
    """Of those that are known; else the first one's reason."""
    readings = list(readings)
    values = [value for reading in readings if (value := _number(reading)) is not None]
    if values:
        return Known(float(fold(values)))
    return next((reading for reading in readings if isinstance(reading, Unknown)), NOT_TOLD)


def _flag(fold: Callable[[list[float]], bool], readings: Iterable[Reading]) -> Reading:
    folded = _fold(fold, readings)
    return Known(bool(folded.value)) if isinstance(folded, Known) else folded


def _ratio(part: Reading, whole: Reading) -> Reading:
    if isinstance(part, Unknown):
        return part
    if isinstance(whole, Unknown):
        return whole
    above, below = _number(part), _number(whole)
    return NOT_TOLD if above is None or not below else Known(above / below)


def _text(texts: Iterable[str], none: Reason) -> Reading:
    """Each once, in their order."""
    unique = dict.fromkeys(text for text in texts if text)
    return Known(" + ".join(unique)) if unique else Unknown(none)


_Told = Sequence[tuple[_Watched, Reading]]
"""What each GPU tells of one thing."""


def _least(told: _Told) -> tuple[_Watched, Reading]:
    """The GPU that tells least; the first one where none tells."""
    values = [(value, place) for place, (_, reading) in enumerate(told) if (value := _number(reading)) is not None]
    return told[min(values)[1] if values else 0]


def _all(told: _Told) -> list[Reading]:
    return [reading for _, reading in told]


def _where(told: _Told, is_meant: Callable[[float], bool]) -> Reading:
    """The GPUs whose number is meant; `idle` where there are none, or why none tells."""
    gpus = [watched.gpu for watched, reading in told if (value := _number(reading)) is not None and is_meant(value)]
    if gpus:
        return Known(_label(gpus))
    folded = _fold(max, _all(told))
    return folded if isinstance(folded, Unknown) else Unknown(Reason.IDLE)


def _label(gpus: Iterable[Gpu]) -> str:
    """ "GPU 3", "GPUs 0, 3"."""
    return _numbered({gpu.index for gpu in gpus})


def _numbered(indices: Iterable[int]) -> str:
    numbers = sorted(indices)
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


# --- the facts ------------------------------------------------------------------------------------------------------


def _host(view: GpuView, gpus: Sequence[Gpu]) -> dict[str, Reading]:
    """What does not depend on the server, and how many GPUs it has."""
    untold = view.missing or Reason.NOT_SUPPORTED
    readings = {
        "driver_version": _text([view.driver], untold),
        "driver_cuda": Known(float(view.cuda)) if re.fullmatch(r"\d{1,3}(\.\d{1,3})?", view.cuda) else Unknown(untold),
    }
    if view.missing is Reason.ABSENT:
        return readings | {"gpus_on_host": Known(0.0), "gpus": Known(0.0)}
    if view.missing is not None:
        silent = len(view.lost) + len(view.lost_at)
        ill = max(silent, len({bus for _, bus in view.xids}))
        told = {"gpus_told": Known(float(ill))} if ill else {}
        return readings | told | (_lost(view) if silent else {})
    taken = {gpu.uuid for gpu in gpus}
    others = [_Watched(gpu, tuple(_of(view.samples, gpu.uuid))) for gpu in view.gpus if gpu.uuid not in taken]
    unused: _Told = [(watched, _is_unused(watched)) for watched in others]
    return readings | {
        "gpus_on_host": NOT_TOLD if view.more else Known(float(len(view.gpus))),
        "gpus_told": Known(float(len(view.gpus))),
        **_lost(view),
        "gpus": Known(float(len(gpus))) if gpus else Unknown(Reason.ABSENT),
        "gpus_unused": _fold(sum, _all(unused)) if unused else Known(0.0),
        "gpus_unused_where": _where(unused, bool) if unused else Unknown(Reason.IDLE),
    }


def _lost(view: GpuView) -> dict[str, Reading]:
    """How many GPUs do not answer, and which."""
    places = [_numbered(view.lost)] if view.lost else []
    places += [f"the GPU at {bus}" for bus in sorted(view.lost_at)]
    return {
        "gpus_lost": Known(float(len(view.lost) + len(view.lost_at))),
        "gpus_lost_where": Known(", ".join(places)) if places else Unknown(Reason.IDLE),
    }


def _is_unused(watched: _Watched) -> Reading:
    told = [sample.processes for sample in watched.samples if not isinstance(sample.processes, Reason)]
    used = watched.last(lambda sample: sample.memory_used)
    if any(told) or (_number(used) or 0) >= UNUSED_BELOW:
        return Known(False)
    if not told and isinstance(watched.processes, Reason):
        return Unknown(watched.processes)
    return Known(True) if isinstance(used, Known) else used


def _identity(watched: Sequence[_Watched]) -> dict[str, Reading]:
    gpus = [one.gpu for one in watched]
    instances = [gpu for gpu in gpus if _is_instance(gpu)]
    return {
        "gpu_name": _text((gpu.name for gpu in gpus), Reason.NOT_SUPPORTED),
        "gpu_compute_capability": _fold(min, map(_capability, gpus)),
        "mig": Known(bool(instances)),
        "mig_profile": _text(
            (gpu.mig_profile for gpu in instances), Reason.NOT_SUPPORTED if instances else Reason.ABSENT
        ),
        "gpu_persistence": _flag(all, (gpu.persistence for gpu in gpus)),
        **_data_sheet(gpus),
    }


def _kind(watched: Sequence[_Watched]) -> dict[str, Reading]:
    """What holds of each GPU of a kind, whichever of them the server uses."""
    told = _identity(watched) | _memory(watched)
    return {name: told[name] for name in _OF_A_KIND}


_SPEED = (
    "gpu_bandwidth", "gpu_flops", "gpu_flops_fp8", "gpu_flops_fp4", "gpu_link", "gpu_link_bandwidth",
    "gpu_architecture",
)  # fmt: skip
_OF_A_KIND = ("gpu_name", "gpu_compute_capability", *_SPEED, "mig", "mig_profile", "gpu_memory_total")  # fmt: skip


def _capability(gpu: Gpu) -> Reading:
    """As the driver tells it, or else the data sheet of that name; a part of a GPU can what the whole can."""
    if isinstance(gpu.compute_capability, Known):
        return gpu.compute_capability
    whole = gpu.name.partition(" MIG ")[0]
    sheet = data_sheets.gpu(whole) or data_sheets.gpu(whole, _number(gpu.memory_total))
    return gpu.compute_capability if sheet is None or sheet.capability is None else Known(float(sheet.capability))


def _data_sheet(gpus: Sequence[Gpu]) -> dict[str, Reading]:
    """What tells how fast they are, of GPUs that are all of one kind that we know, and whole."""
    sheets = [None if _is_instance(gpu) else data_sheets.gpu(gpu.name, _number(gpu.memory_total)) for gpu in gpus]
    sheet = sheets[0]
    told = {} if sheet is None or any(other != sheet for other in sheets) else data_sheets.figures(sheet)
    return {name: Known(told[name]) if name in told else NOT_TOLD for name in _SPEED}


def _memory(watched: Sequence[_Watched]) -> dict[str, Reading]:
    used = [_used_share(one) for one in watched]
    return {
        "gpu_memory_total": _fold(min, (one.gpu.memory_total for one in watched)),
        "gpu_memory_used_share": _fold(max, used),
        "gpu_memory_free": _fold(min, [one.last(lambda sample: sample.memory_free) for one in watched]),
    }


def _used_share(watched: _Watched) -> Reading:
    share = _ratio(watched.last(lambda sample: sample.memory_used), watched.gpu.memory_total)
    told = watched.last(lambda sample: sample.memory_used_share)
    return told if isinstance(share, Unknown) and isinstance(told, Known) else share


def _foreign(watched: Sequence[_Watched], pids: frozenset[int]) -> dict[str, Reading]:
    """Who else has memory on the server's GPUs.

    Where none of the server's own processes is seen there, none can be told from it: a container counts its
    processes otherwise than the host, and the driver may hide the host's from it.
    """
    if not any(_holds(sample, pids) for one in watched for sample in one.samples):
        unknown = Unknown(Reason.NOT_LOCAL)
        return {"gpu_memory_foreign": unknown, "gpu_foreign_processes": unknown}
    memory: list[Reading] = []
    named: list[tuple[float, str]] = []
    for one in watched:
        processes = one.processes
        if isinstance(processes, Reason):
            memory.append(Unknown(processes))
            continue
        foreign = [process for process in processes if process.pid not in pids]
        memory.append(_fold(sum, [process.memory for process in foreign]) if foreign else Known(0.0))
        named += [(_number(process.memory) or 0.0, _described(process, one.gpu)) for process in foreign]
    texts = [text for _, text in sorted(named, key=lambda pair: -pair[0])]
    more = [f"and {len(texts) - _MAX_NAMED} more"] if len(texts) > _MAX_NAMED else []
    return {
        "gpu_memory_foreign": _fold(max, memory),
        "gpu_foreign_processes": Known(", ".join(texts[:_MAX_NAMED] + more)) if texts else Unknown(Reason.IDLE),
    }


def _described(process: GpuProcess, gpu: Gpu) -> str:
    """ "python (pid 123, 9.78 GiB) on GPU 0"."""
    name = re.split(r"[/\\]", process.name)[-1][:60] or "a process"
    memory = _number(process.memory)
    held = "" if memory is None else f", {number(memory, 'bytes')}"
    return f"{name} (pid {process.pid}{held}) on {_label([gpu])}"


def _load(watched: Sequence[_Watched]) -> dict[str, Reading]:
    return {
        "gpu_utilization": _fold(fmean, [sample.utilization for one in watched for sample in one.samples]),
        "gpu_utilization_least": _fold(min, [one.mean(lambda sample: sample.utilization) for one in watched]),
        "gpu_temperature": _fold(max, [sample.temperature for one in watched for sample in one.samples]),
    }


def _slowdowns(watched: Sequence[_Watched]) -> dict[str, Reading]:
    """How often the driver held the clocks down, of the samples under load."""
    readings: dict[str, Reading] = {}
    for name, is_slowed in _SLOWDOWNS.items():
        told = [(one, _slowed(one, is_slowed)) for one in watched]
        readings[f"{name}_share"] = _fold(max, _all(told))
        readings[f"{name}_where"] = _where(told, lambda share: share > 0)
    return readings


_SLOWDOWNS: Mapping[str, Callable[[int], bool]] = {
    "gpu_thermal": lambda bits: bool(bits & (SW_THERMAL | HW_THERMAL)),
    "gpu_power_cap": lambda bits: bool(bits & SW_POWER_CAP),
    # HW_SLOWDOWN goes with each of the two hardware causes: alone it is a power brake as well, of older GPUs
    "gpu_hw_slowdown": lambda bits: bool(bits & HW_POWER_BRAKE) or bits & (HW_SLOWDOWN | HW_THERMAL) == HW_SLOWDOWN,
}


def _slowed(watched: _Watched, is_slowed: Callable[[int], bool]) -> Reading:
    """The share of the samples under load of which this is so."""
    loaded = watched.loaded
    if not loaded:
        return _idle(watched.load)
    slowed = [_fold(lambda bits: is_slowed(int(bits[0])), [sample.event_reasons]) for sample in loaded]
    return _fold(fmean, slowed)


def _idle(load: Sequence[Reading]) -> Unknown:
    """Why no sample was under load: the GPU was idle; or nothing tells its load."""
    told = _fold(max, load)
    return told if load and isinstance(told, Unknown) else Unknown(Reason.IDLE)


def _power(watched: Sequence[_Watched]) -> dict[str, Reading]:
    drawn = [_ratio(one.mean(lambda sample: sample.power), one.gpu.power_limit) for one in watched]
    limits = [(one, _ratio(one.gpu.power_limit, one.gpu.power_limit_default)) for one in watched]
    lowest, share = _least(limits)
    return {
        "gpu_power_share": _fold(max, drawn),
        "gpu_power_limit": lowest.gpu.power_limit,
        "gpu_power_limit_default": lowest.gpu.power_limit_default,
        "gpu_power_limit_share": share,
        "gpu_power_limit_where": _where(limits, lambda share: share < 1),
    }


def _clocks(watched: Sequence[_Watched]) -> dict[str, Reading]:
    clocks = {one.gpu.uuid: _free_clock(one) for one in watched}
    slowest, share = _least([(one, _ratio(clocks[one.gpu.uuid], one.gpu.sm_clock_max)) for one in watched])
    set_lower = [_ratio(one.gpu.applications_clock, one.gpu.applications_clock_default) for one in watched]
    at_work = [_ratio(_busy_clock(one), one.gpu.sm_clock_max) for one in watched]
    return {
        "gpu_busy_clock_share": next((r for r in at_work if isinstance(r, Unknown)), _fold(min, at_work)),
        "gpu_clock_share": share,
        "gpu_clock": clocks[slowest.gpu.uuid],
        "gpu_clock_max": slowest.gpu.sm_clock_max,
        "gpu_clock_where": Known(_label([slowest.gpu])) if isinstance(share, Known) else share,
        "gpu_applications_clock_share": _fold(min, set_lower),
    }


def _busy_clock(watched: _Watched) -> Reading:
    """MHz while at work, also where it is held down."""
    busy = watched.busy
    return _fold(fmean, [sample.sm_clock for sample in busy]) if busy else _idle(watched.utilizations)


def _free_clock(watched: _Watched) -> Reading:
    """MHz while at work and not held down for power or heat: then only a lock keeps it below its maximum."""
    busy = watched.busy
    free = [sample for sample in busy if (bits := _bits(sample)) is not None and not bits & _SLOWED]
    if free:
        return _fold(fmean, [sample.sm_clock for sample in free])
    return _idle([sample.event_reasons for sample in busy] or watched.utilizations)


def _pcie(watched: Sequence[_Watched]) -> dict[str, Reading]:
    """An idle link sleeps at a low generation, so the best that was seen at work counts."""
    widths = {one.gpu.uuid: _best([sample.pcie_width for sample in one.loaded], one.load) for one in watched}
    generations = {
        one.gpu.uuid: _best([sample.pcie_generation for sample in one.busy], one.utilizations) for one in watched
    }
    width_shares = [(one, _ratio(widths[one.gpu.uuid], one.gpu.pcie_width_max)) for one in watched]
    generation_shares = [(one, _ratio(generations[one.gpu.uuid], one.gpu.pcie_generation_max)) for one in watched]
    narrowest, width_share = _least(width_shares)
    slowest, generation_share = _least(generation_shares)
    both = [
        (one, _fold(min, [width, generation]))
        for (one, width), (_, generation) in zip(width_shares, generation_shares, strict=True)
    ]
    return {
        "pcie_width_share": width_share,
        "pcie_width": widths[narrowest.gpu.uuid],
        "pcie_width_max": narrowest.gpu.pcie_width_max,
        "pcie_generation_share": generation_share,
        "pcie_generation": generations[slowest.gpu.uuid],
        "pcie_generation_max": slowest.gpu.pcie_generation_max,
        "pcie_where": _where(both, lambda share: share < 1),
    }


def _best(at_work: Sequence[Reading], load: Sequence[Reading]) -> Reading:
    return _fold(max, at_work) if at_work else _idle(load)


def _health(watched: Sequence[_Watched]) -> dict[str, Reading]:
    ill = [(one, _fold(max, [one.gpu.remap_pending, one.gpu.remap_failed, one.gpu.ecc_uncorrected])) for one in watched]
    boards = sorted({one.gpu.index for one in watched})  # MIG instances of one board tell its errors, each again
    errors = [_fold(max, [one.gpu.ecc_uncorrected for one in watched if one.gpu.index == board]) for board in boards]
    return {
        "gpu_remap_pending": _flag(any, (one.gpu.remap_pending for one in watched)),
        "gpu_remap_failed": _flag(any, (one.gpu.remap_failed for one in watched)),
        "gpu_ecc_uncorrected": _fold(sum, errors),
        "gpu_unhealthy_where": _where(ill, bool),
    }


def _linked(gpus: Sequence[Gpu], pairs: Mapping[tuple[int, int], bool]) -> Reading:
    """Whether each GPU reaches each other one. MIG instances never do, not even on one board."""
    if len(gpus) < 2:
        return Unknown(Reason.ABSENT)
    if any(_is_instance(gpu) for gpu in gpus):
        return Known(False)
    told = [pairs.get((one.index, other.index)) for one, other in combinations(gpus, 2)]
    if False in told:
        return Known(False)
    return NOT_TOLD if None in told else Known(True)


def _linked_alike(gpus: Sequence[Gpu], pairs: Mapping[tuple[int, int], bool]) -> Reading:
    """The same, whichever of them are meant: where all pairs are linked, or none is."""
    told = {pairs.get((one.index, other.index)) for one, other in combinations(gpus, 2)}
    return Known(told == {True}) if told in ({True}, {False}) else Unknown(Reason.ABSENT)


def _nvlink(linked: Reading, gpus: Sequence[Gpu]) -> Reading:
    """As it is seen, or else False of cards that have no such link, nor can get one."""
    if isinstance(linked, Known) or len(gpus) < 2:
        return linked
    sheets = [data_sheets.gpu(gpu.name, _number(gpu.memory_total)) for gpu in gpus]
    is_without = all(sheet is not None and data_sheets.is_without_links(sheet) for sheet in sheets)
    return Known(False) if is_without else linked


def _link(of_data_sheet: Reading, nvlink: Reading) -> Reading:
    """How they reach each other: as the driver sees it, or else as such GPUs do."""
    return Known("nvlink" if nvlink.value else "pcie") if isinstance(nvlink, Known) else of_data_sheet


def _of(samples: Sequence[GpuSample], uuid: str) -> list[GpuSample]:
    return [sample for sample in samples if sample.uuid == uuid]
