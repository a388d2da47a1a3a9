"""All rules with their verdicts: what was found, what is well, what could not be judged and why."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from vllm_doctor.model.kinds import State
from vllm_doctor.model.reason import HOW_TO_LEARN, IN_SHORT
from vllm_doctor.session.view_model import RuleSeen, Status
from vllm_doctor.tui.ink import DIM, NOTHING, Row, fit, ruled, say, severity, wrapped
from vllm_doctor.tui.page import Page, View

_RULE = "rule:"


class RulesPage(Page):
    NAME = "rules"
    HINTS = (
        ("⏎", "rule page"),
        ("x", "explain"),
        ("/", "filter"),
        ("s", "sort"),
        ("w", "save"),
        ("p", "pause"),
        ("r", "rescan"),
    )
    SORTS = ("verdict", "group", "name")

    def draw_head(self, view: View) -> list[Text]:
        rules = view.view_model.rules
        counts = [
            f"{n} {state}"
            for state in State
            if state is not State.NOT_APPLICABLE and (n := sum(rule.state is state for rule in rules))
        ]
        then = ""
        if view.view_model.status is Status.LOST:
            then, counts = ", as last judged", [c.replace(f" {State.OK}", " were ok") for c in counts]
        told = f"{len(rules)} rules{then}: {', '.join(counts)}" if counts else f"{len(rules)} rules"
        return [NOTHING, ruled(told, f"by {self.SORTS[view.sort % 3]}", view.width)]

    def draw_rows(self, view: View) -> list[Row]:
        return rows(view)

    def open(self, key: str) -> None:
        self.doctor.open(key)


def rows(view: View) -> list[Row]:
    found = []
    for rule in _sorted(view.view_model.rules, view.sort):
        reasons = ", ".join(dict.fromkeys(IN_SHORT[reason] for reason in rule.because.values()))
        if view.keeps(rule.id, rule.title, rule.group, rule.state or "", reasons):
            is_past = view.view_model.status is Status.LOST
            found.append(Row(_rule(rule, reasons, view.width, is_past), f"{_RULE}{rule.id}"))
    return found or [Row(say(("  no rule is named so", DIM)))]


def _rule(rule: RuleSeen, reasons: str, width: int, is_past: bool) -> Text:
    state, colour = _state(rule, is_past)
    told = f"{rule.title}" if not reasons else f"{reasons}: {rule.title}"
    wide = 28 if width < 100 else 32
    dim = DIM if rule.state in (State.NOT_APPLICABLE, State.UNKNOWN, None) else ""
    group = say((fit(rule.group, 11), DIM)) if width >= 100 else say("")
    return Text.assemble(
        say(" ", (fit(state, 11), colour)), say((fit(rule.id, wide), "bold" if colour in ("red", "yellow") else "")),
        group, say(" ", (told, dim)), no_wrap=True, end="",
    )  # fmt: skip


def _state(rule: RuleSeen, is_past: bool) -> tuple[str, str]:
    """A sign, a word and their colour. `is_past`: the server is lost, and what was well then is not known to be."""
    if is_past and rule.state is State.OK:
        return "  was ok", DIM
    sign, colour = severity(rule.state, "") if rule.state else (" ", "")
    return f"{sign.strip() or ' '} {'n/a' if rule.state is State.NOT_APPLICABLE else rule.state or ''}", colour


def _sorted(rules: Sequence[RuleSeen], sort: int) -> list[RuleSeen]:
    match sort % 3:
        case 0:
            return sorted(rules, key=lambda rule: (rule.state.rank if rule.state else len(State), rule.id))
        case 1:
            return sorted(rules, key=lambda rule: (rule.group, rule.id))
        case _:
            return sorted(rules, key=lambda rule: rule.id)


class RulePage(Page):
    """One rule in full: what it means, when it fires, and why it could not be judged."""

    NAME = "rule"
    HINTS = (("esc", "back"), ("↑ ↓", "scroll"))

    def __init__(self, id: str) -> None:
        super().__init__()
        self.id_of_rule = id

    def draw_head(self, view: View) -> list[Text]:
        rule = next((rule for rule in view.view_model.rules if rule.id == self.id_of_rule), None)
        is_past = view.view_model.status is Status.LOST
        state = _state(rule, is_past) if rule is not None and rule.state else ("", "")
        return [NOTHING, say((f" {self.id_of_rule}  ", "bold"), state)]

    def draw_rows(self, view: View) -> list[Row]:
        rule = next((rule for rule in view.view_model.rules if rule.id == self.id_of_rule), None)
        lines = [NOTHING]
        for signal, reason in rule.because.items() if rule is not None else ():
            lines += wrapped(f"{signal} is not known: {HOW_TO_LEARN[reason]}", view.width - 3, " ? ", "   ")
        page = self.doctor.session.page(self.id_of_rule)
        for line in page.splitlines():
            indent = " " * (1 + len(line) - len(line.lstrip()))
            lines += wrapped(line.strip(), view.width - 2, indent) if line.strip() else [NOTHING]
        return [Row(line) for line in lines]
