"""One pod of a workload, examined alone: its verdict beside those of the others. Frozen, and pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PodSeen:
    """`target`: the word that examines it alone. `findings`: the causes, the worst first."""

    target: str
    verdict: str
    headline: str
    findings: tuple[str, ...] = ()
