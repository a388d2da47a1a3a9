"""Control groups: how much CPU and memory a process is granted, and how often the kernel has held it back.

Version 1, version 2, and both side by side. A limit holds for all groups below it, so each group from the process's
own up to the root is asked. In a container with a cgroup namespace the container's group is the root: what limits it
from above (a pod's quota) cannot be seen from there.

https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/scheduler/sched-bwc.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, cpu_list, table

ORIGIN = "cgroup"
_UNIFIED = ""  # where /proc/PID/cgroup names a controller of version 1, it has nothing for version 2
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as the most pages that fit into 63 bits, whatever a page is


class Throttling(NamedTuple):
    """A group's counters since it was made. A group counts its own quota only, not its children's."""

    periods: float
    """Periods of the quota (mostly 100 ms) in which something in the group wanted to run."""
    throttled: float
    """Those of them in which the quota was used up."""
    seconds: float
    """How long CPUs were withheld, summed over the CPUs."""


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """What the groups of one process say at one moment. A file that is not there is unknown: not-supported."""

    quota: Reading
    """Cores, by the tightest group; math.inf where no group has a quota."""
    quota_path: str
    """The group with that quota, as /proc/PID/cgroup writes it; "" where there is none."""
    weight: Reading
    """Share of the CPU against the neighbours, by the lightest group on the way: 1..10000, 0 for an idle group.

    100 is the default of version 2; 1024 shares, the default of version 1, are 40.
    """
    throttling: Mapping[str, Throttling] | Reason
    """By group; groups that cannot have a quota are left out."""
    pressure_seconds: Reading
    """Time in which some task of the process's own group waited for a CPU, since the group was made. Version 2 only."""
    memory_limit: Reading
    """Bytes, by the tightest group; math.inf where no group has a limit."""
    memory_used: Reading
    """Bytes in the group with that limit (else in the process's own), less the file cache that can be dropped at once:
    loading weights fills the cache up to any limit."""
    oom_kills: Reading
    """How many processes of the process's own group were killed for want of memory."""
    cpuset: frozenset[int] | Reason
    """CPUs that the process may use, by its groups. Its affinity may be narrower."""


_ID = r"[0-9a-f]{12,64}"
_POD = r"[0-9a-f]{8}[0-9a-f_-]{24,28}"

Kind = Literal["kubernetes", "docker", "podman", "lxc", "slurm", "systemd", "none"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Who put the process where it is, and so where its limits are set."""

    kind: Kind
    name: str = ""
    """Container id, pod uid (in the pod: the pod's name), Slurm job, or systemd unit; "" where it is not told."""

    @property
    def title(self) -> str:
        """For people: "docker 3f2a9c0d1e2f", "pod 1b2c3d4e", "vllm.service"; "" for no container and no unit."""
        is_container = re.fullmatch(r"[0-9a-f]{64}", self.name)
        short = self.name[:12] if is_container else self.name
        match self.kind:
            case "none":
                return ""
            case "systemd":
                return short
            case "kubernetes" if is_container:
                return f"container {short}"
            case "kubernetes":
                return f"pod {short[:8] if re.fullmatch(_POD, short) else short}".strip()
            case "slurm":
                return f"Slurm job {short}"
            case _:
                return f"{self.kind} {short}".strip()


def sample(kernel: Kernel, pid: int) -> CgroupSample:
    """What the process's groups grant and have counted. Never raises: what cannot be read says why."""
    lineage = _Hierarchies(kernel, pid).lineage
    cpu, memory = lineage("cpu"), lineage("memory")
    quota, group = _tightest(cpu, _quota)
    memory_limit, memory_group = _tightest(memory, _memory_limit)
    return CgroupSample(
        quota=quota,
        quota_path=group.path if group else "",
        weight=_weight(cpu),
        throttling=_throttling(cpu),
        pressure_seconds=_pressure(lineage(_UNIFIED)),
        memory_limit=memory_limit,
        memory_used=_memory_used((memory_group,) if memory_group else memory),
        oom_kills=_oom_kills(memory),
        cpuset=_cpuset(lineage("cpuset")),
    )


def throttled(first: CgroupSample, last: CgroupSample, seconds: float) -> tuple[Reading, Reading]:
    """How much a quota held the process back in the `seconds` from first to last, by the group where that was worst.

    1. Share of the quota's periods in which it was used up, 0..1.
    2. Cores withheld: how many CPUs, on average over all the time, had something to run in the group and did not.

    Zero without a quota. Unknown: idle, if no period passed; stale, if a group vanished or the process changed groups.
    """
    if _is_unlimited(first) and _is_unlimited(last):
        return Known(0.0, origin=ORIGIN), Known(0.0, origin=ORIGIN)
    before, after = first.throttling, last.throttling
    if isinstance(before, Reason):
        return Unknown(before), Unknown(before)
    if isinstance(after, Reason):
        return Unknown(after), Unknown(after)
    grown = [
        Throttling(*(new - old for new, old in zip(after[path], before[path], strict=True)))
        for path in before.keys() & after.keys()
    ]
    if before.keys() != after.keys() or any(count < 0 for counts in grown for count in counts):
        return Unknown(Reason.STALE), Unknown(Reason.STALE)
    active = [(counts.throttled / counts.periods, counts.seconds) for counts in grown if counts.periods > 0]
    if not active:
        return Unknown(Reason.IDLE), Unknown(Reason.IDLE)
    share = Known(min(1.0, max(share for share, _ in active)), origin=ORIGIN)
    if seconds <= 0:
        return share, Unknown(Reason.FIRST_SCRAPE)
    return share, Known(max(lost for _, lost in active) / seconds, origin=ORIGIN)


def _is_unlimited(at: CgroupSample) -> bool:
    return isinstance(at.quota, Known) and at.quota.value == math.inf


def placement(kernel: Kernel, pid: int) -> Placement:
    """What runs the process: by the names of its groups, or in a container by the traces that its runtime leaves."""
    text = kernel.text(f"proc/{pid}/cgroup")
    if isinstance(text, Reason):
        return Placement("none")
    found = placed(text)
    if found.kind != "none" or not _is_in_our_container(kernel, pid):
        return found
    hostname = kernel.text("proc/sys/kernel/hostname")
    name = "" if isinstance(hostname, Reason) else hostname.strip()
    if kernel.names("run/secrets/kubernetes.io") or kernel.names("var/run/secrets/kubernetes.io"):
        return Placement("kubernetes", name)
    if not isinstance(kernel.text(".dockerenv"), Reason):
        return Placement("docker", name)
    if not isinstance(kernel.text("run/.containerenv"), Reason):
        return Placement("podman", name)
    return found


def _is_in_our_container(kernel: Kernel, pid: int) -> bool:
    """Whether the root that we see is a group's own; a .dockerenv alone is also in a virtual machine's image."""
    groups = _Hierarchies(kernel, pid).lineage("cpu")
    return not isinstance(groups, Reason) and groups[-1].path == "/" and not groups[-1].is_top


# The first that is found holds: what is nested within others comes first.
_NAMES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("slurm", re.compile(r"/slurm(?:(?!/slurm).)*?/job_(\d+)")),
    ("kubernetes", re.compile(rf"pod({_POD})\b")),
    ("kubernetes", re.compile(rf"/(?:cri-containerd|crio)-({_ID})\b")),
    ("podman", re.compile(rf"/libpod-({_ID})\b")),
    ("docker", re.compile(rf"/docker[-/]({_ID})\b")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./]([^/\n]+)")),
    ("systemd", re.compile(r"^.*/([^/\n]+\.(?:service|scope))(?=/|$)", re.MULTILINE)),
    ("systemd", re.compile(r"^.*/([^/\n]+\.slice)(?=/|$)", re.MULTILINE)),
)


def placed(text: str) -> Placement:
    """Who runs a process, by its /proc/PID/cgroup."""
    for kind, pattern in _NAMES:
        found = pattern.search(text)
        if found:
            name = found[1].replace("_", "-") if kind == "kubernetes" else found[1]  # systemd has no "-" in a name
            return Placement(kind, name)
    return Placement("none")


# Where the groups are


@dataclass(frozen=True, slots=True)
class _Group:
    kernel: Kernel
    path: str
    folder: str
    is_unified: bool

    def text(self, name: str, name_v1: str) -> str | Reason:
        """A file of the group. Absent: the group has no such file. Stale: the group is gone."""
        text = self.kernel.text(f"{self.folder}/{name if self.is_unified else name_v1}")
        return Reason.STALE if text is Reason.ABSENT and not self.kernel.names(self.folder) else text

    @property
    def is_top(self) -> bool:
        """Whether this is the machine's own root, and not one that a namespace makes."""
        names = self.kernel.names(self.folder)
        return bool(names) and ("cgroup.events" not in names if self.is_unified else "release_agent" in names)


_Lineage = tuple[_Group, ...] | Reason
"""The process's own group, then its parents, or why they cannot be found."""


@dataclass(frozen=True, slots=True)
class _Mount:
    folder: str
    root: tuple[str, ...]
    """The group that is seen there."""
    controllers: frozenset[str]


class _Hierarchies:
    """The hierarchies of groups that a process is in, and where they are mounted."""

    def __init__(self, kernel: Kernel, pid: int) -> None:
        self._kernel = kernel
        self._pid = pid
        text = kernel.text(f"proc/{pid}/cgroup")
        self._unreadable = text if isinstance(text, Reason) else None
        if text is Reason.ABSENT:
            self._unreadable = Reason.STALE if kernel.names("proc") else Reason.NOT_SUPPORTED
        self._memberships = {} if isinstance(text, Reason) else _memberships(text)
        # We may see more of the way up than the process does. But a neighbour's container is only seen from within,
        # and the paths in its mountinfo are written for us, as those in its cgroup are.
        ours = _mounts(kernel, "proc/self/mountinfo", "") or _usual_mounts(kernel)
        self._views = (ours, _mounts(kernel, f"proc/{pid}/mountinfo", f"proc/{pid}/root"))

    def lineage(self, controller: str) -> _Lineage:
        if self._unreadable is not None:
            return self._unreadable
        name = controller if controller in self._memberships else _UNIFIED
        path = self._memberships.get(name)
        if path is None:
            return Reason.NOT_SUPPORTED
        for mounts in self._views:
            for mount in sorted(mounts, key=lambda mount: len(mount.root)):
                height = len(mount.root)
                if name in mount.controllers and path[:height] == mount.root and ".." not in path[height:]:
                    return tuple(
                        _Group(
                            self._kernel,
                            "/" + "/".join(path[:depth]),
                            "/".join((mount.folder, *path[height:depth])),
                            name == _UNIFIED,
                        )
                        for depth in range(len(path), height - 1, -1)
                    )
        denied = self._kernel.link(f"proc/{self._pid}/root") is Reason.DENIED
        return Reason.DENIED if denied else Reason.NOT_LOCAL


def _memberships(text: str) -> dict[str, tuple[str, ...]]:
    """Controller -> path, of lines "4:cpu,cpuacct:/docker/3f2a"; version 2 has one line, "0::/docker/3f2a"."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number.isdigit() and path.startswith("/") and "\0" not in path:
            for controller in controllers.split(","):
                found[controller] = _parts(path)
    return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _mounts(kernel: Kernel, mountinfo: str, base: str) -> list[_Mount]:
    """The cgroup file systems that can be seen. https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html"""
    text = kernel.text(mountinfo)
    if isinstance(text, Reason):
        return []
    found = []
    for line in text.splitlines():
        place, _, system = line.partition(" - ")
        places, systems = place.split(), system.split()
        if len(places) < 5 or len(systems) < 3 or systems[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = systems[2].split(",") if systems[0] == "cgroup" else [_UNIFIED]
        folder = (base + _unescaped(places[4])).lstrip("/")
        if "\0" not in folder and kernel.names(folder):
            found.append(_Mount(folder, _parts(_unescaped(places[3])), frozenset(controllers)))
    return found


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), path)


def _usual_mounts(kernel: Kernel) -> list[_Mount]:
    """Where the groups are on nearly every machine."""
    folder = "sys/fs/cgroup"
    names = kernel.names(folder)
    if "cgroup.controllers" in names:
        return [_Mount(folder, (), frozenset([_UNIFIED]))]
    return [
        _Mount(f"{folder}/{name}", (), frozenset([_UNIFIED] if name == "unified" else name.split(",")))
        for name in names
    ]


# What the groups say


def _told(value: float) -> Known:
    return Known(value, origin=ORIGIN)


def _unknown(reason: Reason) -> Unknown:
    return Unknown(Reason.NOT_SUPPORTED if reason is Reason.ABSENT else reason)


def _tightest(groups: _Lineage, limit: Callable[[_Group], float | Reason]) -> tuple[Reading, _Group | None]:
    """The lowest limit on the way up and the group that has it, the inner one of equals; math.inf if there is none."""
    if isinstance(groups, Reason):
        return Unknown(groups), None
    found = [(limit(group), group) for group in groups]
    reasons = [value for value, _ in found if isinstance(value, Reason) and value is not Reason.ABSENT]
    limits = [(value, group) for value, group in found if not isinstance(value, Reason) and value < math.inf]
    if Reason.STALE in reasons or (reasons and not limits):
        return Unknown(Reason.STALE if Reason.STALE in reasons else reasons[0]), None
    if not limits:
        return _told(math.inf), None
    value, group = min(limits, key=lambda pair: pair[0])
    return _told(value), group


def _nearest(groups: _Lineage, name: str, name_v1: str) -> tuple[str, _Group] | Reason:
    """The file of the first group on the way up that has it: where a controller is off, the parent's setting holds."""
    if isinstance(groups, Reason):
        return groups
    for group in groups:
        text = group.text(name, name_v1)
        if text is not Reason.ABSENT:
            return text if isinstance(text, Reason) else (text, group)
    return Reason.NOT_SUPPORTED


def _quota(group: _Group) -> float | Reason:
    text = group.text("cpu.max", "cpu.cfs_quota_us")
    if isinstance(text, Reason):
        return text
    if not group.is_unified:
        period = group.text("cpu.max", "cpu.cfs_period_us")
        if isinstance(period, Reason):
            return Reason.NOT_SUPPORTED if period is Reason.ABSENT else period
        text = f"{text} {period}"
    words = text.split()
    if words[:1] in (["max"], ["-1"]):
        return math.inf
    match _counts(words):
        case [granted, every] if granted > 0 and every > 0:
            return granted / every
        case _:
            return Reason.NOT_SUPPORTED


def _weight(groups: _Lineage) -> Reading:
    # The root's weight is against nobody.
    lightest, group = _tightest(groups, lambda group: Reason.ABSENT if group.is_top else _weight_of(group))
    return Unknown(Reason.NOT_SUPPORTED) if group is None and isinstance(lightest, Known) else lightest


def _weight_of(group: _Group) -> float | Reason:
    text = group.text("cpu.weight", "cpu.shares")
    if isinstance(text, Reason):
        return text
    match _counts(text.split()):
        case [weight] if group.is_unified:
            return weight
        case [shares]:  # https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2254-cgroup-v2
            return 1 + max(0.0, shares - 2) * 9999 / 262142
        case _:
            return Reason.NOT_SUPPORTED


def _throttling(groups: _Lineage) -> Mapping[str, Throttling] | Reason:
    if isinstance(groups, Reason):
        return groups
    found: dict[str, Throttling] = {}
    reasons = []
    for group in groups:
        text = group.text("cpu.stat", "cpu.stat")
        if isinstance(text, Reason):
            reasons.append(text)
            continue
        rows = table(text)
        if "nr_periods" not in rows:
            continue  # no cpu controller here
        names = ("nr_periods", "nr_throttled", "throttled_usec" if group.is_unified else "throttled_time")
        match _counts(rows.get(name, "") for name in names):
            case [periods, held, time]:
                found[group.path] = Throttling(periods, held, time / (1e6 if group.is_unified else 1e9))
            case _:
                reasons.append(Reason.NOT_SUPPORTED)
    if Reason.STALE in reasons:
        return Reason.STALE
    failures = [reason for reason in reasons if reason is not Reason.ABSENT]
    return failures[0] if failures and not found else found


def _pressure(groups: _Lineage) -> Reading:
    if isinstance(groups, Reason):
        return Unknown(groups)
    text = groups[0].text("cpu.pressure", "")
    if isinstance(text, Reason):
        return _unknown(text)
    if groups[0].is_top:  # its pressure is the whole machine's
        return Unknown(Reason.NOT_SUPPORTED)
    some = re.search(r"^some .*\btotal=(\d+)", text, re.MULTILINE)
    return _told(int(some[1]) / 1e6) if some else Unknown(Reason.NOT_SUPPORTED)


def _memory_limit(group: _Group) -> float | Reason:
    text = group.text("memory.max", "memory.limit_in_bytes")
    if isinstance(text, Reason):
        return text
    if text.strip() == "max":
        return math.inf
    match _counts(text.split()):
        case [limit]:
            return limit if limit < _NO_LIMIT else math.inf
        case _:
            return Reason.NOT_SUPPORTED


def _memory_used(groups: _Lineage) -> Reading:
    found = _nearest(groups, "memory.current", "memory.usage_in_bytes")
    if isinstance(found, Reason):
        return _unknown(found)
    text, group = found
    stat = group.text("memory.stat", "memory.stat")
    rows = {} if isinstance(stat, Reason) else table(stat)
    cache = _counts([rows.get("inactive_file" if group.is_unified else "total_inactive_file", "")])
    match _counts(text.split()):
        case [used]:
            return _told(max(0.0, used - sum(cache)))
        case _:
            return Unknown(Reason.NOT_SUPPORTED)


def _oom_kills(groups: _Lineage) -> Reading:
    found = _nearest(groups, "memory.events", "memory.oom_control")
    if isinstance(found, Reason):
        return _unknown(found)
    match _counts([table(found[0]).get("oom_kill", "")]):
        case [kills]:
            return _told(kills)
        case _:
            return Unknown(Reason.NOT_SUPPORTED)


def _cpuset(groups: _Lineage) -> frozenset[int] | Reason:
    found = _nearest(groups, "cpuset.cpus.effective", "cpuset.effective_cpus")
    if isinstance(found, Reason):
        return found
    try:
        return cpu_list(found[0].strip()) or Reason.NOT_SUPPORTED
    except ValueError:
        return Reason.NOT_SUPPORTED


def _counts(texts: Iterable[str]) -> list[float]:
    """Counts as the kernel writes them, or nothing where one of the texts is no whole number of at least 0."""
    words = list(texts)
    return [float(word) for word in words] if all(re.fullmatch(r"[0-9]{1,20}", word) for word in words) else []
