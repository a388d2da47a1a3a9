from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import (
    APPLICATIONS_CLOCKS,
    FACTS,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    IDLE,
    SW_POWER_CAP,
    SW_THERMAL,
    SYNC_BOOST,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUse,
    GpuView,
    chosen,
    facts,
)

GB = 1e9
OURS, ALSO_OURS, THEIRS = 100, 101, 900
SERVER = (GpuProcess(OURS, "vllm", Known(70 * GB)),)
NOT_TOLD = Unknown(Reason.NOT_SUPPORTED)


def reading(value: Any) -> Reading:
    return value if isinstance(value, Known | Unknown) else Known(value)


def gpu(index: int = 0, **fields: Any) -> Gpu:
    """A healthy GPU of 80 GB; `fields` may be bare values."""
    own = {key: fields.pop(key) for key in ("uuid", "name", "mig_profile", "bus_id") if key in fields}
    told: dict[str, Any] = {
        "memory_total": 80 * GB, "power_limit": 700.0, "power_limit_default": 700.0, "sm_clock_max": 2000.0,
        "applications_clock": 2000.0, "applications_clock_default": 2000.0, "pcie_generation_max": 5.0,
        "pcie_width_max": 16.0, "persistence": True, "ecc_uncorrected": 0.0, "remap_pending": False,
        "remap_failed": False, "compute_capability": 9.0,
    } | fields  # fmt: skip
    every: dict[str, Any] = {"uuid": f"GPU-{index}000-aaaa", "name": "H100"} | own
    every |= {key: reading(value) for key, value in told.items()}
    return Gpu(index=index, **every)


def sample(of: Gpu, at: float = 0.0, processes: Any = SERVER, **fields: Any) -> GpuSample:
    told: dict[str, Any] = {
        "utilization": 0.9, "memory_used": 72 * GB, "memory_free": 7 * GB, "sm_clock": 2000.0, "event_reasons": 0.0,
        "power": 600.0, "temperature": 60.0, "pcie_generation": 5.0, "pcie_width": 16.0,
    } | fields  # fmt: skip
    told = {key: reading(value) for key, value in told.items()}
    return GpuSample(index=of.index, uuid=of.uuid, at=at, processes=processes, **told)


def host(number: int, **fields: Any) -> GpuView:
    """So many GPUs, each with one sample of nobody's processes."""
    gpus = [gpu(index) for index in range(number)]
    return GpuView("nvml", tuple(gpus), tuple(sample(one, processes=()) for one in gpus), **fields)


def indices(view: GpuView, **use: Any) -> list[int]:
    return [one.index for one in chosen(view, GpuUse(**use))]


def told(
    *gpus: tuple[Gpu, Sequence[GpuSample]], pids: frozenset[int] = frozenset({OURS}), **view: Any
) -> dict[str, Any]:
    """The facts as bare values or reasons; the server has all these GPUs."""
    seen = GpuView("nvml", tuple(one for one, _ in gpus), tuple(s for _, samples in gpus for s in samples), **view)
    return bare(facts(seen, GpuUse(pids=pids, wanted=len(gpus))))


def bare(readings: Mapping[str, Reading]) -> dict[str, Any]:
    return {name: one.value if isinstance(one, Known) else one.reason for name, one in readings.items()}


def one(*samples: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The facts of a host with one GPU, from what is special in each of its samples."""
    only = gpu(**fields)
    return told((only, [sample(only, at, **changes) for at, changes in enumerate(samples or [{}])]))


# --- which GPUs -----------------------------------------------------------------------------------------------------


def test_the_gpus_are_those_that_hold_memory_of_the_servers_processes() -> None:
    view = host(4)
    second = sample(view.gpus[2], 1.0, processes=(GpuProcess(ALSO_OURS),))
    view = replace(view, samples=(*view.samples, second, sample(view.gpus[1])))
    assert indices(view, pids=frozenset({OURS, ALSO_OURS}), visible="3", wanted=1) == [1, 2]
    assert indices(view, pids=frozenset({1}), visible="3") == [3]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("0,2,-1,1", [0, 2]),
        ("0,9,1", [0]),
        ("0,,1", [0]),
        ("1,1", [1]),
        ("1,x", [1]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("none", []),
        ("GPU-2000-aaaa", [2]),
        ("GPU-1,GPU-3000", [1, 3]),
        ("gpu-1", []),
        ("GPU-", []),  # begins each of them
        ("GPU-7", []),
        ("²", []),
        ("9" * 5000, []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_does(visible: str, expected: list[int]) -> None:
    assert indices(host(4), visible=visible) == expected


def test_of_the_visible_ones_vllm_takes_the_first_it_needs() -> None:
    assert indices(host(4), visible="3,1,0", wanted=2) == [3, 1]
    assert indices(host(4), visible="3", wanted=2) == [3]


@pytest.mark.parametrize(
    ("wanted", "expected"), [(4, [0, 1, 2, 3]), (2, [0, 1]), (8, [0, 1, 2, 3]), (None, []), (0, [])]
)
def test_without_visible_devices_they_are_the_first(wanted: int | None, expected: list[int]) -> None:
    view = host(4)
    assert indices(replace(view, gpus=view.gpus[::-1]), wanted=wanted) == expected


def test_the_only_one_needs_no_telling() -> None:
    assert indices(host(1)) == [0]
    assert indices(host(0)) == []


def test_mig_instances_are_named_by_uuid_or_by_their_gpu() -> None:
    instances = (gpu(0, uuid="MIG-GPU-a/1/0"), gpu(0, uuid="MIG-GPU-a/2/0"), gpu(1, uuid="MIG-b"))
    view = GpuView("nvml", instances)
    assert [g.uuid for g in chosen(view, GpuUse(visible="MIG-GPU-a/2/0"))] == ["MIG-GPU-a/2/0"]
    assert [g.uuid for g in chosen(view, GpuUse(visible="MIG-b"))] == ["MIG-b"]
    assert [g.uuid for g in chosen(view, GpuUse(visible="0"))] == ["MIG-GPU-a/1/0"]


# --- the facts as a whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [host(0), host(1), host(3), GpuView("nvml", missing=Reason.ABSENT), GpuView("nvml", (gpu(),))],
    ids=["none", "one", "several", "absent", "no-sample"],
)
def test_each_fact_is_always_there_and_says_who_told_it(view: GpuView) -> None:
    for use in (GpuUse(), GpuUse(pids=frozenset({OURS}), visible="0", wanted=1)):
        readings = facts(view, use)
        assert sorted(readings) == sorted(FACTS)
        assert {known.origin for known in readings.values() if isinstance(known, Known)} <= {"nvml"}


def test_a_host_without_gpus_has_none() -> None:
    found = bare(facts(GpuView("nvml", missing=Reason.ABSENT), GpuUse(wanted=1)))
    assert (found.pop("gpus"), found.pop("gpus_on_host")) == (0, 0)
    assert set(found.values()) == {Reason.ABSENT}


@pytest.mark.parametrize("missing", [Reason.NO_DRIVER, Reason.DENIED])
def test_where_the_driver_does_not_answer_that_is_the_reason(missing: Reason) -> None:
    found = bare(facts(GpuView("nvml", missing=missing, driver="550.1"), GpuUse(wanted=1)))
    assert found.pop("driver_version") == "550.1"
    assert set(found.values()) == {missing}


def test_which_gpus_are_the_servers_may_not_be_told() -> None:
    found = bare(facts(host(4, driver="550.1", cuda="12.4"), GpuUse()))
    assert (found["gpus_on_host"], found["gpus"], found["gpu_utilization"]) == (4, Reason.ABSENT, Reason.ABSENT)
    assert (found["driver_version"], found["driver_cuda"]) == ("550.1", 12.4)


def test_whichever_gpus_they_are_their_kind_is_known_where_there_is_one() -> None:
    gpus = [gpu(index, name="NVIDIA H100 80GB HBM3", memory_total=Known(80 * 2.0**30)) for index in range(4)]
    found = bare(facts(GpuView("nvml", tuple(gpus)), GpuUse()))
    assert (found["gpu_name"], found["gpu_compute_capability"], found["mig"]) == ("NVIDIA H100 80GB HBM3", 9.0, False)
    assert (found["gpu_memory_total"], found["gpu_bandwidth"]) == (80 * 2.0**30, 3350e9)
    assert {found[name] for name in ("gpus", "nvlink", "gpu_power_limit", "gpu_temperature")} == {Reason.ABSENT}
    other = bare(facts(GpuView("nvml", (*gpus, gpu(4, name="NVIDIA L4"))), GpuUse()))
    assert {other[name] for name in ("gpu_name", "gpu_compute_capability", "gpu_memory_total")} == {Reason.ABSENT}


@pytest.mark.parametrize(
    ("pairs", "nvlink"),
    [
        ({(0, 1): True, (0, 2): True, (1, 2): True}, True),
        ({(0, 1): False, (0, 2): False, (1, 2): False}, False),
        ({(0, 1): True, (0, 2): False, (1, 2): False}, Reason.ABSENT),
        ({(0, 1): True}, Reason.ABSENT),
    ],
)
def test_whichever_gpus_they_are_they_are_linked_where_all_are(
    pairs: dict[tuple[int, int], bool], nvlink: bool | Reason
) -> None:
    gpus = tuple(gpu(index, name="NVIDIA H100 80GB HBM3") for index in range(3))
    assert bare(facts(GpuView("nvml", gpus, nvlink_pairs=pairs), GpuUse()))["nvlink"] == nvlink


@pytest.mark.parametrize(
    ("name", "told", "capability"),
    [
        ("NVIDIA L4", Reason.NOT_SUPPORTED, 8.9),
        ("NVIDIA H100 80GB HBM3 MIG 1g.20gb", Reason.NOT_SUPPORTED, 9.0),
        ("NVIDIA L4", 12.0, 12.0),  # the driver knows better
        ("NVIDIA GX300", Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED),
        ("", Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED),
    ],
)
def test_where_the_driver_tells_no_capability_the_name_does(
    name: str, told: float | Reason, capability: float | Reason
) -> None:
    reading = Unknown(told) if isinstance(told, Reason) else Known(told)
    view = GpuView("nvidia-smi", (gpu(0, name=name, compute_capability=reading, memory_total=Known(20 * 2.0**30)),))
    assert bare(facts(view, GpuUse()))["gpu_compute_capability"] == capability


@pytest.mark.parametrize("cuda", ["", "ERR!", "nan", "12.4.1"])
def test_a_cuda_version_that_is_no_number_is_unknown(cuda: str) -> None:
    assert told((gpu(), []), cuda=cuda)["driver_cuda"] == Reason.NOT_SUPPORTED


def test_a_healthy_gpu_at_work() -> None:
    found = one({}, {})
    assert found | {
        "gpus": 1, "gpus_on_host": 1, "gpu_name": "H100", "gpu_compute_capability": 9, "mig": False,
        "mig_profile": Reason.ABSENT, "gpu_memory_total": 80 * GB, "gpu_memory_used_share": 0.9,
        "gpu_memory_free": 7 * GB, "gpu_memory_foreign": 0, "gpu_foreign_processes": Reason.IDLE,
        "gpu_utilization": 0.9, "gpu_utilization_least": 0.9, "gpu_thermal_share": 0,
        "gpu_thermal_where": Reason.IDLE, "gpu_power_cap_share": 0, "gpu_hw_slowdown_share": 0,
        "gpu_temperature": 60, "gpu_power_share": 600 / 700, "gpu_power_limit": 700, "gpu_power_limit_share": 1,
        "gpu_power_limit_where": Reason.IDLE, "gpu_clock_share": 1, "gpu_clock": 2000, "gpu_clock_max": 2000,
        "gpu_clock_where": "GPU 0", "gpu_applications_clock_share": 1, "pcie_width_share": 1,
        "pcie_generation_share": 1, "pcie_where": Reason.IDLE, "gpu_remap_pending": False,
        "gpu_remap_failed": False, "gpu_ecc_uncorrected": 0, "gpu_unhealthy_where": Reason.IDLE,
        "gpu_persistence": True, "nvlink": Reason.ABSENT, "gpu_p2p": Reason.ABSENT, "gpus_unused": 0,
    } == found  # fmt: skip


# --- each of them ---------------------------------------------------------------------------------------------------


def two(first: Mapping[str, Any], second: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The facts of two GPUs with one sample each; `fields` are the second GPU's own."""
    a, b = gpu(0), gpu(3, **fields)
    return told((a, [sample(a, **first)]), (b, [sample(b, **second)]))


def test_the_worst_gpu_speaks() -> None:
    small = {"memory_total": 40 * GB, "name": "A100", "compute_capability": 8.0, "persistence": False}
    busy = {"utilization": 0.5, "memory_used": 30 * GB, "memory_free": 9 * GB, "temperature": 85.0}
    found = two({"utilization": 1.0, "memory_used": 40 * GB}, busy, **small)
    assert (found["gpu_utilization"], found["gpu_utilization_least"]) == (0.75, 0.5)
    assert (found["gpu_memory_total"], found["gpu_memory_used_share"], found["gpu_memory_free"]) == (
        40 * GB,
        0.75,
        7 * GB,
    )
    assert (found["gpu_name"], found["gpu_compute_capability"]) == ("H100 + A100", 8)
    assert (found["gpu_temperature"], found["gpu_persistence"]) == (85, False)


def test_a_gpu_that_does_not_tell_is_passed_over() -> None:
    denied = Unknown(Reason.DENIED)
    assert two({"temperature": denied}, {"temperature": 40.0})["gpu_temperature"] == 40
    assert two({"temperature": denied}, {"temperature": NOT_TOLD})["gpu_temperature"] == Reason.DENIED


def test_memory_is_what_the_last_sample_says() -> None:
    found = one({"memory_used": 10 * GB}, {"memory_used": 40 * GB}, {"memory_used": NOT_TOLD})
    assert found["gpu_memory_used_share"] == 0.5


def test_who_else_is_on_the_gpu() -> None:
    ours = GpuProcess(OURS, "vllm", Known(70 * GB))
    first = (ours, GpuProcess(THEIRS, "/usr/bin/python3", Known(10.5 * GB)), GpuProcess(901, "Xorg", Known(23e6)))
    second = (ours, GpuProcess(902, r"C:\a\b.exe"), GpuProcess(903, "", Known(2 * GB)))
    found = two({"processes": first}, {"processes": second})
    assert found["gpu_memory_foreign"] == 10.5 * GB + 23e6
    assert found["gpu_foreign_processes"] == (
        "python3 (pid 900, 9.78 GiB) on GPU 0, a process (pid 903, 1.86 GiB) on GPU 3,"
        " Xorg (pid 901, 21.9 MiB) on GPU 0, and 1 more"
    )


def test_a_foreign_process_of_unknown_memory_is_no_zero() -> None:
    found = one({"processes": (GpuProcess(OURS), GpuProcess(THEIRS, "python"))})
    assert found["gpu_memory_foreign"] == Reason.NOT_SUPPORTED
    assert found["gpu_foreign_processes"] == "python (pid 900) on GPU 0"


@pytest.mark.parametrize("processes", [(), (GpuProcess(7, "x", Known(GB)),), Reason.NOT_SUPPORTED])
def test_where_the_server_is_not_seen_nobody_is_called_foreign(processes: Any) -> None:
    found = one({"processes": processes})  # a container counts its processes otherwise
    assert (found["gpu_memory_foreign"], found["gpu_foreign_processes"]) == (Reason.NOT_LOCAL, Reason.NOT_LOCAL)


@pytest.mark.parametrize(
    ("bits", "thermal", "power", "hardware"),
    [
        (SW_THERMAL, 1, 0, 0),
        (HW_SLOWDOWN | HW_THERMAL, 1, 0, 0),
        (SW_POWER_CAP, 0, 1, 0),
        (HW_SLOWDOWN | HW_POWER_BRAKE, 0, 0, 1),
        (HW_SLOWDOWN, 0, 0, 1),
        (HW_SLOWDOWN | HW_THERMAL | HW_POWER_BRAKE, 1, 0, 1),
        (APPLICATIONS_CLOCKS | SYNC_BOOST, 0, 0, 0),
    ],
)
def test_each_slowdown_has_its_cause(bits: int, thermal: int, power: int, hardware: int) -> None:
    found = one({"event_reasons": float(bits)})
    names = ("gpu_thermal", "gpu_power_cap", "gpu_hw_slowdown")
    assert tuple(found[f"{name}_share"] for name in names) == (thermal, power, hardware)
    for name, share in zip(names, (thermal, power, hardware), strict=True):
        assert found[f"{name}_where"] == ("GPU 0" if share else Reason.IDLE)


def test_only_samples_under_load_count() -> None:
    hot = {"event_reasons": float(SW_THERMAL)}
    found = one(hot, {}, {}, {"utilization": 0.0, **hot}, {"utilization": 0.0, **hot}, {"event_reasons": NOT_TOLD})
    assert found["gpu_thermal_share"] == pytest.approx(1 / 3)
    assert one({"utilization": 0.0, **hot})["gpu_thermal_share"] == Reason.IDLE


def test_a_mig_instance_is_under_load_unless_it_calls_itself_idle() -> None:
    hot, idle = {"utilization": NOT_TOLD, "event_reasons": float(SW_THERMAL)}, float(SW_THERMAL | IDLE)
    assert one(hot, hot | {"event_reasons": idle})["gpu_thermal_share"] == 1
    assert one(hot | {"event_reasons": idle})["gpu_thermal_share"] == Reason.IDLE
    assert one(hot | {"event_reasons": NOT_TOLD})["gpu_thermal_share"] == Reason.NOT_SUPPORTED


def test_all_slowed_gpus_are_named() -> None:
    hot = {"event_reasons": float(HW_THERMAL)}
    assert two(hot, hot)["gpu_thermal_where"] == "GPUs 0, 3"
    assert two({}, hot)["gpu_thermal_where"] == "GPU 3"


def test_a_power_limit_below_the_default() -> None:
    found = two({"power": 350.0}, {"power": 490.0}, power_limit=500.0)
    assert (found["gpu_power_limit"], found["gpu_power_limit_default"]) == (500, 700)
    assert found["gpu_power_limit_share"] == pytest.approx(5 / 7)
    assert found["gpu_power_limit_where"] == "GPU 3"
    assert found["gpu_power_share"] == 0.98


def test_a_limit_of_zero_is_no_limit() -> None:
    assert one(power_limit_default=0.0)["gpu_power_limit_share"] == Reason.NOT_SUPPORTED


def test_a_locked_clock_shows_where_nothing_else_holds_it_down() -> None:
    found = two({}, {"sm_clock": 1200.0})
    assert (found["gpu_clock_share"], found["gpu_clock"], found["gpu_clock_max"]) == (0.6, 1200, 2000)
    assert found["gpu_clock_where"] == "GPU 3"
    low = {"sm_clock": 1000.0}
    capped = [low | {"event_reasons": float(bit)} for bit in (SW_POWER_CAP, SW_THERMAL, HW_SLOWDOWN, SYNC_BOOST)]
    assert one({}, low | {"utilization": 0.5}, *capped)["gpu_clock_share"] == 1
    assert one(*capped)["gpu_clock_share"] == Reason.IDLE
    assert one(low | {"utilization": NOT_TOLD})["gpu_clock_share"] == Reason.NOT_SUPPORTED
    # What it costs counts the samples that were held down, and the slowest GPU.
    assert one({}, low | {"utilization": 0.5}, *capped)["gpu_busy_clock_share"] == pytest.approx(
        (2000 + 4 * 1000) / 5 / 2000
    )
    assert two({}, {"sm_clock": 1200.0})["gpu_busy_clock_share"] == 0.6
    assert two({}, {"sm_clock": NOT_TOLD})["gpu_busy_clock_share"] == Reason.NOT_SUPPORTED
    assert one({"utilization": 0.5})["gpu_busy_clock_share"] == Reason.IDLE
    assert one(low | {"event_reasons": NOT_TOLD})["gpu_clock_share"] == Reason.NOT_SUPPORTED


def test_application_clocks_set_low() -> None:
    assert one(applications_clock=1500.0)["gpu_applications_clock_share"] == 0.75


def test_a_sleeping_link_is_no_slow_link() -> None:
    asleep = {"utilization": 0.0, "pcie_generation": 1.0, "pcie_width": 1.0}
    found = one(asleep)
    assert (found["pcie_width_share"], found["pcie_generation_share"]) == (Reason.IDLE, Reason.IDLE)
    found = one(asleep, {"utilization": 0.3, "pcie_generation": 1.0, "pcie_width": 8.0})
    assert (found["pcie_width_share"], found["pcie_generation_share"], found["pcie_where"]) == (
        0.5,
        Reason.IDLE,
        "GPU 0",
    )
    found = one(asleep, {"pcie_generation": 4.0}, {})
    assert (found["pcie_width_share"], found["pcie_generation_share"], found["pcie_where"]) == (1, 1, Reason.IDLE)


def test_a_slow_link_has_its_numbers() -> None:
    found = two({}, {"pcie_generation": 3.0, "pcie_width": 4.0})
    assert (found["pcie_width_share"], found["pcie_width"], found["pcie_width_max"]) == (0.25, 4, 16)
    assert (found["pcie_generation_share"], found["pcie_generation"], found["pcie_generation_max"]) == (0.6, 3, 5)
    assert found["pcie_where"] == "GPU 3"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"remap_pending": True}, (True, False, 0)),
        ({"remap_failed": True}, (False, True, 0)),
        ({"ecc_uncorrected": 3.0}, (False, False, 3)),
    ],
)
def test_an_ill_gpu_is_named(fields: dict[str, Any], expected: tuple[bool, bool, float]) -> None:
    found = two({}, {}, **fields)
    names = ("gpu_remap_pending", "gpu_remap_failed", "gpu_ecc_uncorrected")
    assert tuple(found[name] for name in names) == expected
    assert found["gpu_unhealthy_where"] == "GPU 3"


def test_the_errors_of_a_board_count_once_for_all_its_instances() -> None:
    instances = [gpu(0, uuid=f"MIG-{n}", mig_profile="1g.10gb", ecc_uncorrected=2.0) for n in range(2)]
    found = told(*((instance, [sample(instance)]) for instance in instances))
    assert (found["gpu_ecc_uncorrected"], found["gpu_unhealthy_where"]) == (2, "GPU 0")
    assert (found["mig"], found["mig_profile"], found["nvlink"], found["gpu_p2p"]) == (True, "1g.10gb", False, False)


@pytest.mark.parametrize(
    ("pairs", "linked"),
    [
        ({(0, 1): True, (0, 2): True, (1, 2): True}, True),
        ({(0, 1): True, (0, 2): False}, False),
        ({(0, 1): True, (0, 2): True}, Reason.NOT_SUPPORTED),
        ({}, Reason.NOT_SUPPORTED),
    ],
)
def test_gpus_are_linked_if_each_pair_is(pairs: dict[tuple[int, int], bool], linked: bool | Reason) -> None:
    found = bare(facts(host(3, nvlink_pairs=pairs, p2p_pairs={(1, 2): False}), GpuUse(wanted=3)))
    assert (found["nvlink"], found["gpu_p2p"]) == (linked, False)


@pytest.mark.parametrize(
    ("changes", "unused"),
    [
        ({"processes": (), "memory_used": 0.5 * GB}, 1),
        ({"processes": (), "memory_used": 20 * GB}, 0),  # of a process in another container
        ({"processes": (GpuProcess(THEIRS),), "memory_used": 0.0}, 0),
        ({"processes": Reason.DENIED, "memory_used": 0.0}, Reason.DENIED),
        ({"processes": Reason.DENIED, "memory_used": 20 * GB}, 0),
        ({"processes": (), "memory_used": NOT_TOLD}, Reason.NOT_SUPPORTED),
    ],
)
def test_a_gpu_without_process_and_memory_is_unused(changes: dict[str, Any], unused: float | Reason) -> None:
    ours, other = gpu(0), gpu(1)
    view = GpuView("nvml", (ours, other), (sample(ours), sample(other, **changes)))
    found = bare(facts(view, GpuUse(pids=frozenset({OURS}))))
    assert (found["gpus"], found["gpus_unused"]) == (1, unused)
    assert found["gpus_unused_where"] == {1: "GPU 1", 0: Reason.IDLE}.get(unused, unused)  # type: ignore[call-overload]


def test_gpus_that_do_not_answer() -> None:
    found = facts(GpuView("nvml", (Gpu(0, "GPU-0", "H100"),), lost=frozenset({3, 1})), GpuUse())
    assert (found["gpus_lost"], found["gpus_lost_where"]) == (Known(2.0), Known("GPUs 1, 3"))
    whole = facts(GpuView("nvml", (Gpu(0, "GPU-0", "H100"),)), GpuUse())
    assert (whole["gpus_lost"], whole["gpus_lost_where"]) == (Known(0.0), Unknown(Reason.IDLE))


@pytest.mark.parametrize(
    ("names", "bandwidth", "flops"),
    [
        (["NVIDIA H100 80GB HBM3"], 3350e9, 989e12),
        (["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"], 3350e9, 989e12),
        (["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"], Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED),
        (["NVIDIA GH200 480GB"], Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED),  # by its name alone: 96 GB, not 80
    ],
)
def test_what_the_data_sheet_says(names: list[str], bandwidth: float | Reason, flops: float | Reason) -> None:
    gpus = [gpu(place, name=name, memory_total=Known(80 * 2.0**30)) for place, name in enumerate(names)]
    found = bare(facts(GpuView("nvml", tuple(gpus)), GpuUse(wanted=len(gpus))))
    assert (found["gpu_bandwidth"], found["gpu_flops"]) == (bandwidth, flops)


@pytest.mark.parametrize(("nvlink", "link"), [({(0, 1): True}, "nvlink"), ({(0, 1): False}, "pcie"), ({}, "nvlink")])
def test_how_they_reach_each_other_is_what_the_driver_sees(nvlink: dict[tuple[int, int], bool], link: str) -> None:
    gpus = [gpu(place, name="NVIDIA H100 80GB HBM3", memory_total=Known(80 * 2.0**30)) for place in range(2)]
    found = bare(facts(GpuView("nvml", tuple(gpus), nvlink_pairs=nvlink), GpuUse(wanted=2)))
    assert (found["gpu_link"], found["gpu_flops_fp8"], found["gpu_flops_fp4"]) == (link, 1979e12, Reason.NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("name", "memory", "count", "nvlink"),
    [
        ("NVIDIA L40S", 45, 8, False),  # neither on the card, nor sold for it
        ("NVIDIA A100 80GB PCIe", 80, 8, Reason.NOT_SUPPORTED),  # a bridge is sold apart
        ("NVIDIA H100 80GB HBM3", 80, 8, Reason.NOT_SUPPORTED),
        ("NVIDIA L40S", 45, 1, Reason.ABSENT),
    ],
)
def test_cards_that_have_no_nvlink_are_not_joined_by_it(
    name: str, memory: int, count: int, nvlink: bool | Reason
) -> None:
    gpus = tuple(gpu(place, name=name, memory_total=Known(memory * 2.0**30)) for place in range(count))
    assert bare(facts(GpuView("nvidia-smi", gpus), GpuUse(wanted=count)))["nvlink"] == nvlink


def test_of_a_mig_instance_the_data_sheet_says_nothing() -> None:
    slice_ = gpu(0, uuid="MIG-a", name="NVIDIA H100 80GB HBM3", mig_profile="7g.80gb", memory_total=Known(80 * 2.0**30))
    found = bare(facts(GpuView("nvml", (slice_,)), GpuUse(wanted=1)))
    assert (found["gpu_bandwidth"], found["gpu_flops"]) == (Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED)
