"""A fleet: each engine that a Prometheus knows a row, the worst first. Enter opens one, Esc comes back from it.

An engine is opened by another application, one after the other, so that it is watched as any server is; whoever runs
them (commands) reads here which engine is wanted, and where the cursor stood.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from vllm_doctor.fleet.view_model import SHOWN, EngineRow, FleetSeen, FleetViewModel
from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Verdict
from vllm_doctor.session.view_model import Session, Status
from vllm_doctor.text import words
from vllm_doctor.tui.app import DoctorApp
from vllm_doctor.tui.help import HelpPage
from vllm_doctor.tui.ink import (
    DIM,
    NOTHING,
    SIGN,
    Column,
    Row,
    alarm,
    badge,
    cut,
    fit,
    plain,
    ruled,
    say,
    severity,
    spread,
    table_head,
    table_row,
)
from vllm_doctor.tui.page import Page, View, lost_since

MOST = 500
"""Rows that are shown; of more the worst."""
_HEADS = {
    "requests_running": ("running", 7),
    "requests_waiting": ("waiting", 7),
    "kv_cache_usage": ("KV", 6),
    "ttft_p99": ("TTFT p99", 10),
    "generation_tokens_per_second": ("gen tok", 8),
}
_BY_VALUE = tuple(_HEADS)
_NO_VALUE = "–"
_LACKING = {Reason.IDLE: "idle"}
"""What stands in place of a value that is not known, where a word says why."""
_VERDICTS = (Verdict.CRITICAL, Verdict.WARNING, Verdict.UNKNOWN, Verdict.OK)
_NAME = 14
_KEYS = (("^p", "commands"), ("?", "help"), ("q", "quit"))
_HELP = (
    ("↑ ↓  k j", "move"),
    ("PgUp PgDn  g G", "a page; first and last"),
    ("⏎  esc", "open the engine's server as if it were named alone; back"),
    ("/", "filter by name, model, rule or verdict; esc shows all again"),
    ("s", "sort: worst first, by model, by name, or by a column"),
    ("r", "ask the Prometheus now; by itself it is asked each minute"),
    ("▲2", "outlier: in how many signals it lies far from the p50 of its model"),
    ("?", "this"),
    ("q  ^c", "quit; the exit code is that of the worst engine"),
)


@dataclass(frozen=True)
class Place:
    """Where one is in the table: the row, the filter and the order."""

    cursor: str = ""
    filter: str = ""
    sort: int = 0


class FleetPage(Page):
    NAME = "fleet"
    HINTS = (("⏎", "open"), ("s", "sort"), ("/", "filter"), ("r", "ask again"))
    ALWAYS = _KEYS
    SORTS = ("worst first", "model", "name", *(head for head, _ in _HEADS.values()))

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.filter, self.sort = place.filter, place.sort
        self._stand = place.cursor
        self._drawn: tuple[FleetSeen | None, tuple[object, ...], tuple[int, list[Row]]] = (None, (), (0, []))

    def redraw(self) -> None:
        if self._stand and _fleet(self.view) is not None:
            self.rows.stand(self._stand)
            self._stand = ""
        super().redraw()

    @property
    def place(self) -> Place:
        return Place(self.rows.cursor, self.filter, self.sort)

    def draw_top(self, view: View) -> list[Text]:
        return top(view)

    def draw_head(self, view: View) -> list[Text]:
        fleet = _fleet(view)
        order = f"by {self.SORTS[view.sort % len(self.SORTS)]}" if view.sort else "worst first"
        if fleet is None:
            return [NOTHING]
        engines, kept = _counted(len(fleet.engines), "engine"), self._table(view, fleet)[0]
        return [
            NOTHING,
            cut(say(*_verdict(view, fleet)), view.width),
            ruled(f"{kept:,} of {engines}" if view.filter else engines, order, view.width),
            table_head(_columns(view, fleet)),
        ]

    def draw_rows(self, view: View) -> list[Row]:
        fleet = _fleet(view)
        return self._table(view, fleet)[1] if fleet is not None else []

    def _table(self, view: View, fleet: FleetSeen) -> tuple[int, list[Row]]:
        """How many engines pass the filter, and their rows: drawn once, as each key asks for them."""
        drawn_by = (view.width, view.filter, view.sort)
        if self._drawn[0] is not fleet or self._drawn[1] != drawn_by:
            self._drawn = (fleet, drawn_by, table(view, fleet))
        return self._drawn[2]

    def draw_notes(self, view: View) -> list[Text]:
        fleet = _fleet(view)
        notes = []
        row = _row(fleet, view.cursor)
        if row is not None:
            model = f" · {row.model}" if fleet is not None and fleet.models > 1 else ""
            notes.append(say(f" {row.name}{model}: ", (row.headline, "bold")))
            if row.outlying:
                notes.append(say((" outlier in its model  ", DIM), "; ".join(row.outlying)))
        if fleet is not None and fleet.notes:
            more = f" (and {len(fleet.notes) - 1} more notes: --text)" if len(fleet.notes) > 1 else ""
            notes.append(say((" ! ", "yellow"), f"{fleet.notes[0]}{more}"))
        return [*(cut(note, view.width) for note in notes), *super().draw_notes(view)]

    def open(self, key: str) -> None:
        self.doctor.open(key)


def _verdict(view: View, fleet: FleetSeen) -> list[str | tuple[str, str]]:
    """The fleet's verdict and how many engines have which; of a Prometheus that is lost since when it is."""
    if view.view_model.status is Status.LOST:
        sick = [f"{count:,} {v.value}" for v in _VERDICTS[:-1] if (count := fleet.count(v))]
        was = f"{', '.join(sick) or 'none sick'} of {len(fleet.engines):,}"
        return [alarm(lost_since(view)), f"  before: {was}"]
    counts = [severity(verdict.value, f"{fleet.count(verdict):,} {verdict.value}   ") for verdict in _VERDICTS]
    alone = (("by its metrics alone", DIM),) if fleet.verdict is Verdict.OK else ()
    return [badge(fleet.verdict.value), "  ", *counts, *alone]


class FleetHelp(HelpPage):
    ALWAYS = _KEYS
    KEYS = _HELP

    def draw_top(self, view: View) -> list[Text]:
        return top(view)


class FleetApp(DoctorApp, inherit_bindings=False):
    """The table of engines. Once it has ended, `wanted` is the engine that is to be opened, if one is."""

    COMMANDS = App.COMMANDS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        Binding("escape,backspace", "return", show=False),
        Binding("question_mark,f1", "go('help')", show=False),
        Binding("r", "rescan", show=False),
        Binding("slash", "screen.filter", show=False),
        Binding("s", "screen.sort", show=False),
    ]
    PAGES: ClassVar[dict[str, type[Page]]] = {"help": FleetHelp}

    def __init__(
        self, session: Session, place: Place | None = None, said: str = "", now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(session, now)
        self.page = FleetPage(place or Place())
        self.wanted: EngineRow | None = None
        self._first_said = said

    def get_default_screen(self) -> Screen[None]:
        return self.page

    def on_mount(self) -> None:
        super().on_mount()
        if self._first_said:
            self.tell(self._first_said)

    def go(self, name: str) -> None:
        super().go("overview" if name == "fleet" else name)

    def open(self, key: str) -> None:
        view_model = self.view_model
        row = _row(view_model.fleet if isinstance(view_model, FleetViewModel) else None, key)
        if row is None or not isinstance(view_model, FleetViewModel):
            return
        if not row.source:
            self.tell(f"{row.name} does not answer its Prometheus: there is nothing to open", is_done=False)
        elif view_model.is_past:
            self.tell("an engine can be opened now only, not at an earlier time: run without --at", is_done=False)
        else:
            self.wanted = row
            self.action_leave()

    def action_rescan(self) -> None:
        super().action_rescan()
        self.tell("asking again")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Ask again", "the Prometheus, now", self.action_rescan)
        yield SystemCommand("Sort", "by something else", self.page.action_sort)
        yield SystemCommand("Theme", "colours: the terminal's own, or others; kept", self.search_themes)
        yield SystemCommand("Help", "keys and signs", lambda: self.go("help"))
        yield SystemCommand("Quit", "the exit code is that of the worst engine", self.action_leave)


def top(view: View) -> list[Text]:
    """The first lines: which Prometheus is asked, about when, and what is there."""
    view_model = view.view_model
    if not isinstance(view_model, FleetViewModel):
        return [say((" vllm-doctor ", "bold"), (" ◌ starting ", DIM)), NOTHING]
    fleet = view_model.fleet
    status = ("● live", "green") if fleet is not None else ("◌ asking", DIM)
    if view_model.status is Status.LOST:
        status = ("✖ lost", "red")
    elif view_model.is_past:
        status = ("■ past", "")
    asking = f"asking: {view_model.asking[0]} of {view_model.asking[1]} " if view_model.asking is not None else ""
    left = say(
        (" vllm-doctor ", "bold"), (f" {status[0]} ", status[1]), f" {view_model.target.removeprefix('http://')}"
    )
    window = words.number(view_model.window, "s") if view_model.window < 60 else f"{view_model.window / 60:g} min"
    if fleet is None:
        return [spread(left, say((asking, DIM)), view.width), say((f" last {window}", DIM))]
    when = outside.moment(fleet.at)
    right = say((asking or f"queried and evaluated in {fleet.seconds:.1f} s ", DIM))
    second = say(f" {_counted(len(fleet.engines), 'engine')} of {_counted(fleet.models, 'model')}")
    before = say((f"last {window} before {when:%Y-%m-%d %H:%M:%S} UTC ", DIM))
    return [spread(left, right, view.width), spread(second, before, view.width)]


def table(view: View, fleet: FleetSeen) -> tuple[int, list[Row]]:
    """How many engines pass the filter; and the first of them, in their order."""
    kept = [e for e in fleet.engines if view.keeps(e.name, e.model, e.verdict.value, e.headline, *e.rules)]
    if not kept:
        return 0, [Row(say(("  no engine is named so", DIM)))]
    ordered = _ordered(kept, view.sort)
    columns = _columns(view, fleet)
    rows: list[Row] = []
    model: str | None = None
    for engine in ordered[:MOST]:
        if view.sort == 1 and engine.model != model:
            model = engine.model
            rows.append(Row(_model(model, [e for e in kept if e.model == model])))
        rows.append(Row(_drawn(engine, columns, view.view_model.status is Status.LOST), engine.key))
    if len(ordered) > MOST:
        rows.append(Row(say((f"  and {len(ordered) - MOST:,} more: / shows those that you name", DIM))))
    return len(kept), rows


def _ordered(engines: Sequence[EngineRow], sort: int) -> list[EngineRow]:
    """They come the worst first; what is alike stays in that order."""
    sort %= len(FleetPage.SORTS)
    if sort == 0:
        return list(engines)
    if sort == 1:
        models = {model: place for place, model in enumerate(dict.fromkeys(engine.model for engine in engines))}
        return sorted(engines, key=lambda engine: models[engine.model])
    if sort == 2:
        return sorted(engines, key=lambda engine: engine.name)
    signal = _BY_VALUE[sort - 3]
    return sorted(engines, key=lambda engine: -_value(engine, signal))


def _value(engine: EngineRow, signal: str) -> float:
    reading = engine.readings.get(signal)
    known = isinstance(reading, Known) and isinstance(reading.value, int | float)
    return float(reading.value) if known and isinstance(reading, Known) else -1.0


def _columns(view: View, fleet: FleetSeen) -> list[Column]:
    """What fits, the most telling first; what is left goes to the names."""
    verdict = Column("verdict", 20 if view.width < 100 else 30, False)
    left = view.width - 1 - _NAME - 2 - verdict.width
    figures = {head: Column(head, width) for head, width in _HEADS.values()}
    wanted = [*list(figures.values())[:-1], Column("outlier", 7)]
    wanted += [Column("model", 12, False)] if fleet.models > 1 else []
    fitting = set()
    for column in (*wanted, figures["gen tok"]):
        if left >= column.width + 2:
            fitting.add(column.head)
            left -= column.width + 2
    name = min(left, 26)
    model = [Column("model", 12 + min(left - name, 30), False)] if "model" in fitting else []
    rest = [column for column in (*figures.values(), Column("outlier", 7)) if column.head in fitting]
    return [Column("engine", _NAME + name, False), *model, verdict, *rest]


def _drawn(engine: EngineRow, columns: Sequence[Column], is_past: bool) -> Text:
    """`is_past`: the Prometheus is lost, and who was well then is not known to be."""
    word, colour = severity(engine.verdict.value)
    if is_past and engine.verdict is Verdict.OK:
        word, colour = "  was ok", DIM
    told = f"{SIGN[engine.verdict.value]} {engine.rules[0]}" if engine.rules else word
    if not engine.source and engine.verdict is Verdict.UNKNOWN:
        told = f"{SIGN[engine.verdict.value]} no answer"
    more = f" +{len(engine.rules) - 1}" if len(engine.rules) > 1 else ""
    width = next(column.width for column in columns if column.head == "verdict")
    cells: dict[str, str | tuple[str, str]] = {
        "engine": _ending(engine.name, columns[0].width),
        "model": engine.model,
        "verdict": (f"{fit(told, width - len(more)).rstrip()}{more}", colour),
        "outlier": (f"▲{len(engine.outlying)}", "bold yellow") if engine.outlying else "",
    }
    for signal, (head, _) in _HEADS.items():
        reading = engine.readings.get(signal)
        if isinstance(reading, Known):
            cells[head] = words.reading(reading, SHOWN[signal])
        else:
            cells[head] = (_LACKING.get(reading.reason, _NO_VALUE) if reading is not None else "", DIM)
    return table_row(columns, [cells[column.head] for column in columns])


def _ending(name: str, width: int) -> str:
    """Names of pods differ at their end."""
    return name if cell_len(plain(name)) <= width else f"…{plain(name)[1 - width :]}"


def _model(name: str, engines: Sequence[EngineRow]) -> Text:
    counts = [(verdict, sum(engine.verdict is verdict for engine in engines)) for verdict in _VERDICTS]
    told = [severity(verdict.value, f"{count:,}  ") for verdict, count in counts if count]
    return say(" ", (name or "(no name)", "bold"), f"  {_counted(len(engines), 'engine')}  ", *told)


def _fleet(view: View) -> FleetSeen | None:
    return view.view_model.fleet if isinstance(view.view_model, FleetViewModel) else None


def _row(fleet: FleetSeen | None, key: str) -> EngineRow | None:
    return next((engine for engine in fleet.engines if engine.key == key), None) if fleet is not None else None


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"
