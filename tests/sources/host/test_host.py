"""The host of a server, as two samples of /proc and /sys tell of it: trees of real files, changed in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trees import Refusing, Tree
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import topology
from vllm_doctor.sources.host.cgroup import CgroupSample
from vllm_doctor.sources.host.credentials import Credentials
from vllm_doctor.sources.host.host import Host, HostSample, misplaced
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import Member, ServerProcess
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.vllm.command_line import Command

API, CORE, WORKER = 1000, 1001, 1002
STARTED = 5000


class Machine:
    """A host with four cores and a vLLM on it; `passes` lets time go by."""

    def __init__(self, root: Path, cpus: str = "0-3") -> None:
        self.tree = Tree(root)
        self.now = 50.0
        self.cpus = cpus
        self.members: list[Member] = []
        self.kernel = self.tree.kernel
        self.tree.cpus([(0, [cpu]) for cpu in range(4)], "0-3")
        self.busy(0.0)

    def member(self, pid: int, role: str, name: str = "", ran: float = 0.0, waited: float = 0.0) -> None:
        self.members.append(Member(pid, role, name or role, STARTED))
        self.process(pid, name or role, cpu=ran)
        self.thread(pid, ran, waited)

    def process(self, pid: int, name: str, cpu: float = 0.0, started: int = STARTED, faults: int = 0) -> None:
        ticks = round(cpu * 100)
        head = f"{pid} ({name}) S 1 {pid} {pid} 0 -1 4194304 100 0 {faults} 0"  # majflt is the 12th field
        self.tree.write(f"proc/{pid}/stat", f"{head} {ticks - ticks // 3} {ticks // 3} 0 0 20 0 9 0 {started} 1 1\n")

    def thread(
        self,
        pid: int,
        ran: float,
        waited: float,
        tid: int = 0,
        switches: int = 0,
        cpus: str = "",
        state: str = "S (sleeping)",
        turns: int = 77,
    ) -> None:
        folder = f"proc/{pid}/task/{tid or pid}"
        self.tree.write(f"{folder}/schedstat", f"{round(ran * 1e9)} {round(waited * 1e9)} {turns}\n")
        self.tree.write(
            f"{folder}/status",
            f"Name:\tx\nState:\t{state}\nCpus_allowed_list:\t{cpus or self.cpus}\n"
            f"voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t{switches}\n",
        )

    def busy(self, seconds: float, steal: float = 0.0, idle: float = 0.0) -> None:
        """Seconds that each CPU has been busy; stolen; and idle."""
        rows = [
            f"cpu{cpu} {round(seconds * 100)} 0 0 {round(idle * 100)} 0 0 0 {round(steal * 100)} 0 0"
            for cpu in range(4)
        ]
        self.tree.write("proc/stat", "cpu  1 2 3 4 5 6 7 8 0 0\n" + "\n".join(rows) + "\nintr 5\nbtime 1\n")

    def host(self) -> Host:
        pid = self.members[0].pid
        files = ProcessFiles(self.kernel, pid, Credentials(os.geteuid(), os.getegid()), STARTED)
        server = ServerProcess(pid, tuple(self.members), Command(("vllm", "serve", "m"), "vllm serve"), files=files)
        return Host(server, self.kernel, lambda: self.now)

    def facts(self) -> dict[str, Reading]:
        """What needs no window."""
        host = self.host()
        sample = host.sample()
        return host.facts(sample, sample)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def single(machine: Machine) -> Machine:
    """One engine with one worker in a process of its own."""
    machine.member(API, "api-server", ran=10)
    machine.member(CORE, "engine-core", "VLLM::EngineCor", ran=20, waited=1)
    machine.member(WORKER, "worker", "VLLM::Worker", ran=30, waited=2)
    return machine


def value(reading: Reading) -> Value:
    assert isinstance(reading, Known), reading
    return reading.value


def number(reading: Reading) -> float:
    found = value(reading)
    assert not isinstance(found, str)
    return float(found)


def watched(machine: Machine, host: Host, first: HostSample, seconds: float = 2.0) -> dict[str, Reading]:
    machine.now += seconds
    return host.facts(first, host.sample())


# How many processes


@pytest.mark.parametrize(
    ("roles", "counts", "terms"),
    [
        pytest.param(
            ["api-server", "engine-core", "worker"],
            (1, 1, 1, 0),
            "1 API server + 1 engine core + 1 worker",
            id="one GPU: 2 + N",
        ),
        pytest.param(
            ["api-server", "engine-core"],
            (1, 1, 1, 0),
            "1 API server + 1 engine core + 1 worker",
            id="the engine core is its own worker",
        ),
        pytest.param(
            ["api-server", "engine-core", *["worker"] * 4, "other"],
            (1, 1, 4, 0),
            "1 API server + 1 engine core + 4 workers",
            id="four GPUs",
        ),
        pytest.param(
            ["launcher", *["api-server"] * 2, "coordinator", *["engine-core"] * 2, *["worker"] * 2],
            (2, 2, 2, 1),
            "2 API servers + 2 engine cores + 2 workers + 1 coordinator",
            id="data parallel: A + DP + N + 1",
        ),
        pytest.param(
            ["engine-core"], (1, 1, 1, 0), "1 API server + 1 engine core + 1 worker", id="an orphan: its API is gone"
        ),
    ],
)
def test_how_many_processes_want_a_core(
    roles: list[str], counts: tuple[int, ...], terms: str, machine: Machine
) -> None:
    for pid, role in enumerate(roles, API):
        machine.member(pid, role)
    facts = machine.facts()
    names = ("api_servers", "engine_cores", "workers", "coordinators")
    assert tuple(value(facts[name]) for name in names) == counts
    assert facts["cores_terms"] == Known(terms)
    assert facts["process_id"] == Known(float(API))


def test_processes_without_a_title_are_not_counted(machine: Machine) -> None:
    machine.member(API, "api-server")
    machine.member(CORE, "other")
    facts = machine.facts()
    for name in ("api_servers", "engine_cores", "workers", "coordinators", "cores_terms"):
        assert facts[name] == Unknown(Reason.NOT_SUPPORTED)


# Which cores


def test_cores_by_affinity(single: Machine) -> None:
    facts = single.facts()
    assert (value(facts["cores_usable"]), value(facts["cpus_usable"]), value(facts["cores_of_host"])) == (4, 4, 4)
    assert (value(facts["last_cpu"]), value(facts["threads_per_core"])) == (3, 1)
    assert facts["numa_nodes"] == Unknown(Reason.NOT_SUPPORTED)
    assert facts["cores_usable"] == Known(4.0)


def test_affinity_is_what_any_thread_of_any_process_may_use(single: Machine) -> None:
    for pid in (API, CORE, WORKER):
        single.thread(pid, 1, 0, cpus="0")  # vLLM binds main threads
    single.thread(WORKER, 1, 0, tid=77, cpus="2-3")
    assert value(single.facts()["cores_usable"]) == 3


def test_two_threads_of_a_core_are_one_core(single: Machine) -> None:
    single.tree.cpus([(0, [0, 2]), (0, [1, 3])], "0-3")
    facts = single.facts()
    assert (value(facts["cores_usable"]), value(facts["cpus_usable"]), value(facts["threads_per_core"])) == (2, 4, 2)
    for pid in (API, CORE, WORKER):
        single.thread(pid, 1, 0, cpus="0,2")
    facts = single.facts()
    assert (value(facts["cores_usable"]), value(facts["cpus_usable"]), value(facts["cores_of_host"])) == (1, 2, 2)


def grouped(machine: Machine, **options: object) -> None:
    """The engine core in a control group of its own."""
    machine.tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    machine.tree.v2_root()
    machine.tree.process("0::/vllm", pid=CORE)
    machine.tree.v2("sys/fs/cgroup/vllm", **options)  # type: ignore[arg-type]


def test_a_cpuset_narrows_the_affinity(single: Machine) -> None:
    grouped(single, cpus="1-2,7")
    facts = single.facts()
    assert (value(facts["cores_usable"]), value(facts["cores_of_host"])) == (2, 4)


@pytest.mark.parametrize(("quota", "usable"), [("150000 100000", 1.5), ("max 100000", 4), ("900000 100000", 4)])
def test_a_quota_caps_the_cores(quota: str, usable: float, single: Machine) -> None:
    grouped(single, quota=quota)
    facts = single.facts()
    assert (value(facts["cores_usable"]), value(facts["cpus_usable"])) == (usable, usable)
    assert facts["placement"] == Known("none")
    assert isinstance(facts["cpu_quota"], Known)
    assert facts["cpu_quota"].origin == "cgroup"


def test_cpus_that_are_offline_do_not_count(single: Machine) -> None:
    single.tree.write("sys/devices/system/cpu/online", "0-1\n")
    assert value(single.facts()["cores_usable"]) == 2


def test_the_governor(single: Machine) -> None:
    for cpu in range(4):
        folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        single.tree.write(f"{folder}/scaling_governor", "powersave\n")
        single.tree.write(f"{folder}/scaling_driver", "acpi-cpufreq\n")
        single.tree.write(f"{folder}/scaling_cur_freq", "1200000\n")
        single.tree.write(f"{folder}/cpuinfo_max_freq", "3000000\n")
    facts = single.facts()
    assert (value(facts["cpu_governor"]), value(facts["cpufreq_driver"])) == ("powersave", "acpi-cpufreq")
    assert value(facts["cpu_frequency_share"]) == pytest.approx(0.4)


# Who got the CPU, and who waited for it


def test_what_each_role_used_and_waited_for(single: Machine) -> None:
    host = single.host()
    single.thread(CORE, 20, 1, switches=10)
    first = host.sample()
    single.process(API, "vllm", cpu=10.4)
    single.thread(API, 10.4, 0.1)
    single.process(CORE, "VLLM::EngineCor", cpu=21.0, faults=6)
    single.thread(CORE, 21.0, 1.9, switches=50)
    single.process(WORKER, "VLLM::Worker", cpu=31.8)
    single.thread(WORKER, 31.8, 2.1)
    facts = watched(single, host, first)
    names = [f"{role}_cpu{what}" for role in ("engine", "worker", "api") for what in ("", "_wait")]
    told = {name: round(number(facts[name]), 3) for name in names}
    assert told == {
        "engine_cpu": 0.5,
        "engine_cpu_wait": 0.45,
        "worker_cpu": 0.9,
        "worker_cpu_wait": 0.05,
        "api_cpu": 0.2,
        "api_cpu_wait": 0.05,
    }
    assert number(facts["cpu_used"]) == pytest.approx(1.6)
    assert number(facts["cpu_demand"]) == pytest.approx(2.15)
    assert facts["threads_busy"] == Known(2.0)
    assert number(facts["involuntary_switches_per_second"]) == 20
    assert number(facts["major_faults_per_second"]) == 3
    assert {r.origin for r in facts.values() if isinstance(r, Known)} <= {"proc", "cgroup"}


RUNNABLE = "R (running)"


@pytest.mark.parametrize(
    ("first", "last", "share"),
    [
        ({"state": RUNNABLE}, {"state": RUNNABLE}, 1.0),
        ({"state": RUNNABLE}, {}, 0.0),  # it slept: nothing says since when
        ({}, {"state": RUNNABLE}, 0.0),
        (
            {"state": RUNNABLE},
            {"state": RUNNABLE, "turns": 78, "waited": 1.5},
            0.25,
        ),  # it got a core: that wait is counted
        ({"state": RUNNABLE}, {"state": RUNNABLE, "ran": 22.0}, 0.0),  # it kept its core
    ],
)
def test_a_wait_that_has_not_ended_is_not_counted_yet_by_the_kernel(
    first: dict[str, Any], last: dict[str, Any], share: float, single: Machine
) -> None:
    usual: dict[str, Any] = {"ran": 20.0, "waited": 1.0}
    single.thread(CORE, **usual | first)
    host = single.host()
    begun = host.sample()
    single.thread(CORE, **usual | last)
    facts = watched(single, host, begun)
    assert number(facts["engine_cpu_wait"]) == pytest.approx(share)
    assert number(facts["cpu_demand"]) == pytest.approx(share + last.get("ran", 20.0) / 2 - 10)


def test_of_a_process_the_thread_that_wanted_a_core_most_speaks(single: Machine) -> None:
    single.thread(CORE, 1, 1, tid=77)
    host = single.host()
    first = host.sample()
    single.thread(CORE, 21.5, 1.1)  # 0.75 and 0.05
    single.thread(CORE, 1, 1.6, tid=77)  # waits more, and wants less
    assert number(watched(single, host, first)["engine_cpu_wait"]) == pytest.approx(0.05)


def test_of_several_workers_the_one_that_waits_most_speaks(single: Machine) -> None:
    single.member(1003, "worker", "VLLM::Worker", ran=5, waited=5)
    host = single.host()
    first = host.sample()
    single.thread(WORKER, 31.9, 2.0)
    single.thread(1003, 5.1, 6.0)
    facts = watched(single, host, first)
    assert number(facts["worker_cpu_wait"]) == pytest.approx(0.5)


def test_threads_that_began_or_ended_in_the_window(single: Machine) -> None:
    single.thread(WORKER, 9, 9, tid=77)
    host = single.host()
    first = host.sample()
    single.tree.remove(f"proc/{WORKER}/task/77")
    single.thread(WORKER, 0.8, 0.4, tid=78)
    facts = watched(single, host, first)
    assert number(facts["cpu_used"]) == pytest.approx(0.4)
    assert number(facts["cpu_demand"]) == pytest.approx(0.6)
    assert number(facts["worker_cpu_wait"]) == pytest.approx(0.2)


def test_a_thread_id_that_was_used_again_counts_nothing(single: Machine) -> None:
    single.thread(CORE, 9, 9, tid=77)
    host = single.host()
    first = host.sample()
    single.thread(CORE, 1, 1, tid=77)
    facts = watched(single, host, first)
    assert (value(facts["cpu_used"]), value(facts["engine_cpu_wait"])) == (0, 0)


@pytest.mark.parametrize("schedstat", ["0 0 0\n", None, "", "no numbers\n"])
def test_a_kernel_that_does_not_count_waiting(schedstat: str | None, single: Machine) -> None:
    def untold() -> None:
        for pid in (API, CORE, WORKER):
            name = f"proc/{pid}/task/{pid}/schedstat"
            if schedstat is not None:
                single.tree.write(name, schedstat)
            elif (single.tree.root / name).exists():
                single.tree.remove(name)

    untold()
    host = single.host()
    first = host.sample()
    single.process(CORE, "x", cpu=21)
    facts = watched(single, host, first)
    for name in ("engine_cpu_wait", "worker_cpu_wait", "api_cpu_wait", "cpu_used", "cpu_demand", "threads_busy"):
        assert facts[name] == Unknown(Reason.NOT_SUPPORTED), name
    assert facts["engine_cpu"] == Known(0.5)  # /proc/PID/stat tells it all the same


def test_no_window_no_rate(single: Machine) -> None:
    facts = single.facts()
    rates = ("engine_cpu", "engine_cpu_wait", "cpu_used", "foreign_cpu", "cpu_steal", "cpu_throttled_share")
    for name in (*rates, "swap_in_per_second", "cpu_pressure", "foreign_processes"):
        assert facts[name] == Unknown(Reason.FIRST_SCRAPE), name
    assert value(facts["cores_usable"]) == 4


def test_a_process_that_was_replaced_in_the_window(single: Machine) -> None:
    host = single.host()
    first = host.sample()
    single.process(CORE, "cron", cpu=50, started=STARTED + 1)
    single.thread(CORE, 50, 50)
    facts = watched(single, host, first)
    assert facts["engine_cpu"] == facts["engine_cpu_wait"] == Unknown(Reason.STALE)
    assert number(facts["cpu_used"]) == 0  # of those that stayed


def test_a_pid_that_was_used_again_before_we_looked(single: Machine) -> None:
    single.process(CORE, "cron", cpu=50, started=STARTED + 1)
    host = single.host()
    first = host.sample()
    single.process(CORE, "cron", cpu=51, started=STARTED + 1)
    facts = watched(single, host, first)
    assert facts["engine_cpu"] == Unknown(Reason.STALE)


@pytest.mark.parametrize("gone", [[WORKER], [API, CORE, WORKER]])
def test_processes_that_end_in_the_window(gone: list[int], single: Machine) -> None:
    host = single.host()
    first = host.sample()
    for pid in gone:
        single.tree.remove(f"proc/{pid}")
    facts = watched(single, host, first)
    assert facts["worker_cpu"] == facts["worker_cpu_wait"] == Unknown(Reason.STALE)
    if len(gone) == 1:
        assert value(facts["engine_cpu"]) == 0
    else:
        for name in ("engine_cpu", "api_cpu", "cpu_used", "cpu_demand", "threads_busy", "major_faults_per_second"):
            assert facts[name] == Unknown(Reason.STALE), name


def test_a_role_that_there_is_not(machine: Machine) -> None:
    machine.member(API, "api-server")
    machine.member(CORE, "engine-core")
    host = machine.host()
    facts = watched(machine, host, host.sample())
    assert facts["worker_cpu"] == facts["worker_cpu_wait"] == Unknown(Reason.ABSENT)


# Who else took the CPU


def test_what_others_took_and_who_they_are(single: Machine) -> None:
    for pid in (2000, 2001):
        single.process(pid, "stress", cpu=1)
    single.process(2002, "rsync", cpu=5)
    single.process(2003, "idle", cpu=7)
    single.process(os.getpid(), "vllm-doctor", cpu=0)
    host = single.host()
    first = host.sample()
    for pid in (2000, 2001):
        single.process(pid, "stress", cpu=2.6)
    single.process(2002, "rsync", cpu=5.5)
    single.process(2004, "newborn", cpu=0.4)
    single.process(CORE, "VLLM::EngineCor", cpu=21)
    single.process(os.getpid(), "vllm-doctor", cpu=1)
    single.busy(1.5, steal=0.1, idle=0.4)
    facts = watched(single, host, first)
    assert facts["foreign_processes"] == Known("2 × stress with 1.6 cores, rsync (pid 2002) with 0.25 cores, "
                                               "newborn (pid 2004) with 0.2 cores")  # fmt: skip
    assert number(facts["foreign_cpu"]) == pytest.approx(3.0 - 0.5 - 0.5)  # less the server and the doctor
    assert number(facts["cpu_steal"]) == pytest.approx(0.05)


def test_more_others_than_one_wants_to_read(single: Machine) -> None:
    host = single.host()
    first = host.sample()
    for place in range(5):
        single.process(3000 + place, f"p{place}", cpu=1 + place)
    told = str(value(watched(single, host, first)["foreign_processes"]))
    assert told.endswith(" and 2 more")
    assert told.startswith("p4 (pid 3004) with 2.5 cores, p3")


def test_nobody_else(single: Machine) -> None:
    host = single.host()
    first = host.sample()
    single.busy(0.0, idle=2)
    facts = watched(single, host, first)
    assert facts["foreign_processes"] == Unknown(Reason.IDLE)
    assert facts["foreign_cpu"] == Known(0.0)


def test_processes_of_others_that_proc_hides(single: Machine) -> None:
    """hidepid: what they took is seen all the same, who they are is not."""
    host = single.host()
    first = host.sample()
    single.busy(1, idle=1)
    facts = watched(single, host, first)
    assert number(facts["foreign_cpu"]) == pytest.approx(2)
    assert facts["foreign_processes"] == Unknown(Reason.IDLE)


def test_only_the_cpus_that_the_server_may_use_count(single: Machine) -> None:
    for pid in (API, CORE, WORKER):
        single.thread(pid, 1, 0, cpus="3")
    host = single.host()
    first = host.sample()
    single.busy(2)
    assert number(watched(single, host, first)["foreign_cpu"]) == pytest.approx(1)


@pytest.mark.parametrize(
    "name", ["evil\x1b]0;x\x07", "(a) (b", ") S 1 1 1 (", "a\nb", "1 (x) R 9", "", "\u2028", "VLLM::Worker"]
)
def test_a_process_may_be_named_as_it_likes(name: str, single: Machine) -> None:
    single.process(2000, name, cpu=1)
    host = single.host()
    first = host.sample()
    single.process(2000, name, cpu=2)
    assert value(watched(single, host, first)["foreign_processes"]) == f"{name} (pid 2000) with 0.5 cores"


@pytest.mark.parametrize("stat", ["", "2000 (x) S 1 2", "2000 x S", "2000 (x) " + "y " * 40])
def test_a_process_whose_line_is_broken_is_left_out(stat: str, single: Machine) -> None:
    single.tree.write("proc/2000/stat", stat)
    assert 2000 not in single.host().sample().processes


# Quota, pressure, swap, and other limits


def test_a_quota_that_runs_out(single: Machine) -> None:
    grouped(single, quota="100000 100000", throttling=(100, 10, 500_000))
    host = single.host()
    first = host.sample()
    grouped(single, quota="100000 100000", throttling=(120, 15, 1_500_000))
    single.tree.write("sys/fs/cgroup/vllm/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3500000\n")
    facts = watched(single, host, first)
    assert number(facts["cpu_throttled_share"]) == pytest.approx(0.25)
    assert number(facts["cpu_throttled_cores"]) == pytest.approx(0.5)
    assert number(facts["cpu_pressure"]) == pytest.approx(0.5)


def test_pages_read_back_from_swap(single: Machine) -> None:
    single.tree.write("proc/meminfo", "MemTotal: 8000 kB\n")
    single.tree.write("proc/vmstat", "pswpin 1000\npswpout 3\n")
    host = single.host()
    first = host.sample()
    single.tree.write("proc/vmstat", "pswpin 1400\npswpout 3\n")
    facts = watched(single, host, first)
    assert number(facts["swap_in_per_second"]) == 200  # pages, not bytes


def test_a_counter_that_falls_is_stale(single: Machine) -> None:
    single.tree.write("proc/vmstat", "pswpin 1000\n")
    host = single.host()
    first = host.sample()
    single.tree.write("proc/vmstat", "pswpin 10\n")
    assert watched(single, host, first)["swap_in_per_second"] == Unknown(Reason.STALE)


def test_memory_of_the_server_that_is_swapped_out(single: Machine) -> None:
    single.tree.write(f"proc/{API}/status", "Name:\tx\nVmSwap:\t    1024 kB\n")
    single.tree.write(f"proc/{CORE}/status", "Name:\tx\nVmSwap:\t       3 kB\n")
    single.tree.write(f"proc/{WORKER}/status", "Name:\tx\n")  # has no swap counted
    assert single.facts()["server_swapped"] == Known(1027.0 * 1024)
    for pid in (API, CORE):
        single.tree.write(f"proc/{pid}/status", "Name:\tx\n")
    assert single.facts()["server_swapped"] == Unknown(Reason.NOT_SUPPORTED)


LIMITS = "Limit                     Soft Limit           Hard Limit           Units     \n"


@pytest.mark.parametrize(("soft", "share"), [("10", 0.4), ("unlimited", 0.0), ("0", 0.0)])
def test_open_files(soft: str, share: float, single: Machine) -> None:
    single.tree.write(f"proc/{API}/limits", f"{LIMITS}Max open files            {soft}    524288   files     \n")
    for number_ in range(4):
        single.tree.write(f"proc/{API}/fd/{number_}", "")
    single.tree.write(f"proc/{CORE}/limits", f"{LIMITS}Max open files            100    524288   files     \n")
    single.tree.write(f"proc/{CORE}/fd/0", "")
    facts = single.facts()
    assert number(facts["fd_share"]) == pytest.approx(max(share, 0.01))


def test_open_files_that_may_not_be_seen(single: Machine) -> None:
    single.tree.write(f"proc/{API}/limits", LIMITS)
    assert single.facts()["fd_share"] == Unknown(Reason.DENIED)


def test_shared_memory(single: Machine) -> None:
    assert single.facts()["shm_size"] == Unknown(Reason.ABSENT)
    folder = single.tree.root / f"proc/{API}/root/dev/shm"
    folder.mkdir(parents=True)
    system = os.statvfs(folder)
    assert single.facts()["shm_size"] == Known(float(system.f_blocks * system.f_frsize))


# Where nothing can be seen


def test_no_proc_at_all(tmp_path: Path) -> None:
    members = (Member(API, "api-server", "vllm", 1), Member(CORE, "engine-core", "VLLM::EngineCore", 1))
    ticks = iter([1.0, 3.0])
    host = Host(ServerProcess(API, members), Kernel(tmp_path), lambda: next(ticks))
    facts = host.facts(host.sample(), host.sample())
    known = {name for name, reading in facts.items() if isinstance(reading, Known)}
    counted = {"api_servers", "engine_cores", "workers", "coordinators", "cores_terms", "process_id"}
    assert known <= counted | {"placement"}
    assert facts["cores_usable"] == facts["last_cpu"] == facts["cpu_governor"] == Unknown(Reason.NOT_SUPPORTED)


def test_files_that_may_not_be_read(single: Machine) -> None:
    refused = {
        f"proc/{pid}/task/{pid}/{name}": Reason.DENIED
        for pid in (API, CORE, WORKER)
        for name in ("status", "schedstat")
    }
    single.kernel = Refusing(single.tree.root, refused | {"proc/stat": Reason.DENIED})
    host = single.host()
    facts = watched(single, host, host.sample())
    assert facts["cores_usable"] == facts["foreign_cpu"] == Unknown(Reason.DENIED)


def test_the_facts_are_always_the_same(single: Machine, tmp_path: Path) -> None:
    """A signal never misses a reason."""
    nothing = Host(ServerProcess(1), Kernel(tmp_path / "nothing"), lambda: 0.0)
    sample = nothing.sample()
    assert set(nothing.facts(sample, sample)) == set(single.facts())


def test_a_sample_is_of_this_machine(tmp_path: Path) -> None:
    """The real kernel's files are read without complaint."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    me = Host(ServerProcess(os.getpid(), (Member(os.getpid(), "engine-core", "me", 0),)))
    sample = me.sample()
    assert sample.processes[os.getpid()].cpu > 0
    assert isinstance(sample.cgroup, CgroupSample)


# NUMA


def test_processes_bound_away_from_their_gpu(single: Machine) -> None:
    single.tree.nodes(node0="0-1", node1="2-3")
    single.thread(WORKER, 1, 0, cpus="0-1")
    single.thread(CORE, 1, 0, cpus="2-3")
    machine = topology.read(single.kernel)
    assert not isinstance(machine, Reason)
    assert misplaced(single.kernel, machine, {WORKER: 0, CORE: 1}) == Known(0.0)
    assert misplaced(single.kernel, machine, {WORKER: 1, CORE: 1}) == Known(1.0)
    assert misplaced(single.kernel, machine, {API: 1, WORKER: 1, 4242: 0}) == Known(1.0)  # 4242 is gone
    assert misplaced(single.kernel, machine, {4242: 0}) == Unknown(Reason.NOT_LOCAL)
    assert misplaced(single.kernel, machine, {}) == Unknown(Reason.NOT_LOCAL)
    assert value(single.facts()["numa_nodes"]) == 2


def test_a_machine_without_nodes(single: Machine) -> None:
    machine = topology.read(single.kernel)
    assert not isinstance(machine, Reason)
    assert misplaced(single.kernel, machine, {WORKER: 0}) == Unknown(Reason.NOT_SUPPORTED)


# Sessions, and who does not read


@pytest.mark.parametrize(("written", "told"), [("1\n", 1.0), ("0\n", 0.0)])
def test_whether_the_cpu_is_shared_by_session(written: str, told: float, single: Machine) -> None:
    single.tree.write("proc/sys/kernel/sched_autogroup_enabled", written)
    assert number(single.facts()["sched_autogroup"]) == told


def test_a_kernel_without_groups_of_sessions(single: Machine) -> None:
    assert isinstance(single.facts()["sched_autogroup"], Unknown)


def connected(machine: Machine, *queues: tuple[str, int]) -> None:
    """The server listens on 8000; each client is an address with its port, and the bytes that it has not taken."""
    tail = "00:00000000 00000000 0 0"
    rows = [f"0: 00000000:1F40 00000000:0000 0A 00000000:00000000 {tail} 77 1 0 100 0 0 10 0"]
    rows += [f"1: 0100007F:1F40 {peer} 01 {unsent:08X}:00000000 {tail} 9{n}" for n, (peer, unsent) in enumerate(queues)]
    rows += [f"2: 0100007F:2710 0100007F:9999 01 00FFFFFF:00000000 {tail} 5"]  # of another port
    machine.tree.write(f"proc/{API}/net/tcp", "header\n" + "\n".join(f" {row}" for row in rows) + "\n")
    held = machine.kernel.path(f"proc/{API}/fd/3")
    if not held.is_symlink():
        held.parent.mkdir(parents=True)
        held.symlink_to("socket:[77]")


def test_clients_that_do_not_take_what_is_sent(single: Machine) -> None:
    slow, other, proxy = "0500000A:C351", "0500000A:C352", "0100007F:C353"
    connected(single, (slow, 200_000), (other, 90_000), (proxy, 300), ("0600000A:C354", 70_000))
    host = single.host()
    first = host.sample()
    connected(single, (slow, 210_000), (other, 90_000), (proxy, 500_000))
    found = watched(single, host, first)
    assert (number(found["connections"]), number(found["slow_readers"])) == (3, 2)
    assert number(found["slow_readers_bytes"]) == 300_000
    assert value(found["slow_readers_named"]) == "10.0.0.5 (2)"


def test_clients_that_read(single: Machine) -> None:
    connected(single, ("0500000A:C351", 0), ("0500000A:C352", 900))
    host = single.host()
    found = watched(single, host, host.sample())
    assert (number(found["connections"]), number(found["slow_readers"])) == (2, 0)
    assert isinstance(found["slow_readers_named"], Unknown)


def test_connections_that_nobody_may_see(single: Machine) -> None:
    host = single.host()
    assert watched(single, host, host.sample())["slow_readers"] == Unknown(Reason.DENIED)
