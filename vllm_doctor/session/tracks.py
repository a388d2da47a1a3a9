"""The trends of the vital signs of what is watched: an hour of them at one a second, each over all engines."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise

from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.view_model import HOLD, Trend

TRACKS = (
    "requests_running", "requests_waiting", "waiting_for_capacity", "kv_cache_usage",
    "generation_tokens_per_second", "prompt_tokens_per_second", "preemptions_per_second",
    "requests_finished_per_second", "ttft_p99", "itl_p99", "engine_cpu", "api_cpu", "gpu_utilization", "gpu_clock",
)  # fmt: skip
"""The signals whose trend is kept."""
_SUMS = ("waiting_for_capacity", "max_num_seqs")
"""What adds up over the engines, besides the vital signs that do."""
LIMITS = ("max_num_seqs", "cores_usable", "gpu_clock_max")
"""Signals that are the top of a scale."""
SCALED = (*TRACKS, *LIMITS)
_KEPT = 3600
"""Moments."""


class Tracks:
    """What is kept of the vital signs. Times are POSIX seconds."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue, self._narrow = catalogue, catalogue.narrowed(SCALED)
        self._times = array("d")
        self._summed = summed(catalogue)
        self._values = {name: array("d") for name in TRACKS}
        self._hold = HOLD
        self._limits: dict[str, float] = {}
        self._lacking: dict[str, Reason] = {}

    def add(self, at: float, observations: Sequence[Observation]) -> bool:
        """One more moment; whether anything was seen to add."""
        if self._times and at <= self._times[-1]:
            return False  # wall clocks step
        snapshots = self._snapshots(observations)
        if not snapshots:
            return False
        self._times.append(at)
        for name in TRACKS:
            value, why = _together(name, snapshots, name in self._summed)
            if why is None:
                self._lacking.pop(name, None)
            else:
                self._lacking[name] = why
            self._values[name].append(value)
        for name in LIMITS:
            value, why = _together(name, snapshots, name in _SUMS)
            if why is None:
                self._limits[name] = value
        if len(self._times) > 2 * _KEPT:
            del self._times[:_KEPT]
            for values in self._values.values():
                del values[:_KEPT]
        return True

    def begin(self, history: Mapping[str, Mapping[float, float]], before: float) -> None:
        """What was known of the time before the first moment; each of its values stands until the next one."""
        times = sorted({at for points in history.values() for at in points if at < before})
        if self._times or len(times) < 2:
            return
        self._times.extend(times)
        for name, values in self._values.items():
            points = history.get(name, {})
            values.extend(points.get(at, math.nan) for at in times)
        self._hold = 1.5 * min(after - at for at, after in pairwise(times))

    def gap(self, at: float) -> None:
        """From here on nothing is known."""
        if self._times:
            self._times.append(max(at, self._times[-1] + 0.001))
            for values in self._values.values():
                values.append(math.nan)

    @property
    def trend(self) -> Trend:
        cut = max(0, len(self._times) - _KEPT)
        return Trend(self._times[cut:], {name: values[cut:] for name, values in self._values.items()}, self._hold)

    @property
    def limits(self) -> Mapping[str, float]:
        """The tops of scales, as they were last known."""
        return dict(self._limits)

    @property
    def lacking(self) -> Mapping[str, Reason]:
        """Why a signal was not known at the last moment."""
        return dict(self._lacking)

    def _snapshots(self, observations: Sequence[Observation]) -> list[Snapshot]:
        by_patient: dict[str, list[Observation]] = {}
        for observation in observations:
            by_patient.setdefault(observation.patient or observation.target, []).append(observation)
        found = []
        for seen in by_patient.values():
            window = next((o.recent for o in seen if o.recent.times), None)
            told = next((o.evaluated for o in seen if o.evaluated is not None), None)
            if window is not None or told is not None:
                facts = {name: fact for o in reversed(seen) for name, fact in o.facts.items()}
                found.append(self._narrow.snapshot(window or Window(), facts, evaluated=None if window else told))
        return found


def summed(catalogue: Catalogue) -> frozenset[str]:
    """The tracked signals that add up over the engines; of others the most counts."""
    return frozenset(name for name in TRACKS if name in _SUMS or catalogue.signals[name].vital == "sum")


def _together(name: str, snapshots: Sequence[Snapshot], summed: bool) -> tuple[float, Reason | None]:
    """One signal of all engines: their sum or the most. NaN, and why, where one is unknown."""
    values = []
    for snapshot in snapshots:
        keys = set()
        for subject in snapshot.subjects:
            key, reading = snapshot.read(name, subject)
            if isinstance(reading, Unknown):
                return math.nan, reading.reason
            if key not in keys and isinstance(reading.value, float | int):
                keys.add(key)
                values.append(float(reading.value))
    if not values:
        return math.nan, Reason.ABSENT
    return (sum(values) if summed else max(values)), None
