"""Courses of values as block characters, on scales that are fixed: nothing jumps because a value moved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.text import Text

from vllm_doctor.text import times
from vllm_doctor.tui.ink import DIM

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MARK = "┄"
_NEAR = 0.75
"""Of a threshold: from there on a value comes near it."""
CALM, PLAIN = "green", "cyan"
"""The colours of a trend with a threshold, and of one without."""
GAP = "·"
"""Where nothing was known: not the same as zero."""


def nice(top: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 … that is not below."""
    if not top > 0 or not math.isfinite(top):
        return 1.0
    power = 10.0 ** math.floor(math.log10(top))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= top * 0.9999)


def scale(values: Iterable[float], least: float = 1.0) -> float:
    """The top of a scale of its own for these values; it grows in steps."""
    known = [value for value in values if not math.isnan(value)]
    return nice(max([*known, least]))


def bars(
    values: Sequence[float | None],
    top: float,
    height: int = 1,
    mark: float | None = None,
    alarm: str = "yellow",
    calm: str = "",
) -> list[Text]:
    """Columns from 0 to `top`, in `height` lines, the upper first. What lies above `mark` is in the alarm's colour,
    what comes near it is yellow, and the rest is in that of `calm`.

    With more than one line, `mark` is a dashed line where the columns do not reach it.
    """
    if height == 1:
        signs = "".join(GAP if v is None else sign for v, sign in zip(values, times.bars(values, top), strict=True))
        return [_line(signs, values, mark, alarm, calm)]
    rows = []
    marked = None if mark is None or top <= 0 else height - 1 - min(height - 1, int(mark / top * height - 1e-9))
    for row in range(height):
        line = []
        for value in values:
            if value is None:
                line.append(GAP if row == height - 1 else " ")
                continue
            eighths = round(8 * height * min(1.0, max(0.0, value / top))) if top > 0 else 0
            if value > 0 or row == height - 1:
                eighths = max(1, eighths)
            here = min(8, max(0, eighths - 8 * (height - 1 - row)))
            line.append(_MARK if not here and row == marked else _BLOCKS[here])
        rows.append(_line("".join(line), values, mark, alarm, calm))
    return rows


def _line(signs: str, values: Sequence[float | None], mark: float | None, alarm: str, calm: str) -> Text:
    styles = [
        DIM if value is None or sign == _MARK else _colour(value, mark, alarm, calm)
        for sign, value in zip(signs, values, strict=True)
    ]
    line = Text(no_wrap=True, end="")
    for style, run in groupby(zip(styles, signs, strict=True), key=lambda pair: pair[0]):
        line.append("".join(sign for _, sign in run), style or None)
    return line


def _colour(value: float, mark: float | None, alarm: str, calm: str) -> str:
    if mark is None:
        return calm
    return alarm if value > mark else "yellow" if calm and value > _NEAR * mark else calm
