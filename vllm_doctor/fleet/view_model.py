"""What there is to show of a fleet at one moment. Light to import, as view_model.py is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.model.reading import Reading
from vllm_doctor.model.report import Verdict
from vllm_doctor.session.view_model import ViewModel

SHOWN: Mapping[str, str] = {
    "requests_running": "",
    "requests_waiting": "",
    "kv_cache_usage": "share",
    "ttft_p99": "s",
    "generation_tokens_per_second": "1/s",
}
"""The signals that an engine's row has, and their units."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine. `key` stays the same from view model to view_model. `rules`: the causes found, the worst first."""

    key: str
    name: str
    model: str
    verdict: Verdict
    headline: str
    rules: tuple[str, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By the names of SHOWN."""
    outlying: tuple[str, ...] = ()
    """By what it stands out of its model, each a sentence."""
    source: str = ""
    """What opens it: prom+http://…, with a password where the Prometheus wants one; "": its server does not answer."""


@dataclass(frozen=True)
class FleetSeen:
    """A fleet as it was judged: its engines worst first. `at`: POSIX seconds."""

    at: float
    verdict: Verdict
    engines: tuple[EngineRow, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    """What it took to ask and to judge."""

    def count(self, verdict: Verdict) -> int:
        return sum(engine.verdict is verdict for engine in self.engines)

    @property
    def models(self) -> int:
        return len({engine.model for engine in self.engines})


@dataclass(frozen=True)
class FleetViewModel(ViewModel):
    """A view model of a fleet: it has no report."""

    target: str = ""
    fleet: FleetSeen | None = None
    asking: tuple[int, int] | None = None
    """How many of its queries are answered, of how many; None: nothing is asked now."""
    is_past: bool = False
    """Of a time that was asked for, not of now."""

    @property
    def last_verdict(self) -> Verdict:
        return self.fleet.verdict if self.fleet is not None else Verdict.UNKNOWN
