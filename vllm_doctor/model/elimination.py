"""How a report came about: what was suspected, what was kept, what was dropped and by which number. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.model.kinds import Fate, State
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.reason import Reason


@dataclass(frozen=True)
class Compared:
    """One comparison that decided: `signal` was `seen`, and whether that `is_` (>, <=, …) `than`.

    `holds` None: a side is not known, `missing` says which and why.
    """

    signal: str
    says: str
    seen: Known | Reason
    is_: str
    than: Value | None
    than_signal: str | None
    unit: str
    holds: bool | None
    missing: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class Suspect:
    """A rule, what became of it, and the comparisons by which: of several engines, where it was gravest."""

    rule: str
    title: str
    state: State
    fate: Fate
    by: tuple[Compared, ...]
    explained_by: str | None = None
    is_small: bool = False
    """It was kept as a note only: what it may cost is known, and too little."""


@dataclass(frozen=True)
class Gate:
    """A place where requests or steps are held up, and the rules that are about it.

    `kept` None: not known. `numbers`: sentences with what was seen there; `by`: what decided it.
    """

    gate: str
    title: str
    kept: bool | None
    numbers: tuple[str, ...]
    by: tuple[Compared, ...]
    suspects: tuple[Suspect, ...]
    measure: str = ""
    """The measurement that would decide, where it is not known."""
