"""What one source saw: its scrapes, the facts about its server, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vllm_doctor.life import Life
from vllm_doctor.report import Change, LinesSeen, Patch, Problem
from vllm_doctor.signal import Reading
from vllm_doctor.window import Window


class Document(Protocol):
    """What holds commands, and can be written anew with other ones."""

    def patched(self, changes: Mapping[int, Sequence[Change]]) -> tuple[Patch, ...]:
        """The corrections of its commands, which count from 0, in its own form."""


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
    document: Document | None = None
    """Where `command` stands, as its command of this `number`."""
    number: int = 0
    processes: tuple[tuple[str, int], ...] = ()
    """(role, pid) of the server's processes."""
    lives: tuple[Life, ...] = ()
    """What a log tells, life by life; `lines` of it were read."""
    lines: LinesSeen | None = None
