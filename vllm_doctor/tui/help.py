"""Keys and signs."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text

from vllm_doctor.model.kinds import State
from vllm_doctor.tui.ink import NOTHING, Row, badge, fit, say
from vllm_doctor.tui.page import Page, View

KEYS = (
    ("↑ ↓  k j", "move; on the time line also ← → h l, and [ ] for ten steps"),
    ("PgUp PgDn  g G", "a page; first and last"),
    ("⏎  esc", "open what is under the cursor, of an event the lines of the log; back"),
    ("⇥", "to the other pane, where there are two"),
    ("1 2 3 4 5", "overview, engines (also e), host, log, rules"),
    ("x", "what was suspected, kept and dropped, by which number"),
    ("/", "filter the rows; esc shows all again"),
    ("s", "sort the rows by something else"),
    ("c", "copy the corrected command; it is written to a file, too"),
    ("y", "copy the finding as markdown, for an issue or a chat"),
    ("w", "save the whole report as markdown, here"),
    ("+ -", "a longer or shorter window: seconds that the verdict is of"),
    ("p", "pause, and go on"),
    ("r", "look for the server, its processes and its log again"),
    ("^p", "commands: every rule, engine and action by name; theme and window"),
    ("?", "this"),
    ("q  ^c", "quit; the exit code is that of the last verdict"),
)
SIGNS = (State.CRITICAL, State.WARNING, State.OK, State.UNKNOWN)


class HelpPage(Page):
    NAME = "help"
    HINTS = (("esc", "back"),)
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = KEYS

    def draw_head(self, view: View) -> list[Text]:
        return [NOTHING, say((" Keys", "bold"))]

    def draw_rows(self, view: View) -> list[Row]:
        lines = [say("  ", (fit(keys, 18), "bold"), what) for keys, what in self.KEYS]
        lines += [NOTHING, say((" Signs", "bold"))]
        for state in SIGNS:
            word, style = badge(state)
            lines.append(say("  ", (fit(word, 14), style), "    ", state.doc))
        lines += [
            say("  ◆ opportunity     something to gain, though nothing is wrong"),
            say("  ○ client          it is not the server"),
            say("  └ follows         goes away with what it follows from"),
            say("  ·                 in a sparkline: nothing was known then; ┄ a rule's threshold"),
        ]
        return [Row(line) for line in lines]
