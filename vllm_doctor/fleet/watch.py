"""A fleet that is asked about again and again, for a terminal.

The watch outlives the terminal's application: while an engine is open nobody listens and nothing is asked, and who
comes back finds the last view_model.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.fleet import Engine, FleetReport
from vllm_doctor.fleet.view_model import SHOWN, EngineRow, FleetSeen, FleetViewModel
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Reading
from vllm_doctor.session.view_model import Control, Status, ViewModel

EVERY = 60.0
"""Seconds from the end of one look to the next."""

Ask = Callable[[Callable[[int, int], None]], FleetReport]
"""Asks and judges; told how many queries are answered, of how many. Raises SourceError."""


class FleetWatch:
    """One Prometheus. `base`: its address with what it is opened by; `every` is None where only the user looks anew."""

    def __init__(
        self,
        ask: Ask,
        target: str,
        base: str,
        every: float | None = EVERY,
        window: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._ask, self._base, self._every = ask, base, every
        self._clock, self._wall = clock, wall
        self._due = -math.inf
        """When to look again, on the clock."""
        self._looking = threading.Lock()
        now = wall()
        self.view_model = FleetViewModel(
            Status.STARTING, now, now, window, began=now, target=target, is_past=every is None
        )

    def run(self, control: Control, tell: Callable[[ViewModel], None]) -> None:
        """Tell the view models until `control` stops it. Raises SourceError where there never was a fleet."""
        told = self.view_model
        tell(told)
        while not control.stopped:
            if control.again or self._left() <= 0:
                with self._looking:  # the last application's look may still go on
                    again, control.again = control.again, False
                    if again or self._left() <= 0:
                        self._look(control, tell)
            if self.view_model is not told and not control.stopped:
                told = self.view_model
                tell(told)
            left = self._left()
            control.wake.wait(left if left < math.inf else None)
            control.wake.clear()

    def _left(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._due - self._clock())

    def _look(self, control: Control, tell: Callable[[ViewModel], None]) -> None:
        def progress(done: int, of: int) -> None:
            if not control.stopped:
                tell(replace(self.view_model, asking=(done, of)))

        try:
            report = self._ask(progress)
        except SourceError as error:
            if self.view_model.fleet is None:
                raise
            self._become(Status.LOST, str(error))
        else:
            self._become(Status.LIVE, None)
            self.view_model = replace(self.view_model, fleet=seen(report, self._base), seen_at=self._wall())
        self._due = self._clock() + (self._every or math.inf)

    def _become(self, status: Status, problem: str | None) -> None:
        now = self._wall()
        since = self.view_model.since if self.view_model.status is status else now
        self.view_model = replace(self.view_model, status=status, at=now, since=since, problem=problem)


def seen(report: FleetReport, base: str) -> FleetSeen:
    """What a terminal shows of a report."""
    rows = tuple(_row(report, engine, base) for engine in report.engines)
    return FleetSeen(report.at.timestamp(), report.verdict, rows, report.notes, report.asked_s + report.judged_s)


def _row(report: FleetReport, engine: Engine, base: str) -> EngineRow:
    readings: dict[str, Reading] = report.readings(engine, SHOWN)
    return EngineRow(
        key="&".join(f"{label}={value}" for label, value in sorted(engine.subject.items())),
        name=engine.name,
        model=engine.model,
        verdict=engine.verdict,
        headline=engine.headline,
        rules=tuple(id for id, _ in engine.rules),
        readings=readings,
        outlying=tuple(map(fleet.beside, engine.outlying)),
        source=report.source(engine, base) if engine.place is not None else "",
    )
