from __future__ import annotations

import pytest

from vllm_doctor.vllm.gpu_stated import Stated, memory, stated

GIB = 1024.0**3


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("my cpu 18 GB/s 0.3 TFLOPS", Stated("my cpu", 18e9, 0.3e12)),
        ("foo, 1.8TB/s, 500 TFLOP/s", Stated("foo", 1.8e12, 500e12)),
        ("200 GFLOPS", Stated("", None, 200e9)),
        ("foo 24GB", None),
        ("foo 0 GB/s", None),
        ("foo 9GB/second", None),
        ("9" * 5000 + "GB/s", None),
        ("", None),
    ],
)
def test_figures(text: str, figures: Stated | None) -> None:
    assert stated(text) == figures


def test_memory() -> None:
    assert memory("foo 24 GB") == ("foo", 24 * GIB)
    assert memory("foo") == ("foo", None)
