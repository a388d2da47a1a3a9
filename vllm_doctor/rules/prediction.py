"""What would be, were the server started with other flags: what its signals would say, and whether vLLM would start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.signal import Signal
from vllm_doctor.text import words

Flags = Mapping[str, Value | None]
"""Flags as they would be; None: no longer given."""


@dataclass(frozen=True)
class Start:
    """`refused`: why vLLM would not start, in a sentence; `unknown`: signals without which that cannot be told."""

    refused: str | None = None
    unknown: Mapping[str, Reason] = field(default_factory=dict)


class Changed:
    """Reads one engine's signals as they would be with other flags.

    A signal of a flag says what the flag is set to, and a formula over it is computed again. What was measured, and
    what the server tells of itself, stays as it is: a formula about the future must ask the flag first.
    """

    def __init__(self, snapshot: Snapshot, subject: Subject, catalogue: Catalogue, flags: Flags) -> None:
        self._snapshot, self._subject, self._catalogue, self._flags = snapshot, subject, catalogue, flags
        self._read: dict[str, Reading] = {}
        self._touched: set[str] = set()
        for signal in catalogue.in_order:
            names = signal.formula.names if signal.formula is not None else ()
            if (signal.way == "flag" and signal.definition in flags) or not self._touched.isdisjoint(names):
                self._touched.add(signal.name)

    def __call__(self, name: str) -> Reading:
        if name not in self._touched:
            return self._now(name)
        if name not in self._read:
            signal = self._catalogue.signals[name]
            self._read[name] = signal.formula.evaluate(self) if signal.formula is not None else self._flag(signal)
        return self._read[name]

    def _flag(self, signal: Signal) -> Reading:
        value = self._flags[signal.definition]
        if value is None:
            value = signal.none
        if value is None:
            return Unknown(Reason.NOT_SET)
        return Known(float(value) if type(value) is int else value, origin="computed")

    def worded(self, name: str) -> tuple[Reading, str]:
        return self(name), self._catalogue.signals[name].unit

    def start(self) -> Start:
        """Whether vLLM would start, as far as the catalogue's refusals tell.

        What the server does already vLLM has not refused: then the refusal does not know this server. Nor is it asked
        for what only the server's host tells, where nobody looked there.
        """
        unknown: dict[str, Reason] = {}
        for refusal in self._catalogue.refusals:
            if self._touched.isdisjoint(refusal.when.names):
                continue
            holds, seen = refusal.when.judge(self)
            if holds is False or refusal.when.judge(self._now)[0]:
                continue
            if holds:
                return Start(words.fill(refusal.says, self.worded) or refusal.says)
            because = dict(_unknowns(seen))
            if Reason.NOT_LOCAL not in because.values():
                unknown |= because
        return Start(None, unknown)

    def _now(self, name: str) -> Reading:
        return self._snapshot.read(name, self._subject)[1]


def _unknowns(seen: list[Comparison]) -> list[tuple[str, Reason]]:
    return [told for comparison in seen if comparison.holds is None for told in comparison.unknowns()]
