"""What there is to show of a watch, at one moment: the ViewModel; and what may be asked of the watch: Control, Session.

Light to import: a terminal's first frame waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import State
from vllm_doctor.model.observation import GpuSeen, ProcessSeen
from vllm_doctor.model.reading import Reading
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report, Span, Timeline, Verdict, worst

if TYPE_CHECKING:
    from vllm_doctor.session.progress import ReadSoFar

WINDOWS = (5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds that a verdict may be of."""
DEFAULT_WINDOW = 30.0
HOLD = 3.0
"""Seconds for which a value stands for the time after it; longer is a gap."""


class Status(StrEnum):
    """What the watch does now."""

    STARTING = "starting"
    CHOOSING = "choosing"  # several servers were found: which?
    LIVE = "live"
    PAUSED = "paused"
    LOST = "lost"  # a server that was there does not answer; the last view model stays
    READING = "reading"  # a log
    READ = "read"
    REPLAYED = "replayed"  # a recording


@dataclass(frozen=True)
class Trend:
    """The values of many signals over time. `times`: POSIX seconds; a value that was not known is NaN."""

    times: Sequence[float] = ()
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    hold: float = HOLD

    def last(self, name: str) -> float | None:
        """The newest value; None where it was not known then."""
        values = self.values.get(name, ())
        return values[-1] if values and not math.isnan(values[-1]) else None

    def columns(self, name: str, first: float, last: float, count: int) -> tuple[float | None, ...]:
        """The mean in each of `count` equal steps of time; None where nothing was known."""
        values, times = self.values.get(name), self.times
        if values is None or not times or count < 1:
            return (None,) * max(0, count)
        step = (last - first) / count
        found: list[float | None] = []
        begin = bisect_left(times, first)
        for place in range(count):
            until = first + step * (place + 1)
            end = bisect_left(times, until, begin)
            here = [value for value in values[begin:end] if not math.isnan(value)]
            if here:
                found.append(sum(here) / len(here))
            elif end == begin and begin and until - times[begin - 1] <= max(self.hold, step):
                before = values[begin - 1]
                found.append(None if math.isnan(before) else before)
            else:
                found.append(None)
            begin = end
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened while watched: a rule's or a server's state, or the watch's own status, that began."""

    at: float
    kind: State | Status
    text: str


@dataclass(frozen=True, slots=True)
class RuleSeen:
    """A rule and its state; None before it was judged."""

    id: str
    group: str
    title: str
    state: State | None = None
    because: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of the host: its name, what it says, and its value."""

    name: str
    says: str
    unit: str
    reading: Reading


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a log around a time: from the number `first` on, that of the time at `place` among them."""

    name: str
    first: int
    lines: tuple[str, ...]
    place: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A server that was found on this host. `sources`: what to examine to see it."""

    sources: tuple[str, ...]
    name: str
    details: str


@dataclass(frozen=True)
class ViewModel:
    """Everything there is to show, at one moment. Times are POSIX seconds."""

    status: Status
    at: float
    since: float
    """When the status began."""
    window: float
    """Seconds that a verdict shall be of; the report's sources say of how many it is."""
    report: Report | None = None
    problem: str | None = None
    """Why a server is lost, or what went wrong in the doctor itself."""
    is_down: bool = False
    """Of a lost server: nothing listens there, or its processes have ended; else it is silent."""
    seen_at: float | None = None
    """When a server last answered."""
    trend: Trend = field(default_factory=Trend)
    limits: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, float] = field(default_factory=dict)
    """Above which value of a signal a rule finds fault."""
    lacking: Mapping[str, Reason] = field(default_factory=dict)
    """Why a signal of the trend has no value."""
    facts: tuple[Fact, ...] = ()
    processes: tuple[ProcessSeen, ...] = ()
    gpus: tuple[GpuSeen, ...] = ()
    rules: tuple[RuleSeen, ...] = ()
    spans: tuple[Span, ...] = ()
    """From when to when a rule's verdict held."""
    events: tuple[Event, ...] = ()
    timeline: Timeline | None = None
    """Of a log, in more steps than the report's."""
    read_so_far: ReadSoFar | None = None
    """Of files that are being read."""
    choices: tuple[Choice, ...] = ()
    began: float = 0.0
    """When the watch began."""
    due_at: float | None = None
    """When the first verdict will be there, at the latest; None: there is one, or nothing answers."""

    @property
    def last_verdict(self) -> Verdict:
        """What was last judged; unknown where nothing was."""
        return self.report.verdict if self.report is not None else Verdict.UNKNOWN

    @property
    def verdict(self) -> Verdict:
        """Of now: who does not answer is not well, whatever was seen of it before."""
        return worst(self.last_verdict, Verdict.UNKNOWN) if self.status is Status.LOST else self.last_verdict

    @property
    def is_live(self) -> bool:
        """Of a server, not of a log."""
        return self.status not in (Status.READING, Status.READ)

    @property
    def goes_on(self) -> bool:
        """Of a server that is there now, not of a recording of one."""
        return self.is_live and self.status is not Status.REPLAYED


class Control:
    """What the user wants of a running watch. Safe to use from any thread."""

    def __init__(self, seconds: float = DEFAULT_WINDOW) -> None:
        self.seconds = seconds
        self.paused = False
        self.stopped = False
        self.again = False
        self.chosen: tuple[str, ...] | None = None
        self.wake = threading.Event()

    def stop(self) -> None:
        self.stopped = True
        self.wake.set()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.wake.set()

    def window(self, seconds: float) -> None:
        self.seconds = seconds
        self.wake.set()

    def rescan(self) -> None:
        """Look for everything anew."""
        self.again = True
        self.wake.set()

    def choose(self, sources: Sequence[str]) -> None:
        self.chosen = tuple(sources)
        self.wake.set()


@dataclass
class Session:
    """A watch that is still to be opened: everything that takes time happens in `run`, off the user's thread.

    `watch` gives the view models of these sources until `control` stops it, and raises DoctorError where there is
    nothing to watch. `find` names the servers of this host; with more than one of them the user is asked. `page` is
    all about one rule, "" before the rules are read.
    """

    watch: Callable[[Sequence[str], Callable[[ViewModel], None]], None]
    page: Callable[[str], str]
    sources: tuple[str, ...] = ()
    find: Callable[[], Sequence[Choice]] | None = None
    control: Control = field(default_factory=Control)
    wall: Callable[[], float] = time.time
    record: Callable[[], bytes] | None = None
    """What was seen of late, as a recording; None: there is nothing to record."""
    excerpts: Callable[[float], Sequence[Excerpt]] = lambda at: ()
    """The lines of its logs around the time of an event; takes its time. Raises DoctorError where none can be read."""

    def run(self, tell: Callable[[ViewModel], None]) -> None:
        """Watch until `control` stops it."""
        sources = self._sources(tell)
        if not self.control.stopped:
            self.watch(sources, tell)

    def _sources(self, tell: Callable[[ViewModel], None]) -> tuple[str, ...]:
        if self.find is None or self.sources:
            return self.sources
        choices = tuple(self.find())
        if len(choices) < 2:
            return ()
        now = self.wall()
        tell(ViewModel(Status.CHOOSING, now, now, self.control.seconds, choices=choices))
        while self.control.chosen is None and not self.control.stopped:
            self.control.wake.wait()
            self.control.wake.clear()
        return self.control.chosen or ()


def verdict_of(view_model: ViewModel | None) -> Verdict:
    """The verdict of now; unknown where there was none."""
    return view_model.verdict if view_model is not None else Verdict.UNKNOWN


def wider(seconds: float, steps: int) -> float:
    """The next window that may be chosen, up or down."""
    place = min(range(len(WINDOWS)), key=lambda n: abs(WINDOWS[n] - seconds)) + steps
    return WINDOWS[max(0, min(len(WINDOWS) - 1, place))]
