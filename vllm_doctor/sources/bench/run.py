"""One run of a load generator: what it was asked to do, and what it measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.model import outside

SERVE, THROUGHPUT, LATENCY = "vllm bench serve", "vllm bench throughput", "vllm bench latency"
OFFLINE = (THROUGHPUT, LATENCY)
"""They start an engine of their own: there is no server, and no client that could be slow."""


class NoRunError(ValueError):
    """A document that is not what its tool writes; the message says where."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A time over all requests, in seconds; None: not told."""

    mean: float | None = None
    median: float | None = None
    p99: float | None = None

    @property
    def usual(self) -> float | None:
        """The mean; where that is not told, the median."""
        return self.median if self.mean is None else self.mean


@dataclass(frozen=True, slots=True)
class Asked:
    """The load that the tool was told to make. None: not told; an infinite `rate` or `concurrency`: no limit."""

    rate: float | None = None
    """Requests a second."""
    concurrency: float | None = None
    """The most requests in flight."""
    prompts: float | None = None
    input_len: float | None = None
    """Tokens of a request."""
    output_len: float | None = None
    warmups: float | None = None
    seed: float | None = None
    ignore_eos: bool | None = None
    dataset: str | None = None
    prefix_len: float | None = None
    """Tokens that all prompts share."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """Counts are of requests and tokens, times in seconds, rates per second. None: the result does not tell."""

    tool: str
    model: str | None = None
    place: str = ""
    """Where in its file it stands, if the file holds several."""
    asked: Asked = field(default_factory=Asked)
    completed: float | None = None
    failed: float | None = None
    duration: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    """Of all completed requests."""
    requests_per_second: float | None = None
    output_rate: float | None = None
    total_rate: float | None = None
    ttft: Spread = field(default_factory=Spread)
    tpot: Spread = field(default_factory=Spread)
    itl: Spread = field(default_factory=Spread)
    e2e: Spread = field(default_factory=Spread)
    in_flight: float | None = None
    """Requests in flight, the mean over the run, where the tool measured it."""
    first_requests: float | None = None
    """How many times as long as the rest the first requests took."""
    acceptance: float | None = None
    """The share of drafted tokens that were accepted."""
    acceptance_len: float | None = None
    """Tokens of a step, of speculation."""
    program: tuple[str, ...] = ()
    """The words that started the tool, before its flags."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Flags of its command as they were given; "" for one without a value."""
    has_command: bool = False
    """Whether `flags` are all that were given."""

    @property
    def input_len(self) -> float | None:
        """Prompt tokens of a request."""
        return ratio(self.input_tokens, self.completed) or self.asked.input_len

    @property
    def output_len(self) -> float | None:
        """Generated tokens of a request."""
        return ratio(self.output_tokens, self.completed)

    @property
    def is_capped(self) -> bool | None:
        """Whether the requests in flight were limited; None: not known."""
        return None if self.asked.concurrency is None else math.isfinite(self.asked.concurrency)


def ratio(a: float | None, b: float | None) -> float | None:
    """a / b; None where either is not known, or b is 0, or as good as."""
    return outside.number(a / b) if a is not None and b else None


def scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by
