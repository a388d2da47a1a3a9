"""The machine's processors: which CPUs are threads of one core, how fast they are clocked, and how busy they are.

What the kernel calls a CPU is a hardware thread. Two threads of one core share what the core can do.
https://docs.kernel.org/admin-guide/cputopology.html
"""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, cpu_list, table

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
_USER_HZ = 100  # ticks a second in /proc/stat, on every architecture that vLLM runs on


@dataclass(frozen=True, slots=True)
class Topology:
    """CPUs, cores, packages and NUMA nodes, of the whole machine: what a process may use of them is not in here."""

    online: frozenset[int]
    core_of: Mapping[int, tuple[int, int]]
    """CPU -> (package, core), for each CPU online. A core goes by the lowest of its CPUs."""
    node_of: Mapping[int, int]
    """CPU -> NUMA node; empty where the kernel does not tell."""
    known: bool
    """Whether the kernel told the cores. If not, each CPU is taken for a core, and there may be fewer."""
    virtual: bool
    """Whether a hypervisor says that it is there (x86 only): its CPUs may be threads that it shows as cores."""

    @property
    def packages(self) -> int:
        """How many sockets have a CPU online."""
        return len({package for package, _ in self.core_of.values()})

    @property
    def threads_per_core(self) -> int:
        """The most CPUs that one core has; 2 with hyperthreading."""
        return max(Counter(self.core_of.values()).values())

    def physical_cores(self, cpus: frozenset[int]) -> int:
        """How many cores these CPUs are on. CPUs that are offline do not count."""
        return len({self.core_of[cpu] for cpu in cpus if cpu in self.core_of})

    def nodes(self, cpus: frozenset[int]) -> frozenset[int]:
        """The NUMA nodes of these CPUs."""
        return frozenset(self.node_of[cpu] for cpu in cpus if cpu in self.node_of)


def read(kernel: Kernel) -> Topology | Reason:
    """The machine's processors by /sys, or else by /proc/cpuinfo; or why neither can be read."""
    text = kernel.text("proc/cpuinfo")
    listed = {} if isinstance(text, Reason) else _processors(text)
    online = _online(kernel) or frozenset(listed)
    if not online:
        return _of_file(text) if isinstance(text, Reason) else Reason.NOT_SUPPORTED

    def ids(cpu: int) -> _Ids:
        folder = f"{CPUS}/cpu{cpu}/topology"
        return _whole(kernel.text(f"{folder}/physical_package_id")), _whole(kernel.text(f"{folder}/core_id"))

    def listed_ids(cpu: int) -> _Ids:
        rows = listed.get(cpu, {})
        return _whole(rows.get("physical id", "")), _whole(rows.get("core id", ""))

    # Siblings first: core ids may repeat within a package that has several dies.
    told = _by_siblings(kernel, online, ids) or _by_ids(online, ids) or _by_ids(online, listed_ids)
    flags = next((rows["flags"] for rows in listed.values() if "flags" in rows), "")
    return Topology(
        online=online,
        core_of=told or {cpu: (0, cpu) for cpu in online},
        node_of=_nodes(kernel, online),
        known=bool(told),
        virtual="hypervisor" in flags.split(),
    )


def _online(kernel: Kernel) -> frozenset[int]:
    text = kernel.text(f"{CPUS}/online")
    if not isinstance(text, Reason):
        try:
            return cpu_list(text.strip())
        except ValueError:
            pass
    return frozenset(_number(name, "cpu") for name in kernel.names(CPUS)) - {-1}


def _number(name: str, prefix: str) -> int:
    """17 of "cpu17"; -1 where the name is another."""
    found = re.fullmatch(prefix + r"([0-9]{1,5})", name)
    return int(found[1]) if found else -1


_Ids = tuple[int | None, int | None]
"""Package and core, each None where it is not told."""


def _by_siblings(kernel: Kernel, online: frozenset[int], ids: Callable[[int], _Ids]) -> dict[int, tuple[int, int]]:
    """Each CPU's core; nothing unless all are told."""
    siblings = {cpu: _listed(kernel.text(f"{CPUS}/cpu{cpu}/topology/thread_siblings_list")) for cpu in online}
    if not all(cpu in siblings[cpu] for cpu in online):
        return {}
    return {cpu: (ids(cpu)[0] or 0, min(siblings[cpu])) for cpu in online}


def _by_ids(online: frozenset[int], ids: Callable[[int], _Ids]) -> dict[int, tuple[int, int]]:
    """Each CPU's core; nothing unless all are told."""
    lowest: dict[_Ids, int] = {}
    found = {}
    for cpu in sorted(online):
        package, core = ids(cpu)
        if core is None:
            return {}
        found[cpu] = (package or 0, lowest.setdefault((package, core), cpu))
    return found


def _listed(text: str | Reason) -> frozenset[int]:
    try:
        return frozenset() if isinstance(text, Reason) else cpu_list(text.strip())
    except ValueError:
        return frozenset()


def _whole(text: str | Reason) -> int | None:
    """A whole number; -1 is how the kernel writes that it does not know."""
    return int(text) if not isinstance(text, Reason) and re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else None


def _processors(text: str) -> dict[int, dict[str, str]]:
    """/proc/cpuinfo: a paragraph of "key : value" for each CPU."""
    found = {}
    for paragraph in re.split(r"\n\s*\n", text):
        pairs = (line.partition(":") for line in paragraph.splitlines())
        rows = {key.strip(): value.strip() for key, _, value in pairs}
        number = _whole(rows.get("processor", ""))
        if number is not None:
            found[number] = rows
    return found


def _nodes(kernel: Kernel, online: frozenset[int]) -> dict[int, int]:
    found = {}
    for name in kernel.names(NODES):
        node = _number(name, "node")
        if node >= 0:  # a node may have memory and no CPU: the list is empty
            found.update(dict.fromkeys(_listed(kernel.text(f"{NODES}/{name}/cpulist")) & online, node))
    return found


# How fast


@dataclass(frozen=True, slots=True)
class Frequency:
    """How the CPUs are clocked. Not supported in most virtual machines: the host clocks them."""

    governor: Reading
    """ "performance"; "performance, powersave" where CPUs differ."""
    driver: Reading
    """ "intel_pstate": with it, powersave is the normal governor, and `preference` says more."""
    preference: Reading
    """ "balance_performance": what the CPU itself is told to prefer."""
    share: Reading
    """Clock now, of the highest with turbo, as the mean of the CPUs: 0..1. An idle CPU may be clocked low."""


def frequency(kernel: Kernel, cpus: Iterable[int]) -> Frequency:
    """How these CPUs are clocked."""
    folders = [f"{CPUS}/cpu{cpu}/cpufreq" for cpu in sorted(cpus)]

    def words(name: str) -> Reading:
        texts = [kernel.text(f"{folder}/{name}") for folder in folders]
        found = sorted({text.strip() for text in texts if not isinstance(text, Reason)} - {""})
        return Known(", ".join(found), origin="sysfs") if found else Unknown(_why(texts))

    now = [kernel.text(f"{folder}/scaling_cur_freq") for folder in folders]
    top = [kernel.text(f"{folder}/cpuinfo_max_freq") for folder in folders]
    clocks = [(_whole(current), _whole(highest)) for current, highest in zip(now, top, strict=True)]
    shares = [current / highest for current, highest in clocks if current is not None and highest]
    return Frequency(
        governor=words("scaling_governor"),
        driver=words("scaling_driver"),
        preference=words("energy_performance_preference"),
        share=Known(sum(shares) / len(shares), origin="sysfs") if shares else Unknown(_why([*now, *top])),
    )


def _why(texts: Iterable[str | Reason]) -> Reason:
    """Why none of these files told anything."""
    return next((_of_file(text) for text in texts if isinstance(text, Reason)), Reason.NOT_SUPPORTED)


def _of_file(reason: Reason) -> Reason:
    """Absent is what /metrics does not have; a file that the kernel does not have is not supported."""
    return Reason.NOT_SUPPORTED if reason is Reason.ABSENT else reason


# How busy


class CpuTime(NamedTuple):
    """Seconds of one CPU since the machine started."""

    busy: float
    """With interrupts, and with what its virtual machines ran."""
    idle: float
    """With waiting for a disk."""
    steal: float
    """The hypervisor gave the CPU to somebody else while it had something to run."""


CpuTimes = Mapping[int, CpuTime]


class Load(NamedTuple):
    """How busy some CPUs were, together."""

    busy_cores: Reading
    """CPUs' worth of time that was spent running."""
    steal_share: Reading
    """The share of the time that the hypervisor gave to somebody else."""


def stat(kernel: Kernel) -> CpuTimes | Reason:
    """The times of each CPU online."""
    text = kernel.text("proc/stat")
    if isinstance(text, Reason):
        return _of_file(text)
    found = {}
    for line in text.splitlines():
        name, *words = line.split()[:9] or [""]
        cpu = _number(name, "cpu")
        if cpu >= 0 and len(words) == 8 and all(re.fullmatch(r"[0-9]{1,20}", word) for word in words):
            user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / _USER_HZ for word in words)
            found[cpu] = CpuTime(user + nice + system + irq + softirq, idle + iowait, steal)
    return found or Reason.NOT_SUPPORTED


def between(first: CpuTimes | Reason, last: CpuTimes | Reason, cpus: Iterable[int]) -> Load:
    """How busy these CPUs were from first to last; a CPU that went offline in between is left out.

    Unknown: stale, if none of them stayed; idle, if no tick (10 ms) passed.
    """
    if isinstance(first, Reason):
        return _unknown_load(first)
    if isinstance(last, Reason):
        return _unknown_load(last)
    stayed = [cpu for cpu in cpus if cpu in first and cpu in last and sum(last[cpu]) >= sum(first[cpu])]
    if not stayed:
        return _unknown_load(Reason.STALE)
    # The kernel lets iowait fall at times: never below nothing.
    busy, idle, steal = (sum(max(0.0, last[cpu][kind] - first[cpu][kind]) for cpu in stayed) for kind in range(3))
    total = busy + idle + steal
    if total <= 0:
        return _unknown_load(Reason.IDLE)
    return Load(
        Known(busy / total * len(stayed), origin="proc"),
        Known(steal / total, origin="proc"),
    )


def _unknown_load(reason: Reason) -> Load:
    return Load(Unknown(reason), Unknown(reason))


# Memory


@dataclass(frozen=True, slots=True)
class Memory:
    """The machine's memory, in bytes."""

    total: Reading
    available: Reading
    """What can be had without swapping."""
    swap_total: Reading
    swap_free: Reading
    swapped_in: Reading
    """Read back from swap since the machine started: a counter."""
    swapped_out: Reading


def memory(kernel: Kernel) -> Memory:
    """The machine's memory, whatever a control group grants of it."""
    sizes, pages = kernel.text("proc/meminfo"), kernel.text("proc/vmstat")
    return Memory(
        total=_bytes(sizes, "MemTotal", 1024),
        available=_bytes(sizes, "MemAvailable", 1024),
        swap_total=_bytes(sizes, "SwapTotal", 1024),
        swap_free=_bytes(sizes, "SwapFree", 1024),
        swapped_in=_bytes(pages, "pswpin", mmap.PAGESIZE),
        swapped_out=_bytes(pages, "pswpout", mmap.PAGESIZE),
    )


def _bytes(text: str | Reason, key: str, unit: int) -> Reading:
    if isinstance(text, Reason):
        return Unknown(_of_file(text))
    count = re.fullmatch(r"([0-9]{1,20})(?: kB)?", table(text).get(key, ""))
    return Known(float(int(count[1]) * unit), origin="proc") if count else Unknown(Reason.NOT_SUPPORTED)
