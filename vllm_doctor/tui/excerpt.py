"""The lines of a log around an event: read when they are asked for, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rich.text import Text

from vllm_doctor.model.errors import DoctorError
from vllm_doctor.session.view_model import Event, Excerpt
from vllm_doctor.tui.ink import DIM, NOTHING, Row, plain, ruled, say, wrapped
from vllm_doctor.tui.page import Page, View

_MOST_PIECES = 8
"""Lines of the screen that one of the log may take."""
_LINE = "line:"


class ExcerptPage(Page):
    NAME = "log lines"
    HINTS = (("esc", "back"), ("↑ ↓", "scroll"), ("/", "filter"))

    def __init__(self, event: Event, clock: str) -> None:
        super().__init__()
        self.event, self.clock = event, clock
        self.excerpts: Sequence[Excerpt] | None = None
        self.problem = ""

    def on_mount(self) -> None:
        super().on_mount()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        found: Sequence[Excerpt] = ()
        problem = ""
        try:
            found = self.doctor.session.excerpts(self.event.at)
        except DoctorError as error:
            problem = str(error)
        except Exception as error:
            problem = f"internal error, please report it: {type(error).__name__}: {error}"
        self.app.call_from_thread(self._show, found, problem)

    def _show(self, found: Sequence[Excerpt], problem: str) -> None:
        self.excerpts, self.problem = found, problem
        if found:
            self.rows.stand(f"{_LINE}0:{found[0].place}")
        self.redraw()

    def draw_head(self, view: View) -> list[Text]:
        return [NOTHING, ruled(f"{self.clock}  {self.event.text}", "", view.width)]

    def draw_rows(self, view: View) -> list[Row]:
        if self.excerpts is None:
            return [Row(say(("  reading the log …", DIM)))]
        if self.problem or not self.excerpts:
            told = self.problem or "no line of the log is of that time: it has no times, or it was rotated away"
            return [Row(line) for line in wrapped(told, view.width - 2, "  ")]
        found: list[Row] = []
        for number, excerpt in enumerate(self.excerpts):
            if len(self.excerpts) > 1:
                found += [*([Row(NOTHING)] if number else []), Row(say((f" {excerpt.name}", "bold")))]
            wide = len(f"{excerpt.first + len(excerpt.lines):,}")
            for place, text in enumerate(excerpt.lines):
                if view.keeps(text):
                    head = f"{excerpt.first + place:>{wide},} "
                    rows = _line(text, head, view.width - 1, is_it=place == excerpt.place)
                    found += [Row(rows[0], f"{_LINE}{number}:{place}"), *map(Row, rows[1:])]
        return found or [Row(say(("  no line has that in it", DIM)))]


def _line(text: str, head: str, width: int, is_it: bool) -> list[Text]:
    """A line of the log in as many of the screen as it needs; `is_it`: that of the event."""
    text = plain(text.rstrip())
    room = max(10, width - len(head) - 2)
    pieces = [
        text[begin : begin + room].lstrip() if begin else text[:room]
        for begin in range(0, min(len(text), room * _MOST_PIECES), room)
    ] or [""]
    if len(text) > room * _MOST_PIECES:
        pieces[-1] = f"{pieces[-1][:-1]}…"
    sign, style = ("▶ ", "bold") if is_it else ("  ", "")
    return [
        say((head if not place else " " * len(head), DIM), (sign if not place else "  ", "bold"), (piece, style))
        for place, piece in enumerate(pieces)
    ]
