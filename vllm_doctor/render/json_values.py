"""Numbers and names as every JSON output writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Measure
from vllm_doctor.text.words import plain, shortened

_MOST_OF_A_NAME = 4096


def model_name(text: str | None) -> str | None:
    """Short enough for a document that others keep."""
    return None if text is None else shortened(text, _MOST_OF_A_NAME)


def labels(subject: Mapping[str, str]) -> dict[str, str]:
    return {label: shortened(text, _MOST_OF_A_NAME) for label, text in subject.items()}


def number(value: object) -> Any:
    """Rounded to six digits, whole numbers as integers; an open end (infinity) is null. Other values as they are."""
    if isinstance(value, float):
        return plain(float(f"{value:.6g}")) if math.isfinite(value) else None
    return value


def known(reading: Known) -> Any:
    """A number; {low, high} where only the histogram's bucket is known."""
    if reading.bounds is not None and reading.low != reading.high:
        return {"low": number(reading.low), "high": number(reading.high)}
    return number(reading.value)


def measured(measure: Measure) -> dict[str, Any]:
    """A measure with its spread. An open end, of a histogram's last bucket, is null."""
    return {
        "value": number(measure.value),
        "low": number(measure.low),
        "high": number(measure.high),
        "samples": measure.samples,
        "spread": measure.spread,
        "deviation": number(measure.deviation),
    }
