"""What is known of each engine at one moment: signals, each a value or a reason why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Value = float | str | bool
Subject = tuple[tuple[str, str], ...]
"""The labels that name an engine, sorted: (("engine", "0"), ("model_name", "m")). () is the server."""


class Reason(StrEnum):
    """Why a signal is unknown. The list is closed: hooks may depend on it."""

    ABSENT = "absent"  # the server does not export it (this version, or not switched on)
    FIRST_SCRAPE = "first-scrape"  # a rate needs two scrapes
    IDLE = "idle"  # nothing happened in the window: 0/0
    INVALID = "invalid"  # exported as NaN, or not a number
    UNREACHABLE = "unreachable"
    DENIED = "denied"
    STALE = "stale"  # was there, is gone; or the last look (--state) was too long ago
    NOT_IN_LOG = "not-in-log"
    NO_LOG = "no-log"  # the server's log was not given
    NOT_IN_COMMAND = "not-in-command"  # a command alone does not hold it, or not its value
    NOT_LOCAL = "not-local"  # only visible on the server's host
    NOT_GIVEN = "not-given"  # the user has not said (--slo)
    BETWEEN = "between-buckets"  # the histogram's bucket straddles the threshold
    NOT_SUPPORTED = "not-supported"  # this device, driver or kernel does not tell
    NO_DRIVER = "no-driver"  # no NVIDIA driver, or one that does not answer
    NOT_SET = "not-set"  # not on the command line: vLLM's default holds, which depends on the host


HOW_TO_LEARN: Mapping[Reason, str] = {
    Reason.ABSENT: "it is not there: not on this server's /metrics, or not on this host",
    Reason.FIRST_SCRAPE: "a rate needs two scrapes: --window 3",
    Reason.IDLE: "nothing happened in the window: look under load, or longer (--window 30)",
    Reason.INVALID: "the server exports no number there",
    Reason.UNREACHABLE: "the server did not answer",
    Reason.DENIED: "permission was denied: run me as the server's user, or as root",
    Reason.STALE: "it vanished while watched, or the last look (--state) was of another start or too long ago",
    Reason.NOT_IN_LOG: "a log does not carry it: ask /metrics",
    Reason.NO_LOG: "only the server's log tells it: add the log as another argument",
    Reason.NOT_IN_COMMAND: "the command alone does not tell it: examine the server once it runs (its URL, or its pid)",
    Reason.NOT_LOCAL: "/metrics does not carry it: run me on the server's own host",
    Reason.NOT_GIVEN: "no target was given: --slo ttft=2s --slo itl=50ms",
    Reason.BETWEEN: "the histogram's buckets are too coarse to tell",
    Reason.NOT_SUPPORTED: "this device, driver or kernel does not tell it",
    Reason.NO_DRIVER: "no GPU was seen: run me where the GPUs are, or give --nvidia-smi FILE, or name it: --gpu NAME",
    Reason.NOT_SET: "it is not on the server's command line, so vLLM's own default holds",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A value. `low` and `high` bound it where a histogram knows no better than its buckets.

    `origin` says who told it: metrics, prometheus, server, user, proc, cgroup, cmdline, environ, image,
    manifest, nvml, nvidia-smi, --gpu, log, computed, cadvisor, dcgm.
    """

    value: Value
    low: float | None = None
    high: float | None = None
    origin: str = field(default="metrics", compare=False)

    @property
    def bounds(self) -> tuple[float, float] | None:
        if self.low is None or self.high is None:
            return None
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: Reason


Reading = Known | Unknown


@dataclass(frozen=True, slots=True)
class Values:
    """A signal of many engines, one value each; None: unknown. `has_text`: some may be texts."""

    each: Sequence[Value | None]
    has_text: bool = False


@dataclass(frozen=True, slots=True)
class Bounded:
    """A signal of many engines that is known within bounds, one reading each."""

    each: Sequence[Reading]


Column = Reading | Values | Bounded
"""A signal of many engines; one Reading where it is the same for all."""


def project(subject: Subject, labels: Iterable[str]) -> Subject:
    """The part of a subject that these labels name."""
    wanted = set(labels)
    return tuple(pair for pair in subject if pair[0] in wanted)


class Series:
    """One signal's readings, by subject; asked for an engine, it answers for what contains it.

    A server-wide value (no labels) or a model's value holds for each engine in it.
    """

    __slots__ = ("_readings", "_shapes")

    def __init__(self, readings: Mapping[Subject, Reading]) -> None:
        self._readings = readings
        shapes = {tuple(name for name, _ in subject) for subject in readings}
        self._shapes = sorted(shapes, key=len, reverse=True)

    def at(self, subject: Subject) -> tuple[Subject, Reading] | None:
        """The reading for the narrowest subject that contains this one, and that subject."""
        for shape in self._shapes:
            key = project(subject, shape)
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

    def read(self, name: str, subject: Subject) -> tuple[Subject, Reading]:
        """A signal for one engine, and the subject that the reading belongs to."""
        series = self.series.get(name)
        found = series.at(subject) if series is not None else None
        if found is not None:
            return found
        return (), Unknown(self.missing.get(name, Reason.ABSENT))


@dataclass(frozen=True)
class Told:
    """Signals of one server's engines that another has evaluated: a Prometheus. Under the catalogue's names.

    `seconds`: the window that it looked at; `scrapes`: how many of each engine lie in it, at least.
    """

    engines: tuple[Subject, ...]
    readings: Mapping[str, Mapping[Subject, Reading]]
    missing: Mapping[str, Reason] = field(default_factory=dict)
    """Why a signal has no reading at all."""
    seconds: float = 0.0
    scrapes: int = 0
