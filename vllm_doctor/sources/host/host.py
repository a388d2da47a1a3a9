"""The host of one vLLM server: what its processes got of the CPU, what they wanted, and who else took it.

Two samples of the kernel's files, one at each end of the window; `facts` is what lies between them. Nothing is written,
signalled or traced.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from vllm_doctor.model import outside
from vllm_doctor.model.observation import ProcessSeen
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import cgroup, machine, sockets, topology
from vllm_doctor.sources.host.cgroup import CgroupSample
from vllm_doctor.sources.host.kernel import Kernel, cpu_list, table
from vllm_doctor.sources.host.process import API_SERVER, ENGINE_CORE, OTHER, WORKER, Member, ServerProcess
from vllm_doctor.sources.host.sockets import Connection
from vllm_doctor.sources.host.topology import CpuTimes, Topology

_TICK = 100.0  # USER_HZ, the same on every Linux
_MAX_THREADS = 4096  # of one process; torch starts hundreds
_SHOWN = 3
_MOST_UNSENT = 1000
_LEAST_SECONDS = 0.2  # the kernel counts CPU time in steps of 10 ms
_AUTOGROUP = "proc/sys/kernel/sched_autogroup_enabled"
_UNREAD = 16_384
"""Bytes in a connection's Send-Q, at both looks, from which on the other side is called slow: answers are streamed in
pieces of some hundred bytes, and what is merely on its way is less (a rule of thumb)."""
_CORES = (
    "cores_usable", "cpus_usable", "cpus_allowed", "cores_of_host", "last_cpu", "threads_per_core", "numa_nodes",
    "cpu_governor", "cpufreq_driver", "cpu_energy_preference", "cpu_frequency_share",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """One process at one moment. Seconds since its start; `started` in ticks tells a pid used again."""

    name: str
    started: int
    cpu: float
    major_faults: float


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """One thread: seconds it ran, and waited for a core; how often it got one; whether it `wants` one now."""

    ran: float
    waited: float
    turns: int = 0
    wants: bool = False


@dataclass(frozen=True)
class HostSample:
    """The host at one moment. `at`: seconds on a clock that does not step."""

    at: float
    processes: Mapping[int, ProcessTimes]
    """Every process of the host that can be seen."""
    threads: Mapping[int, Mapping[int, ThreadTimes]]
    """Of each member of the server: thread id -> its times. Empty where the kernel does not tell."""
    involuntary: Mapping[int, float]
    cpu: CpuTimes | Reason
    cgroup: CgroupSample
    swapped_in: Reading
    connections: float | None = None
    """To the ports on which the server listens; None where they cannot be read."""
    unsent: Mapping[str, float] = field(default_factory=dict)
    """Of those with data that the other side does not take: who it is ("10.0.0.7:51234") -> bytes."""


@dataclass
class Host:
    """One server's host under examination. `clock` must not step."""

    server: ServerProcess
    kernel: Kernel = field(default_factory=Kernel)
    clock: Callable[[], float] = time.monotonic

    def sample(self) -> HostSample:
        members = [member.pid for member in self.server.members]
        connected = self._connected()
        statuses = {pid: dict(_statuses(self.kernel, pid)) for pid in members}
        return HostSample(
            at=self.clock(),
            processes=dict(_processes(self.kernel)),
            threads={pid: dict(_threads(self.kernel, pid, statuses[pid])) for pid in members},
            involuntary={pid: count for pid in members if (count := _involuntary(statuses[pid])) is not None},
            cpu=topology.stat(self.kernel),
            cgroup=cgroup.sample(self.kernel, self._closest()),
            swapped_in=topology.memory(self.kernel).swapped_in,
            connections=None if isinstance(connected, Reason) else float(len(connected)),
            unsent={} if isinstance(connected, Reason) else _unsent(connected),
        )

    def _connected(self) -> tuple[Connection, ...] | Reason:
        """The connections to the ports on which the server's own processes listen."""
        open_ports = sockets.listening(self.kernel, self.server.root)
        if isinstance(open_ports, Reason):
            return open_ports
        held: set[int] = set()
        for member in self.server.members:
            if member.role in (API_SERVER, OTHER) or member.pid == self.server.root:
                mine = sockets.held(self.kernel, member.pid)
                held |= set() if isinstance(mine, Reason) else mine
        ports = {socket.port for socket in open_ports if socket.inode in held}
        return sockets.connections(self.kernel, self.server.root, ports) if ports else Reason.DENIED

    def rows(self, first: HostSample, last: HostSample) -> tuple[ProcessSeen, ...]:
        """The server's processes, one by one."""
        seconds = last.at - first.at
        return tuple(self._row(first, last, member, seconds) for member in self.server.members if member.role != OTHER)

    def _row(self, first: HostSample, last: HostSample, member: Member, seconds: float) -> ProcessSeen:
        threads = len(last.threads.get(member.pid, {}))
        if not _same(first, last, member):
            gone = Unknown(Reason.STALE)
            return ProcessSeen(member.role, member.pid, gone, gone, threads)
        if seconds < _LEAST_SECONDS:
            not_yet = Unknown(Reason.FIRST_SCRAPE)
            return ProcessSeen(member.role, member.pid, not_yet, not_yet, threads)
        used = (last.processes[member.pid].cpu - first.processes[member.pid].cpu) / seconds
        waited, _ = _thread_shares(first, last, member.pid, seconds)
        return ProcessSeen(member.role, member.pid, _told(max(0.0, used)), _share(waited), threads)

    def _closest(self) -> int:
        """The process whose control group matters most: the engine core's."""
        return next((m.pid for m in self.server.members if m.role == ENGINE_CORE), self.server.root)

    def facts(self, first: HostSample, last: HostSample) -> dict[str, Reading]:
        """What holds of the host between two samples; the same sample twice gives what needs no rate."""
        allowed = self.allowed()
        found = _counts(self.server.members)
        found |= self._cores(last, allowed)
        found |= self._limits()
        placement = cgroup.placement(self.kernel, self._closest())
        found["placement"] = _told(placement.kind)
        found["placement_name"] = _told(placement.name) if placement.name else Unknown(Reason.ABSENT)
        found["process_id"] = _told(float(self.server.root))
        found["sched_autogroup"] = self.kernel.number(_AUTOGROUP, "proc")
        found |= machine.facts(self.kernel)
        found |= _readers(first, last)
        rates = self._rates(first, last, allowed)
        if last.at - first.at < _LEAST_SECONDS:
            rates = dict.fromkeys(rates, Unknown(Reason.FIRST_SCRAPE))
        return found | rates

    def _cores(self, last: HostSample, allowed: frozenset[int] | Reason) -> dict[str, Reading]:
        processors = topology.read(self.kernel)
        quota = last.cgroup.quota
        found: dict[str, Reading] = {"cpu_quota": quota, "cpu_weight": last.cgroup.weight}
        if isinstance(processors, Reason) or isinstance(allowed, Reason):
            reason = processors if isinstance(processors, Reason) else allowed
            assert isinstance(reason, Reason)
            return found | dict.fromkeys(_CORES, Unknown(reason))
        if isinstance(last.cgroup.cpuset, frozenset):
            allowed &= last.cgroup.cpuset
        allowed &= processors.online
        granted = float(quota.value) if isinstance(quota, Known) else math.inf
        nodes = processors.nodes(processors.online)
        frequency = topology.frequency(self.kernel, allowed)
        return found | {
            "cores_usable": _told(min(float(processors.physical_cores(allowed)), granted)),
            "cpus_usable": _told(min(float(len(allowed)), granted)),
            "cpus_allowed": _told(float(len(allowed))),
            "cores_of_host": _told(float(processors.physical_cores(processors.online))),
            "last_cpu": _told(float(max(processors.online))),
            "threads_per_core": _told(float(processors.threads_per_core)),
            "numa_nodes": _told(float(len(nodes))) if nodes else Unknown(Reason.NOT_SUPPORTED),
            "cpu_governor": frequency.governor,
            "cpufreq_driver": frequency.driver,
            "cpu_energy_preference": frequency.preference,
            "cpu_frequency_share": frequency.share,
        }

    def allowed(self) -> frozenset[int] | Reason:
        """The CPUs that the kernel may run the server on: what any of its processes is bound to."""
        found: set[int] = set()
        reason = Reason.ABSENT
        for member in self.server.members:
            cpus = cpus_allowed(self.kernel, member.pid)
            if isinstance(cpus, Reason):
                reason = cpus
            else:
                found |= cpus
        return frozenset(found) or reason

    def _limits(self) -> dict[str, Reading]:
        used = [usage for m in self.server.members if (usage := _descriptors(self.kernel, m.pid)) is not None]
        swapped = [_status_bytes(self.kernel, m.pid, "VmSwap") for m in self.server.members]
        known = [float(reading.value) for reading in swapped if isinstance(reading, Known)]
        shm = self.server.files.capacity("/dev/shm") if self.server.files is not None else Reason.NOT_LOCAL
        return {
            "fd_share": _told(max(used)) if used else Unknown(Reason.DENIED),
            "server_swapped": _told(sum(known)) if known else Unknown(Reason.NOT_SUPPORTED),
            "shm_size": Unknown(shm) if isinstance(shm, Reason) else _told(float(shm)),
        }

    def _rates(self, first: HostSample, last: HostSample, allowed: frozenset[int] | Reason) -> dict[str, Reading]:
        seconds = max(last.at - first.at, 1e-9)
        throttled, lost = cgroup.throttled(first.cgroup, last.cgroup, seconds)
        found: dict[str, Reading] = {
            "cpu_throttled_share": throttled,
            "cpu_throttled_cores": lost,
            "cpu_pressure": _rate(first.cgroup.pressure_seconds, last.cgroup.pressure_seconds, seconds),
            "swap_in_per_second": _rate(first.swapped_in, last.swapped_in, seconds * mmap.PAGESIZE),
        }
        alive = [m for m in self.server.members if _same(first, last, m)]
        for role, name in ((ENGINE_CORE, "engine"), (WORKER, "worker"), (API_SERVER, "api")):
            members = [m for m in alive if m.role == role]
            why = Reason.STALE if any(m.role == role for m in self.server.members) else Reason.ABSENT
            busiest = max((_thread_shares(first, last, m.pid, seconds) for m in members), default=None)
            found[f"{name}_cpu_wait"] = _share(busiest[0]) if busiest else Unknown(why)
            cpu = [last.processes[m.pid].cpu - first.processes[m.pid].cpu for m in members]
            found[f"{name}_cpu"] = _told(max(cpu) / seconds) if cpu else Unknown(why)
        return found | self._demand(first, last, alive, seconds) | self._others(first, last, alive, allowed, seconds)

    def _demand(self, first: HostSample, last: HostSample, alive: list[Member], seconds: float) -> dict[str, Reading]:
        """How many cores the server's threads used, and how many they would have used."""
        ran = waited = 0.0
        busy = told = 0
        for member in alive:
            for before, after in _paired(first, last, member.pid):
                told += 1
                ran += after.ran - before.ran
                waited += after.waited - before.waited
                busy += (after.ran - before.ran + after.waited - before.waited) / seconds > 0.5
        unknown = Unknown(Reason.STALE if not alive else Reason.NOT_SUPPORTED)
        switches = [
            last.involuntary[m.pid] - first.involuntary[m.pid]
            for m in alive
            if m.pid in first.involuntary and m.pid in last.involuntary
        ]
        faults = [last.processes[m.pid].major_faults - first.processes[m.pid].major_faults for m in alive]
        return {
            "cpu_used": _told(ran / seconds) if told else unknown,
            "cpu_demand": _told((ran + waited) / seconds) if told else unknown,
            "threads_busy": _told(float(busy)) if told else unknown,
            "involuntary_switches_per_second": _told(sum(switches) / seconds) if switches else unknown,
            "major_faults_per_second": _told(sum(faults) / seconds) if faults else unknown,
        }

    def _others(
        self,
        first: HostSample,
        last: HostSample,
        alive: list[Member],
        allowed: frozenset[int] | Reason,
        seconds: float,
    ) -> dict[str, Reading]:
        """What others took of the CPUs that the server may use, and who."""
        names = ("foreign_cpu", "cpu_steal", "foreign_processes")
        if isinstance(first.cpu, Reason) or isinstance(last.cpu, Reason) or isinstance(allowed, Reason):
            reason = next(r for r in (first.cpu, last.cpu, allowed) if isinstance(r, Reason))
            return dict.fromkeys(names, Unknown(reason))
        busy, steal = topology.between(first.cpu, last.cpu, allowed)
        mine = [m.pid for m in alive] + [
            pid for pid in (os.getpid(),) if pid in first.processes and pid in last.processes
        ]
        own = sum(last.processes[pid].cpu - first.processes[pid].cpu for pid in mine) / seconds
        foreign = _told(max(0.0, float(busy.value) - own)) if isinstance(busy, Known) else busy
        return {"foreign_cpu": foreign, "cpu_steal": steal, "foreign_processes": self._takers(first, last, seconds)}

    def _takers(self, first: HostSample, last: HostSample, seconds: float) -> Reading:
        """The other processes that used most of the CPU, those of one name together."""
        own = {m.pid for m in self.server.members} | {os.getpid()}
        cores: dict[str, float] = {}
        pids: dict[str, list[int]] = {}
        for pid, after in last.processes.items():
            before = first.processes.get(pid)
            same = before is not None and before.started == after.started
            used = (after.cpu - (before.cpu if before is not None and same else 0.0)) / seconds
            if pid not in own and used > 0.01:
                cores[after.name] = cores.get(after.name, 0.0) + used
                pids.setdefault(after.name, []).append(pid)
        if not cores:
            return Unknown(Reason.IDLE)
        most = sorted(cores, key=lambda name: -cores[name])[:_SHOWN]
        told = [
            f"{f'{len(pids[name])} × {name}' if len(pids[name]) > 1 else f'{name} (pid {pids[name][0]})'}"
            f" with {cores[name]:.2g} cores"
            for name in most
        ]
        rest = len(cores) - len(told)
        return _told(", ".join(told) + (f" and {rest} more" if rest else ""))


def _unsent(connected: Iterable[Connection]) -> dict[str, float]:
    queued = [one for one in connected if one.unsent >= _UNREAD]
    most = sorted(queued, key=lambda one: -one.unsent)[:_MOST_UNSENT]
    return {f"{one.peer}:{one.peer_port}": float(one.unsent) for one in most}


def _readers(first: HostSample, last: HostSample) -> dict[str, Reading]:
    """Who does not read what the server sends: connections, slow_readers, slow_readers_bytes, slow_readers_named."""
    names = ("connections", "slow_readers", "slow_readers_bytes", "slow_readers_named")
    if last.connections is None or first.connections is None:
        return dict.fromkeys(names, Unknown(Reason.DENIED))
    if last.at - first.at < _LEAST_SECONDS:
        return dict.fromkeys(names, Unknown(Reason.FIRST_SCRAPE))
    slow = {peer: unsent for peer, unsent in last.unsent.items() if peer in first.unsent}
    hosts = Counter(peer.rpartition(":")[0] for peer in slow)
    named = ", ".join(f"{host} ({count})" for host, count in hosts.most_common(_SHOWN))
    return {
        "connections": _told(last.connections),
        "slow_readers": _told(float(len(slow))),
        "slow_readers_bytes": _told(sum(slow.values())),
        "slow_readers_named": _told(named) if named else Unknown(Reason.IDLE),
    }


def _told(value: Value) -> Known:
    return Known(value, origin="proc")


def _share(value: float) -> Reading:
    return Unknown(Reason.NOT_SUPPORTED) if value < 0 else _told(value)


def _counts(members: Iterable[Member]) -> dict[str, Reading]:
    """How many processes of each kind. With one GPU an engine core works itself: it counts as a worker too."""
    roles = Counter(member.role for member in members)
    if not roles[ENGINE_CORE]:
        names = ("api_servers", "engine_cores", "workers", "coordinators", "cores_terms")
        return dict.fromkeys(names, Unknown(Reason.NOT_SUPPORTED))
    counts: dict[str, int] = {
        "api_servers": max(1, roles[API_SERVER]),
        "engine_cores": roles[ENGINE_CORE],
        "workers": max(roles[WORKER], roles[ENGINE_CORE]),
        "coordinators": int(roles[ENGINE_CORE] > 1),
    }
    terms = " + ".join(
        _plural(count, what.removesuffix("s").replace("_", " ")) for what, count in counts.items() if count
    )
    found: dict[str, Reading] = {what: _told(float(count)) for what, count in counts.items()}
    return found | {"cores_terms": _told(terms)}


def _plural(count: int, what: str) -> str:
    return f"{count} {what.replace('api', 'API')}{'s' if count > 1 else ''}"


def _processes(kernel: Kernel) -> Iterator[tuple[int, ProcessTimes]]:
    for name in kernel.names("proc"):
        if name.isdigit():
            text = kernel.text(f"proc/{name}/stat")
            if not isinstance(text, Reason):
                found = _stat(text)
                if found is not None:
                    yield int(name), found


def _stat(text: str) -> ProcessTimes | None:
    """/proc/PID/stat; the name in parentheses may hold any character."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    try:
        cpu = (int(fields[11]) + int(fields[12])) / _TICK
        return ProcessTimes(head.partition("(")[2], int(fields[19]), cpu, float(fields[9]))
    except (ValueError, IndexError):
        return None


def _statuses(kernel: Kernel, pid: int) -> Iterator[tuple[int, Mapping[str, str]]]:
    """/proc/PID/task/TID/status of each thread."""
    for name in islice(kernel.names(f"proc/{pid}/task"), _MAX_THREADS):
        text = kernel.text(f"proc/{pid}/task/{name}/status")
        if not isinstance(text, Reason) and name.isdigit():
            yield int(name), table(text)


def _threads(kernel: Kernel, pid: int, statuses: Mapping[int, Mapping[str, str]]) -> Iterator[tuple[int, ThreadTimes]]:
    """/proc/PID/task/TID/schedstat: ns on a core, ns waiting for one, times it got one."""
    for thread, status in statuses.items():
        text = kernel.text(f"proc/{pid}/task/{thread}/schedstat")
        if isinstance(text, Reason):
            continue
        try:
            ran, waited, turns = map(int, text.split()[:3])
        except ValueError:
            continue
        if ran or waited:  # a kernel that does not count writes zeros
            yield thread, ThreadTimes(ran / 1e9, waited / 1e9, turns, status.get("State", "").startswith("R"))


def _involuntary(statuses: Mapping[int, Mapping[str, str]]) -> float | None:
    """Times the kernel took the core away, over all threads of the process."""
    counts = [status.get("nonvoluntary_ctxt_switches", "") for status in statuses.values()]
    told = [float(count) for count in counts if count.isdigit()]
    return sum(told) if told else None


def cpus_allowed(kernel: Kernel, pid: int) -> frozenset[int] | Reason:
    """The CPUs that any thread of the process may run on: the main thread alone may be bound to less."""
    found: set[int] = set()
    reason = Reason.ABSENT
    for name in islice(kernel.names(f"proc/{pid}/task"), _MAX_THREADS):
        text = kernel.text(f"proc/{pid}/task/{name}/status")
        if isinstance(text, Reason):
            reason = text
            continue
        try:
            found |= cpu_list(table(text).get("Cpus_allowed_list", ""))
        except ValueError:
            reason = Reason.INVALID
    return frozenset(found) or reason


def _descriptors(kernel: Kernel, pid: int) -> float | None:
    """Open files over the soft limit; None where either cannot be read."""
    limits = kernel.text(f"proc/{pid}/limits")
    count = len(kernel.names(f"proc/{pid}/fd"))
    if isinstance(limits, Reason) or not count:
        return None
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            soft = outside.number(" ".join(line.split()[3:4]))  # or "unlimited"
            return count / soft if soft is not None and soft >= 1 else 0.0
    return None


def _status_bytes(kernel: Kernel, pid: int, key: str) -> Reading:
    text = kernel.text(f"proc/{pid}/status")
    if isinstance(text, Reason):
        return Unknown(text)
    words = table(text).get(key, "").split()
    return _told(float(words[0]) * 1024) if words and words[0].isdigit() else Unknown(Reason.NOT_SUPPORTED)


def _same(first: HostSample, last: HostSample, member: Member) -> bool:
    """Whether the pid is still the server's process in both samples."""
    before, after = first.processes.get(member.pid), last.processes.get(member.pid)
    return before is not None and after is not None and before.started == after.started == member.started


def _paired(first: HostSample, last: HostSample, pid: int) -> Iterator[tuple[ThreadTimes, ThreadTimes]]:
    """Each thread's times at both ends; a thread that began within the window began with nothing.

    The kernel counts a wait when it ends: of a thread that wanted a core all the time and got none it shows none.
    """
    begun = first.threads.get(pid, {})
    for thread, after in last.threads.get(pid, {}).items():
        before = begun.get(thread, ThreadTimes(0.0, 0.0))
        if after.ran < before.ran or after.waited < before.waited:
            continue
        if before.wants and after.wants and (before.ran, before.turns) == (after.ran, after.turns):
            after = replace(after, waited=before.waited + last.at - first.at)
        yield before, after


def _thread_shares(first: HostSample, last: HostSample, pid: int, seconds: float) -> tuple[float, float]:
    """(waiting, running) as shares of the time, of the process's thread that wanted a core most."""
    shares = [
        ((after.waited - before.waited) / seconds, (after.ran - before.ran) / seconds)
        for before, after in _paired(first, last, pid)
    ]
    return max(shares, key=sum, default=(-1.0, 0.0))


def _rate(first: Reading, last: Reading, seconds: float) -> Reading:
    """The counter's growth a second."""
    if isinstance(first, Unknown) or isinstance(last, Unknown):
        return first if isinstance(first, Unknown) else last
    growth = float(last.value) - float(first.value)
    return Unknown(Reason.STALE) if growth < 0 else Known(growth / seconds, origin=last.origin)


def misplaced(kernel: Kernel, machine: Topology, nodes: Mapping[int, int]) -> Reading:
    """How many of the server's processes may not run on the NUMA node of their GPU. `nodes`: pid -> the GPU's node."""
    if not machine.node_of:
        return Unknown(Reason.NOT_SUPPORTED)
    judged = [(pid, cpus) for pid in nodes if not isinstance(cpus := cpus_allowed(kernel, pid), Reason)]
    if not judged:
        return Unknown(Reason.NOT_LOCAL)
    return _told(float(sum(nodes[pid] not in machine.nodes(cpus) for pid, cpus in judged)))
