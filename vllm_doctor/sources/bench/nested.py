"""Values deep in a document of a tool whose schema changes from release to release: one that is not there is None."""

from __future__ import annotations

from vllm_doctor.model import outside


def at(document: object, *keys: str) -> object:
    """What stands under these keys, one within the other."""
    for key in keys:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def number(document: object, *keys: str) -> float | None:
    """The number there; None where there is none, or one that is not finite."""
    value = at(document, *keys)
    return outside.number(value) if isinstance(value, int | float) else None


def text(document: object, *keys: str) -> str | None:
    value = at(document, *keys)
    return value[:200] if isinstance(value, str) and value else None


def first(*values: float | None) -> float | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)
