"""Two traces beside each other: what of a step grew, part by part and kind of kernel by kind. Pure.

A step is compared with a step: seconds of a part are divided by the steps of its trace. PASS and FAIL need at least
`LEAST_STEPS` steps in each, of the same kinds; what is less shows where the time went and concludes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vllm_doctor.compare.comparison import LEAST_CHANGE, Outcome
from vllm_doctor.model.trace import SAYS, RankSeen, TraceSeen
from vllm_doctor.text import words

LEAST_STEPS = 4
_SAME_KINDS = 0.1
"""By how much the share of a kind among the steps may differ."""


@dataclass(frozen=True)
class Growth:
    """Seconds of a step; None where the trace has none."""

    says: str
    before: float | None
    after: float | None

    @property
    def by(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True)
class TraceComparison:
    """`parts` in the order of a step, `families` by how much they changed."""

    outcome: Outcome
    headline: str
    reasons: tuple[str, ...]
    before: TraceSeen
    after: TraceSeen
    step: Growth
    parts: tuple[Growth, ...]
    families: tuple[Growth, ...]


def compared(before: TraceSeen, after: TraceSeen) -> TraceComparison:
    one, two = before.told, after.told
    step = Growth("a step", *(rank.seconds / (rank.steps or 1) for rank in (one, two)))
    parts = _growths(_parts(one), _parts(two))
    families = sorted(_growths(_families(one), _families(two)), key=lambda growth: -abs(growth.by))
    reasons = tuple(_reasons(one, two))
    outcome = Outcome.INCONCLUSIVE if reasons else _outcome(step)
    return TraceComparison(outcome, _headline(step, parts), reasons, before, after, step, parts, tuple(families))


def _parts(rank: RankSeen) -> Mapping[str, float]:
    return {says: rank.parts[part] / (rank.steps or 1) for part, says in SAYS.items() if part in rank.parts}


def _families(rank: RankSeen) -> Mapping[str, float]:
    return {
        f"{family.says}, {family.precision}" if family.precision else family.says: family.seconds / (rank.steps or 1)
        for family in rank.families
    }


def _growths(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Growth, ...]:
    return tuple(Growth(says, before.get(says), after.get(says)) for says in dict.fromkeys([*before, *after]))


def _reasons(one: RankSeen, two: RankSeen) -> Iterator[str]:
    """Why nothing can be concluded."""
    if not (one.marked_by and two.marked_by):
        yield "nothing marks the steps in one of them, so all of its time is compared to a step"
        return
    if one.is_on_cpu != two.is_on_cpu:
        yield "one has a device and the other has none"
    for rank in (one, two):
        if rank.idle_unknown and not rank.is_on_cpu:
            yield f"{rank.target}: {rank.idle_unknown}"
    if min(one.steps, two.steps) < LEAST_STEPS:
        yield f"only {min(one.steps, two.steps)} steps, where {LEAST_STEPS} are needed: one step differs from the next"
    kinds = [{kind.name: kind.steps / max(1, rank.steps) for kind in rank.kinds} for rank in (one, two)]
    if any(abs(kinds[0].get(kind, 0.0) - kinds[1].get(kind, 0.0)) > _SAME_KINDS for kind in {*kinds[0], *kinds[1]}):
        yield "the steps are not of the same kinds: trace both under the same load"
    if one.has_stacks != two.has_stacks:
        yield "Python's stacks were recorded in one of them only, which slows the host"


def _outcome(step: Growth) -> Outcome:
    assert step.before is not None
    change = step.by / step.before if step.before else 0.0
    if abs(change) < LEAST_CHANGE:
        return Outcome.INCONCLUSIVE
    return Outcome.FAIL if change > 0 else Outcome.PASS


def _headline(step: Growth, parts: tuple[Growth, ...]) -> str:
    if not step.before or step.after is None:
        return "Nothing was measured"
    change = abs(step.by) / step.before
    most = max(parts, key=lambda part: part.by * (1 if step.by >= 0 else -1))
    of = f", most of it {most.says}" if change >= LEAST_CHANGE else ""
    share = words.number(change, "share")
    return f"A step takes {share} {'longer' if step.by >= 0 else 'less'}{of}"
