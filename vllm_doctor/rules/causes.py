"""Findings in their order: a cause hides its symptoms; then by what is at stake. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from vllm_doctor.model.kinds import GRAVE, Role, Stage
from vllm_doctor.model.report import Finding
from vllm_doctor.rules import explain
from vllm_doctor.rules.rule import Rule


def folded(findings: Sequence[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """A finding that another one explains, about the same engine, becomes its symptom."""
    explains = {rule.id: rule.explains for rule in rules}
    causes: dict[tuple[str, bool], list[tuple[int, Mapping[str, str]]]] = {}
    for place, finding in enumerate(findings):
        for explained in explains.get(finding.rule, ()):
            causes.setdefault((explained, False), []).append((place, finding.subject))
            if finding.severity in GRAVE:
                causes.setdefault((explained, True), []).append((place, finding.subject))
    places = {effect: Places(found) for effect, found in causes.items()}
    told = []
    for finding in findings:
        of_effect = places.get((finding.rule, finding.severity in GRAVE))  # what is not grave explains nothing grave
        cause = of_effect.first(finding.subject) if of_effect is not None else None
        if cause is not None:
            told.append(replace(finding, role=Role.SYMPTOM, explained_by=findings[cause].rule))
        else:  # a symptom without a cause in sight is worth knowing all the same
            told.append(replace(finding, role=Role.INFO) if finding.role is Role.SYMPTOM else finding)
    return told


class Places:
    """Subjects of a list, by their places in it: the first that does not contradict another subject, label by label."""

    def __init__(self, subjects: Iterable[tuple[int, Mapping[str, str]]]) -> None:
        self._of_shapes: dict[tuple[str, ...], list[tuple[int, Mapping[str, str]]]] = {}
        for place, subject in subjects:
            self._of_shapes.setdefault(tuple(subject), []).append((place, subject))
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[tuple[str, ...], int]] = {}

    def first(self, subject: Mapping[str, str]) -> int | None:
        found = []
        for shape, places in self._of_shapes.items():
            shared = tuple(label for label in shape if label in subject)
            if (shape, shared) not in self._known:
                known = self._known[shape, shared] = {}
                for place, named in places:
                    known.setdefault(tuple(named[label] for label in shared), place)
            found.append(self._known[shape, shared].get(tuple(subject[label] for label in shared)))
        return min((place for place in found if place is not None), default=None)


def ordered(
    findings: Sequence[Finding],
    rules: Sequence[Rule],
    minor: Callable[[Finding], bool] = lambda _: False,
) -> list[Finding]:
    """By cause, then by what is at stake: severity, what it explains of a speed that is missing, stage of reasoning,
    rank of the rule, size of the gain. Symptoms come last.

    Of one severity those that are `minor` come after those that are not.
    """
    stages = {rule.id: (rule.stage.rank, -rule.rank) for rule in rules}

    def key(finding: Finding) -> tuple[int, int, bool, bool, float, tuple[int, int], float]:
        # An actionable warning of any role stands before what is merely worth knowing.
        rank = 0 if finding.is_grave else finding.role.rank
        is_first = stages[finding.rule][0] <= Stage.BROKEN.rank
        weight = 2.0 if is_first else explain.weight(finding)
        gain = -finding.potential.at_most if finding.potential is not None else 0.0
        return rank, finding.severity.rank, minor(finding), finding.is_minor, -weight, stages[finding.rule], gain

    return sorted(findings, key=key)
