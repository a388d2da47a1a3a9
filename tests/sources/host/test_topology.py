from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import psutil
import pytest

from tests.trees import Refusing, Tree
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.topology import CpuTime, Frequency, Topology, between, frequency, memory, read, stat

UNKNOWN = Unknown(Reason.NOT_SUPPORTED)
CPU = "sys/devices/system/cpu"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def topology(tree: Tree) -> Topology:
    found = read(tree.kernel)
    assert isinstance(found, Topology)
    return found


# Cores


def test_eight_cpus_on_four_cores(tree: Tree) -> None:
    tree.cpus([(0, (core, core + 4)) for core in range(4)], online="0-7")
    found = topology(tree)
    assert found.online == set(range(8))
    assert (found.packages, found.threads_per_core, found.known) == (1, 2, True)
    assert found.physical_cores(found.online) == 4
    assert found.physical_cores(frozenset({0, 1, 2, 3})) == 4
    assert found.physical_cores(frozenset({0, 4, 1, 5})) == 2
    assert found.core_of[5] == (0, 1)


def test_two_sockets_and_two_nodes(tree: Tree) -> None:
    tree.cpus([(cpu // 4, [cpu]) for cpu in range(8)], online="0-7")
    tree.nodes(node0="0-3", node1="4-7", node2="")  # the last has memory only
    tree.write("sys/devices/system/node/possible", "0-2\n")
    found = topology(tree)
    assert (found.packages, found.threads_per_core) == (2, 1)
    assert found.physical_cores(found.online) == 8, "core ids repeat in each package"
    assert found.nodes(frozenset({1, 2})) == {0}
    assert found.nodes(frozenset({3, 4})) == {0, 1}


def test_core_ids_that_repeat_within_a_package(tree: Tree) -> None:
    tree.cpus([(0, [0, 1]), (0, [2, 3])], online="0-3")
    for cpu in range(4):
        tree.write(f"{CPU}/cpu{cpu}/topology/core_id", "0\n")
    assert topology(tree).physical_cores(frozenset(range(4))) == 2


def test_ids_where_siblings_are_not_told(tree: Tree) -> None:
    tree.cpus([(0, [0, 1]), (0, [2, 3]), (1, [4, 5])], online="0-5")
    for cpu in range(6):
        tree.remove(f"{CPU}/cpu{cpu}/topology/thread_siblings_list")
    found = topology(tree)
    assert found.core_of == {0: (0, 0), 1: (0, 0), 2: (0, 2), 3: (0, 2), 4: (1, 4), 5: (1, 4)}


def test_siblings_where_ids_are_not_told(tree: Tree) -> None:
    tree.cpus([(0, [0, 1]), (0, [2, 3])], online="0-3")
    for cpu in range(4):
        tree.write(f"{CPU}/cpu{cpu}/topology/physical_package_id", "-1\n")
        tree.remove(f"{CPU}/cpu{cpu}/topology/core_id")
    found = topology(tree)
    assert (found.physical_cores(found.online), found.packages, found.known) == (2, 1, True)


def test_cpus_that_are_offline_do_not_count(tree: Tree) -> None:
    tree.cpus([(0, [0]), (0, [1]), (0, [2])], online="0-2")
    tree.write(f"{CPU}/cpu3/online", "0\n")  # no topology while it is off
    found = topology(tree)
    assert found.online == {0, 1, 2}
    assert found.physical_cores(frozenset(range(64))) == 3


def test_a_virtual_machine_that_hides_hyperthreads(tree: Tree) -> None:
    tree.cpus([(cpu, [cpu]) for cpu in range(8)], online="0-7")
    tree.write("proc/cpuinfo", "".join(f"processor\t: {cpu}\nflags\t\t: fpu hypervisor\n\n" for cpu in range(8)))
    found = topology(tree)
    assert (found.physical_cores(found.online), found.threads_per_core, found.virtual) == (8, 1, True)


def test_cores_of_which_only_some_have_two_threads(tree: Tree) -> None:
    tree.cpus([(0, [0, 1]), (0, [2]), (0, [3]), (0, [4])], online="0-4")
    assert topology(tree).threads_per_core == 2


def cpuinfo(*cpus: tuple[int, int, int]) -> str:
    return "\n".join(
        f"processor\t: {cpu}\nmodel name\t: A: B\nphysical id\t: {package}\nsiblings\t: 2\ncore id\t\t: {core}\n"
        for cpu, package, core in cpus
    )


def test_cpuinfo_where_there_is_no_sys(tree: Tree) -> None:
    tree.write("proc/cpuinfo", cpuinfo((0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 1, 0)))
    found = topology(tree)
    assert found.core_of == {0: (0, 0), 1: (0, 0), 2: (0, 2), 3: (1, 3)}
    assert (found.known, found.node_of, found.virtual) == (True, {}, False)


def test_cpuinfo_where_sys_has_no_topology(tree: Tree) -> None:
    tree.write(f"{CPU}/online", "0-1\n")
    tree.write("proc/cpuinfo", cpuinfo((0, 0, 0), (1, 0, 0)))
    assert topology(tree).physical_cores(frozenset({0, 1})) == 1


def test_arm_has_no_ids_each_processor_is_taken_for_a_core(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp\n\nprocessor\t: 1\nFeatures\t: fp\n\nHardware\t: X\n")
    found = topology(tree)
    assert (found.physical_cores(found.online), found.known) == (2, False)


def test_folders_tell_the_cpus_where_the_list_does_not(tree: Tree) -> None:
    tree.cpus([(0, [0, 1])], online="garbage")
    tree.write(f"{CPU}/cpufreq/boost", "1\n")
    assert topology(tree).online == {0, 1}


@pytest.mark.parametrize("text", ["", "\n\n", "nonsense", "processor\t: x\n", "processor\t: -1\n", "\ufffd\x00:::\n"])
def test_nothing_to_read(tree: Tree, text: str) -> None:
    assert read(tree.kernel) is Reason.NOT_SUPPORTED
    tree.write("proc/cpuinfo", text)
    assert read(tree.kernel) is Reason.NOT_SUPPORTED


def test_denied(tree: Tree) -> None:
    assert read(Refusing(tree.root, {"proc/cpuinfo": Reason.DENIED})) is Reason.DENIED


def test_garbage_for_topology(tree: Tree) -> None:
    tree.cpus([(0, [0, 1])], online="0-1")
    for name in ("physical_package_id", "core_id", "thread_siblings_list"):
        tree.write(f"{CPU}/cpu1/topology/{name}", "7-3\n")
    tree.nodes(node0="x")
    found = topology(tree)
    assert (found.core_of, found.node_of, found.known) == ({0: (0, 0), 1: (0, 1)}, {}, False)


# Frequency


def clocked(tree: Tree, cpu: int, governor: str, now: str, top: str = "4000000", driver: str = "acpi-cpufreq") -> None:
    folder = f"{CPU}/cpu{cpu}/cpufreq"
    tree.write(f"{folder}/scaling_governor", f"{governor}\n")
    tree.write(f"{folder}/scaling_driver", f"{driver}\n")
    tree.write(f"{folder}/scaling_cur_freq", f"{now}\n")
    tree.write(f"{folder}/cpuinfo_max_freq", f"{top}\n")


def test_frequency(tree: Tree) -> None:
    clocked(tree, 0, "powersave", "1000000")
    clocked(tree, 1, "performance", "3000000")
    clocked(tree, 2, "ondemand", "4000000")
    tree.write(f"{CPU}/cpu0/cpufreq/energy_performance_preference", "balance_power\n")
    found = frequency(tree.kernel, {0, 1})
    assert found == Frequency(
        Known("performance, powersave"), Known("acpi-cpufreq"), Known("balance_power"), Known(0.5)
    )
    assert isinstance(found.share, Known)
    assert found.share.origin == "sysfs"


def test_a_clock_that_is_not_told(tree: Tree) -> None:
    clocked(tree, 0, "performance", "<unknown>")
    clocked(tree, 1, "performance", "3000000", top="0")
    found = frequency(tree.kernel, [0, 1])
    assert (found.governor, found.share) == (Known("performance"), UNKNOWN)


def test_no_frequency(tree: Tree) -> None:
    found = frequency(tree.kernel, [0])
    assert found.governor == found.driver == found.preference == found.share == UNKNOWN
    assert frequency(tree.kernel, []) == found
    denied = {f"{CPU}/cpu0/cpufreq/{name}": Reason.DENIED for name in ("scaling_governor", "scaling_cur_freq")}
    found = frequency(Refusing(tree.root, denied), [0])
    assert (found.governor, found.driver, found.share) == (Unknown(Reason.DENIED), UNKNOWN, Unknown(Reason.DENIED))


# Load


def test_stat(tree: Tree) -> None:
    tree.write(
        "proc/stat",
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 200 300 400 500 60 40 50 100 0\ncpu10 0 0 0 7 0 0 0 0 0 0\nintr 5 0\n",
    )
    assert stat(tree.kernel) == {0: CpuTime(7.0, 9.0, 0.5), 10: CpuTime(0.0, 0.07, 0.0)}


@pytest.mark.parametrize("text", ["", "nonsense\n\n", "cpu0 1 2\n", "cpu0 a b c d e f g h\n", "cpux 1 2 3 4 5 6 7 8\n"])
def test_garbage_for_stat(tree: Tree, text: str) -> None:
    assert stat(tree.kernel) is Reason.NOT_SUPPORTED
    tree.write("proc/stat", text)
    assert stat(tree.kernel) is Reason.NOT_SUPPORTED


def test_load_between() -> None:
    first = {0: CpuTime(10, 10, 0), 1: CpuTime(0, 50, 1), 2: CpuTime(0, 0, 0)}
    last = {0: CpuTime(12, 10, 0), 1: CpuTime(1, 50.5, 1.5), 2: CpuTime(0, 2, 0)}
    assert between(first, last, {0, 1}) == (Known(1.5), Known(0.125))
    assert between(first, last, {2}) == (Known(0.0), Known(0.0))


def test_a_cpu_that_went_offline_is_left_out() -> None:
    first = {0: CpuTime(10, 10, 0), 1: CpuTime(0, 50, 0), 2: CpuTime(9, 9, 9)}
    last = {0: CpuTime(11, 10, 0), 2: CpuTime(0, 0, 1)}
    assert between(first, last, {0, 1, 2}).busy_cores == Known(1.0)
    assert between(first, last, {1, 2}).busy_cores == Unknown(Reason.STALE)


def test_idle_time_that_falls_does_not_make_others_negative() -> None:
    found = between({0: CpuTime(1, 10, 0)}, {0: CpuTime(2, 9.9, 0)}, [0])
    assert found == (Known(1.0), Known(0.0))


def test_load_that_cannot_be_told() -> None:
    times = {0: CpuTime(1, 1, 1)}
    assert set(between(times, times, [0])) == {Unknown(Reason.IDLE)}
    assert set(between(times, times, [])) == {Unknown(Reason.STALE)}
    assert set(between(Reason.DENIED, times, [0])) == {Unknown(Reason.DENIED)}
    assert set(between(times, Reason.NOT_SUPPORTED, [0])) == {UNKNOWN}


# Memory


def test_memory(tree: Tree) -> None:
    tree.write("proc/meminfo", "MemTotal:  16 kB\nMemAvailable:  8 kB\nSwapTotal: 4 kB\nSwapFree: 0 kB\n")
    tree.write("proc/vmstat", "nr_free_pages 1\npswpin 3\npswpout 5\n")
    found = memory(tree.kernel)
    assert (found.total, found.available) == (Known(16384.0), Known(8192.0))
    assert (found.swap_total, found.swap_free) == (Known(4096.0), Known(0.0))
    assert (found.swapped_in, found.swapped_out) == (Known(3.0 * mmap.PAGESIZE), Known(5.0 * mmap.PAGESIZE))


def test_memory_that_cannot_be_told(tree: Tree) -> None:
    assert memory(tree.kernel).total == UNKNOWN
    tree.write("proc/meminfo", "MemTotal: lots kB\nMemAvailable\n\x00\n")
    found = memory(Refusing(tree.root, {"proc/vmstat": Reason.DENIED}))
    assert (found.total, found.available, found.swapped_in) == (UNKNOWN, UNKNOWN, Unknown(Reason.DENIED))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and /sys")
def test_this_machine() -> None:
    kernel = Kernel()
    found = read(kernel)
    assert isinstance(found, Topology)
    assert len(found.online) == psutil.cpu_count(logical=True)
    assert os.sched_getaffinity(0) <= found.online
    assert not found.known or psutil.cpu_count(logical=False) in (None, found.physical_cores(found.online))
    frequency(kernel, found.online)
    times = stat(kernel)
    assert not isinstance(times, Reason)
    assert found.online == times.keys()
    assert len(between(times, times, found.online)) == 2
    assert memory(kernel).total == Known(float(psutil.virtual_memory().total))
