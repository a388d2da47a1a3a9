"""What is past is read once, while somebody looks on: its report, its time line, its events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from vllm_doctor.model.kinds import State
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Report, Timeline
from vllm_doctor.rules import postmortem
from vllm_doctor.session.observe import observe
from vllm_doctor.session.source import Source
from vllm_doctor.session.view_model import Event

ONE_DAY = 86400.0
"""Seconds: nobody waits for an answer."""
STEPS = 480
"""Of the time line of a log."""
_MOST_EVENTS = 500


class PastReading(threading.Thread):
    """One examination, in a thread of its own; its results stand in it when it has ended."""

    def __init__(self, sources: Sequence[Source], judge: Callable[[Sequence[Observation]], Report]) -> None:
        super().__init__(daemon=True)
        self._watchers, self._judge = sources, judge
        self.report: Report | None = None
        self.timeline: Timeline | None = None
        self.events: tuple[Event, ...] = ()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            observations = observe(self._watchers, ONE_DAY)
            self.report = self._judge(observations)
            runs = [run for o in observations for run in o.runs]
            self.timeline = postmortem.timeline(runs, STEPS) if runs else None
            self.events = tuple(_told(self.report))
        except Exception as error:
            self.failure = error


def _told(report: Report) -> Iterator[Event]:
    """What a log tells of: the beginnings and the ends of runs, and of what was found."""
    events = []
    for number, run in enumerate(report.runs, 1):
        name = f"run {number}" if len(report.runs) > 1 else "the server"
        if run.first_at is not None:
            events.append(
                Event(run.first_at, State.OK, f"{name} {'starts' if run.began else 'runs: log starts mid-run'}")
            )
        if run.end == "died" and (run.died_at or run.last_at) is not None:
            cause = run.cause or "the log shows no exception"
            line = f" (line {run.cause_line:,})" if run.cause_line is not None else ""
            who = f" in {run.process}" if run.process else ""
            events.append(
                Event(run.died_at or run.last_at or 0.0, State.CRITICAL, f"{name} crashed{who}: {cause}{line}")
            )
        elif run.end == "stopped" and run.last_at is not None:
            by = f": {run.ended_by}" if run.ended_by else ""
            events.append(Event(run.last_at, State.INFO, f"{name} was stopped{by}"))
        elif run.end == "hung" and run.last_at is not None:
            began = run.last_at - run.hung_seconds
            events.append(Event(began, State.CRITICAL, f"{name} hangs: requests run, and no tokens are generated"))
    whole = {(run.first_at, run.last_at) for run in report.runs}
    for span in report.spans:
        if (span.first_at, span.last_at) not in whole:
            events.append(Event(span.first_at, State(span.severity), f"{span.rule} begins"))
    yield from sorted(events, key=lambda event: event.at)[:_MOST_EVENTS]
