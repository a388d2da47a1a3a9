from __future__ import annotations

import pytest

from vllm_doctor.vllm.gpus import gpu
from vllm_doctor.vllm.instances import instance, instances


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("p5.48xlarge", "H100 80GB HBM3", 8),
        ("P4D.24xlarge", "A100-SXM4-40GB", 8),
        ("g6e", "L40S", None),
        ("p4de", "A100-SXM4-80GB", 8),
        ("standard_nd96isr_h100_v5", "H100 80GB HBM3", 8),
        ("nvidia-l4", "L4", None),
        ("DGX H100", "H100 80GB HBM3", 8),
    ],
)
def test_a_machine_by_its_type(text: str, name: str, count: int | None) -> None:
    found = instance(text)
    assert found is not None
    assert (found.gpu, found.count) == (name, count)


@pytest.mark.parametrize("text", ["", "p", "p5.", "a3-highgpu", "g2-standard", "standard", "c7i.large", "vm", "bm"])
def test_other_machines(text: str) -> None:
    assert instance(text) is None


def test_the_table_is_sound() -> None:
    assert len({one.type.lower() for one in instances()}) == len(instances()) > 200
    for one in instances():
        known = gpu(one.gpu)
        assert known is not None
        assert known.name == one.gpu
        assert one.count is None or 1 <= one.count <= 16
        assert one.source
