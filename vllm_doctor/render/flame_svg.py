"""A flame graph as SVG, the callers above: no script, every text escaped, what a box is in full in its <title>.

The same stacks give the same bytes: a part's colour follows from its place among the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from vllm_doctor.model.profile import DEVICE_WAIT, IDLE, Box, Flame
from vllm_doctor.text import words

_WIDE, _HIGH = 1200.0, 16
_CHARACTER = 6.7
"""How wide one of its letters is, at most."""
_SHORTEST = 3
_TURN = 137.508
"""Degrees, from one colour to the next: of the golden angle, with which no two are near each other."""
_NEUTRAL, _THREAD = "hsl(40 12% 86%)", "hsl(40 12% 76%)"
_WAITS = {IDLE: "hsl(210 10% 90%)", DEVICE_WAIT: "hsl(210 35% 80%)"}


def drawn(flame: Flame, parts: Mapping[str, str]) -> str:
    """`parts`: the words of each part, by its id."""
    rows = 1 + max((box.depth for box in flame.boxes), default=0)
    shapes = "".join(_box(box, flame, parts) for box in flame.boxes)
    high = rows * _HIGH
    return f'<svg viewBox="0 0 {_WIDE:g} {high}" role="img" aria-label="flame graph">{shapes}</svg>'


def legend(flame: Flame, parts: Mapping[str, str]) -> str:
    """The colour of each part that is drawn."""
    there = {box.part for box in flame.boxes}
    shown = [part for part in (*parts, *sorted(there - parts.keys())) if part in there and part]
    items = (f"<li>{_swatch(_colour(part, parts))}{escape(parts.get(part, part))}</li>" for part in shown)
    return f'<ul class="legend">{"".join(items)}</ul>'


def _swatch(colour: str) -> str:
    return f'<svg viewBox="0 0 8 8" aria-hidden="true"><rect width="8" height="8" fill="{colour}"/></svg>'


def _box(box: Box, flame: Flame, parts: Mapping[str, str]) -> str:
    scale = _WIDE / max(flame.total, 1)
    left, wide, top = box.start * scale, box.count * scale, box.depth * _HIGH
    part = f"; {parts.get(box.part, box.part)}" if box.part else ""
    share = words.number(box.count / max(flame.total, 1), "share")
    title = escape(f"{box.name}: {share}, {box.count:,} sample{'s' if box.count != 1 else ''}{part}")
    colour = _THREAD if not box.depth else _colour(box.part, parts)
    rect = f'<rect x="{left:.1f}" y="{top}" width="{max(wide, 0.5):.1f}" height="{_HIGH - 1}" fill="{colour}"/>'
    return f"<g><title>{title}</title>{rect}{_label(box.name, left, top, wide)}</g>"


def _label(name: str, left: float, top: int, wide: float) -> str:
    """As much of the name as the box holds; nothing where that is next to nothing."""
    room = int((wide - 6) / _CHARACTER)
    if room < _SHORTEST:
        return ""
    return f'<text x="{left + 3:.1f}" y="{top + 11.5:g}">{escape(words.shortened(name, room))}</text>'


def _colour(part: str, parts: Mapping[str, str]) -> str:
    if not part:
        return _NEUTRAL
    place = list(parts).index(part) if part in parts else len(parts)
    return _WAITS.get(part) or f"hsl({place * _TURN % 360:.0f} 62% 74%)"
