from __future__ import annotations

import errno
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trees import PID, Refusing, Tree
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.cgroup import CgroupSample, Placement, Throttling, placed, placement, sample, throttled
from vllm_doctor.sources.host.kernel import Kernel, reason_of

CGROUP = "sys/fs/cgroup"
ID = "3f2a9c0d1e2f" + "ab" * 26
POD = "1b2c3d4e-1111-2222-3333-444455556666"
POD_SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
GB = 1024**3
UNKNOWN = Unknown(Reason.NOT_SUPPORTED)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def host(tree: Tree) -> Tree:
    """A host with version 2."""
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2_root()
    return tree


def v2_docker(tree: Tree, quota: str = "150000 100000") -> str:
    """A Docker container as its host sees it."""
    path = f"/system.slice/docker-{ID}.scope"
    tree.process(f"0::{path}")
    tree.v2(f"{CGROUP}/system.slice")
    tree.v2(f"{CGROUP}{path}", quota=quota, memory=str(8 * GB), used=6 * GB, cache=4 * GB, cpus="2-5")
    return path


def value(reading: Reading) -> object:
    assert isinstance(reading, Known), reading
    assert reading.origin == "cgroup"
    return reading.value


# Version 2


def test_a_docker_container_seen_from_its_host(host: Tree) -> None:
    path = v2_docker(host)
    seen = sample(host.kernel, PID)
    assert value(seen.quota) == 1.5
    assert seen.quota_path == path
    assert value(seen.weight) == 100
    assert value(seen.pressure_seconds) == 2.5
    assert value(seen.memory_limit) == 8 * GB
    assert value(seen.memory_used) == 2 * GB, "the cache of the weights' files is no need"
    assert value(seen.oom_kills) == 1
    assert seen.cpuset == frozenset({2, 3, 4, 5})
    assert seen.throttling == {path: Throttling(0, 0, 0), "/system.slice": Throttling(0, 0, 0)}


def test_without_limits_the_quota_is_infinite_and_not_unknown(host: Tree) -> None:
    host.process("0::/user.slice")
    host.v2(f"{CGROUP}/user.slice")
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (math.inf, "")
    assert value(seen.memory_limit) == math.inf
    assert value(seen.memory_used) == 4096


def test_the_doctor_in_the_container(tree: Tree) -> None:
    tree.process("0::/")
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2(CGROUP, quota="200000 100000", memory=str(GB))
    seen = sample(tree.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (2.0, "/")
    assert value(seen.memory_limit) == GB
    assert value(seen.pressure_seconds) == 2.5, "this root is the container's, not the machine's"
    assert value(seen.weight) == 100


def test_a_neighbours_container_is_read_from_within_it(tree: Tree) -> None:
    group = f"/../cri-containerd-{ID}.scope"
    tree.process(f"0::{group}")
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2(CGROUP, quota="10000 100000")  # ours: not the patient's
    tree.mounts((group, "/sys/fs/cgroup", "cgroup2"), who=str(PID))
    tree.v2(f"proc/{PID}/root/{CGROUP}", quota="400000 100000")
    seen = sample(tree.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (4.0, group)


@pytest.mark.parametrize("path", ["/../..", f"/../cri-containerd-{ID}.scope"])
def test_a_group_outside_of_our_container_is_not_taken_for_ours(tree: Tree, path: str) -> None:
    tree.process(f"0::{path}")
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2(CGROUP, quota="10000 100000")
    seen = sample(tree.kernel, PID)
    assert seen.quota == seen.weight == seen.memory_limit == seen.pressure_seconds == Unknown(Reason.NOT_LOCAL)
    denied = Refusing(tree.root, {f"proc/{PID}/root": Reason.DENIED})
    assert sample(denied, PID).quota == Unknown(Reason.DENIED)


def test_the_hosts_groups_seen_through_a_new_namespace(tree: Tree) -> None:
    """unshare --cgroup: the mount is still the host's, two levels up, and its names are not told."""
    tree.process("0::/")
    tree.mounts(("/../..", "/sys/fs/cgroup", "cgroup2"))
    tree.v2_root()
    assert sample(tree.kernel, PID).quota == Unknown(Reason.NOT_LOCAL)
    tree.process("0::/../..")
    assert value(sample(tree.kernel, PID).quota) == math.inf


def test_of_nested_groups_the_tightest_holds(host: Tree) -> None:
    host.process("0::/a.slice/b.slice/c.service")
    host.v2(f"{CGROUP}/a.slice", quota="800000 100000", memory=str(3 * GB), used=2 * GB)
    host.v2(f"{CGROUP}/a.slice/b.slice", quota="20000 10000", weight=20, memory=str(9 * GB))
    host.v2(f"{CGROUP}/a.slice/b.slice/c.service", quota="400000 100000", memory="max")
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (2.0, "/a.slice/b.slice")
    assert value(seen.weight) == 20
    assert (value(seen.memory_limit), value(seen.memory_used)) == (3 * GB, 2 * GB)


def test_a_group_without_the_controller_has_its_parents_limits(host: Tree) -> None:
    host.process("0::/vllm.service/worker")
    host.v2(f"{CGROUP}/vllm.service", quota="100000 100000", weight=50, cpus="1", memory=str(GB), used=77)
    host.write(f"{CGROUP}/vllm.service/worker/cgroup.events", "populated 1\n")
    host.write(f"{CGROUP}/vllm.service/worker/cpu.stat", "usage_usec 5\n")
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), value(seen.weight)) == (1.0, 50)
    assert seen.cpuset == frozenset({1})
    assert (value(seen.memory_used), value(seen.oom_kills)) == (77, 1)
    assert isinstance(seen.throttling, dict)
    assert list(seen.throttling) == ["/vllm.service"]
    assert seen.pressure_seconds == UNKNOWN


def test_in_the_machines_root_there_is_no_limit_and_the_pressure_is_everybodys(host: Tree) -> None:
    host.process("0::/")
    seen = sample(host.kernel, PID)
    assert value(seen.quota) == value(seen.memory_limit) == math.inf
    assert seen.weight == seen.pressure_seconds == seen.memory_used == UNKNOWN
    assert seen.throttling == {}


def kubernetes(tree: Tree, quota: str, weight: int) -> None:
    tree.process(f"0::{POD_SLICE}/cri-containerd-{ID}.scope")
    tree.v2(f"{CGROUP}/kubepods.slice", weight=600)
    tree.v2(f"{CGROUP}/kubepods.slice/kubepods-burstable.slice", weight=400)
    tree.v2(f"{CGROUP}{POD_SLICE}", quota=quota, weight=weight)
    tree.v2(f"{CGROUP}{POD_SLICE}/cri-containerd-{ID}.scope", quota=quota, weight=weight)


def test_a_pod_with_a_request_and_no_limit_has_weight_only(host: Tree) -> None:
    kubernetes(host, "max 100000", 4)
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), value(seen.weight)) == (math.inf, 4)


def test_a_pod_with_a_limit(host: Tree) -> None:
    kubernetes(host, "800000 100000", 313)
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), value(seen.weight)) == (8.0, 313)
    assert seen.quota_path.endswith(f"cri-containerd-{ID}.scope"), "of equal limits the inner one"


def test_a_unit_with_cpu_quota(host: Tree) -> None:
    host.process("0::/system.slice/vllm.service")
    host.v2(f"{CGROUP}/system.slice")
    host.v2(f"{CGROUP}/system.slice/vllm.service", quota="50000 100000", throttling=(100, 20, 1_500_000))
    seen = sample(host.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (0.5, "/system.slice/vllm.service")
    assert isinstance(seen.throttling, dict)
    assert seen.throttling["/system.slice/vllm.service"] == Throttling(100, 20, 1.5)


def test_without_mountinfo_the_usual_places_are_looked_at(tree: Tree) -> None:
    tree.v2_root()
    v2_docker(tree)
    assert value(sample(tree.kernel, PID).quota) == 1.5


def test_a_mount_point_with_a_space(tree: Tree) -> None:
    tree.process("0::/a b")
    tree.mounts(("/", "/my\\040groups", "cgroup2"))
    tree.v2("my groups/a b", quota="300000 100000")
    assert value(sample(tree.kernel, PID).quota) == 3.0


# Version 1, and both

V1_MOUNTS = (
    ("/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
    ("/", "/sys/fs/cgroup/memory", "memory"),
    ("/", "/sys/fs/cgroup/cpuset", "cpuset"),
)


def v1_docker(tree: Tree) -> None:
    """A Docker container as its host sees it, in version 1."""
    path = f"/docker/{ID}"
    tree.process(f"11:cpuset:{path}", f"4:memory:{path}", f"3:cpu,cpuacct:{path}", f"1:name=systemd:{path}")
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct", top=True)
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct/docker", shares=2048)
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct{path}", quota=50000, shares=512, throttling=(10, 5, 2_000_000_000))
    tree.v1_memory(f"{CGROUP}/memory")
    tree.v1_memory(f"{CGROUP}/memory/docker")
    tree.v1_memory(f"{CGROUP}/memory{path}", limit=GB, used=1000, cache=300)
    tree.write(f"{CGROUP}/cpuset{path}/cpuset.effective_cpus", "0-3,8\n")


def check_v1_docker(seen: CgroupSample) -> None:
    path = f"/docker/{ID}"
    assert (value(seen.quota), seen.quota_path) == (0.5, path)
    assert value(seen.weight) == pytest.approx(1 + 510 * 9999 / 262142)
    assert isinstance(seen.throttling, dict)
    assert seen.throttling[path] == Throttling(10, 5, 2.0)
    assert (value(seen.memory_limit), value(seen.memory_used)) == (GB, 700)
    assert value(seen.oom_kills) == 3
    assert seen.cpuset == frozenset({0, 1, 2, 3, 8})
    assert seen.pressure_seconds == UNKNOWN


def test_version_1(tree: Tree) -> None:
    tree.mounts(*V1_MOUNTS)
    v1_docker(tree)
    check_v1_docker(sample(tree.kernel, PID))


def test_version_1_without_mountinfo(tree: Tree) -> None:
    v1_docker(tree)
    check_v1_docker(sample(tree.kernel, PID))


def test_version_1_in_a_container_that_sees_the_hosts_paths(tree: Tree) -> None:
    """No namespace: /proc/PID/cgroup has the path on the host, and the mounts begin at the container's group."""
    path = f"/docker/{ID}"
    tree.process(f"4:memory:{path}", f"3:cpu,cpuacct:{path}")
    tree.mounts((path, "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"), (path, "/sys/fs/cgroup/memory", "memory"))
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct", quota=250000)
    tree.v1_memory(f"{CGROUP}/memory")
    seen = sample(tree.kernel, PID)
    assert (value(seen.quota), seen.quota_path) == (2.5, path)
    assert value(seen.memory_limit) == math.inf, "2**63 less a page is how version 1 writes no limit"
    assert seen.cpuset is Reason.NOT_SUPPORTED


def test_version_1s_root_weighs_against_nobody(tree: Tree) -> None:
    tree.mounts(*V1_MOUNTS)
    tree.process("3:cpu,cpuacct:/")
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct", top=True)
    seen = sample(tree.kernel, PID)
    assert (value(seen.quota), seen.weight) == (math.inf, UNKNOWN)


def test_both_versions_side_by_side(tree: Tree) -> None:
    path = "/system.slice/vllm.service"
    tree.mounts(*V1_MOUNTS, ("/", "/sys/fs/cgroup/unified", "cgroup2"))
    tree.process(f"4:memory:{path}", f"3:cpu,cpuacct:{path}", f"0::{path}")
    tree.v1_cpu(f"{CGROUP}/cpu,cpuacct{path}", quota=300000)
    tree.v1_memory(f"{CGROUP}/memory{path}", limit=5)
    tree.write(f"{CGROUP}/unified{path}/cgroup.events", "populated 1\n")
    tree.write(f"{CGROUP}/unified{path}/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=4000000\n")
    tree.write(f"{CGROUP}/cpu,cpuacct/system.slice/cpu.cfs_quota_us", "-1\n")
    tree.write(f"{CGROUP}/memory/system.slice/memory.limit_in_bytes", "9223372036854771712\n")
    seen = sample(tree.kernel, PID)
    assert (value(seen.quota), value(seen.memory_limit)) == (3.0, 5)
    assert value(seen.pressure_seconds) == 4.0


# What cannot be read


def reasons(seen: CgroupSample) -> set[Reason]:
    readings = (seen.quota, seen.weight, seen.pressure_seconds, seen.memory_limit, seen.memory_used, seen.oom_kills)
    unknown = {reading.reason for reading in readings if isinstance(reading, Unknown)}
    assert len([reading for reading in readings if isinstance(reading, Unknown)]) == len(readings)
    assert isinstance(seen.throttling, Reason)
    assert isinstance(seen.cpuset, Reason)
    return unknown | {seen.throttling, seen.cpuset}


def test_no_proc(tree: Tree) -> None:
    assert reasons(sample(tree.kernel, PID)) == {Reason.NOT_SUPPORTED}
    assert placement(tree.kernel, PID) == Placement("none")


def test_a_process_that_has_ended(host: Tree) -> None:
    assert reasons(sample(host.kernel, PID)) == {Reason.STALE}


def test_a_group_that_was_removed(host: Tree) -> None:
    path = v2_docker(host)
    host.remove(CGROUP + path)
    seen = sample(host.kernel, PID)
    assert seen.quota == seen.weight == seen.memory_limit == Unknown(Reason.STALE)
    assert seen.pressure_seconds == seen.memory_used == seen.oom_kills == Unknown(Reason.STALE)
    assert seen.cpuset is seen.throttling is Reason.STALE


def test_a_group_removed_while_its_file_is_read(host: Tree) -> None:
    path = v2_docker(host)
    gone = reason_of(OSError(errno.ENODEV, "No such device"))
    kernel = Refusing(host.root, {f"{CGROUP}{path}/{name}": gone for name in ("cpu.max", "cpu.stat")})
    seen = sample(kernel, PID)
    assert seen.quota == Unknown(Reason.STALE)
    assert seen.throttling is Reason.STALE


def test_denied(host: Tree) -> None:
    v2_docker(host)
    assert reasons(sample(Refusing(host.root, {f"proc/{PID}/cgroup": Reason.DENIED}), PID)) == {Reason.DENIED}


def test_a_limit_that_is_denied_is_not_taken_for_none(host: Tree) -> None:
    path = v2_docker(host)
    kernel = Refusing(host.root, {f"{CGROUP}{path}/cpu.max": Reason.DENIED})
    assert sample(kernel, PID).quota == Unknown(Reason.DENIED)
    host.write(f"{CGROUP}/system.slice/cpu.max", "600000 100000\n")
    assert value(sample(kernel, PID).quota) == 6.0, "a limit above holds whatever the inner one is"


def test_folders_where_files_should_be(host: Tree) -> None:
    folder = CGROUP + v2_docker(host)
    for name in os.listdir(host.root / folder):
        host.remove(f"{folder}/{name}")
        (host.root / folder / name).mkdir()
    seen = sample(host.kernel, PID)
    assert seen.quota == seen.memory_limit == seen.memory_used == seen.oom_kills == seen.pressure_seconds == UNKNOWN
    assert seen.cpuset is Reason.NOT_SUPPORTED


@pytest.mark.parametrize(
    "text", ["", "\n", "max", "-5 100000", "0 100000", "1 0", "x y", "1 2 3", "\x00", "٣ ٤", "nan 1"]
)
def test_garbage_is_no_number(host: Tree, text: str) -> None:
    folder = CGROUP + v2_docker(host)
    for name in ("cpu.max", "cpu.weight", "cpu.stat", "cpu.pressure", "memory.max", "memory.current", "memory.stat"):
        host.write(f"{folder}/{name}", text)
    host.write(f"{folder}/cpuset.cpus.effective", "7-3" if text else text)
    host.write(f"{folder}/memory.events", text)
    seen = sample(host.kernel, PID)
    no_limit = Known(math.inf) if text == "max" else UNKNOWN
    assert (seen.quota, seen.memory_limit) == (no_limit, no_limit)
    assert seen.memory_used == seen.oom_kills == seen.pressure_seconds == UNKNOWN
    assert seen.cpuset is Reason.NOT_SUPPORTED


@pytest.mark.parametrize(
    "text", ["", "nonsense\n", "0\n", "x:y:z\n", "0::relative\n", "::/\n", "\ufffd:\x00:/\n", "0::/a\x00\n"]
)
def test_garbage_for_groups(host: Tree, text: str) -> None:
    host.write(f"proc/{PID}/cgroup", text)
    assert reasons(sample(host.kernel, PID)) == {Reason.NOT_SUPPORTED}


def test_garbage_for_mounts(host: Tree) -> None:
    v2_docker(host)
    nowhere = "".join(f"1 2 0:3 / {point} rw - cgroup2 cgroup2 rw\n" for point in ("/nowhere", "/a\\000"))
    host.write("proc/self/mountinfo", f"nonsense\n - \n1 2 3 - cgroup2\n{nowhere}")
    assert value(sample(host.kernel, PID).quota) == 1.5


# Throttling


def counted(quota: float = 1.0, **groups: tuple[float, float, float]) -> CgroupSample:
    throttling = {path: Throttling(*counts) for path, counts in groups.items()}
    nothing: Reading = Unknown(Reason.ABSENT)
    return CgroupSample(
        Known(quota), "a", nothing, throttling, nothing, nothing, nothing, nothing, cpuset=Reason.ABSENT
    )


def test_throttled_periods_and_the_cores_withheld() -> None:
    first, last = counted(a=(100, 10, 5.0)), counted(a=(120, 15, 8.0))
    assert throttled(first, last, 2.0) == (Known(0.25), Known(1.5))


def test_the_worst_of_nested_groups_counts() -> None:
    first = counted(a=(0, 0, 0), b=(0, 0, 0), c=(7, 7, 7))
    last = counted(a=(10, 1, 4.0), b=(10, 5, 1.0), c=(7, 7, 7))
    assert throttled(first, last, 2.0) == (Known(0.5), Known(2.0))


def test_without_a_quota_nothing_is_throttled() -> None:
    nothing = counted(quota=math.inf)
    assert throttled(nothing, nothing, 2.0) == (Known(0.0), Known(0.0))
    assert throttled(nothing, replace(nothing, throttling=Reason.NOT_SUPPORTED), 2.0)[0] == Known(0.0)


def test_a_quota_that_was_just_lifted_has_throttled() -> None:
    first, last = counted(a=(0, 0, 0)), counted(quota=math.inf, a=(10, 10, 3.0))
    assert throttled(first, last, 3.0) == (Known(1.0), Known(1.0))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (counted(a=(10, 2, 3.0)), Reason.IDLE),
        (counted(a=(9, 2, 3.0)), Reason.STALE),
        (counted(a=(11, 1, 3.0)), Reason.STALE),
        (counted(b=(12, 2, 3.0)), Reason.STALE),
        (counted(a=(12, 2, 3.0), b=(0, 0, 0)), Reason.STALE),
        (replace(counted(), throttling=Reason.DENIED), Reason.DENIED),
    ],
)
def test_throttling_that_cannot_be_told(last: CgroupSample, reason: Reason) -> None:
    assert throttled(counted(a=(10, 2, 3.0)), last, 1.0) == (Unknown(reason), Unknown(reason))


def test_no_time_passed() -> None:
    first, last = counted(a=(0, 0, 0)), counted(a=(10, 5, 1.0))
    assert throttled(first, last, 0.0) == (Known(0.5), Unknown(Reason.FIRST_SCRAPE))
    assert throttled(replace(first, throttling=Reason.STALE), last, 1.0)[0] == Unknown(Reason.STALE)


# Placement


@pytest.mark.parametrize(
    ("text", "kind", "name", "title"),
    [
        (f"0::/system.slice/docker-{ID}.scope", "docker", ID, "docker 3f2a9c0d1e2f"),
        (f"4:memory:/docker/{ID}\n3:cpu:/docker/{ID}", "docker", ID, "docker 3f2a9c0d1e2f"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", "podman", ID, "podman 3f2a9c0d1e2f"),
        (f"0::{POD_SLICE}/cri-containerd-{ID}.scope", "kubernetes", POD, "pod 1b2c3d4e"),
        (f"0::/kubepods/besteffort/pod{POD}/{ID}", "kubernetes", POD, "pod 1b2c3d4e"),
        (f"0::/../cri-containerd-{ID}.scope", "kubernetes", ID, "container 3f2a9c0d1e2f"),
        (f"0::/system.slice/docker-{ID}.scope/kubelet{POD_SLICE}/x", "kubernetes", POD, "pod 1b2c3d4e"),
        ("0::/lxc.payload.gpu-box/system.slice/vllm.service", "lxc", "gpu-box", "lxc gpu-box"),
        ("4:cpu:/lxc/gpu-box", "lxc", "gpu-box", "lxc gpu-box"),
        ("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", "slurm", "77", "Slurm job 77"),
        ("4:cpu:/slurm/uid_1000/job_77/step_batch", "slurm", "77", "Slurm job 77"),
        ("0::/system.slice/vllm.service", "systemd", "vllm.service", "vllm.service"),
        ("3:cpu:/system.slice\n1:name=systemd:/system.slice/vllm.service/x", "systemd", "vllm.service", "vllm.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope", "systemd", "run.scope", "run.scope"),
        ("0::/batch.slice", "systemd", "batch.slice", "batch.slice"),
        ("0::/", "none", "", ""),
        ("", "none", "", ""),
        ("0::/poddle/docker-compose/service", "none", "", ""),
    ],
)
def test_placed(text: str, kind: str, name: str, title: str) -> None:
    found = placed(text)
    assert (found.kind, found.name, found.title) == (kind, name, title)


@pytest.mark.parametrize(
    ("trace", "kind", "title"),
    [
        (".dockerenv", "docker", "docker gpu-box"),
        ("run/.containerenv", "podman", "podman gpu-box"),
        ("run/secrets/kubernetes.io/serviceaccount/token", "kubernetes", "pod gpu-box"),
        ("etc/passwd", "none", ""),
    ],
)
def test_in_a_container_its_runtime_is_known_by_its_traces(tree: Tree, trace: str, kind: str, title: str) -> None:
    tree.process("0::/")
    tree.mounts(("/", "/sys/fs/cgroup", "cgroup2"))
    tree.v2(CGROUP)
    tree.write(trace, "")
    tree.write("proc/sys/kernel/hostname", "gpu-box\n")
    found = placement(tree.kernel, PID)
    assert (found.kind, found.title) == (kind, title)


def test_a_machine_made_from_a_containers_image_is_none(host: Tree) -> None:
    host.process("0::/")
    host.write(".dockerenv", "")
    assert placement(host.kernel, PID) == Placement("none")


def test_this_machine() -> None:
    kernel = Kernel()
    seen = sample(kernel, os.getpid())
    last = sample(kernel, os.getpid())
    assert all(isinstance(reading, Known | Unknown) for reading in throttled(seen, last, 1.0))
    assert placement(kernel, os.getpid()).kind
    if not isinstance(seen.cpuset, Reason) and hasattr(os, "sched_getaffinity"):
        assert os.sched_getaffinity(0) <= seen.cpuset
