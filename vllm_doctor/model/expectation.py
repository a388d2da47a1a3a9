"""What a server that does not run yet will hold and how fast it should be. Frozen; every renderer's input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vllm_doctor.model.reading import Value


@dataclass(frozen=True)
class Range:
    """A figure between what such servers typically reach, `low` to `high`, and its physical `bound`.

    Of a time the bound is the least, of a rate the highest. None: not known.
    """

    bound: float | None = None
    low: float | None = None
    typical: float | None = None
    high: float | None = None

    def each(self, of: Callable[[float], float]) -> Range:
        """The figures that these give, each by itself."""
        bound, low, typical, high = (
            None if value is None else of(value) for value in (self.bound, self.low, self.typical, self.high)
        )
        return Range(bound, low, typical, high)

    @property
    def swapped(self) -> Range:
        """A rate of what was a time: the long time is the low rate."""
        return Range(self.bound, self.high, self.typical, self.low)

    @property
    def is_known(self) -> bool:
        return self.typical is not None


@dataclass(frozen=True)
class Load:
    """`requests` at a time, each of so many tokens; a request that ends is followed by the next one."""

    requests: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True)
class LoadExpected:
    """What a load gets. Times in seconds, rates in output tokens a second."""

    load: Load
    running: float | None
    """Requests that run at the same time, on all engines; the others queue. None: not known."""
    tpot: Range
    ttft: Range
    """As who asks sees it: with the time in the queue."""
    rate: Range
    """Of all requests together."""
    rate_of_request: Range
    """Of one that runs, from its start to its end: without the time in the queue."""
    queue: Range
    """How long a request waits for its turn."""

    @property
    def queued(self) -> float | None:
        return None if self.running is None else max(0.0, self.load.requests - self.running)


@dataclass(frozen=True)
class Assumption:
    """A value that the answer is computed from. `origin` says where it is from, in words."""

    what: str
    value: Value
    unit: str
    origin: str


@dataclass(frozen=True)
class Lacking:
    """What is not known, and how to give it."""

    what: str
    how: str


@dataclass(frozen=True)
class Expectation:
    """Bytes and tokens; None where not known."""

    refused: str | None
    """Why vLLM does not start with these flags, by its own checks; None: it is not known to refuse them."""
    fits: bool | None
    """Whether the weights and one request of the first load fit into the GPUs that the command uses."""
    gpus: float | None
    """GPUs that the command uses."""
    gpus_here: float | None
    """GPUs that there are."""
    gpus_needed: float | None
    """The fewest with which it fits, a power of two for each replica."""
    gpu_memory: float | None
    gpu_memory_taken: float | None
    """The share of it that vLLM takes."""
    weights_per_gpu: float | None
    kv_memory_per_gpu: float | None
    kv_tokens: float | None
    """In requests of the first load, on all engines."""
    requests_that_fit: float | None
    full_length: float | None
    """The context limit: tokens of the longest request that the command allows."""
    full_length_requests: float | None
    """Such requests that the KV cache of an engine holds: below 1 vLLM does not start."""
    longest_request: float | None
    """The context limit with which vLLM surely starts, in tokens; 0: with none of 1,024 or more."""
    loads: tuple[LoadExpected, ...]
    assumptions: tuple[Assumption, ...]
    unknown: tuple[Lacking, ...]

    @property
    def context_fits(self) -> bool | None:
        """Whether vLLM starts with this context limit."""
        return None if self.full_length_requests is None else self.full_length_requests >= 1

    @property
    def is_answer(self) -> bool:
        """Whether it says if the model fits, or how fast it is."""
        return self.fits is not None or any(load.tpot.is_known for load in self.loads)

    @property
    def says_anything(self) -> bool:
        """Whether anything of the server is known: the size of its weights, or how fast it is."""
        return self.weights_per_gpu is not None or any(load.tpot.is_known for load in self.loads)
