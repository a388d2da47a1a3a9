"""Machines as folders of real files: what /proc and /sys of a host or of a container look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel

PID = 42


class Tree:
    """One machine, made file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.root)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def remove(self, name: str) -> None:
        """A file, or a folder of files."""
        path = self.root / name
        if path.is_dir():
            for child in path.iterdir():
                self.remove(str(child.relative_to(self.root)))
            path.rmdir()
        else:
            path.unlink()

    # Control groups

    def process(self, *groups: str, pid: int = PID) -> None:
        """A process in these groups: "0::/system.slice"."""
        self.write(f"proc/{pid}/cgroup", "".join(f"{group}\n" for group in groups))

    def mounts(self, *mounts: tuple[str, str, str], who: str = "self") -> None:
        """cgroup file systems as (group at its root, mount point, "cgroup2" or version 1's controllers)."""
        lines = ["27 1 254:0 / / rw,relatime - ext4 /dev/vda rw", "22 27 0:21 / /proc rw shared:5 - proc proc rw"]
        for number, (group, point, kind) in enumerate(mounts, 30):
            system = "cgroup2 cgroup2 rw,nsdelegate" if kind == "cgroup2" else f"cgroup cgroup rw,{kind}"
            lines.append(f"{number} 23 0:{number} {group} {point} rw,nosuid shared:9 master:2 - {system}")
        self.write(f"proc/{who}/mountinfo", "\n".join(lines) + "\n")

    def v2(
        self,
        folder: str,
        quota: str = "max 100000",
        weight: int = 100,
        throttling: tuple[int, int, int] = (0, 0, 0),
        memory: str = "max",
        used: int = 4096,
        cache: int = 0,
        cpus: str = "0-7",
    ) -> None:
        """A group of version 2, not the root. `throttling`: periods, throttled ones, microseconds."""
        periods, held, time = throttling
        files = {
            "cgroup.events": "populated 1\nfrozen 0\n",
            "cgroup.procs": "",
            "cpu.max": f"{quota}\n",
            "cpu.weight": f"{weight}\n",
            "cpu.stat": f"usage_usec 99\nnr_periods {periods}\nnr_throttled {held}\nthrottled_usec {time}\n",
            "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
            "cpuset.cpus.effective": f"{cpus}\n",
            "memory.max": f"{memory}\n",
            "memory.current": f"{used}\n",
            "memory.stat": f"anon 1\nfile {cache}\ninactive_file {cache}\n",
            "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n",
        }
        for name, text in files.items():
            self.write(f"{folder}/{name}", text)

    def v2_root(self, folder: str = "sys/fs/cgroup", cpus: str = "0-7") -> None:
        """The machine's own root: it has no limits, and its pressure is the machine's."""
        files = {
            "cgroup.controllers": "cpuset cpu memory\n",
            "cgroup.procs": "1\n",
            "cpu.stat": "usage_usec 99\n",
            "cpu.pressure": "some avg10=9.00 avg60=9.00 avg300=9.00 total=999000000\n",
            "cpuset.cpus.effective": f"{cpus}\n",
            "memory.stat": "anon 1\n",
        }
        for name, text in files.items():
            self.write(f"{folder}/{name}", text)

    def v1_cpu(
        self,
        folder: str,
        quota: int = -1,
        shares: int = 1024,
        throttling: tuple[int, int, int] = (0, 0, 0),
        top: bool = False,
    ) -> None:
        """A group of version 1's cpu controller. `throttling`: periods, throttled ones, nanoseconds."""
        periods, held, time = throttling
        self.write(f"{folder}/cpu.cfs_quota_us", f"{quota}\n")
        self.write(f"{folder}/cpu.cfs_period_us", "100000\n")
        self.write(f"{folder}/cpu.shares", f"{shares}\n")
        self.write(f"{folder}/cpu.stat", f"nr_periods {periods}\nnr_throttled {held}\nthrottled_time {time}\n")
        if top:
            self.write(f"{folder}/release_agent", "\n")

    def v1_memory(self, folder: str, limit: int = 9223372036854771712, used: int = 4096, cache: int = 0) -> None:
        self.write(f"{folder}/memory.limit_in_bytes", f"{limit}\n")
        self.write(f"{folder}/memory.usage_in_bytes", f"{used}\n")
        self.write(f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {cache}\n")
        self.write(f"{folder}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")

    # Processors

    def cpus(self, cores: Iterable[tuple[int, Iterable[int]]], online: str) -> None:
        """Cores as (package, their CPUs), each core's id being its place in the package."""
        seen: dict[int, int] = {}
        self.write("sys/devices/system/cpu/online", f"{online}\n")
        for package, cpus in cores:
            core = seen[package] = seen.get(package, -1) + 1
            siblings = ",".join(str(cpu) for cpu in cpus)
            for cpu in cpus:
                folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
                self.write(f"{folder}/physical_package_id", f"{package}\n")
                self.write(f"{folder}/core_id", f"{core}\n")
                self.write(f"{folder}/thread_siblings_list", f"{siblings}\n")

    def nodes(self, **cpus: str) -> None:
        """NUMA nodes: node0="0-7"."""
        for name, text in cpus.items():
            self.write(f"sys/devices/system/node/{name}/cpulist", f"{text}\n")


class Refusing(Kernel):
    """A machine on which some files answer with a reason, as the kernel does: tests may run as root."""

    def __init__(self, root: Path, refused: Mapping[str, Reason]) -> None:
        super().__init__(root)
        self._refused = refused

    def text(self, name: str) -> str | Reason:
        return self._refused.get(name) or super().text(name)

    def link(self, name: str) -> str | Reason:
        return self._refused.get(name) or super().link(name)
