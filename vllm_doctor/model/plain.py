"""Frozen values as what JSON holds, and back by their annotations.

A dataclass or a NamedTuple becomes the list of its fields, a mapping pairs, a union its member's place and the value; a
number that JSON has not (infinity) becomes its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

Plain = Any
"""What JSON holds: lists, texts, finite numbers, truths, null."""


def plain(kind: Any, value: Any) -> Plain:
    """The value, which is of this annotated kind."""
    match _shape(kind):
        case "one", members:
            place = next(place for place, member in enumerate(members) if _is(member, value))
            return [place, plain(members[place], value)]
        case "fields", kinds:
            return [plain(kind, getattr(value, name)) for name, kind in kinds.items()]
        case "pairs", (key, item):
            return [[plain(key, name), plain(item, held)] for name, held in value.items()]
        case "items", item, _:
            return [plain(item, held) for held in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def of_plain(kind: Any, told: Plain) -> Any:
    """The value of this annotated kind that became `told`. Raises ValueError, TypeError, IndexError where none did."""
    match _shape(kind):
        case "one", members:
            place, held = told
            return of_plain(members[range(len(members))[place]], held)
        case "fields", kinds:
            return kind(**{name: of_plain(kinds[name], held) for name, held in zip(kinds, told, strict=True)})
        case "pairs", (key, item):
            return {of_plain(key, name): of_plain(item, held) for name, held in told}
        case "items", item, made:
            return made(of_plain(item, held) for held in told)
    if kind is float and isinstance(told, str | int) and not isinstance(told, bool):
        return float(told)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(told)
    if type(told) is not kind and not (kind is type(None) and told is None):
        raise TypeError(f"{type(told).__name__} in place of {kind}")
    return told


@cache
def _shape(kind: Any) -> tuple[Any, ...] | None:
    """How a kind is made of others; None: it is not."""
    origin, within = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return "one", within
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return "fields", {field.name: hints[field.name] for field in fields(kind)}
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return "fields", get_type_hints(kind)
    if origin is Mapping:
        return "pairs", within
    if origin in (tuple, frozenset):
        return "items", within[0], origin
    return None


def _is(kind: Any, value: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return isinstance(value, origin)
