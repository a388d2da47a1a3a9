"""The one command against what was found, and against what would hold the queue next. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.launch.correction import corrected
from vllm_doctor.model.kinds import Severity
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Correction, Finding, NextCap
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import Reader, finding_of, remedies
from vllm_doctor.rules.prediction import Changed
from vllm_doctor.rules.rule import Rule
from vllm_doctor.text import words

_MOST_CAPS = 6
"""More limits than there are one behind another."""

Flags = Mapping[str, Value | None]


@dataclass(frozen=True)
class Cure:
    """Commands without what the findings find fault with, as far as vLLM would start with them.

    After each change the other limits are asked again, with the flags as they would be (`next` of a rule): slots that
    are raised to what a small pool holds leave the server at the pool. What holds then is changed in the same command,
    and what was computed before is computed again with it.
    """

    snapshots: Sequence[Snapshot]
    rules: Sequence[Rule]
    catalogue: Catalogue
    goal: Value | None

    def __call__(self, findings: Sequence[Finding], command: Sequence[str]) -> Correction | None:
        correction = corrected(findings, command, self.goal, self._refusal)
        found, told = list(findings), dict[str, NextCap]()
        for _ in range(_MOST_CAPS):
            if correction is None:
                break
            cap = next(self._caps(_flags(correction), {*told, *(one.rule for one in found if one.is_grave)}), None)
            if cap is None:
                break
            rule, says, readings = cap
            told[rule.id] = NextCap(rule.id, says, False)
            more = [*found, finding_of(rule, Severity.WARNING, (), (), readings, self.catalogue)]
            further = corrected(more, command, self.goal, self._refusal)
            if further is None or not any(change.rule == rule.id for change in further.changes):
                continue
            told[rule.id] = NextCap(rule.id, says, True)
            found = [self._again(one, further) for one in more]
            correction = corrected(found, command, self.goal, self._refusal)
        return replace(correction, next_caps=tuple(told.values())) if correction is not None else None

    def _caps(self, flags: Flags, known: set[str]) -> Iterator[tuple[Rule, str, Reader]]:
        """The limits that would hold the queue with these flags, each with a sentence why."""
        for rule in self.rules:
            if rule.next is None or rule.id in known:
                continue
            for snapshot in self.snapshots:
                for engine in snapshot.subjects:
                    reader = Reader(snapshot, engine, self.catalogue, flags)
                    if rule.next.when.judge(reader)[0]:
                        yield rule, words.fill(rule.next.says, reader.worded) or rule.title, reader

    def _again(self, found: Finding, correction: Correction) -> Finding:
        """The finding with its remedies as they are beside what the others change."""
        rule = next((rule for rule in self.rules if rule.id == found.rule), None)
        others = {name: now for name, now, of in _changes(correction) if of != found.rule}
        reader = self._reader(found.subject, others)
        if rule is None or reader is None or not found.remedies or not others:
            return found
        return replace(found, remedies=remedies(rule, reader, self.catalogue))

    def _reader(self, subject: Mapping[str, str], flags: Flags) -> Reader | None:
        """Of the first engine that a finding is about: no label contradicts."""
        for snapshot in self.snapshots:
            for engine in snapshot.subjects:
                labels = {**dict(engine), **dict(snapshot.tag)}
                if all(labels.get(label, value) == value for label, value in subject.items()):
                    return Reader(snapshot, engine, self.catalogue, flags)
        return None

    def _refusal(self, flags: Flags) -> str | None:
        """Why vLLM would not start with these flags, as far as any of the engines tells."""
        starts = (
            Changed(snapshot, engine, self.catalogue, flags).start()
            for snapshot in self.snapshots
            for engine in snapshot.subjects
        )
        return next((start.refused for start in starts if start.refused), None)


def _flags(correction: Correction) -> Flags:
    return {name: now for name, now, _ in _changes(correction)}


def _changes(correction: Correction) -> Iterator[tuple[str, Value | None, str]]:
    """Of each flag that is changed: its name, what it is then, and by which rule."""
    for change in correction.changes:
        if change.name.startswith("-"):
            yield change.name, change.now, change.rule
