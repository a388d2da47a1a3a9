"""What comes from outside, as something to compute with: a number, a time, a JSON document.

Each has one way in, so that nothing behind it can overflow: no number is infinite, NaN, or of 400 digits, and no time
is beyond the calendar. Who reads says what was left out.
"""

from __future__ import annotations

import json as _json
import math
from datetime import UTC, datetime
from typing import Any

LARGEST = 1e30
"""No server has more of anything (all disks on earth hold 1e23 bytes). The product of ten such numbers is finite."""
_DIGITS = 30
_FIRST, _LAST = -62135596800.0, 253402300799.0  # the years 1 to 9999


class DepthError(ValueError):
    """A document that is nested too deeply to be read."""


def number(told: object) -> float | None:
    """A number of JSON, of YAML, or as text; None where it is none, not finite, or larger than LARGEST."""
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    try:
        found = float(told)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) <= LARGEST else None  # NaN is not


def json(text: str | bytes) -> Any:
    """A JSON document. Raises ValueError where it is none, DepthError where it is nested too deeply.

    Its numbers may be infinite or NaN, but never an int that no float can hold.
    """
    try:
        return _json.loads(text, parse_int=_int)
    except RecursionError:
        raise DepthError("nested too deeply") from None


def is_too_deep(error: Exception) -> bool:
    """Whether PyYAML gave up on a text because of its depth: libyaml does at 1,000 levels since PyYAML 6.0.4."""
    return isinstance(error, RecursionError) or getattr(error, "problem", None) == "exceeded maximum nesting depth"


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def is_time(seconds: float) -> bool:
    """Whether the calendar has that moment: POSIX seconds in the years 1 to 9999."""
    return _FIRST <= seconds <= _LAST


def moment(seconds: float) -> datetime:
    """POSIX seconds as a time in UTC; the nearest that there is, where the calendar has no such."""
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST) if not math.isnan(seconds) else 0.0, UTC)
