"""Whether the processes of a server live, as a /proc of real files tells it look by look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import process
from vllm_doctor.sources.host.liveness import Liveness

API, CORE, WORKER = 4099, 4100, 4101
TITLES: dict[int, str | Sequence[str]] = {
    API: ["/opt/v/bin/python", "/opt/v/bin/vllm", "serve", "m"],
    CORE: "VLLM::EngineCore",
    WORKER: "VLLM::Worker_TP0",
}
PARENTS = {API: 1, CORE: API, WORKER: CORE}
VERSION = {"opt/v/lib/python3.12/site-packages/vllm-0.32.0.dist-info/METADATA": ""}


class Site:
    """A server, its engine core and a worker; `passes` lets a second go by, in which they run or stand still."""

    def __init__(self, root: Path) -> None:
        self.proc = FakeProc(root)
        self.now = 100.0
        self.ran = dict.fromkeys((API, CORE, WORKER), 0)
        for pid in (API, CORE, WORKER):
            self.is_now(pid, "S")
        self.proc.listen(8000, 1)

    def is_now(self, pid: int, state: str, started: int = 0, wchan: str = "ep_poll") -> None:
        """In which state it is."""
        files, sockets = (VERSION, [1]) if pid == API else ({}, [])
        self.proc.add(pid, TITLES[pid], PARENTS[pid], state=state, files=files, sockets=sockets)
        stat = self.proc.root / f"proc/{pid}/stat"
        if started:
            stat.write_text(stat.read_text().replace(f" {pid}00", f" {started}"))
        self.proc.link(f"proc/{pid}/fd/1", "/var/log/vllm.log")
        self.proc.write(f"proc/{pid}/wchan", wchan)
        self.proc.write(f"proc/{pid}/task/{pid}/stat", stat.read_text())
        self.ticks(pid)

    def ticks(self, pid: int) -> None:
        self.proc.write(f"proc/{pid}/task/{pid}/schedstat", f"{self.ran[pid] * 10**8} 0 {self.ran[pid]}\n")

    def passes(self, *still: int) -> None:
        """A second, in which all but `still` use a tenth of a core."""
        self.now += 1
        for pid in self.ran:
            self.ran[pid] += pid not in still
            if (self.proc.root / f"proc/{pid}").exists():
                self.ticks(pid)

    def gone(self, pid: int) -> None:
        (self.proc.root / f"proc/{pid}/stat").unlink()

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def liveness(self) -> Liveness:
        kernel = self.proc.kernel()
        return Liveness(process.of_pid(kernel, API), kernel, lambda: self.now, self.sleep)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def value(reading: Reading) -> Value:
    assert isinstance(reading, Known), reading
    return reading.value


def test_a_server_that_is_well(site: Site) -> None:
    liveness = site.liveness()
    for _ in range(4):
        liveness.look()
        site.passes()
    liveness.look_last()
    facts = liveness.facts()
    counted = ("processes_held", "processes_held_before", "processes_gone", "processes_in_disk_wait", "output_blocked")
    assert {value(facts[name]) for name in counted} == {0.0}
    assert value(facts["engine_cpu_now"]) == pytest.approx(0.2)
    assert site.now == 104.0, "nothing stood still, and nothing was looked at twice"


@pytest.mark.parametrize(("state", "stopped", "says"), [("T", 1.0, "by a signal"), ("t", 0.0, "by a debugger")])
def test_a_process_that_is_stopped_to_the_end(site: Site, state: str, stopped: float, says: str) -> None:
    liveness = site.liveness()
    liveness.look()
    site.passes()
    site.is_now(CORE, state)
    for _ in range(2):
        liveness.look()
        site.passes(CORE)
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["processes_held"]), value(facts["processes_stopped"])) == (1.0, stopped)
    assert value(facts["processes_held_says"]) == f"engine core (pid {CORE}) stopped {says}"
    assert value(facts["processes_held_seconds"]) == pytest.approx(2.2)
    if stopped:
        assert value(facts["processes_stopped_pids"]) == str(CORE)


def test_all_processes_that_are_stopped(site: Site) -> None:
    for pid in (API, CORE, WORKER):
        site.is_now(pid, "T")
    liveness = site.liveness()
    liveness.look_last()
    facts = liveness.facts()
    assert value(facts["processes_held_says"]) == "all 3 processes (pids 4099, 4100, 4101) stopped by a signal"
    assert value(facts["processes_stopped_pids"]) == "4099 4100 4101"


def test_one_that_goes_on_is_not_stopped_now(site: Site) -> None:
    liveness = site.liveness()
    site.is_now(CORE, "T")
    for _ in range(2):
        liveness.look()
        site.passes(CORE)
    site.is_now(CORE, "S")
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["processes_held"]), value(facts["processes_held_before"])) == (0.0, 1.0)
    assert value(facts["processes_held_before_says"]) == f"engine core (pid {CORE})"


def test_a_debuggers_snapshot_is_no_stop(site: Site) -> None:
    site.is_now(CORE, "t")
    liveness = site.liveness()
    liveness._sleep = lambda _: site.is_now(CORE, "S")
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["processes_held"]), value(facts["processes_held_before"])) == (0.0, 0.0)


def test_a_profiler_that_stops_it_again_and_again_is_no_stop(site: Site) -> None:
    site.is_now(CORE, "t")
    liveness = site.liveness()
    liveness._sleep = lambda _: site.passes()  # it ran in between
    liveness.look_last()
    assert value(liveness.facts()["processes_held"]) == 0.0


@pytest.mark.parametrize("wchan", ["__refrigerator", "do_freezer_trap"])
def test_a_container_that_is_paused(site: Site, wchan: str) -> None:
    for pid in (API, CORE, WORKER):
        site.is_now(pid, "D", wchan=wchan)
    liveness = site.liveness()
    for _ in range(3):
        liveness.look()
        site.passes(API, CORE, WORKER)
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["processes_frozen"]), value(facts["processes_stopped"])) == (3.0, 0.0)
    assert value(facts["processes_in_disk_wait"]) == 0.0


def test_a_process_that_a_disk_holds_all_the_time(site: Site) -> None:
    site.is_now(WORKER, "D", wchan="nfs_wait_bit_killable")
    liveness = site.liveness()
    for _ in range(3):
        liveness.look()
        site.passes(WORKER)
    liveness.look_last()
    facts = liveness.facts()
    assert value(facts["processes_in_disk_wait"]) == 1.0
    assert value(facts["processes_in_disk_wait_where"]) == "nfs_wait_bit_killable"


def test_a_process_that_reads_from_a_disk_runs_in_between(site: Site) -> None:
    site.is_now(WORKER, "D")
    liveness = site.liveness()
    for _ in range(3):
        liveness.look()
        site.passes()
    liveness.look_last()
    assert value(liveness.facts()["processes_in_disk_wait"]) == 0.0


@pytest.mark.parametrize("how", ["gone", "dead", "another"])
def test_an_engine_core_that_ends_while_watched(site: Site, how: str) -> None:
    liveness = site.liveness()
    liveness.look()
    site.passes()
    match how:
        case "gone":
            site.gone(CORE)
        case "dead":
            site.is_now(CORE, "Z")
        case _:  # its pid is used again
            site.is_now(CORE, "S", started=999999)
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["processes_gone"]), value(facts["server_gone"])) == (1.0, False)
    assert value(facts["processes_gone_says"]) == f"engine core (pid {CORE}) ended while watched"


def test_a_server_that_ends_and_is_started_again(site: Site) -> None:
    liveness = site.liveness()
    liveness.look()
    site.passes()
    for pid in (API, CORE, WORKER):
        site.gone(pid)
    site.proc.add(7000, TITLES[API], 1)
    liveness.look_last()
    facts = liveness.facts()
    assert (value(facts["server_gone"]), value(facts["server_started_again"])) == (True, "pid 7000")
    assert value(facts["processes_gone_says"]) == "all of its processes ended while watched"


def test_a_port_that_is_served_without_an_engine(site: Site) -> None:
    site.gone(CORE)
    site.gone(WORKER)
    liveness = site.liveness()
    liveness.look_last()
    assert value(liveness.facts()["processes_gone_says"]) == "it serves its port without an engine core"


def test_a_dead_engine_core_that_nobody_noticed(site: Site) -> None:
    site.is_now(CORE, "Z")
    site.gone(WORKER)
    liveness = site.liveness()
    liveness.look_last()
    says = value(liveness.facts()["processes_gone_says"])
    assert isinstance(says, str)
    assert "had exited before" in says


@pytest.mark.parametrize(
    ("more", "version"),
    [(["--headless"], "0.32.0"), (["--data-parallel-size-local", "0"], "0.32.0"), ([], "0.8.5"), ([], "")],
)
def test_a_server_that_may_do_without_an_engine_of_its_own(tmp_path: Path, more: Sequence[str], version: str) -> None:
    proc = FakeProc(tmp_path)
    files = {f"opt/v/lib/python3.12/site-packages/vllm-{version}.dist-info/METADATA": ""} if version else {}
    proc.add(API, [*TITLES[API], *more], 1, files=files, sockets=[1])
    proc.listen(8000, 1)
    assert process.of_pid(proc.kernel(), API).lacks == ""


def test_a_server_that_starts_lacks_nothing(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(API, TITLES[API], 1, files=VERSION)  # it does not listen yet
    assert process.of_pid(proc.kernel(), API).lacks == ""


def test_an_output_that_may_not_be_seen_is_not_known(site: Site) -> None:
    for pid in (API, CORE, WORKER):
        (site.proc.root / f"proc/{pid}/fd/1").unlink()
    liveness = site.liveness()
    liveness.look_last()
    assert liveness.facts()["output_blocked"] == Unknown(Reason.DENIED)


def test_one_look_tells_no_speed(site: Site) -> None:
    liveness = site.liveness()
    liveness.look_last()
    facts = liveness.facts()
    assert facts["engine_cpu_now"] == Unknown(Reason.FIRST_SCRAPE)
    assert facts["processes_in_disk_wait"] == Unknown(Reason.FIRST_SCRAPE)


def test_engines_that_do_nothing(site: Site) -> None:
    liveness = site.liveness()
    site.passes()
    for _ in range(3):
        liveness.look()
        site.passes(CORE, WORKER)
    liveness.look_last()
    assert value(liveness.facts()["engine_cpu_now"]) == 0.0


def test_looks_that_are_too_old_are_forgotten(site: Site) -> None:
    liveness = site.liveness()
    for _ in range(10):
        liveness.look()
        site.passes()
    liveness.forget(site.now - 3)
    assert [look.at for look in liveness.looks] == [107.0, 108.0, 109.0]


def test_a_host_that_is_not_seen_tells_nothing(tmp_path: Path) -> None:
    liveness = Liveness(process.ServerProcess.unseen(), FakeProc(tmp_path).kernel())
    liveness.look_last()
    assert liveness.facts() == {}
