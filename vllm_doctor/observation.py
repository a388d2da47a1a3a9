"""What one source saw: its scrapes, the facts about its server, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.report import Problem
from vllm_doctor.signal import Value
from vllm_doctor.window import Window


@dataclass(frozen=True)
class Observation:
    """`kind` and `target` name the source; `error` says why it could not be read, or not to the end."""

    kind: str
    target: str
    window: Window = field(default_factory=Window)
    facts: Mapping[str, Value] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    error: Problem | None = None
    notes: tuple[str, ...] = ()
