"""The time line of a log, or of the watch itself: what was measured, what held when, and a cursor to move along."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from vllm_doctor.model.kinds import SEVERITIES, SourceKind, State
from vllm_doctor.model.report import Span, Timeline
from vllm_doctor.session.view_model import Event, Status, ViewModel
from vllm_doctor.text import times, words
from vllm_doctor.text.durations import duration
from vllm_doctor.tui.excerpt import ExcerptPage
from vllm_doctor.tui.ink import DIM, NOTHING, Row, cut, fit, ruled, say, severity
from vllm_doctor.tui.page import Page, View
from vllm_doctor.tui.plot import CALM, PLAIN, bars, scale

_LABEL, _MOST = 10, 12
_ROWS = (("running", "requests_running", "requests"), ("waiting", "requests_waiting", "requests"),
         ("KV cache", "kv_cache_usage", "share"), ("gen tok/s", "generation_tokens_per_second", ""))  # fmt: skip
_EVENT = "event:"
_SIGNS: Mapping[str, tuple[str, str]] = {
    Status.LIVE: ("✔", "green"), Status.LOST: ("✖", "red"), Status.PAUSED: ("‖", "yellow"),
}  # fmt: skip
_UNSEEN = (Status.LOST, Status.PAUSED)


@dataclass(frozen=True)
class Line:
    """A stretch of time, and what was measured in it."""

    view_model: ViewModel
    first: float
    last: float

    def columns(self, label: str, track: str, count: int) -> tuple[float | None, ...]:
        """The values in so many equal steps; of a log the most in each."""
        if self.view_model.is_live:
            return self.view_model.trend.columns(track, self.first, self.last, count)
        row = self.view_model.timeline.rows.get(label, ()) if self.view_model.timeline is not None else ()
        edges = [round(place * len(row) / count) for place in range(count + 1)]
        found: list[float | None] = []
        for begin, end in pairwise(edges):
            here = [value for value in row[begin : max(end, begin + 1)] if value is not None]
            found.append(max(here) if here else None)
        return tuple(found)

    def has(self, label: str, track: str) -> bool:
        if self.view_model.is_live:
            return track in self.view_model.trend.values
        return self.view_model.timeline is not None and label in self.view_model.timeline.rows

    @property
    def shift(self) -> float:
        """Seconds from UTC to the clock that is shown: this host's of a watch, its own of a log."""
        return float(time.localtime(self.last).tm_gmtoff) if self.view_model.is_live else 0.0

    def clock(self, at: float) -> str:
        return times.clock(at + self.shift)

    @property
    def zone(self) -> str:
        report = self.view_model.report
        if self.view_model.is_live:
            return "local time"
        return "UTC" if report is not None and report.lines is not None and report.lines.zoned else "the log's clock"


def line_of(view_model: ViewModel) -> Line | None:
    """From when to when there is something to see."""
    if view_model.is_live:
        if not view_model.trend.times:
            return None
        last = view_model.trend.times[-1]
        return Line(view_model, max(view_model.trend.times[0], last - 3600.0), last)
    report = view_model.report
    bounds = times.whole(report) if report is not None else None
    if view_model.timeline is not None:
        return Line(view_model, view_model.timeline.first_at, view_model.timeline.last_at)
    return Line(view_model, *bounds) if bounds is not None and bounds[1] > bounds[0] else None


def trends(view: View, width: int, height: int, at: float | None = None, most: int = 2) -> list[Text]:
    """The axis, what was measured, and where the findings held; `at`: where the cursor stands."""
    line = line_of(view.view_model)
    if line is None:
        return [say(("  nothing was measured over time", DIM))]
    room = width - _LABEL - 2 - _MOST
    place = None if at is None else column(line, at, room)
    shift = line.shift
    lines = [say((" " * (_LABEL + 1) + times.axis(line.first + shift, line.last + shift, room), DIM))]
    for label, track, unit in _ROWS:
        if not line.has(label, track):
            continue
        values = line.columns(label, track, room)
        known = [value for value in values if value is not None]
        mark = view.view_model.marks.get(track) if view.view_model.is_live else None
        top = 1.0 if unit == "share" else scale(known) if known else 1.0
        told = f" max {words.number(max(known), unit)}" if known else ""
        drawn = bars(values, top, height, mark, "red", CALM if mark is not None else PLAIN)
        for number, plot in enumerate(drawn):
            if place is not None:
                plot.stylize("reverse", place, place + 1)
            below = number == height - 1
            head = say(" ", fit(label if below else "", _LABEL))
            lines.append(Text.assemble(head, plot, (told if below else "", DIM), no_wrap=True, end=""))
    lines += _spans(line, view.view_model.spans, room, most)
    if place is not None:
        lines.append(say(" " * (_LABEL + 1 + place), ("▲", "bold")))
    return [cut(one, width) for one in lines]


def _spans(line: Line, spans: Sequence[Span], room: int, most: int) -> list[Text]:
    """Where the gravest findings held."""
    frame = Timeline(line.first, line.last, {})
    by_rule: dict[str, list[Span]] = {}
    for span in spans:
        if span.last_at >= line.first and span.first_at <= line.last:
            by_rule.setdefault(span.rule, []).append(span)
    grave = sorted(by_rule, key=lambda rule: (_worst(by_rule[rule]), -sum(s.seconds for s in by_rule[rule])))
    drawn: list[Text] = []
    for rule in [rule for rule in grave if rule not in times.DEATHS][:most]:
        colour = severity(SEVERITIES[_worst(by_rule[rule])])[1]
        inside = [
            Span(s.rule, s.severity, s.run, s.subject, max(s.first_at, line.first), min(s.last_at, line.last))
            for s in by_rule[rule]
        ]
        drawn += [say(" " * (_LABEL + 1), (text, colour)) for text in times.marks(inside, frame, room, rule)]
    died = (
        [event.at for event in line.view_model.events if " crashed" in event.text]
        if not line.view_model.is_live
        else []
    )
    if died:
        signs = [" "] * room
        for at in died:
            signs[column(line, at, room)] = "✖"
        drawn.append(say(" " * (_LABEL + 1), ("".join(signs), "red")))
    return drawn


def _worst(spans: Sequence[Span]) -> int:
    return min(span.severity.rank for span in spans)


def column(line: Line, at: float, room: int) -> int:
    """The column that a time falls into."""
    return max(0, min(room - 1, math.floor((at - line.first) / max(line.last - line.first, 1e-9) * room)))


class LogPage(Page):
    NAME = "log"
    HINTS = (
        ("← →", "move"),
        ("[ ]", "10 steps"),
        ("↑ ↓", "events"),
        ("⏎", "log lines"),
        ("/", "filter"),
        ("w", "save"),
        ("p", "pause"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", show=False),
        Binding("right,l", "move(1)", show=False),
        Binding("left_square_bracket,shift+left,H", "move(-10)", show=False),
        Binding("right_square_bracket,shift+right,L", "move(10)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.at: float | None = None
        """Where the cursor stands; None: at the end, which moves on."""

    def draw_head(self, view: View) -> list[Text]:
        line = line_of(view.view_model)
        height = 1 if view.height < 34 else 2 if view.height < 50 else 4
        most = 2 if view.height < 30 else 5
        if line is None:
            return [NOTHING, *trends(view, view.width, height)]
        at = line.last if self.at is None else min(max(self.at, line.first), line.last)
        return [
            NOTHING,
            *trends(view, view.width, height, at, most),
            *held(view, line, at),
            ruled("events", f"{duration(line.last - line.first)}, {line.zone}", view.width),
        ]

    def draw_rows(self, view: View) -> list[Row]:
        return rows(view)

    def action_move(self, steps: int) -> None:
        line = line_of(self.doctor.view_model)
        if line is None:
            return
        room = max(1, self.doctor.size.width - _LABEL - 2 - _MOST)
        step = (line.last - line.first) / room
        place = column(line, line.last if self.at is None else self.at, room) + steps
        place = max(0, min(room - 1, place))
        self.at = None if place == room - 1 and self.doctor.view_model.is_live else line.first + step * (place + 0.5)
        self.redraw()

    def on_lines_moved(self) -> None:
        """The cursor on the time line goes to the event."""
        found = [event for n, event in enumerate(self.doctor.view_model.events) if f"{_EVENT}{n}" == self.rows.cursor]
        self.at = found[0].at if found else self.at
        self.redraw()

    def open(self, key: str) -> None:
        """The lines of the log around the event, where there is one."""
        view_model = self.doctor.view_model
        event = next((event for n, event in enumerate(view_model.events) if f"{_EVENT}{n}" == key), None)
        line, report = line_of(view_model), view_model.report
        if event is None or line is None:
            return
        if report is not None and any(source.kind is SourceKind.LOG for source in report.sources):
            self.doctor.enter(ExcerptPage(event, line.clock(event.at)))
        else:
            self.doctor.tell(
                "no log was given: with its file as another argument ⏎ shows its lines of that time", is_done=False
            )


def held(view: View, line: Line, at: float) -> list[Text]:
    """What was measured and found at a time."""
    width = view.width
    step = (line.last - line.first) / max(1, width - _LABEL - 2 - _MOST)
    parts: list[str | tuple[str, str]] = [" ", (line.clock(at), "bold")]
    for label, track, unit in _ROWS:
        if not line.has(label, track):
            continue
        room = width - _LABEL - 2 - _MOST
        value = line.columns(label, track, room)[column(line, at, room)]
        parts += [f"  {label} ", (words.number(value, unit) if value is not None else "?", "bold")]
    there = [s for s in view.view_model.spans if s.first_at - step <= at <= s.last_at + step]
    there.sort(key=lambda span: (span.severity.rank, span.first_at))
    told: list[str | tuple[str, str]] = ["  "]
    for (rule, severe), _ in groupby(there, key=lambda span: (span.rule, span.severity)):
        told += [severity(severe, rule), "  "]
    return [say(*parts), cut(say(*(told if there else ("  ", *_otherwise(view.view_model, at)))), width)]


def _otherwise(view_model: ViewModel, at: float) -> Sequence[tuple[str, str]]:
    """What is to be said of a time at which no finding held: never that all was well where nobody knows."""
    then = [event for event in view_model.events if event.at <= at] if view_model.is_live else []
    if (state := next((e.kind for e in reversed(then) if isinstance(e.kind, Status)), None)) in _UNSEEN:
        sign, colour = _SIGNS[state]
        return [(f"{sign} {state}: ", colour), ("nothing was seen then", DIM)]
    judged = next((event for event in reversed(then) if _is_verdict(event)), None)
    if judged is not None:
        said = [severity(judged.kind, judged.text)]
    else:
        said = [("nothing was judged yet" if view_model.is_live else "no finding held then", DIM)]
    report = view_model.report
    is_of_all = not view_model.is_live or view_model.status is Status.REPLAYED
    if (
        is_of_all
        and report is not None
        and report.main
        and (judged is None or judged.kind.value != report.verdict.value)
    ):
        rules = ", ".join(dict.fromkeys(finding.rule for finding in report.main))
        said += [("; over the whole: ", DIM), severity(report.verdict.value, rules)]
    return said


def _is_verdict(event: Event) -> bool:
    """Whether it is of the whole server: what else happens is told as info."""
    return event.kind in (State.OK, State.WARNING, State.CRITICAL, State.UNKNOWN)


def rows(view: View) -> list[Row]:
    """The events, the oldest first."""
    line = line_of(view.view_model)
    found = []
    for place, event in enumerate(view.view_model.events):
        if view.keeps(event.text, event.kind):
            found.append(Row(_event(event, line, view.width), f"{_EVENT}{place}"))
    return found or [Row(say(("  no events", DIM)))]


def _event(event: Event, line: Line | None, width: int) -> Text:
    clock = line.clock(event.at) if line is not None else times.clock(event.at)
    sign, colour = _SIGNS.get(event.kind) or (severity(event.kind, "")[0].strip() or "·", severity(event.kind)[1])
    return cut(say((f" {clock}  ", DIM), (f"{sign} ", colour), event.text), width)
