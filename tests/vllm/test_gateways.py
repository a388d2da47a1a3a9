"""Whose page it is: a gateway's, a router's, or a vLLM server's."""

from __future__ import annotations

import pytest

from tests.serving import page
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.vllm import gateways

PRODUCTION_STACK = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:current_qps", "vllm:avg_latency")


@pytest.mark.parametrize(
    ("names", "product", "role"),
    [
        (("litellm_request_total_latency_metric_sum", "process_start_time_seconds"), "LiteLLM", "gateway"),
        (("llm_d_epp_request_duration_seconds_sum",), "llm-d EPP", "router"),
        (("inference_extension_scheduler_e2e_duration_seconds_sum",), "llm-d EPP", "router"),
        (("inference_pool_ready_pods",), "llm-d EPP", "router"),
        (PRODUCTION_STACK, "production-stack", "router"),
        (("vllm:request_latency_seconds_sum", "vllm:healthy_pods_total"), "production-stack", "router"),
        (("vllm_router_generate_duration_seconds_sum",), "vLLM router", "router"),
        (("smg_http_request_duration_seconds_sum",), "SGLang router", "router"),
        (("sgl_router_requests_total",), "SGLang router", "router"),
        (("ray_serve_http_request_latency_ms_sum",), "Ray Serve", "gateway"),
        (("gen_ai_server_request_duration_seconds_sum",), "Envoy AI Gateway", "gateway"),
    ],
)
def test_a_gateway_is_known_by_what_it_alone_shows(names: tuple[str, ...], product: str, role: str) -> None:
    found = gateways.of(names)
    assert found is not None
    assert (found.product, found.role) == (product, role)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("node_cpu_seconds_total",),
        ("vllm:num_requests_running",),  # all that is left of a page: it may be a server's
        ("vllm:num_requests_running", "vllm:kv_cache_usage_perc"),
        ("vllm:kv_cache_usage_perc", "ray_serve_http_request_latency_ms_sum"),  # Ray shows its servers' metrics, too
        (*PRODUCTION_STACK, "vllm:kv_cache_usage_perc"),  # two pages in one file: a server's is among them
    ],
)
def test_whose_page_is_a_servers_or_unknown_is_no_gateways(names: tuple[str, ...]) -> None:
    assert gateways.of(names) is None


@pytest.mark.parametrize("name", ["preemption", "healthy-busy"])
def test_a_real_page_of_a_server_is_no_gateways(name: str) -> None:
    assert parse(page(name, 0), frozenset()).gateway is None
