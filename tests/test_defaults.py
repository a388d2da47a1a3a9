from __future__ import annotations

import pytest

from vllm_doctor import defaults

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
        pytest.param("0.28.0", 45 * GIB, "NVIDIA L40S", 1, 256, id="the first version"),
        pytest.param("0.33.0", 45 * GIB, "NVIDIA L40S", 1, 256, id="the last version"),
        pytest.param("0.32.0+cpu", None, "", 1, 128, id="a local version"),
        pytest.param("0.32.1rc1.dev7+g0a1b2c3", 45 * GIB, "L40S", 1, 256, id="a version in the making"),
        pytest.param("0.27.9", 45 * GIB, "NVIDIA L40S", 1, None, id="before"),
        pytest.param("0.34.0", 45 * GIB, "NVIDIA L40S", 1, None, id="after"),
        pytest.param("1.0.0", 45 * GIB, "NVIDIA L40S", 1, None, id="long after"),
        pytest.param("dev", 45 * GIB, "NVIDIA L40S", 1, None, id="no version"),
        pytest.param("", None, "", 1, None, id="nothing"),
    ],
)
def test_max_num_seqs(version: str, memory: float | None, name: str, world_size: int, expected: int | None) -> None:
    assert defaults.max_num_seqs(version, memory, name, world_size) == expected
