"""Several servers were found on this host: which one?"""

from __future__ import annotations

from rich.text import Text

from vllm_doctor.tui.ink import DIM, NOTHING, Row, fit, say
from vllm_doctor.tui.page import Page, View

_CHOICE = "choice:"


class Chooser(Page):
    NAME = "chooser"
    HINTS = (("⏎", "watch it"), ("↑ ↓", "choose"), ("/", "filter"))

    def draw_head(self, view: View) -> list[Text]:
        count = len(view.view_model.choices)
        return [NOTHING, say((f" {count} vLLM servers were found on this host. Which one is slow?", "bold")), NOTHING]

    def draw_rows(self, view: View) -> list[Row]:
        wide = min(50, max((len(choice.name) for choice in view.view_model.choices), default=0) + 2)
        found = [
            Row(say("  ", (fit(choice.name, wide), "bold"), (choice.details, DIM)), f"{_CHOICE}{place}")
            for place, choice in enumerate(view.view_model.choices)
            if view.keeps(choice.name, choice.details)
        ]
        return [*found, Row(NOTHING), Row(say("  ", ("all of them together", "bold")), f"{_CHOICE}all")]

    def open(self, key: str) -> None:
        chosen = key.removeprefix(_CHOICE)
        choices = self.doctor.view_model.choices
        if chosen == "all":
            self.doctor.session.control.choose([source for choice in choices for source in choice.sources])
        elif int(chosen) < len(choices):
            self.doctor.session.control.choose(choices[int(chosen)].sources)
        self.doctor.go("overview")
