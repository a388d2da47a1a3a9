from __future__ import annotations

from collections.abc import Mapping

import pytest

from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import defaults, flags

GIB = 1024.0**3


@pytest.mark.parametrize(
    ("version", "memory", "name", "world_size", "expected"),
    [
        pytest.param("0.32.0", 80 * GIB, "NVIDIA H100 80GB HBM3", 1, 1024, id="H100"),
        pytest.param("0.32.0", 80 * GIB, "NVIDIA H100 80GB HBM3", 8, 1024, id="not by the number of GPUs"),
        pytest.param("0.32.0", 79.2 * GIB, "NVIDIA H100 PCIe", 1, 1024, id="as the driver counts 80 GB"),
        pytest.param("0.32.0", 80 * GIB, "NVIDIA A100-SXM4-80GB", 1, 256, id="A100"),
        pytest.param("0.32.0", 180 * GIB, "NVIDIA B200", 1, 1024, id="B200"),
        pytest.param("0.32.0", 160 * GIB, "an a100 of the future", 1, 1024, id="the largest, whatever its name"),
        pytest.param("0.32.0", 45 * GIB, "NVIDIA L40S", 1, 256, id="L40S"),
        pytest.param("0.32.0", 70 * GIB - 1, "NVIDIA H100", 1, 256, id="just below"),
        pytest.param("0.32.0", 70 * GIB, "NVIDIA H100", 1, 1024, id="just there"),
        pytest.param("0.32.0", None, "", 1, 128, id="CPU"),
        pytest.param("0.32.0", None, "", 4, 512, id="CPU, by ranks"),
        pytest.param("0.33.0", 45 * GIB, "NVIDIA L40S", 1, 256, id="a release that knows GB10"),
        pytest.param("0.32.0+cpu", None, "", 1, 128, id="a local version"),
        pytest.param("0.32.1rc1.dev7+g0a1b2c3", 45 * GIB, "L40S", 1, 256, id="a version in the making"),
        pytest.param("0.27.1", 180 * GIB, "NVIDIA B200", 1, 1024, id="before the largest had their own"),
        pytest.param("0.11.0", 45 * GIB, "NVIDIA L40S", 1, 256, id="the first version without V0"),
        pytest.param("0.10.2", 45 * GIB, "NVIDIA L40S", 1, None, id="V0 or V1"),
        pytest.param("0.32.0", 119 * GIB, "NVIDIA GB10", 1, 1024, id="GB10"),
        pytest.param("0.33.0", 119 * GIB, "NVIDIA GB10", 1, 256, id="GB10, which was large before"),
        pytest.param("999.0.0", 45 * GIB, "NVIDIA L40S", 1, None, id="after the newest"),
        pytest.param("dev", 45 * GIB, "NVIDIA L40S", 1, None, id="no version"),
        pytest.param("", None, "", 1, None, id="nothing"),
    ],
)
def test_max_num_seqs(version: str, memory: float | None, name: str, world_size: int, expected: int | None) -> None:
    assert defaults.max_num_seqs(version, memory, name, world_size) == expected


def told(facts: Mapping[str, Value]) -> dict[str, Value | Reason]:
    known = {name: Known(value) for name, value in facts.items()}
    found = defaults.of_version(known) | defaults.of_device(known)
    return {name: fact.value if isinstance(fact, Known) else fact.reason for name, fact in found.items()}


H100: dict[str, Value] = {"gpu_name": "H100", "gpu_memory_total": 80 * GIB}


@pytest.mark.parametrize(
    ("version", "utilization", "number"),
    [
        ("0.19.1", 0.9, 19.0),
        ("0.20.0", 0.92, 20.0),
        ("0.32.1.dev5+gabc", 0.92, 32.0),
        ("0.99.0", 0.92, 99.0),
        ("1.2.0", 0.92, 1002.0),
    ],
)
def test_what_a_version_takes(version: str, utilization: float, number: float) -> None:
    found = told({"vllm_version": version})
    assert (found["gpu_memory_utilization_default"], found["vllm_release"]) == (utilization, number)


def test_a_command_without_a_version_is_judged_by_the_one_that_judges_its_flags() -> None:
    assert told({"flags_judged_as": "0.33.0"})["vllm_release"] == 33.0
    assert told({"vllm_version": "0.11.0", "flags_judged_as": "0.33.0"})["vllm_release"] == 11.0
    assert "vllm_release" not in told({})
    assert "vllm_release" not in told({"vllm_version": "main"})


@pytest.mark.parametrize(
    ("given", "seqs", "tokens"),
    [
        pytest.param({}, 1024.0, 8192.0, id="nothing"),
        pytest.param({"--performance-mode": "throughput"}, 2048.0, 16384.0, id="throughput doubles both"),
        pytest.param({"--performance-mode": "balanced"}, 1024.0, 8192.0, id="balanced does not"),
        pytest.param({"--max-num-batched-tokens": 512.0}, 512.0, 8192.0, id="no more requests than tokens"),
        pytest.param({"--max-num-seqs": 2.0, "--max-model-len": 1024.0}, 1024.0, 2048.0, id="no more tokens than fit"),
        pytest.param({"--max-model-len": -1.0}, 1024.0, 8192.0, id="auto"),
        pytest.param({"--max-model-len": 4.0}, 1024.0, 4096.0, id="a short context"),
        pytest.param({"--max-model-len": float("inf")}, 1024.0, 8192.0, id="no number"),
        pytest.param({"--max-num-seqs": "many", "--max-model-len": True}, 1024.0, 8192.0, id="no numbers"),
        pytest.param({"gpu_name": "A100-SXM4-80GB"}, 256.0, 2048.0, id="A100"),
        pytest.param({"gpu_memory_total": 180 * GIB}, 1024.0, 16384.0, id="B200"),
    ],
)
def test_what_a_device_takes(given: dict[str, Value], seqs: float, tokens: float) -> None:
    found = told({"vllm_version": "0.32.0"} | H100 | given)
    assert (found["max_num_seqs_default"], found["max_num_batched_tokens_default"]) == (seqs, tokens)


def test_what_is_not_known_of_a_device_is_said() -> None:
    assert told({"vllm_version": "0.32.0"})["max_num_seqs_default"] is Reason.NO_DRIVER
    assert told({"vllm_version": "0.32.0", "gpu_name": "H100"})["max_num_seqs_default"] is Reason.NO_DRIVER
    assert told({"vllm_version": "0.10.2"} | H100)["max_num_batched_tokens_default"] is Reason.NOT_SUPPORTED


@pytest.mark.parametrize("flag", [defaults.MAX_NUM_SEQS, defaults.MAX_NUM_BATCHED_TOKENS])
@pytest.mark.parametrize("version", ["0.8.0", "0.9.0", "0.28.0", flags.newest(), "999.0.0"])
def test_some_row_holds_on_every_device(version: str, flag: str) -> None:
    rows = defaults.of_flag(version, flag)
    assert any(row.device == "GPU" and not (row.min_gib or row.gpus or row.but_not) for row in rows)
    assert version in ("0.8.0", "0.9.0") or rows[-1].device == "CPU worker"


def test_the_newest_rows_are_open() -> None:
    assert defaults.of_flag(flags.newest(), defaults.MAX_NUM_SEQS)[0].until == ""
    assert defaults.of_flag("main", defaults.MAX_NUM_SEQS) == defaults.of_flag("0.32.0", "--port") == ()
