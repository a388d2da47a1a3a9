"""What is known of each engine at one moment: signals, each a value or a reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.model.reading import Reading, Subject, Unknown, Value, project
from vllm_doctor.model.reason import Reason


class Series:
    """One signal's readings, by subject; asked for an engine, it answers for what contains it.

    A server-wide value (no labels) or a model's value holds for each engine in it.
    """

    __slots__ = ("_readings", "_shapes")

    def __init__(self, readings: Mapping[Subject, Reading]) -> None:
        self._readings: dict[Subject, Reading] = {}
        self._shapes: list[tuple[str, ...]] = []
        for subject, reading in readings.items():
            self.add(subject, reading)

    def add(self, subject: Subject, reading: Reading) -> None:
        self._readings[subject] = reading
        shape = tuple(name for name, _ in subject)
        if shape not in self._shapes:
            self._shapes = sorted([*self._shapes, shape], key=len, reverse=True)

    @property
    def is_alike(self) -> bool:
        """Whether it answers the same for every engine."""
        return self._shapes == [()]

    def at(self, subject: Subject) -> tuple[Subject, Reading] | None:
        """The reading for the narrowest subject that contains this one, and that subject."""
        for shape in self._shapes:
            key = project(subject, shape) if shape else ()
            found = self._readings.get(key)
            if found is not None:
                return key, found
        return None


@dataclass(frozen=True)
class Snapshot:
    """All signals of all engines of one server at one moment. Pure data."""

    subjects: tuple[Subject, ...]
    series: Mapping[str, Series]
    missing: Mapping[str, Reason] = field(default_factory=dict)
    """Why a signal has no reading at all."""
    tag: Subject = ()
    """Tells servers apart where several are examined together."""
    flags: Mapping[str, Value] = field(default_factory=dict)
    """What the server was started with, where its command line was read; a variable X of its environment as "$X"."""
    alike: frozenset[str] = frozenset()
    """Signals that are the same for every engine, as all are that they are computed from."""
    left_out: int = 0
    """Engines for which there was no time."""
    is_path: bool = False
    """Of the path of a request, through several sources, and of no engine."""

    def read(self, name: str, subject: Subject) -> tuple[Subject, Reading]:
        """A signal for one engine, and the subject that the reading belongs to."""
        series = self.series.get(name)
        found = series.at(subject) if series is not None else None
        if found is not None:
            return found
        return (), Unknown(self.missing.get(name, Reason.ABSENT))


@dataclass(frozen=True)
class Evaluated:
    """Signals of one server's engines that another has evaluated: a Prometheus. Under the catalogue's names.

    `seconds`: the window that it looked at; `scrapes`: how many of each engine lie in it, at least.
    """

    engines: tuple[Subject, ...]
    readings: Mapping[str, Mapping[Subject, Reading]]
    missing: Mapping[str, Reason] = field(default_factory=dict)
    """Why a signal has no reading at all."""
    seconds: float = 0.0
    scrapes: int = 0
