"""Pages of gateways, routers and servers, as observations: real ones (tests/data/path), and made ones."""

from __future__ import annotations

from collections.abc import Mapping

from tests.making import shipped_catalogue
from tests.paths import ROOT
from vllm_doctor.model.observation import Observation
from vllm_doctor.sources.server import scrapes
from vllm_doctor.sources.server.exposition import parse
from vllm_doctor.sources.server.scrapes import START_TIME, Scrape

GATEWAY, ROUTER, A, B = "http://gateway:4000", "http://router:29000", "http://a:8000", "http://b:8000"
REAL = {"litellm": GATEWAY, "vllm-router": ROUTER, "a": A, "b": B}
SECONDS = 10.0


def observed(target: str, *pages: str, role: str = "") -> Observation:
    """These pages of one source, as the doctor has them after its look."""
    wanted = shipped_catalogue().metrics | {START_TIME}
    seen = [Scrape(SECONDS * place, parse(page, wanted), 0.0, None) for place, page in enumerate(pages)]
    return scrapes.seen(target, seen, scrapes.identity(target, seen[0].page, {}, {}, role))


def real(name: str, role: str = "") -> Observation:
    pages = [(ROOT / "tests/data/path" / f"{name}.{place}.prom").read_text("utf-8") for place in (0, 1)]
    return observed(REAL[name], *pages, role=role)


def counted(
    target: str, counts: Mapping[str, float], gauges: Mapping[str, float] | None = None, role: str = ""
) -> Observation:
    """A made source: what its counters, by their names with labels, grew by."""
    before = "".join(f"{name} 1000\n" for name in counts)
    after = "".join(f"{name} {1000 + grown!r}\n" for name, grown in counts.items())
    now = "".join(f"{name} {value!r}\n" for name, value in (gauges or {}).items())
    return observed(target, before + now, after + now, role=role)


def histogram(name: str, count: float, mean: float, labels: str = "") -> dict[str, float]:
    """What a histogram of so many values grows by."""
    return {f"{name}_count{labels}": count, f"{name}_sum{labels}": count * mean}


def server(
    target: str,
    requests: float = 100,
    http: float = 0.2,
    engine: float = 0.195,
    queue: float = 0.0,
    prefill: float = 0.02,
    decode: float = 0.17,
    more: Mapping[str, float] | None = None,
    gauges: Mapping[str, float] | None = None,
    role: str = "",
) -> Observation:
    """A made vLLM server: means of so many requests in seconds."""
    of = '{engine="0",model_name="m"}'
    counts = {
        **histogram("http_request_duration_seconds", requests, http, '{handler="/v1/completions",method="POST"}'),
        **histogram("vllm:e2e_request_latency_seconds", requests, engine, of),
        **histogram("vllm:request_queue_time_seconds", requests, queue, of),
        **histogram("vllm:request_prefill_time_seconds", requests, prefill, of),
        **histogram("vllm:request_decode_time_seconds", requests, decode, of),
        **(more or {}),
    }
    told = {f"vllm:num_requests_running{of}": 2.0, f"vllm:num_requests_waiting{of}": 0.0, **(gauges or {})}
    return counted(target, counts, told, role)


def litellm(requests: float = 100, total: float = 0.22, api: float = 0.21, queue: float = 0.004) -> Observation:
    counts = {
        **histogram("litellm_request_total_latency_metric", requests, total, '{model="m"}'),
        **histogram("litellm_llm_api_latency_metric", requests, api, '{model="m"}'),
        **histogram("litellm_request_queue_time_seconds", requests, queue, '{model="m"}'),
    }
    return counted(GATEWAY, counts)


def vllm_router(requests: float = 100, total: float = 0.205) -> Observation:
    return counted(ROUTER, histogram("vllm_router_generate_duration_seconds", requests, total))
