"""Plots by hand, as SVG: a curve over time, and bars where something held."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vllm_doctor.render.page import Curve

_WIDE, _HIGH = 320.0, 96.0
_LEFT, _TOP, _BOTTOM = 2.0, 6.0, 80.0
_FEW = 12
"""So few points are marked each."""


def curve(plot: Curve) -> str:
    """From 0 to its top; where nothing is known it is broken. A death is a line from top to bottom."""

    def x(at: float) -> float:
        return _LEFT + (at - plot.first) / max(plot.last - plot.first, 1e-9) * (_WIDE - 2 * _LEFT)

    def y(value: float) -> float:
        return _BOTTOM - (value / plot.top if plot.top > 0 else 0.0) * (_BOTTOM - _TOP)

    shapes = [f'<line class="axis" x1="0" y1="{_BOTTOM:g}" x2="{_WIDE:g}" y2="{_BOTTOM:g}"/>']
    for run in _runs(plot.points):
        shapes += _stretch([(x(at), y(value)) for at, value in run], len(plot.points) <= _FEW)
    for at in plot.deaths:
        shapes.append(f'<line class="died" x1="{x(at):.1f}" y1="{_TOP:g}" x2="{x(at):.1f}" y2="{_BOTTOM:g}"/>')
    first, last = map(escape, plot.ends)
    shapes.append(f'<text x="0" y="92">{first}</text>')
    shapes.append(f'<text x="{_WIDE:g}" y="92" text-anchor="end">{last}</text>')
    return f'<svg viewBox="0 0 {_WIDE:g} {_HIGH:g}" role="img" aria-hidden="true">{"".join(shapes)}</svg>'


def _stretch(points: Sequence[tuple[float, float]], is_dotted: bool) -> list[str]:
    """A part of a curve without a gap, and the area under it."""
    shapes = []
    places = [f"{x:.1f},{y:.1f}" for x, y in points]
    if len(points) > 1:
        begin, end = points[0][0], points[-1][0]
        area = f"M{begin:.1f},{_BOTTOM:g} L{' L'.join(places)} L{end:.1f},{_BOTTOM:g} Z"
        shapes.append(f'<path class="area" d="{area}"/>')
        shapes.append(f'<polyline class="curve" points="{" ".join(places)}"/>')
    if len(points) == 1 or is_dotted:
        shapes += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in points]
    return shapes


def _runs(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """The points that are known, in stretches without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def bars(spans: Sequence[tuple[float, float]], first: float, last: float) -> str:
    """The spans on a line of time from `first` to `last`."""
    scale = _WIDE / max(last - first, 1e-9)
    shapes = [f'<line class="axis" x1="0" y1="9.5" x2="{_WIDE:g}" y2="9.5"/>']
    for begin, end in spans:
        left = max(0.0, (begin - first) * scale)
        width = max(1.0, min(_WIDE - left, (end - begin) * scale))
        shapes.append(f'<rect class="span" x="{left:.1f}" y="1" width="{width:.1f}" height="8"/>')
    style = 'preserveAspectRatio="none" style="height:.8rem" aria-hidden="true"'
    return f'<svg viewBox="0 0 {_WIDE:g} 10" {style}>{"".join(shapes)}</svg>'
