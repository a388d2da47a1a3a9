"""How the verdict came about: each gate, and the rules that were kept or dropped there, by which number."""

from __future__ import annotations

from rich.text import Text

from vllm_doctor.model.elimination import Gate
from vllm_doctor.render.page import plain
from vllm_doctor.render.parts import decided, elimination
from vllm_doctor.tui.ink import DIM, NOTHING, Row, ruled, say, wrapped
from vllm_doctor.tui.page import Page, View

_RULE = "rule:"
_KEPT = {True: ("kept", "yellow"), False: ("excluded", "green"), None: ("open", "cyan")}


class ExplainPage(Page):
    NAME = "explain"
    HINTS = (("⏎", "rule page"), ("/", "filter"), ("5", "rules"), ("esc", "back"))

    def draw_head(self, view: View) -> list[Text]:
        report = view.view_model.report
        gates = report.gates if report is not None else ()
        counts = [f"{sum(gate.kept is kept for gate in gates)} {word}" for kept, (word, _) in _KEPT.items()]
        told = f"how this was found: {len(gates)} gates, {', '.join(counts)}" if gates else "how this was found"
        return [NOTHING, ruled(told, "kept first", view.width)]

    def draw_rows(self, view: View) -> list[Row]:
        return rows(view)

    def open(self, key: str) -> None:
        self.doctor.open(key)


def rows(view: View) -> list[Row]:
    """A gate with its numbers, then a line for each of its suspects; of a filter those that hold its words."""
    report = view.view_model.report
    found: list[Row] = []
    for gate in report.gates if report is not None else ():
        shown = [
            (rule, said) for rule, words in elimination.suspects(gate) if view.keeps(said := plain(words), gate.title)
        ]
        if not shown:
            continue
        found += [Row(NOTHING), *(Row(line) for line in _head(gate, view.width))]
        for rule, said in shown:
            style = "" if said.startswith("kept") or not rule else DIM
            first, *others = wrapped(said, view.width - 2, "   ", "     ", style)
            found += [Row(first, f"{_RULE}{rule}" if rule else ""), *map(Row, others)]
    return found or [Row(say(("  nothing was judged yet", DIM)))]


def _head(gate: Gate, width: int) -> list[Text]:
    word, colour = _KEPT[gate.kept]
    said = decided.of_gate(gate).removeprefix(word).lstrip(": ")
    return [say((f" {gate.title}  ", "bold"), (word, colour)), *(wrapped(said, width - 2, "   ") if said else ())]
