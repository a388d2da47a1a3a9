"""A page: the bar on top, what stands still, the rows that can be walked through, and the keys at the bottom.

A page is drawn by functions of a View; the widgets here only hold lines, scroll them, and know where the cursor is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen

from vllm_doctor.model import outside
from vllm_doctor.model.kinds import SERVERS
from vllm_doctor.session.view_model import Session, Status, ViewModel
from vllm_doctor.text import words
from vllm_doctor.text.durations import duration
from vllm_doctor.tui.ink import DIM, Row, cut, plain, say, spread, wrapped
from vllm_doctor.tui.lines import Block, Lines, Prompt

LEAST = (60, 15)
"""Columns and lines below which a page only says that it has too few."""
WIDE = 110
"""Columns from which on there is room for two panes."""
_EVERYWHERE = (
    ("1", "overview"), ("2", "engines"), ("3", "host"), ("4", "log"), ("5", "rules"),
    ("^p", "commands"), ("?", "help"), ("q", "quit"),
)  # fmt: skip
_TYPING = (("⏎", "keep the filter"), ("esc", "show all"))
_NAMES = {
    "⏎": "enter", "⇥": "tab", "esc": "escape", "^p": "ctrl+p", "/": "slash", "?": "question_mark", "+ -": "plus",
    "↑ ↓": "down", "← →": "right", "[ ]": "right_square_bracket",
}  # fmt: skip
"""Keys as they are drawn -> as Textual calls them."""
_STATUS = {
    Status.STARTING: ("◌", "starting", DIM),
    Status.CHOOSING: ("◌", "which one?", DIM),
    Status.LIVE: ("●", "live", "green"),
    Status.PAUSED: ("‖", "paused", "yellow"),
    Status.LOST: ("✖", "lost", "red"),
    Status.READING: ("◌", "reading", "cyan"),
    Status.READ: ("■", "log", ""),
    Status.REPLAYED: ("■", "recording", ""),
}


@dataclass(frozen=True)
class View:
    """What a page is drawn from. `now`: POSIX seconds."""

    view_model: ViewModel
    width: int
    height: int
    now: float
    filter: str = ""
    sort: int = 0
    cursor: str = ""

    def keeps(self, *texts: str) -> bool:
        """Whether a row with these texts passes the filter."""
        return self.filter.lower() in " ".join(texts).lower()


class Doctor(Protocol):
    """What a page may ask of the application. `within`: whereto Esc leads from its first page; "" where to nothing."""

    view_model: ViewModel
    session: Session
    said: str
    is_done: bool
    within: str

    @property
    def size(self) -> Size: ...
    def now(self) -> float: ...
    def go(self, name: str) -> None: ...
    def enter(self, page: Page) -> None: ...
    def open(self, key: str) -> None: ...
    def tell(self, said: str, is_done: bool = True) -> None: ...
    def simulate_key(self, key: str) -> None: ...
    def batch_update(self) -> AbstractContextManager[None]: ...


class Page(Screen[None]):
    """One screen. Subclasses say what stands in it; `redraw` is called whenever something may have changed."""

    NAME: ClassVar[str] = ""
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The page's own keys, for its foot."""
    ALWAYS: ClassVar[tuple[tuple[str, str], ...]] = _EVERYWHERE
    """The keys of all pages."""
    SORTS: ClassVar[tuple[str, ...]] = ()
    """What its rows may be sorted by."""
    DEFAULT_CSS = """
    Page { layout: vertical; overflow: hidden; background: transparent; }
    Page Block { height: auto; text-wrap: nowrap; }
    Page Prompt { height: 1; }
    Page Block, Page Prompt { width: 100%; background: transparent; }
    Page Prompt, Page Prompt:focus { border: none; padding: 0 1; background: transparent; color: ansi_default; }
    Page #body { height: 1fr; }
    Page Lines { width: 1fr; height: 100%; scrollbar-size-vertical: 1; scrollbar-gutter: auto; overflow-x: hidden;
                 background: transparent; }
    Page #side { display: none; border-left: solid ansi_bright_black; padding-left: 1; }
    Page.-split #side { display: block; }
    Page Prompt { display: none; }
    Page #all { height: 100%; }
    Page.-small #all { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.top, self.head, self.note = Block("top"), Block("head"), Block("note")
        self.rows, self.side, self.prompt = Lines("rows"), Lines("side"), Prompt()
        self.foot, self.small = Block("foot", self._pressed), Block("small")
        self.filter, self.sort = "", 0
        self._hints: list[tuple[int, int, int, str]] = []

    # ---- what subclasses say ----------------------------------------------------------------------------------------

    def draw_top(self, view: View) -> list[Text]:
        """Who is looked at, and how the watch goes."""
        return bar(view, self.NAME)

    def hints(self) -> Sequence[tuple[str, str]]:
        """The page's own keys, as they are now."""
        return self.HINTS

    def draw_head(self, view: View) -> list[Text]:
        """What stands still above the rows."""
        return []

    def draw_rows(self, view: View) -> list[Row]:
        raise NotImplementedError

    def draw_side(self, view: View) -> list[Row] | None:
        """The second pane; None: there is none now."""
        return None

    def open(self, key: str) -> None:
        """A row is wanted in full."""

    @property
    def doctor(self) -> Doctor:
        return cast(Doctor, self.app)

    # ---- the frame --------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Vertical(
            self.top,
            self.head,
            Horizontal(self.rows, self.side, id="body"),
            self.note,
            self.prompt,
            self.foot,
            id="all",
        )
        yield self.small

    def on_mount(self) -> None:
        self.rows.focus()
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def on_screen_resume(self) -> None:
        self.redraw()

    @property
    def view(self) -> View:
        width, height = self.doctor.size
        return View(self.doctor.view_model, width, height, self.doctor.now(), self.filter, self.sort, self.rows.cursor)

    def redraw(self) -> None:
        if not self.is_mounted:
            return
        view = self.view
        small = view.width < LEAST[0] or view.height < LEAST[1]
        self.set_class(small, "-small")
        if small:
            self.small.show(too_small(view.width, view.height))
            return
        self.small.show([])
        with self.doctor.batch_update():
            self.top.show(self.draw_top(view))
            self.head.show(self.draw_head(view))
            self.rows.show(self.draw_rows(view))
            side = self.draw_side(self.view) if view.width >= WIDE else None
            self.set_class(side is not None, "-split")
            if side is not None:
                self.side.show(side)
            self.note.show(self.draw_notes(self.view))
            hints = [*self.hints(), *((("⇥", "pane"),) if side is not None else ())]
            hints = list(_TYPING) if self.prompt.display else hints
            foot, self._hints = feet([hints, self.ALWAYS], view.width)
            self.foot.show(foot)

    def draw_notes(self, view: View) -> list[Text]:
        """What stands between the rows and the keys."""
        notes = []
        if self.filter and not self.prompt.display:
            notes.append(say((" / ", "bold"), self.filter, ("  only these rows; esc shows all", DIM)))
        notes += self.banner(view)
        if self.doctor.said:
            notes.append(say((" ✔ ", "green") if self.doctor.is_done else (" ▲ ", "yellow"), self.doctor.said))
        return [cut(note, view.width) for note in notes]

    def banner(self, view: View) -> list[Text]:
        """What is wrong with the watch itself."""
        return banner(view)

    def _pressed(self, x: int, y: int) -> None:
        """A key at the bottom was clicked."""
        for line, begin, end, key in self._hints:
            if line == y and begin <= x < end:
                self.doctor.simulate_key(_NAMES.get(key, key))

    def on_lines_moved(self) -> None:
        if self.has_class("-split"):
            self.side.scroll_to(y=0, animate=False)
        self.redraw()

    def on_lines_opened(self, event: Lines.Opened) -> None:
        event.stop()
        self.open(event.key)

    def on_input_changed(self, event: Prompt.Changed) -> None:
        event.stop()
        self.filter = event.value
        self.redraw()

    def on_prompt_left(self, event: Prompt.Left) -> None:
        event.stop()
        self.filter = self.prompt.value
        self.prompt.display = False
        self.rows.focus()
        self.redraw()

    def action_filter(self) -> None:
        self.prompt.open(self.filter)
        self.redraw()

    def action_sort(self) -> None:
        if self.SORTS:
            self.sort = (self.sort + 1) % len(self.SORTS)
            self.doctor.tell(f"sorted by {self.SORTS[self.sort]}")

    def back(self) -> bool:
        """Leave what was entered on this page; False where there is nothing to leave."""
        if self.filter:
            self.filter = ""
            self.redraw()
            return True
        return False


def bar(view: View, name: str) -> list[Text]:
    """The first lines: who is looked at, and how the watch goes."""
    view_model = view.view_model
    sign, word, style = _STATUS[view_model.status]
    patient = view_model.report.patient if view_model.report is not None else None
    left = say((" vllm-doctor ", "bold"), (f" {sign} {word} ", style), f" {_target(view_model)}")
    right = say((f"{_when(view)} ", DIM))
    known = [
        patient.model if patient else None,
        f"vLLM {patient.vllm}" if patient and patient.vllm else None,
        f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient and patient.engines else None,
        _gpus(patient.gpus, patient.gpu) if patient and patient.gpus is not None else None,
        _cores(patient.cores_usable, patient.cores_wanted) if patient else None,
    ]
    second = say(f" {' · '.join(part for part in known if part)}")
    return [spread(left, right, view.width), spread(second, say((f"{_looked(view)} ", DIM)), view.width)]


def _target(view_model: ViewModel) -> str:
    report = view_model.report
    if report is None:
        return ""
    servers = [source.target for source in report.sources if source.kind in SERVERS]
    targets = servers or list(dict.fromkeys(source.target.partition(": line ")[0] for source in report.sources))
    pids = [pid for _, pid in report.patient.processes[:1]]
    named = ", ".join(target.removeprefix("http://") for target in targets[:3])
    return named + (f" and {len(targets) - 3} more" if len(targets) > 3 else "") + (f" · pid {pids[0]}" if pids else "")


def _gpus(count: int, name: str | None) -> str:
    return (f"{count} × {name}" if name else f"{count} GPU{'' if count == 1 else 's'}") if count else "no GPU"


def _cores(usable: float | None, wanted: float | None) -> str | None:
    if usable is None or wanted is None:
        return None
    return f"cores {words.number(usable)} of {words.number(wanted)}"


def _when(view: View) -> str:
    """How old the view model is."""
    view_model = view.view_model
    if view_model.status in (Status.READING, Status.READ, Status.STARTING, Status.CHOOSING):
        return ""
    if view_model.status is Status.REPLAYED:
        return f"of {outside.moment(view_model.began):%Y-%m-%d %H:%M:%S} UTC"
    if view_model.status is Status.PAUSED:
        return f"since {duration(max(0.0, view.now - view_model.since))}"
    if view_model.status is Status.LOST:
        return lost_since(view)
    return ""  # the window says how much of it the verdict is of, the trend how much of it is drawn


def lost_since(view: View) -> str:
    """ "down since 10:42:07"; "no answer since 10:42:07" where it may only be slow, or the network is."""
    word = "down" if view.view_model.is_down else "no answer"
    return f"{word} since {clock(view.view_model.since, view.now)}"


def clock(at: float, now: float) -> str:
    """This host's clock: "10:42:07", with its day where that is not today."""
    then = time.localtime(at)
    is_today = then[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if is_today else "%d %b %H:%M:%S", then).lstrip("0" if not is_today else "")


def _looked(view: View) -> str:
    """Of how much time the verdict is; of a server that is lost, of when its values are."""
    report = view.view_model.report
    if report is None or not view.view_model.is_live:
        return ""
    if view.view_model.status is Status.LOST:
        at = view.view_model.seen_at
        return f"values of {clock(at, view.now)}, {duration(max(0.0, view.now - at))} ago" if at is not None else ""
    seen = max((source.window_s for source in report.sources), default=0.0)
    if view.view_model.status is Status.REPLAYED:
        return f"all of its {words.number(round(seen), 's')} judged"
    wished = words.number(view.view_model.window, "s")
    if seen < 0.9 * view.view_model.window:
        return f"window {words.number(round(seen), 's')} of {wished}"
    return f"window {wished}"


def banner(view: View) -> list[Text]:
    """What is wrong with the watch itself, in at most two lines."""
    view_model = view.view_model
    if not view_model.problem:
        return []
    kept = ""
    if view_model.status is Status.LOST:
        kept = (
            " The last values stay on the screen; it is asked again."
            if view_model.seen_at is not None
            else " It is asked again."
        )
    lines = wrapped(f"{_ended(view_model.problem)}{kept}", view.width - 4, "   ")[:2]
    lines[0].plain = f" ✖ {lines[0].plain[3:]}"
    lines[0].stylize("red", 1, 2)
    return lines


def _ended(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def too_small(width: int, height: int) -> list[Text]:
    return [
        say(("Too small", "bold")),
        say(f"{width}×{height}; {LEAST[0]}×{LEAST[1]} needed."),
        say("q quits."),
    ]


def feet(lines: Sequence[Sequence[tuple[str, str]]], width: int) -> tuple[list[Text], list[tuple[int, int, int, str]]]:
    """The keys at the bottom, and where each of them stands: line, first column, last, key."""
    drawn, places = [], []
    for number, hints in enumerate(lines):
        line, at = say(" "), 1
        for key, what in hints:
            text = f"{plain(key)} {what}"
            if at + len(text) > width:
                break
            line.append(key, "bold")
            line.append(f" {what}  ", DIM)
            places.append((number, at, at + len(text), key))
            at += len(text) + 2
        line.rstrip()  # the gap after the last one need not fit
        drawn.append(line)
    return drawn, places
