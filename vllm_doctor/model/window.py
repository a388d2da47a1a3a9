"""The scrapes of one target over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from vllm_doctor.model.reason import Reason

Labels = tuple[tuple[str, str], ...]
Point = tuple[float, float]
"""(seconds on a clock that does not step, value)"""


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Labels
    value: float


class Window:
    """metric name -> label set -> its points, oldest first.

    Bounded by the reader: what it does not name (`wanted` of exposition.parse) is never stored.
    """

    def __init__(self) -> None:
        self._series: dict[str, dict[Labels, list[Point]]] = defaultdict(dict)
        self.times: list[float] = []
        self.origin = "metrics"
        """Who told it: metrics, or log."""
        self.lone = Reason.FIRST_SCRAPE
        """Why there is no scrape before, where there is only one."""

    def add(self, at: float, samples: Iterable[Sample]) -> None:
        """Add one scrape, taken at `at` seconds; later than the one before."""
        self.times.append(at)
        for sample in samples:
            points = self._series[sample.name].setdefault(sample.labels, [])
            if points and points[-1][0] == at:  # the same series twice on one page: keep the last
                points.pop()
            points.append((at, sample.value))

    def drop(self, at: float) -> None:
        """Forget the scrape of that time, the oldest or the newest."""
        self.times.remove(at)
        for series in self._series.values():
            for labels, points in list(series.items()):
                if points[0][0] == at:
                    del points[0]
                elif points[-1][0] == at:
                    del points[-1]
                if not points:
                    del series[labels]

    def copy(self) -> Window:
        """The same, to be read while this one goes on."""
        copied = Window()
        copied.lone = self.lone
        copied.origin, copied.times = self.origin, list(self.times)
        for name, series in list(self._series.items()):
            copied._series[name] = {labels: list(points) for labels, points in series.items()}
        return copied

    def part(self, first: float, last: float) -> Window:
        """The scrapes from `first` to `last`, both with them."""
        part = Window()
        part.lone = self.lone
        part.origin, part.times = self.origin, [at for at in self.times if first <= at <= last]
        for name, series in self._series.items():
            kept = {labels: [p for p in points if first <= p[0] <= last] for labels, points in series.items()}
            part._series[name] = {labels: points for labels, points in kept.items() if points}
        return part

    @property
    def seconds(self) -> float:
        return self.times[-1] - self.times[0] if self.times else 0.0

    def series(self, name: str) -> Mapping[Labels, list[Point]]:
        return self._series.get(name, {})

    def latest(self, name: str) -> dict[Labels, float]:
        """The values of the last scrape; a series that has vanished is not in it."""
        if not self.times:
            return {}
        now = self.times[-1]
        return {labels: points[-1][1] for labels, points in self.series(name).items() if points[-1][0] == now}

    def vanished(self, name: str) -> list[Labels]:
        """Series that an earlier scrape had and the last one lacks."""
        now = self.times[-1] if self.times else 0.0
        return [labels for labels, points in self.series(name).items() if points[-1][0] != now]


def increase(points: list[Point]) -> float:
    """How much a counter grew. A fall is a restart: what it shows after is what it grew since."""
    grown = 0.0
    for (_, before), (_, after) in pairwise(points):
        grown += after if after < before else after - before
    return grown
