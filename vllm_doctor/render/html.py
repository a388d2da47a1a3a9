"""The HTML painter: a file that needs nothing else, no network and no script. The same report gives the same bytes.

Nothing that came from outside takes effect in it: the template escapes every text, and the page forbids itself scripts,
frames and anything from elsewhere. Markup and style are in templates/.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from vllm_doctor.model.kinds import State
from vllm_doctor.model.report import Report
from vllm_doctor.render import flame_svg, report_page, svg
from vllm_doctor.render.page import Block, Curve, FlameGraph, Head, Held, Lines, Page, Plots, spans
from vllm_doctor.text import words as text_words

_TEMPLATES = Path(__file__).parent / "templates"
_WIDTH = 88
"""The columns of a command."""
_TONES = frozenset(State) - {State.NOT_APPLICABLE}


def render(report: Report) -> str:
    return paint(report_page.whole(report))


def paint(page: Page) -> str:
    """A page that begins with its Head."""
    head, *rest = page
    assert isinstance(head, Head)
    about = rest.pop(0) if rest and isinstance(rest[0], Lines) else None
    style = Markup((_TEMPLATES / "report.css").read_text("utf-8"))
    return _environment().get_template("report.html.j2").render(head=head, about=about, blocks=rest, style=style)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"kind": _kind, "tone": _tone, "spans": spans, "folded": text_words.folded}
    made.globals |= {"curve": _curve, "bars": _bars, "flame": _flame, "legend": _legend, "width": _WIDTH}
    return made


def _kind(block: Block) -> str:
    """By which the template chooses how to show it."""
    return type(block).__name__.lower()


def _tone(state: str) -> str:
    """The class of its colour."""
    return state if state in _TONES else State.INFO.value


def _curve(plot: Curve) -> Markup:
    return Markup(svg.curve(plot))


def _flame(graph: FlameGraph) -> Markup:
    return Markup(flame_svg.drawn(graph.flame, graph.parts))


def _legend(graph: FlameGraph) -> Markup:
    return Markup(flame_svg.legend(graph.flame, graph.parts))


def _bars(held: Held, plots: Plots) -> Markup:
    return Markup(svg.bars(held.spans, plots.first, plots.last))
