"""The text painter: 80 columns, for a hurried reader. Signs and words carry the meaning; colour repeats it."""

from __future__ import annotations

from vllm_doctor.model.kinds import State
from vllm_doctor.model.report import Report
from vllm_doctor.render import ansi, columns, report_page
from vllm_doctor.render.page import Page

WIDTH = 80
_STATES = frozenset(State)


def render(report: Report, colour: bool = False, width: int = WIDTH) -> str:
    """The report as text; `colour` adds ANSI colours to the verdict words."""
    return paint(report_page.in_short(report), colour, width)


def paint(page: Page, colour: bool = False, width: int = WIDTH) -> str:
    """The page in lines of at most `width` characters."""
    lines = columns.lay(page, width)
    return "".join(f"{''.join(_painted(*piece, colour) for piece in line).rstrip()}\n" for line in lines)


def _painted(text: str, tone: str, colour: bool) -> str:
    return ansi.block(text, State(tone).colour) if colour and tone in _STATES else text
