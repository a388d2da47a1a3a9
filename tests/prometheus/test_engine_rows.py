"""Rows of results, sorted to engines; through the source itself in test_prometheus.py."""

from __future__ import annotations

from vllm_doctor.prometheus.api import Row
from vllm_doctor.prometheus.engine_rows import Buckets


def test_a_bucket_that_only_some_engines_have_is_no_bound() -> None:
    rows = [
        Row({"le": le, "model_name": "m"}, count)
        for le, count in (("0.5", 2.0), ("1", 1.0), ("2.5", 2.0), ("5", 2.0), ("+Inf", 2.0), ("x", 2.0))
    ]
    buckets = Buckets(rows)
    assert buckets.around(0.7, "m") == (0.5, 2.5)
    assert buckets.around(0.1, "m") == (0.0, 0.5)
    assert buckets.around(2.5, "m") == (0.5, 2.5)
    assert buckets.around(5.0, "m") == (2.5, float("inf"))  # the last, or the one without end
    assert buckets.around(0.7, "another") == (0.0, float("inf"))
