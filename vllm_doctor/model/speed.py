"""The speed that requests get, beside what such a server should do. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """Where the measured speed lies."""

    UNKNOWN = "unknown"  # it was not measured, or what is expected is not known
    IDLE = "idle"  # nothing ran
    BEYOND = "beyond-bound"  # faster than physics: what is assumed of the server is not true
    FAST = "fast"  # faster than is typical
    TYPICAL = "typical"
    SLOW = "slow"

    @property
    def is_fine(self) -> bool:
        """Whether requests get what such a server gives."""
        return self in (Standing.TYPICAL, Standing.FAST)


@dataclass(frozen=True)
class Pace:
    """One figure: as measured, its physical bound, and the range of healthy servers. None: not known."""

    measured: float | None = None
    bound: float | None = None
    low: float | None = None
    typical: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Share:
    """How much of the missing speed a finding explains, at most; None: what it costs is not known, it may be all."""

    rule: str
    share: float | None


@dataclass(frozen=True)
class Assumption:
    """What the expectation rests on, in words, and who said so (reading.Known's origin)."""

    says: str
    origin: str


@dataclass(frozen=True)
class Expected:
    """One engine's speed beside what is expected of this model on these GPUs under this load.

    `low` is the faster end of `tpot`, and the slower one of `tokens`.
    """

    subject: Mapping[str, str]
    standing: Standing
    tpot: Pace
    """Time per output token of a request, seconds."""
    tokens: Pace
    """Output tokens a second, of all requests that run."""
    batch: float | None
    """Requests that share a step."""
    gpus: float | None = None
    """GPUs of the engine."""
    assumptions: tuple[Assumption, ...] = ()
    lacks: tuple[str, ...] = ()
    """What is not known, and how to give it; the first is what matters most. Empty where the speed was judged."""
    explained: tuple[Share, ...] = ()
    """The findings that lengthen a step, those that explain most first; of a slow server."""
    measure_next: tuple[str, ...] = ()
    """What would decide, where the findings do not explain all that is missing."""
    is_beyond_flags: bool = False
    """So slow that no flag costs as much: the device, the host or the measurement is suspected."""
    stretch: tuple[float, float] | None = None
    """Of a log: from when to when, POSIX seconds."""

    @property
    def is_judged(self) -> bool:
        """Whether it was measured, and what is expected is known."""
        return self.standing not in (Standing.UNKNOWN, Standing.IDLE)

    @property
    def is_below_typical(self) -> bool:
        """Whether it is slower than healthy servers are, by no more than such figures are uncertain."""
        measured, high = self.tpot.measured, self.tpot.high
        return self.standing is Standing.TYPICAL and measured is not None and high is not None and measured > high

    @property
    def missing(self) -> float | None:
        """Share of the typical speed that requests do not get; None: not judged."""
        if self.tpot.measured is None or self.tpot.typical is None:
            return None
        return max(0.0, 1.0 - self.tpot.typical / self.tpot.measured) if self.tpot.measured > 0 else 0.0

    @property
    def unexplained(self) -> float | None:
        """Share of what is missing that no finding explains; None: not slow, or a finding may explain any part."""
        if self.standing is not Standing.SLOW or any(share.share is None for share in self.explained):
            return None
        return max(0.0, 1.0 - sum(share.share or 0.0 for share in self.explained))
