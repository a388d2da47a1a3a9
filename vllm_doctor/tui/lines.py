"""Widgets that hold lines: such as stand still, such as scroll under a cursor, and the one that is typed into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from vllm_doctor.tui.ink import NOTHING, Row, cut, fit, say


class Block(Static):
    """Lines that stand still, as high as they are many."""

    def __init__(self, id: str, clicked: Callable[[int, int], None] | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []
        self._clicked = clicked

    def show(self, lines: Sequence[Text]) -> None:
        self.display = bool(lines)
        if self._lines != list(lines):
            self._lines = list(lines)
            self.update(Text("\n", no_wrap=True).join(lines))

    def on_click(self, event: events.Click) -> None:
        if self._clicked is not None:
            self._clicked(event.x, event.y)


class Lines(ScrollView, can_focus=True):
    """Rows that scroll; a cursor goes over those that can be chosen, and stays on its row when others come and go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "walk(-1)", show=False),
        Binding("down,j", "walk(1)", show=False),
        Binding("pageup,ctrl+b", "leap(-1)", show=False),
        Binding("pagedown,space,ctrl+f", "leap(1)", show=False),
        Binding("home,g", "end(-1)", show=False),
        Binding("end,G", "end(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Moved(Message):
        """The cursor stands on another row."""

    class Opened(Message):
        """The row under the cursor is wanted in full."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.cursor = ""
        self._is_moved = False

    def show(self, rows: Sequence[Row]) -> None:
        """Other rows. The cursor stays on the first until it is moved; then on its key, else on the nearest one."""
        before, self.rows = self.rows, list(rows)
        keys = [row.key for row in rows if row.key]
        if not self._is_moved:
            self.cursor = keys[0] if keys else ""
        elif self.cursor not in keys:
            old = [row.key for row in before if row.key]
            place = old.index(self.cursor) if self.cursor in old else 0
            self.cursor = keys[min(place, len(keys) - 1)] if keys else ""
        size = Size(self.size.width, len(rows))
        if size != self.virtual_size:
            self.virtual_size = size
            self.refresh()
            return
        changed = [n for n, (a, b) in enumerate(zip(before, self.rows, strict=False)) if a != b]
        if len(before) != len(self.rows):
            self.refresh()
        elif changed:
            self.refresh_lines(changed[0], changed[-1] - changed[0] + 1)

    @property
    def place(self) -> int:
        """The line of the cursor; -1 where nothing can be chosen."""
        return next((n for n, row in enumerate(self.rows) if row.key and row.key == self.cursor), -1)

    def to(self, key: str) -> None:
        """Put the cursor on a row."""
        if key == self.cursor or not any(row.key == key for row in self.rows):
            return
        self.cursor, self._is_moved = key, True
        self.refresh()
        self._reveal()
        self.post_message(self.Moved())

    def stand(self, key: str) -> None:
        """Put the cursor on a row that is still to be shown."""
        self.cursor, self._is_moved = key, True
        self.call_after_refresh(self._reveal)

    def action_walk(self, step: int) -> None:
        keys = [row.key for row in self.rows if row.key]
        if not keys:
            self.scroll_relative(y=step, animate=False)
            return
        place = keys.index(self.cursor) + step if self.cursor in keys else 0
        if 0 <= place < len(keys):
            self.to(keys[place])
        else:  # lines before the first and behind the last that can be chosen
            self.scroll_relative(y=step, animate=False)

    def action_leap(self, pages: int) -> None:
        lines = max(1, self.size.height - 1) * pages
        keys = [n for n, row in enumerate(self.rows) if row.key]
        if not keys:
            self.scroll_relative(y=lines, animate=False)
            return
        wanted = self.place + lines
        self.to(self.rows[min(keys, key=lambda n: abs(n - wanted))].key)

    def action_end(self, which: int) -> None:
        keys = [row.key for row in self.rows if row.key]
        if keys:
            self.to(keys[0 if which < 0 else -1])
        self.scroll_to(y=0 if which < 0 else len(self.rows), animate=False)

    def action_open(self) -> None:
        if self.cursor:
            self.post_message(self.Opened(self.cursor))

    def _reveal(self) -> None:
        place = self.place
        if place == next((n for n, row in enumerate(self.rows) if row.key), -1):
            place = 0  # with what stands above the first
        if place >= 0:
            self.scroll_to_region(Region(0, place, 1, 1), animate=False)

    def on_click(self, event: events.Click) -> None:
        place = event.y + self.scroll_offset.y
        row = self.rows[place] if 0 <= place < len(self.rows) else None
        if row is None or not row.key:
            return
        if row.key == self.cursor:
            self.action_open()
        self.to(row.key)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + self.scroll_offset.y
        row = self.rows[place] if 0 <= place < len(self.rows) else Row(NOTHING)
        width = self.scrollable_content_region.width
        if row.key and row.key == self.cursor:
            style = "reverse" if self.has_focus else "bold"
            return _strip(self, say((fit(row.text.plain, width), style)), width)
        return _strip(self, row.text, width)


def _strip(widget: Widget, line: Text, width: int) -> Strip:
    # Textual's filters for NO_COLOR want a style on every segment, also where there is none.
    segments = Segment.apply_style(cut(line, width).render(widget.app.console), Style.null())
    return Strip(segments).adjust_cell_length(width, Style.null())


class Prompt(Input):
    """The one line that can be typed into: what rows are filtered by."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", show=False),
        Binding("tab,up,down", "submit", show=False),
    ]

    class Left(Message):
        """The list has the keys again."""

    def __init__(self) -> None:
        super().__init__(id="prompt", placeholder="/ filter", compact=True, max_length=80, select_on_focus=False)

    def open(self, text: str) -> None:
        self.value = text
        self.display = True
        self.focus()

    def action_clear(self) -> None:
        self.value = ""
        self.post_message(self.Left())

    async def action_submit(self) -> None:
        self.post_message(self.Left())
