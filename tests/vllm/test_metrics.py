from __future__ import annotations

import pytest

from vllm_doctor.vllm import metrics


def test_a_renamed_metric() -> None:
    assert metrics.metric("0.8.5", "vllm:kv_cache_usage_perc") is None
    new = metrics.metric("0.32.0", "vllm:kv_cache_usage_perc")
    assert new is not None
    assert (new.kind, new.engines, new.until) == ("gauge", ("V1",), None)
    assert metrics.metric("0.32.0", "vllm:gpu_cache_usage_perc") is None
    assert metrics.spans("vllm:gpu_cache_usage_perc") == (("0.4.3", "0.11.2"),)


def test_a_metric_that_is_shown_on_demand_only() -> None:
    metric = metrics.metric("0.11.2", "vllm:gpu_cache_usage_perc")
    assert metric is not None
    assert metric.is_hidden


@pytest.mark.parametrize("version", ["0.8.0", "0.9.2", "0.32.0"])
@pytest.mark.parametrize("name", ["vllm:generation_tokens_total", "vllm:generation_tokens"])
def test_a_counter_has_its_total_whatever_the_sources_call_it(version: str, name: str) -> None:
    metric = metrics.metric(version, name)
    assert metric is not None
    assert metric.name == "vllm:generation_tokens_total"
    assert (metric.kind, metric.since, metric.until) == ("counter", "0.4.3", None)


@pytest.mark.parametrize("series", ["_bucket", "_count", "_sum"])
def test_a_series_belongs_to_its_histogram(series: str) -> None:
    metric = metrics.metric("0.32.0", f"vllm:time_to_first_token_seconds{series}")
    assert metric is not None
    assert metric.kind == "histogram"


def test_a_metric_of_no_version() -> None:
    name = "vllm:num_generate_tokens_total"
    assert metrics.metric("0.32.0", name) is None
    assert metrics.spans(name) == ()
    assert metrics.nearest("0.32.0", name)[0] == "vllm:generation_tokens_total"
    assert metrics.nearest("main", name) == []
    assert metrics.metric("main", name) is None
