"""What one source saw: its scrapes, the facts about its server, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.life import Life
from vllm_doctor.report import LinesSeen, Problem
from vllm_doctor.signal import Reading
from vllm_doctor.window import Window


@dataclass(frozen=True)
class Observation:
    """`kind` and `target` name the source; `error` says why it could not be read, or not to the end.

    Observations of one `patient` add up: a server's metrics, its host, its GPUs. Alone, a source is its own patient.
    """

    kind: str
    target: str
    window: Window = field(default_factory=Window)
    facts: Mapping[str, Reading] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    error: Problem | None = None
    notes: tuple[str, ...] = ()
    patient: str = ""
    command: tuple[str, ...] = ()
    processes: tuple[tuple[str, int], ...] = ()
    """(role, pid) of the server's processes."""
    lives: tuple[Life, ...] = ()
    """What a log tells, life by life; `lines` of it were read."""
    lines: LinesSeen | None = None
