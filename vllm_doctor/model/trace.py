"""Where a step's time goes, as a profiler's trace shows it: frozen; seconds and shares of the time looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

COMPUTE, COMMUNICATION, COPIES = "compute", "communication", "copies"
HOST, HOST_BETWEEN, HOST_WITHIN = "host", "host-between", "host-within"
GAPS, UNEXPLAINED = "gaps", "unexplained"
OPERATORS, OUTSIDE, BETWEEN = "operators", "outside", "between"
WAITS_FOR_HOST = (HOST, HOST_BETWEEN, HOST_WITHIN)
"""The first where nothing marks the steps."""
DECODE = "decode"
OTHER = "other"
"""A family: of the kernels and operators that are of no known one."""
IDLE = (*WAITS_FOR_HOST, GAPS, UNEXPLAINED)

SAYS: Mapping[str, str] = {
    COMPUTE: "compute",
    COMMUNICATION: "communication alone",
    COPIES: "memory copies alone",
    HOST: "idle: host",
    HOST_BETWEEN: "idle: host, between steps",
    HOST_WITHIN: "idle: host, within a step",
    GAPS: "idle: between launched kernels",
    UNEXPLAINED: "idle: cause not recorded",
    OPERATORS: "operators",
    OUTSIDE: "outside of operators (Python)",
    BETWEEN: "between steps (scheduling, outputs)",
}
"""The parts of a step in their order; together they are all of it."""


@dataclass(frozen=True)
class FamilySeen:
    """Kernels of a kind; `precision` of matrix multiplications, "" where it is not told."""

    name: str
    says: str
    precision: str
    seconds: float
    count: int
    longest: str
    """The kernel that took most of it, by name."""
    longest_seconds: float


@dataclass(frozen=True)
class StepKind:
    """Steps of a kind ("decode"): the median of one, and its parts as shares. The rest is of a step on average; None
    where its marks do not tell."""

    name: str
    steps: int
    seconds: float
    parts: Mapping[str, float]
    tokens: float | None = None
    requests: float | None = None
    kv_tokens: float | None = None
    """That its requests hold."""
    families: Mapping[str, float] = field(default_factory=dict)
    """Seconds by family of kernels."""


@dataclass(frozen=True)
class Bound:
    """A family's time in a step, beside the least that it needs by the GPU's data sheet. `because`: what takes that, or
    why it is not known."""

    family: str
    says: str
    seconds: float
    least: float | None
    because: str

    @property
    def is_below(self) -> bool:
        """Which cannot be: another model, or kernels that are told as of another family."""
        return self.least is not None and self.seconds < self.least

    @property
    def factor(self) -> float | None:
        return None if not self.least or self.is_below else self.seconds / self.least


@dataclass(frozen=True)
class RankSeen:
    """What one file shows. `parts`: seconds by part, in SAYS's order."""

    target: str
    rank: int | None
    world: int | None
    device: str | None
    marked_by: str
    """What marks its steps; "" where nothing does, and all of the time is one stretch."""
    seconds: float
    """That were looked at."""
    parts: Mapping[str, float]
    overlapped: float
    """Seconds of communication behind which something was computed."""
    kinds: tuple[StepKind, ...]
    families: tuple[FamilySeen, ...]
    kernels: int
    from_graphs: int
    """Those of them that a graph launched."""
    graph_launches: int
    launches: int
    steps: int
    warm_up: int
    """Steps that were left out."""
    idle_unknown: str = ""
    """Why idle time is not judged; "" where it is."""
    is_on_cpu: bool = False
    """A trace without a device: operators only."""
    is_whole: bool = True
    """The file was read to its end."""
    vllm: str | None = None
    without_requests: float = 0.0
    """Seconds before steps of new requests only, which were left out: there may have been none."""
    has_stacks: bool = False
    """Python's stacks were recorded, which slows the host."""
    is_forward: bool = False
    """Each of its steps is one pass through the model."""
    waits: float | None = None
    """Seconds in collectives beyond the rank that waited least; None: not known."""

    @property
    def bounded(self) -> StepKind | None:
        """The kind of steps that bounds are told of: those that generate tokens, else the most. None where a step is
        not one pass through the model, or not all that ran may be here."""
        if self.is_on_cpu or self.idle_unknown or not self.is_forward:
            return None
        return next((kind for kind in self.kinds if kind.name == DECODE), self.kinds[0] if self.kinds else None)

    @property
    def idle(self) -> float:
        return sum(self.parts.get(part, 0.0) for part in IDLE)

    def share(self, *parts: str) -> float:
        return sum(self.parts.get(part, 0.0) for part in parts) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class TraceSeen:
    """A trace of one file or of several ranks; the first of them is the one that is told of."""

    tool: str
    ranks: tuple[RankSeen, ...]
    slowest: int | None = None
    """The place, in `ranks`, of the one that the others wait for; None: none, or not known."""
    notes: tuple[str, ...] = field(default=())
    bounds: tuple[Bound, ...] = ()
    """Of the told rank's kind of steps that is `bounded`."""
    bounds_lack: str = ""
    """Why there are none, where there could be."""

    @property
    def told(self) -> RankSeen:
        """The rank whose steps are told: the slowest, else the first."""
        return self.ranks[self.slowest or 0]
