"""How often a server was started again within an hour, and how soon: facts, whoever saw it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vllm_doctor.model.reading import Known, Reading

MEMORY = 3600.0
"""Seconds after which a restart says nothing of now any more."""
_MOST = 1000
_SKEW = 60.0
"""Seconds between the clocks of two hosts."""
WINDOW = "window_seconds"
"""The fact that says over how long a server was scraped."""


class Starts:
    """When one server was started, as far as it was asked. Behind a balancer the start times of several servers take
    turns, and are older than the last look: then nothing is known."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._looked = 0.0
        self._is_one = True

    def add(self, at: float, started: float) -> None:
        """What it says at the time `at`, both POSIX seconds; 0 where it does not say."""
        last = self._seen[-1][1] if self._seen else 0.0
        if started and started != last:
            self._is_one = self._is_one and (not last or started > max(last, self._looked - _SKEW))
            self._seen = [*self._seen[-_MOST:], (at, started)]
        self._looked = at

    def facts(self, now: float, origin: str) -> dict[str, Reading]:
        """Its restarts within the last hour; nothing where none was seen."""
        lives = ((at, started, started - before) for (_, before), (at, started) in pairwise(self._seen))
        recent = [(started, lived) for at, started, lived in lives if at > now - MEMORY]
        return facts(recent, origin) if recent and self._is_one else {}


def facts(restarts: Sequence[tuple[float, float]], origin: str) -> dict[str, Reading]:
    """Of restarts within an hour, the oldest first: when each was, and how long its predecessor had run, in seconds."""
    found: dict[str, Reading] = {"restarts": Known(float(len(restarts)), origin=origin)}
    if restarts:
        found["lived_before_restart"] = Known(sum(lived for _, lived in restarts) / len(restarts), origin=origin)
    if len(restarts) > 1:
        apart = (restarts[-1][0] - restarts[0][0]) / (len(restarts) - 1)
        found["restart_interval"] = Known(apart, origin=origin)
    return found
