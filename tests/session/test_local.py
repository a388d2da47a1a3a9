"""A server on a host that is a folder, with the GPUs of the fake NVML: what becomes of them as facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fake_nvml import installed
from tests.fake_nvml.scenarios import GIB
from tests.paths import NVIDIA_SMI
from tests.serving import Clock
from tests.sources.host.fake_proc import FakeProc
from tests.trees import Refusing, Tree
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.session.local import FollowedGpus, FollowedHost, Local, PrintedGpus
from vllm_doctor.sources.gpu import printed as printed_gpus
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import ServerProcess
from vllm_doctor.sources.server.state import State

API, CORE, WORKER = 4099, 4100, 4101
SMI = NVIDIA_SMI


def printed(smi: Path | None) -> PrintedGpus | None:
    """What a file of nvidia-smi tells."""
    return None if smi is None else PrintedGpus(str(smi), printed_gpus.read(smi))


PATIENT = "http://127.0.0.1:8000"


class Site:
    """A host with one vLLM: its API server, its engine core (pid 4100 of the fake NVML), and a worker (4101)."""

    def __init__(self, root: Path) -> None:
        self.proc = FakeProc(root)
        self.clock = Clock()
        self.tree = Tree(root)
        self.tree.cpus([(0, [cpu]) for cpu in range(4)], "0-3")
        self.tree.write("proc/stat", "".join(f"cpu{cpu} 9 0 0 9 0 0 0 0 0 0\n" for cpu in range(4)))

    def serve(self, *words: str, environ: Mapping[str, str] | None = None, version: str = "0.32.0") -> None:
        self.proc.add(
            API,
            ["/opt/v/bin/python", "/opt/v/bin/vllm", "serve", "m", *words],
            environ=environ,
            sockets=[1],
            files={f"opt/v/lib/python3.12/site-packages/vllm-{version}.dist-info/METADATA": ""} if version else {},
        )
        self.proc.add(CORE, "VLLM::EngineCore", API)
        self.proc.add(WORKER, "VLLM::Worker", CORE)
        self.proc.listen(8000, 1)
        for pid in (API, CORE, WORKER):
            self.bound(pid, "0-3")

    def bound(self, pid: int, cpus: str) -> None:
        self.tree.write(f"proc/{pid}/task/{pid}/status", f"Name:\tx\nCpus_allowed_list:\t{cpus}\n")
        self.tree.write(f"proc/{pid}/task/{pid}/schedstat", "1000000000 500000000 3\n")

    def local(self, smi: Path | None = None, kernel: Kernel | None = None, state: State | None = None) -> Local:
        kernel = kernel or self.proc.kernel()
        server, clock = process.of_pid(kernel, API), self.clock
        return Local(
            server, PATIENT, kernel=kernel, printed=printed(smi), state=state, clock=clock.now, sleep=clock.sleep
        )

    def host(self) -> Observation:
        return self.local().examine_host(0, 1e12)

    def gpus(self, smi: Path | None = None) -> dict[str, Reading]:
        return dict(self.local(smi).examine_gpus(0, 1e12).facts)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def value(reading: Reading) -> Value:
    assert isinstance(reading, Known), reading
    return reading.value


def origin(reading: Reading) -> str:
    assert isinstance(reading, Known), reading
    return reading.origin


# The host


def test_what_a_server_was_started_with(site: Site) -> None:
    environ = {"OMP_NUM_THREADS": "8", "VLLM_LOGGING_LEVEL": "DEBUG", "HF_TOKEN": "hf_secret", "PATH": "/bin"}
    site.serve("--max-num-seqs", "64", "--enforce-eager", "-tp=2", "--api-key", "s3cr3t", environ=environ)
    seen = site.host()
    facts = seen.facts
    assert (seen.kind, seen.target, seen.patient, seen.error) == ("host", f"pid {API}", PATIENT, None)
    assert seen.models == ("m",)
    assert seen.processes == (("api-server", API), ("engine-core", CORE), ("worker", WORKER))
    assert seen.command[-2:] == ("--api-key", "[masked]")
    assert {name: value(facts[name]) for name in ("--max-num-seqs", "--enforce-eager", "--tensor-parallel-size")} == {
        "--max-num-seqs": 64.0,
        "--enforce-eager": True,
        "--tensor-parallel-size": 2.0,
    }
    assert (value(facts["$OMP_NUM_THREADS"]), value(facts["$VLLM_LOGGING_LEVEL"])) == (8.0, "DEBUG")
    assert (value(facts["command"]), value(facts["environment"]), value(facts["vllm_version"])) == (
        True, True, "0.32.0",
    )  # fmt: skip
    assert not [
        name for name in facts if name.startswith("$") and name not in ("$OMP_NUM_THREADS", "$VLLM_LOGGING_LEVEL")
    ]
    assert "s3cr3t" not in repr(seen)
    assert "hf_secret" not in repr(seen)


def test_who_told_it(site: Site) -> None:
    site.serve("--port", "8000", environ={"OMP_NUM_THREADS": "8"})
    facts = site.host().facts
    told = {name: origin(facts[name]) for name in ("--port", "$OMP_NUM_THREADS", "command", "environment")}
    assert told == {"--port": "cmdline", "$OMP_NUM_THREADS": "environ", "command": "cmdline", "environment": "environ"}
    assert {origin(facts[name]) for name in ("vllm_version", "cores_usable", "api_servers", "process_id")} == {"proc"}


def test_an_environment_that_is_denied(site: Site) -> None:
    site.serve()
    site.proc.kernel()
    kernel = Refusing(site.proc.root, {f"proc/{API}/environ": Reason.DENIED})
    facts = site.local(kernel=kernel).examine_host(0, 1e12).facts
    assert facts["environment"] == Unknown(Reason.DENIED)
    assert facts["command"] == Known(True)
    assert not [name for name in facts if name.startswith("$")]


def test_a_server_whose_version_is_not_seen(site: Site) -> None:
    site.serve(version="")
    assert "vllm_version" not in site.host().facts  # so that what /version says holds


@pytest.mark.parametrize(("text", "expected"), [("1e3", 1000.0), ("x" * 5000, "x" * 1000), ("", ""), ("0x10", "0x10")])
def test_variables_as_numbers_and_texts(text: str, expected: Value, site: Site) -> None:
    site.serve(environ={"VLLM_X": text})
    assert value(site.host().facts["$VLLM_X"]) == expected


@pytest.mark.parametrize("text", ["nan", "inf", "-infinity", "NaN"])
def test_a_variable_is_never_infinite(text: str, site: Site) -> None:
    site.serve(environ={"VLLM_X": text})
    assert value(site.host().facts["$VLLM_X"]) == text


@pytest.mark.parametrize(("seconds", "deadline", "slept"), [(3.0, 1e12, 3.0), (30.0, 12.0, 12.0)])
def test_the_window_ends_at_the_deadline(seconds: float, deadline: float, slept: float, site: Site) -> None:
    site.serve()
    local = site.local()
    clock = Clock()
    local.clock, local.sleep = clock.now, clock.sleep
    facts = local.examine_host(seconds, clock.now() + deadline).facts
    assert sum(clock.slept) == pytest.approx(slept, abs=1.0)
    assert isinstance(facts["engine_cpu_wait"], Known)


def test_no_window_no_rates(site: Site) -> None:
    site.serve()
    assert site.host().facts["engine_cpu_wait"] == Unknown(Reason.FIRST_SCRAPE)


def test_a_server_of_which_nothing_is_seen(tmp_path: Path) -> None:
    nobody = Local(
        ServerProcess.unseen(), PATIENT, kernel=Kernel(tmp_path), printed=printed(SMI / "h100-driver-550.xml")
    )
    seen = nobody.examine_gpus(0, 0)
    assert (seen.kind, seen.target, seen.error) == ("gpu", str(SMI / "h100-driver-550.xml"), None)
    assert origin(seen.facts["driver_version"]) == "nvidia-smi"
    assert seen.facts["processes_off_node"] == Unknown(Reason.NOT_SUPPORTED)


# Its GPUs


def test_the_gpus_that_hold_its_memory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve("-tp", "2")
    host = installed(monkeypatch, "l40s-pair")
    local = site.local()
    clock = Clock()
    local.clock, local.sleep = clock.now, clock.sleep
    seen = local.examine_gpus(1, clock.now() + 100)
    assert (seen.kind, seen.target, seen.patient) == ("gpu", "NVIDIA driver", PATIENT)
    facts = seen.facts
    assert (value(facts["gpus"]), value(facts["gpu_name"])) == (2.0, "NVIDIA L40S")
    assert facts["nvlink"] == Known(False)
    assert {origin(r) for name, r in facts.items() if name.startswith(("gpu", "nvlink")) and isinstance(r, Known)} == {
        "nvml"
    }
    assert "nvmlInitWithFlags" in host.calls()
    assert "gpu_xids" in facts


def test_somebody_else_on_its_gpu(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    installed(monkeypatch, "shared")
    facts = site.gpus()
    assert value(facts["gpu_memory_foreign"]) == 12.0 * GIB
    assert "pid 5000" in str(value(facts["gpu_foreign_processes"]))
    assert "secret" not in repr(facts)


@pytest.mark.parametrize(
    ("words", "visible", "gpus"),
    [
        ((), None, 1.0),
        (("-tp", "2"), None, 2.0),
        (("-tp", "2", "-pp", "2", "-dp", "2"), None, 8.0),
        (("-tp", "2"), "3,5,6", 2.0),
        ((), "7", 1.0),
        ((), "GPU-00000002", 1.0),
        (("-tp", "2"), "6,nonsense,7", 1.0),
        ((), "", Reason.ABSENT),
        (("-tp", "many"), None, 1.0),
    ],
)
def test_the_gpus_by_flags_and_environment(
    words: tuple[str, ...], visible: str | None, gpus: float | Reason, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that hides its pids from the driver."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    site.serve(*words, environ=environ)
    installed(monkeypatch, "h100x8", "gpu/*/ComputeRunningProcesses")
    facts = site.gpus()
    assert facts["gpus"] == (Unknown(gpus) if isinstance(gpus, Reason) else Known(gpus))


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("driver-mismatch", Reason.NO_DRIVER),
        ("driver-not-loaded", Reason.NO_DRIVER),
        ("driver-denied", Reason.DENIED),
    ],
)
def test_a_driver_that_does_not_answer(
    scenario: str, reason: Reason, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.serve()
    site.tree.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64\n")
    site.tree.write("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n")
    site.tree.write("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n")
    installed(monkeypatch, scenario)
    seen = site.local().examine_gpus(0, 1e12)
    assert seen.facts["gpus"] == seen.facts["gpu_utilization"] == Unknown(reason)
    assert seen.facts["max_num_seqs_default"] == Unknown(Reason.NOT_SET)
    assert seen.error is None
    assert seen.notes
    assert "gpu_xids" not in seen.facts


def test_gpus_from_a_file_in_place_of_the_driver(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    host = installed(monkeypatch, "a10g")
    seen = site.local(SMI / "h100-driver-550.xml").examine_gpus(0, 1e12)
    assert seen.target == str(SMI / "h100-driver-550.xml")
    assert "H100" in str(value(seen.facts["gpu_name"]))
    assert origin(seen.facts["gpus_on_host"]) == "nvidia-smi"
    assert host.calls() == []
    assert "gpu_xids" not in seen.facts  # the file may be of another host


def test_a_file_that_is_gone_meanwhile(site: Site, tmp_path: Path) -> None:
    site.serve()
    with pytest.raises(UsageError):
        site.local(tmp_path / "gone.xml").examine_gpus(0, 1e12)


# NUMA


@pytest.mark.parametrize(("cpus", "off"), [("0-1", 0.0), ("2-3", 1.0), ("0-3", 0.0)])
def test_a_worker_away_from_its_gpu(cpus: str, off: float, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    site.bound(CORE, cpus)
    site.tree.nodes(node0="0-1", node1="2-3")
    site.tree.write("sys/bus/pci/devices/0000:17:00.0/numa_node", "0\n")
    installed(monkeypatch, "a10g")
    assert site.gpus()["processes_off_node"] == Known(off)


def test_a_gpu_whose_node_is_not_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    site.tree.nodes(node0="0-1", node1="2-3")
    installed(monkeypatch, "a10g")
    assert site.gpus()["processes_off_node"] == Unknown(Reason.NOT_LOCAL)


# vLLM's default


@pytest.mark.parametrize(
    ("scenario", "words", "version", "expected"),
    [
        pytest.param("a10g", (), "0.32.0", 256.0, id="a small GPU"),
        pytest.param("h100x8", ("-tp", "8"), "0.32.0", 1024.0, id="H100"),
        pytest.param("h100x8", (), "0.10.2", None, id="a version whose rule is not known"),
        pytest.param("h100x8", (), "0.19.0", 1024.0, id="an older version"),
        pytest.param("h100x8", (), "", None, id="no version"),
        pytest.param("h100x8", ("--performance-mode", "throughput"), "0.32.0", None, id="doubled"),
        pytest.param("driver-mismatch", (), "0.32.0", None, id="no driver"),
        pytest.param("sentinels", (), "0.32.0", None, id="memory not told"),
    ],
)
def test_the_default_of_max_num_seqs(
    scenario: str,
    words: tuple[str, ...],
    version: str,
    expected: float | None,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.serve(*words, version=version)
    if scenario == "driver-mismatch":
        site.tree.write("sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n")
        site.tree.write("sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n")
    installed(monkeypatch, scenario)
    found = site.gpus()["max_num_seqs_default"]
    assert found == (Unknown(Reason.NOT_SET) if expected is None else Known(expected))


def test_an_a100_has_the_small_default(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    installed(monkeypatch, "h100x8", "gpu/*/Name NVIDIA A100-SXM4-80GB")
    assert site.gpus()["max_num_seqs_default"] == Known(256.0)


@pytest.mark.parametrize(("words", "expected"), [((), 128.0), (("-tp", "2"), 256.0), (("-dp", "2"), 128.0)])
def test_the_default_on_the_cpu(
    words: tuple[str, ...], expected: float, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.serve(*words, version="0.32.0+cpu")
    installed(monkeypatch, "no-gpu")
    assert site.gpus()["max_num_seqs_default"] == Known(expected)


# Watched on and on


def following(site: Site) -> tuple[Local, Clock]:
    local, clock = site.local(), Clock()
    local.clock, local.sleep = clock.now, clock.sleep
    return local, clock


def test_a_host_that_is_followed_tells_of_its_last_seconds(site: Site) -> None:
    site.serve("--max-num-seqs", "64")
    local, clock = following(site)
    host = FollowedHost(local)
    first = host.look(30.0)
    assert first.facts["engine_cpu_wait"] == Unknown(Reason.FIRST_SCRAPE)
    for number in range(1, 41):
        clock.sleep(5)
        site.tree.write(f"proc/{CORE}/task/{CORE}/schedstat", f"{number * 10**9} {number * 5 * 10**8} 3\n")
        seen = host.look(30.0)
    assert value(seen.facts["engine_cpu_wait"]) == pytest.approx(0.1, abs=0.01)  # half a second in five
    assert value(seen.facts["--max-num-seqs"]) == 64
    assert [(row.role, row.pid) for row in seen.process_rows] == list(seen.processes)
    core = next(row for row in seen.process_rows if row.pid == CORE)
    assert value(core.waited) == pytest.approx(0.1, abs=0.01)
    assert len(host._samples) <= 13  # each holds all processes of the host


def test_a_followed_host_whose_processes_ended_says_so(site: Site) -> None:
    site.serve()
    local, clock = following(site)
    host = FollowedHost(local)
    host.look(30.0)
    for pid in (API, CORE, WORKER):
        site.tree.remove(f"proc/{pid}/stat")
    clock.sleep(5)
    gone = host.look(30.0)
    assert gone.error is not None
    assert (gone.error.kind, gone.patient) == ("gone", PATIENT)
    assert str(API) in gone.error.message


def test_gpus_that_are_followed_keep_only_the_window(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve("-tp", "2")
    installed(monkeypatch, "l40s-pair")
    local, clock = following(site)
    gpus = FollowedGpus(local)
    for _ in range(100):
        seen = gpus.look(10.0)
        clock.sleep(2)
    assert len(gpus._nvml.view().samples) <= 2 * 7
    assert [row.index for row in seen.gpu_rows] == [0, 1]
    assert isinstance(seen.gpu_rows[0].readings["utilization"], Known)
    assert isinstance(seen.facts["gpu_utilization"], Known)


def test_a_host_without_gpus_is_asked_rarely(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.serve()
    installed(monkeypatch, "no-gpu")
    local, _ = following(site)
    gpus = FollowedGpus(local)
    often = gpus.every
    assert gpus.look(10.0).gpu_rows == ()
    assert gpus.every > 10 * often


# With a state


def test_a_hook_knows_the_hosts_rates_since_the_run_before(site: Site, tmp_path: Path) -> None:
    site.serve()
    state = State(tmp_path / "state", site.clock.now)
    first = site.local(state=state).examine_host(1.0, 1e12)
    assert site.clock.slept == [pytest.approx(1.0, abs=0.5)]
    site.clock.ahead += 60
    site.tree.write(f"proc/{CORE}/task/{CORE}/schedstat", "31000000000 500000000 9\n")
    then = site.local(state=state).examine_host(1.0, 1e12)
    assert len(site.clock.slept) == 1, "nobody waited"
    assert value(first.facts["cpu_used"]) == 0.0
    assert value(then.facts["cpu_used"]) == pytest.approx(0.5, rel=0.1)


def test_a_server_that_was_restarted_meanwhile_is_measured_anew(site: Site, tmp_path: Path) -> None:
    site.serve()
    state = State(tmp_path / "state", site.clock.now)
    site.local(state=state).examine_host(1.0, 1e12)
    site.clock.ahead += 60
    stat = site.proc.root / f"proc/{CORE}/stat"
    stat.write_text(stat.read_text().replace(f" {CORE}00", " 77700"))
    seen = site.local(state=state).examine_host(1.0, 1e12)
    assert len(site.clock.slept) == 2
    assert value(seen.facts["cpu_used"]) == 0.0


@pytest.mark.parametrize("told", ["7", "[]", '[1,{},{},{},[],[],""]'])
def test_a_look_that_is_torn_is_as_none(site: Site, tmp_path: Path, told: str) -> None:
    site.serve()
    state = State(tmp_path / "state", site.clock.now)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    look = f'{{"boot":"{boot}","clock":{site.clock.now()},"told":{told}}}'
    state.path.write_text(f'vllm-doctor/state/v1\n{{"servers":{{}},"looks":{{"host {PATIENT}":[{look}]}}}}\n')
    site.clock.ahead += 60
    assert site.local(state=state).examine_host(1.0, 1e12).error is None
    assert len(site.clock.slept) == 1


def test_a_hook_looks_at_the_gpus_once(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "a10g")
    site.serve()
    state = State(tmp_path / "state", site.clock.now)
    first = site.local(state=state).examine_gpus(1.0, 1e12)
    assert site.clock.slept
    site.clock.slept.clear()
    site.clock.ahead += 60
    then = site.local(state=state).examine_gpus(1.0, 1e12)
    assert not any(site.clock.slept)
    assert value(then.facts["gpu_temperature"]) == value(first.facts["gpu_temperature"])
