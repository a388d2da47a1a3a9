from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.fake_nvml import Host, environment, installed
from tests.fake_nvml.scenarios import GIB, SCENARIOS
from tests.serving import Clock
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import (
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    IDLE,
    NOT_TOLD,
    SW_POWER_CAP,
    SW_THERMAL,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuView,
)
from vllm_doctor.sources.gpu.nvml import Nvml
from vllm_doctor.sources.host.kernel import Kernel

STALE, DENIED = Unknown(Reason.STALE), Unknown(Reason.DENIED)
Install = Callable[..., Host]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def installing(scenario: str, more: str = "") -> Host:
        return installed(monkeypatch, scenario, more)

    return installing


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)


def machine(root: Path, files: dict[str, str] | None = None) -> Kernel:
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Kernel(root)


def looked(tmp_path: Path, samples: int = 1, files: dict[str, str] | None = None) -> GpuView:
    """What a few samples of the installed GPUs show."""
    nvml = Nvml(machine(tmp_path, files))
    for _ in range(samples):
        nvml.sample()
    nvml.close()
    return nvml.view()


def told(value: float | bool) -> Known:
    return Known(value, origin="nvml")


def number(reading: Reading) -> float:
    assert isinstance(reading, Known), reading
    assert reading.origin == "nvml"
    assert isinstance(reading.value, float)
    return reading.value


def reasons(sample: GpuSample) -> int:
    return int(number(sample.event_reasons))


def processes(sample: GpuSample) -> list[tuple[int, str]]:
    assert not isinstance(sample.processes, Reason), sample.processes
    return [(process.pid, process.name) for process in sample.processes]


def test_tells_all_of_eight_healthy_gpus(install: Install, tmp_path: Path) -> None:
    install("h100x8")
    nodes = {f"sys/bus/pci/devices/0000:{0x17 + gpu:x}:00.0/numa_node": f"{gpu // 4}\n" for gpu in range(8)}
    view = looked(tmp_path, files=nodes)
    assert (view.origin, view.missing, view.notes, view.driver, view.cuda) == ("nvml", None, (), "550.54.15", "12.4")
    assert [gpu.index for gpu in view.gpus] == list(range(8))
    assert view.gpus[7] == Gpu(
        7,
        "GPU-00000007-5a1e-4b0f-9d3c-0123456789ab",
        "NVIDIA H100 80GB HBM3",
        "0000:1e:00.0",
        memory_total=told(80.0 * GIB),
        power_limit=told(700.0),
        power_limit_default=told(700.0),
        sm_clock_max=told(1980.0),
        applications_clock=told(1980.0),
        applications_clock_default=told(1980.0),
        pcie_generation_max=told(5.0),
        pcie_width_max=told(16.0),
        persistence=told(True),
        ecc_uncorrected=told(0.0),
        remap_pending=told(False),
        remap_failed=told(False),
        nvlinks_active=told(18.0),
        mig=told(False),
        compute_capability=told(9.0),
    )
    last = view.samples[7]
    assert last == GpuSample(
        7,
        view.gpus[7].uuid,
        last.at,
        utilization=told(0.97),
        memory_used=told(70.0 * GIB),  # without what the driver keeps for itself
        memory_free=told(9.0 * GIB),
        sm_clock=told(1935.0),
        event_reasons=told(0.0),
        power=told(534.25),
        temperature=told(61.0),
        pcie_generation=told(5.0),
        pcie_width=told(16.0),
        processes=(GpuProcess(4107, "VLLM::Worker_TP7", told(70.0 * GIB)),),
    )
    pairs = {(one, other): True for one in range(8) for other in range(one + 1, 8)}
    assert view.nvlink_pairs == view.p2p_pairs == pairs
    assert view.numa_nodes == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}


def test_every_reading_says_that_nvml_told_it(install: Install, tmp_path: Path) -> None:
    install("h100x8")
    view = looked(tmp_path)
    things: list[Gpu | GpuSample | GpuProcess] = [*view.gpus, *view.samples]
    things += [one for sample in view.samples for one in sample.processes if isinstance(one, GpuProcess)]
    readings = [getattr(thing, name) for thing in things for name in thing.__slots__]
    known = [reading for reading in readings if isinstance(reading, Known)]
    assert len(known) == 8 * (15 + 9 + 1)
    assert {reading.origin for reading in known} == {"nvml"}


def test_one_small_gpu_has_no_pairs(install: Install, tmp_path: Path) -> None:
    install("a10g")
    view = looked(tmp_path)
    (gpu,) = view.gpus
    assert (gpu.name, gpu.compute_capability, gpu.nvlinks_active) == ("NVIDIA A10G", told(8.6), NOT_TOLD)
    assert processes(view.samples[0]) == [(4100, "VLLM::EngineCore")]
    assert not view.nvlink_pairs
    assert not view.p2p_pairs


def test_gpus_that_reach_each_other_only_through_the_host(install: Install, tmp_path: Path) -> None:
    install("l40s-pair")
    view = looked(tmp_path)
    assert view.nvlink_pairs == view.p2p_pairs == {(0, 1): False}


def test_peers_over_pcie_are_peers_without_nvlink(install: Install, tmp_path: Path) -> None:
    install("l40s-pair", "gpu/*/P2PStatus/READ/* 0")
    view = looked(tmp_path)
    assert (view.nvlink_pairs, view.p2p_pairs) == ({(0, 1): False}, {(0, 1): True})


def test_a_pair_whose_status_is_unknown_is_left_out(install: Install, tmp_path: Path) -> None:
    install("l40s-pair", "gpu/0/P2PStatus/NVLINK/1 6")
    view = looked(tmp_path)
    assert (view.nvlink_pairs, view.p2p_pairs) == ({}, {(0, 1): False})


def test_links_that_are_down_do_not_count(install: Install, tmp_path: Path) -> None:
    install("h100x8", "gpu/2/NvLinkState/[0-3] 0\ngpu/5/NvLinkState/* 0")
    gpus = looked(tmp_path).gpus
    assert [number(gpus[index].nvlinks_active) for index in (1, 2, 5)] == [18, 14, 0]


def test_the_reasons_of_slow_clocks(install: Install, tmp_path: Path) -> None:
    install("throttled")
    view = looked(tmp_path)
    hot, capped, braked = view.samples
    assert reasons(hot) == SW_THERMAL | HW_SLOWDOWN
    assert (number(hot.temperature), number(hot.sm_clock)) == (88, 1140)
    assert reasons(capped) == SW_POWER_CAP
    assert (number(capped.power), view.gpus[1].power_limit, view.gpus[1].power_limit_default) == (
        399.5,
        told(400.0),
        told(700.0),
    )
    assert reasons(braked) == HW_POWER_BRAKE | HW_SLOWDOWN


def test_processes_of_others(install: Install, tmp_path: Path) -> None:
    install("shared")
    found = looked(tmp_path).samples[0].processes
    assert found == (
        GpuProcess(4100, "VLLM::EngineCore", told(8.0 * GIB)),
        GpuProcess(5000, "python3", told(12.0 * GIB)),  # not its arguments
        GpuProcess(5001, "", NOT_TOLD),
    )


def test_the_kernel_names_processes_first_and_their_names_are_safe_to_print(install: Install, tmp_path: Path) -> None:
    install("shared")
    comm = {"proc/4100/comm": "VLLM::EngineCor\n", "proc/5000/comm": "\x1b[31mevil\x07\n", "proc/5001/comm": "x" * 999}
    names = dict(processes(looked(tmp_path, files=comm).samples[0]))
    assert names == {4100: "VLLM::EngineCor", 5000: "[31mevil", 5001: "x" * 64}


def test_mig_instances_stand_for_their_gpu(install: Install, tmp_path: Path) -> None:
    install("mig")
    view = looked(tmp_path)
    assert [(gpu.index, gpu.uuid[:12], gpu.mig_profile, gpu.mig) for gpu in view.gpus] == [
        (0, "MIG-00000000", "1g.10gb", told(True)),
        (0, "MIG-00000001", "1g.10gb", told(True)),
        (0, "MIG-00000003", "1g.10gb", told(True)),
        (1, "GPU-00000001", "", told(True)),  # split, without an instance
    ]
    first = view.gpus[0]
    assert first.name == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    assert first.memory_total == told(9.5 * GIB)
    assert (first.power_limit, first.bus_id, first.nvlinks_active) == (told(400.0), "0000:17:00.0", NOT_TOLD)
    assert [sample.uuid for sample in view.samples] == [gpu.uuid for gpu in view.gpus]
    used, empty, other, _ = view.samples
    assert (used.memory_used, used.memory_free) == (told(8.0 * GIB), told(1.5 * GIB))
    assert (used.sm_clock, used.power, used.event_reasons) == (told(1395.0), told(212.0), told(0.0))
    assert [sample.utilization for sample in view.samples] == [NOT_TOLD] * 4
    assert [processes(sample) for sample in (used, empty, other)] == [[(4100, "VLLM::EngineCore")], [], [(5000, "")]]
    assert (view.nvlink_pairs, view.p2p_pairs) == ({}, {})


def test_a_gaming_gpu_tells_little_and_that_is_no_fault(install: Install, tmp_path: Path) -> None:
    install("geforce")
    view = looked(tmp_path)
    gpu = view.gpus[0]
    untold = [
        gpu.applications_clock,
        gpu.applications_clock_default,
        gpu.ecc_uncorrected,
        gpu.remap_pending,
        gpu.remap_failed,
        gpu.nvlinks_active,
        gpu.mig,
    ]
    assert untold == [NOT_TOLD] * 7
    assert (gpu.persistence, gpu.sm_clock_max) == (told(False), told(3105.0))
    assert (view.nvlink_pairs, view.p2p_pairs, view.notes) == ({}, {}, ())
    assert number(view.samples[0].utilization) == 0.97


def test_a_driver_that_is_old_goes_by_the_old_names(install: Install, tmp_path: Path) -> None:
    install("old-driver")
    view = looked(tmp_path)
    assert (view.driver, view.cuda) == ("418.87", "10.1")
    assert reasons(view.samples[0]) == SW_THERMAL
    assert view.samples[0].memory_used == told(20.25 * GIB)
    assert (view.gpus[0].mig, view.gpus[0].remap_pending) == (NOT_TOLD, NOT_TOLD)


def test_a_driver_that_is_newer_than_this_program(install: Install, tmp_path: Path) -> None:
    install("new-driver")
    view = looked(tmp_path)
    assert view.cuda == "14.0"
    assert number(view.samples[0].temperature) == 55
    assert (view.gpus[0].applications_clock, view.gpus[0].applications_clock_default) == (NOT_TOLD, NOT_TOLD)


def test_a_pynvml_without_a_function_or_with_bytes(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("a10g")
    monkeypatch.delattr(pynvml, "nvmlDeviceGetPowerUsage")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: b"NVIDIA \xff A10G")
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: b"550.1")
    view = looked(tmp_path)
    assert view.samples[0].power == NOT_TOLD
    assert (view.gpus[0].name, view.driver) == ("NVIDIA \N{REPLACEMENT CHARACTER} A10G", "550.1")


def test_a_gpu_that_falls_off_the_bus(install: Install, tmp_path: Path) -> None:
    host = install("h100x8")
    nvml = Nvml(machine(tmp_path))
    nvml.sample()
    host.becomes("h100x8", "gpu/3/lost_after 0")
    before = len(host.calls())
    nvml.sample()
    nvml.sample()
    asked = host.calls()[before:].count("nvmlDeviceGetClockInfo")
    nvml.close()
    view = nvml.view()
    good, gone, still_gone = (sample for sample in view.samples if sample.index == 3)
    assert number(good.power) == 534.25
    for sample in (gone, still_gone):
        told = set(sample.__slots__[3:-1]) - {"memory_used_share"}  # which NVML never tells
        assert {getattr(sample, name) for name in told} == {STALE}
        assert sample.processes is Reason.STALE
    assert view.notes == ("GPU 3 fell off the bus while watched",)
    assert view.lost == {3}
    assert number(view.samples[-1].power) == 534.25  # of GPU 7
    assert asked == 14  # a lost GPU is not asked again
    assert number(view.gpus[3].memory_total) == 80 * GIB


def test_a_gpu_that_is_lost_in_the_middle_of_a_sample(install: Install, tmp_path: Path) -> None:
    install("lost")
    view = looked(tmp_path, samples=3)
    first, second, third = (sample for sample in view.samples if sample.index == 3)
    assert (first.power, first.pcie_width) == (told(534.25), told(16.0))
    assert (second.power, second.pcie_width) == (told(534.25), STALE)
    assert (third.power, third.pcie_width) == (STALE, STALE)
    assert view.notes == ("GPU 3 fell off the bus while watched",)
    assert view.lost == {3}


def test_a_gpu_that_was_lost_before_leaves_the_others_their_numbers(install: Install, tmp_path: Path) -> None:
    install("lost-before")
    view = looked(tmp_path)
    assert [gpu.index for gpu in view.gpus] == [0, 2, 3]
    assert view.notes == ("GPU 1 does not answer: GPU is lost",)
    assert view.lost == {1}
    assert set(view.nvlink_pairs) == {(0, 2), (0, 3), (2, 3)}
    assert view.missing is None


def test_a_gpu_whose_id_is_no_text_does_not_answer(install: Install, tmp_path: Path) -> None:
    install("l40s-pair", "gpu/0/UUID GPU-\udcff")
    view = looked(tmp_path)
    assert [gpu.index for gpu in view.gpus] == [1]
    (note,) = view.notes
    assert note.startswith("GPU 0 does not answer: 'utf-8' codec can't decode byte 0xff")


def test_a_mig_instance_is_lost_with_its_gpu(install: Install, tmp_path: Path) -> None:
    host = install("mig")
    nvml = Nvml(machine(tmp_path))
    nvml.sample()
    host.becomes("mig", "gpu/0/lost_after 0")
    nvml.sample()
    nvml.close()
    now = nvml.view().samples[4:]
    assert [sample.memory_used for sample in now] == [STALE, STALE, STALE, told(20.0 * GIB)]
    assert nvml.view().notes == ("GPU 0 fell off the bus while watched",)


def test_a_link_that_is_worse_than_it_could_be(install: Install, tmp_path: Path) -> None:
    install("pcie-degraded")
    view = looked(tmp_path)
    assert (view.samples[0].pcie_generation, view.samples[0].pcie_width) == (told(1.0), told(4.0))
    assert (view.gpus[0].pcie_generation_max, view.gpus[0].pcie_width_max) == (told(4.0), told(16.0))
    assert number(view.samples[0].utilization) > 0.5


def test_memory_errors(install: Install, tmp_path: Path) -> None:
    install("unhealthy")
    pending, failed = looked(tmp_path).gpus
    assert (pending.ecc_uncorrected, pending.remap_pending, pending.remap_failed) == (
        told(3.0),
        told(True),
        told(False),
    )
    assert (failed.ecc_uncorrected, failed.remap_pending, failed.remap_failed) == (told(0.0), told(False), told(True))


def test_idle_gpus(install: Install, tmp_path: Path) -> None:
    install("idle")
    for sample in looked(tmp_path).samples:
        assert (sample.utilization, sample.memory_used, sample.processes) == (told(0.0), told(0.0), ())
        assert reasons(sample) == IDLE


def test_what_one_may_not_ask_is_denied_and_the_rest_is_told(install: Install, tmp_path: Path) -> None:
    install("denied-calls")
    view = looked(tmp_path)
    (sample,) = view.samples
    assert (sample.processes, sample.event_reasons, sample.power) == (Reason.DENIED, DENIED, DENIED)
    assert (view.gpus[0].persistence, view.missing) == (DENIED, None)
    assert number(sample.utilization) == 0.97


def test_numbers_that_mean_nothing_are_unknown(install: Install, tmp_path: Path) -> None:
    install("sentinels")
    view = looked(tmp_path)
    (gpu,), (sample,) = view.gpus, view.samples
    assert [sample.utilization, sample.power, sample.sm_clock, sample.event_reasons] == [NOT_TOLD] * 4
    assert [sample.pcie_width, sample.pcie_generation] == [NOT_TOLD] * 2
    assert [gpu.memory_total, gpu.pcie_generation_max, gpu.power_limit] == [NOT_TOLD] * 3
    assert number(sample.temperature) == 61


@pytest.mark.parametrize(
    ("scenario", "reason", "detail"),
    [
        ("driver-not-loaded", Reason.NO_DRIVER, "Driver Not Loaded"),
        ("driver-mismatch", Reason.NO_DRIVER, "Driver/library version mismatch"),
        ("driver-ill", Reason.NO_DRIVER, "Unknown Error"),
        ("driver-denied", Reason.DENIED, "Insufficient Permissions"),
        ("gpus-denied", Reason.DENIED, "Insufficient Permissions"),
        ("no-gpu", Reason.ABSENT, "the driver sees no GPU"),
    ],
)
def test_a_driver_that_shows_nothing(
    install: Install, tmp_path: Path, scenario: str, reason: Reason, detail: str
) -> None:
    install(scenario)
    clock = Clock()
    view = Nvml(machine(tmp_path), clock.now, clock.sleep).watch(10.0, math.inf)
    assert (view.missing, view.detail) == (reason, detail)
    assert (view.gpus, view.samples) == ((), ())
    assert not clock.slept, "there is nothing to wait for"


@pytest.mark.parametrize(
    ("files", "reason", "detail"),
    [
        ({}, Reason.ABSENT, "no GPU in this host"),
        ({"proc/driver/nvidia/version": "NVRM"}, Reason.NO_DRIVER, "NVML Shared Library Not Found"),
        ({"dev/nvidia3": ""}, Reason.NO_DRIVER, "NVML Shared Library Not Found"),
        ({"dev/dxg": ""}, Reason.NO_DRIVER, "NVML Shared Library Not Found"),
        ({"dev/kfd": ""}, Reason.NO_DRIVER, "an AMD GPU is in this host: it is not examined"),
        ({"dev/kfd": "", "dev/nvidia0": ""}, Reason.NO_DRIVER, "NVML Shared Library Not Found"),
        ({"dev/nvidiactl": ""}, Reason.ABSENT, "no GPU in this host"),
    ],
)
@pytest.mark.usefixtures("no_library")
def test_without_the_library_the_kernel_knows_whether_there_is_a_gpu(
    tmp_path: Path, files: dict[str, str], reason: Reason, detail: str
) -> None:
    view = looked(tmp_path, files=files)
    assert (view.missing, view.detail) == (reason, detail)


@pytest.mark.parametrize(
    ("vendor", "kind", "reason"),
    [
        ("0x10de", "0x030200", Reason.NO_DRIVER),
        ("0x10de", "0x068000", Reason.ABSENT),  # an NVSwitch
        ("0x1002", "0x030000", Reason.ABSENT),
    ],
)
@pytest.mark.usefixtures("no_library")
def test_a_gpu_on_the_bus_without_any_driver(tmp_path: Path, vendor: str, kind: str, reason: Reason) -> None:
    device = "sys/bus/pci/devices/0000:17:00.0"
    view = looked(tmp_path, files={f"{device}/vendor": f"{vendor}\n", f"{device}/class": f"{kind}\n"})
    assert view.missing is reason


def test_without_pynvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    view = looked(tmp_path, files={"dev/nvidia0": ""})
    assert (view.missing, view.detail) == (Reason.NO_DRIVER, "the Python package nvidia-ml-py is not installed")


def test_a_driver_that_has_not_answered_is_no_host_without_gpus(tmp_path: Path) -> None:
    view = Nvml(machine(tmp_path)).view()
    assert (view.missing, view.detail) == (Reason.NO_DRIVER, "it has not answered yet")


@pytest.mark.parametrize(("seconds", "samples"), [(0.0, 1), (0.3, 2), (3.0, 5), (10.0, 14), (30.0, 31), (86400.0, 601)])
def test_watches_in_even_steps_up_to_the_end(install: Install, tmp_path: Path, seconds: float, samples: int) -> None:
    host = install("a10g")
    clock = Clock()
    view = Nvml(machine(tmp_path), clock.now, clock.sleep).watch(seconds, math.inf)
    times = [sample.at for sample in view.samples]
    assert len(times) == samples
    assert times[-1] - times[0] == pytest.approx(seconds, abs=0.3)
    assert host.calls()[-1] == "nvmlShutdown"


def test_ends_by_the_deadline(install: Install, tmp_path: Path) -> None:
    install("a10g")
    clock = Clock()
    began = clock.now()
    view = Nvml(machine(tmp_path), clock.now, clock.sleep).watch(30.0, began + 5.5)
    assert 5 <= len(view.samples) <= 6
    assert all(sample.at <= began + 5.5 for sample in view.samples)
    assert sum(clock.slept) <= 5.5


def test_a_slow_driver_is_not_asked_faster_to_catch_up(install: Install, tmp_path: Path) -> None:
    install("a10g")
    times = [0.0]

    def slow() -> float:
        times[0] += 1.0  # each look at the clock takes a second
        return times[0]

    view = Nvml(machine(tmp_path), slow, lambda seconds: None).watch(9.0, math.inf)
    assert len(view.samples) < 8


def test_opens_once_and_is_silent_when_closed(install: Install, tmp_path: Path) -> None:
    host = install("a10g")
    nvml = Nvml(machine(tmp_path))
    nvml.open()
    nvml.open()
    assert nvml.view().samples == ()
    nvml.sample()
    nvml.close()
    nvml.close()
    nvml.sample()
    assert (len(nvml.view().gpus), len(nvml.view().samples)) == (1, 1)
    assert (host.calls().count("nvmlInitWithFlags"), host.calls().count("nvmlShutdown")) == (1, 1)


@pytest.mark.parametrize("scenario", ["h100x8", "mig", "geforce", "driver-mismatch"])
def test_it_only_reads(install: Install, tmp_path: Path, scenario: str) -> None:
    host = install(scenario)
    looked(tmp_path)
    reading = re.compile(r"nvml(InitWithFlags|Shutdown|ErrorString|(System|Device)Get\w+)")
    assert [name for name in host.calls() if not reading.fullmatch(name)] == []


def test_a_sample_asks_little(install: Install, tmp_path: Path) -> None:
    host = install("h100x8")
    nvml = Nvml(machine(tmp_path))
    nvml.sample()
    before = len(host.calls())
    nvml.sample()
    asked = host.calls()[before:]
    nvml.close()
    light = {
        "UtilizationRates",
        "MemoryInfo_v2",
        "ClockInfo",
        "CurrentClocksEventReasons",
        "PowerUsage",
        "Temperature",
        "CurrPcieLinkGeneration",
        "CurrPcieLinkWidth",
        "ComputeRunningProcesses_v3",
    }
    assert {name.removeprefix("nvmlDeviceGet") for name in asked} == light
    assert len(asked) <= 8 * 10  # pynvml asks for the processes twice


SCRIPT = """
import sys
from pathlib import Path
import vllm_doctor.sources.gpu.nvml as nvml
from vllm_doctor.sources.host.kernel import Kernel
assert "pynvml" not in sys.modules, "pynvml takes a while to import"
view = nvml.Nvml(Kernel(Path(sys.argv[1]))).watch(0.0, float("inf"))
print(view.missing, view.detail, *(gpu.name for gpu in view.gpus), sep="|")
"""


@pytest.mark.parametrize(
    ("scenario", "printed"),
    [("l40s-pair", "None||NVIDIA L40S|NVIDIA L40S"), ("no-library", "absent|no GPU in this host")],
)
def test_another_process_can_have_the_fake_gpus_too(tmp_path: Path, scenario: str, printed: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        command, env=os.environ | environment(scenario), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (printed, "")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_can_be_watched(install: Install, tmp_path: Path, scenario: str) -> None:
    install(scenario)
    view = looked(tmp_path, samples=2)
    assert (view.missing is None) == bool(view.gpus)
    assert len(view.samples) == 2 * len(view.gpus)
    assert len({gpu.uuid for gpu in view.gpus}) == len(view.gpus)
