"""Where the time of a request goes on its way through gateway, router and servers. Frozen, and pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason


@dataclass(frozen=True)
class PathSource:
    """A source that is part of the path: its role, its name, and of a gateway or a router what it is."""

    role: str
    target: str
    product: str = ""


@dataclass(frozen=True)
class HopSeen:
    """A part of the path: its time a request in seconds, or why it is not known; its share of the whole time.

    `by`: how the time is known, with the numbers. `blamed`: the rule that names it as what takes the time.
    """

    hop: str
    says: str
    seen: Known | Reason
    share: float | None
    by: str
    blamed: str | None = None
    missing: Mapping[str, Reason] | None = None


@dataclass(frozen=True)
class PathSeen:
    """The path of a request, outermost first. Times are means over the window.

    `requests`: of how many; `rest`: what no hop explains, None where a hop is not known.
    """

    sources: tuple[PathSource, ...]
    total: Known | Reason
    requests: float | None
    hops: tuple[HopSeen, ...]
    rest: float | None

    @property
    def blamed(self) -> tuple[HopSeen, ...]:
        """The hops that a finding names, the longest first."""
        named = [hop for hop in self.hops if hop.blamed is not None]
        return tuple(sorted(named, key=lambda hop: -(hop.share or 0.0)))
