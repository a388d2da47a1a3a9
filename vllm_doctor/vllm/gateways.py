"""Gateways and routers in front of vLLM servers, told by the metrics that they alone show.

data/gateways.tsv: read in their own sources. production-stack's router repeats metrics of its servers under vLLM's own
names: a page is a router's where it has such a metric, and none of vLLM's that the router does not repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent / "data" / "gateways.tsv"
_VLLM = "vllm:"
_REPEATED = frozenset(
    f"vllm:{name}"
    for name in (
        "num_requests_running", "num_requests_waiting", "num_requests_swapped", "gpu_prefix_cache_hit_rate",
        "gpu_prefix_cache_hits_total", "gpu_prefix_cache_queries_total", "current_qps", "avg_decoding_length",
        "num_prefill_requests", "num_decoding_requests", "num_incoming_requests_total",
        "num_incoming_requests_created", "healthy_pods_total", "avg_latency", "avg_itl", "input_tokens_total",
        "input_tokens_created", "output_tokens_total", "output_tokens_created", "request_errors_total",
        "request_errors_created", "request_latency_seconds_bucket", "request_latency_seconds_sum",
        "request_latency_seconds_count", "request_latency_seconds_created",
    )
)  # fmt: skip
"""What production-stack's router shows under names that begin as vLLM's do."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """What stands in front of servers: its name, and its role on the path (gateway, router)."""

    product: str
    role: str
    begins: str


@cache
def table() -> tuple[Gateway, ...]:
    rows = (line.split("\t") for line in _DATA.read_text("utf-8").splitlines() if not line.startswith("#"))
    return tuple(Gateway(product, role, begins) for product, role, begins, _ in rows)


def of(names: Iterable[str]) -> Gateway | None:
    """Whose page shows these metrics; None where it is a vLLM server's, or nobody's that is known."""
    shown = set(names)
    if any(name.startswith(_VLLM) and name not in _REPEATED for name in shown):
        return None
    return next((one for one in table() if any(name.startswith(one.begins) for name in shown)), None)


def shows(name: str) -> bool:
    """Whether a gateway or a router that is known shows a metric of this name."""
    return name in _REPEATED or any(name.startswith(one.begins) for one in table())
