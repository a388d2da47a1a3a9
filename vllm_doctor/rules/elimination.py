"""How the diagnosis came about: each gate and each rule, kept or dropped, by which comparison. Pure.

Nothing is judged here: a rule's own conditions are asked once more, for the fewest comparisons that decided them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.deciding import decided
from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.elimination import Compared, Gate, Suspect
from vllm_doctor.model.kinds import SEVERITIES, Fate, Role, State
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Finding
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnosis_file import GateRule
from vllm_doctor.rules.rule import Rule
from vllm_doctor.text import words

_FATES = tuple(Fate)
_DROPPED = {
    State.OK: Fate.DROPPED,
    State.UNKNOWN: Fate.UNKNOWN,
    State.NOT_APPLICABLE: Fate.NOT_APPLICABLE,
}


@dataclass(frozen=True)
class Tried:
    """A rule, what it gave where it was gravest, and how the signals are read there."""

    rule: Rule
    state: State
    read: Callable[[str], Reading]


def gates(
    catalogue: Catalogue,
    rules: Sequence[Rule],
    states: Mapping[str, State],
    findings: Sequence[Finding],
    worded: words.Read,
    tried: Iterable[Tried] | None = None,
) -> tuple[Gate, ...]:
    """Each gate of one engine, whose signals `worded` reads; with its suspects where these were `tried`."""

    def read(name: str) -> Reading:
        return worded(name)[0]

    suspects: dict[str, list[Suspect]] = {}
    of_rule = belongs(catalogue.gates, rules)
    for one in tried or ():
        by = tuple(_compared(comparison, catalogue) for comparison in _by(one))
        suspect = Suspect(one.rule.id, one.rule.title, one.state, Fate.UNKNOWN, by)
        suspects.setdefault(of_rule.get(one.rule.id, ""), []).append(suspect)
    return settled(
        [_gate(gate, catalogue, read, worded, suspects) for gate in catalogue.gates], findings, states, of_rule
    )


def belongs(gates: Sequence[GateRule], rules: Iterable[Rule]) -> dict[str, str]:
    """The gate of each rule: the one that names it, else the one of its stage."""
    named = {id: gate.gate for gate in gates for id in gate.rules}
    of_stage = {stage: gate.gate for gate in gates for stage in gate.stages}
    return {rule.id: named.get(rule.id) or of_stage.get(rule.stage, "") for rule in rules}


def settled(
    gates: Iterable[Gate], findings: Sequence[Finding], states: Mapping[str, State], of_rule: Mapping[str, str]
) -> tuple[Gate, ...]:
    """The gates and their suspects with what became of them in the end, the kept first."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.rule, []).append(finding)
    grave = {of_rule.get(finding.rule) for finding in findings if finding.is_grave}
    open_ = {of_rule.get(id) for id, state in states.items() if state is State.UNKNOWN}
    told = []
    for gate in gates:
        kept = True if gate.gate in grave else gate.kept
        if kept is None and not gate.by and gate.gate not in open_:
            kept = False  # none of its rules holds, and all were judged
        ended = sorted((_ended(one, found.get(one.rule, ())) for one in gate.suspects), key=_place)
        told.append(replace(gate, kept=kept, suspects=tuple(ended)))
    return tuple(told)


def _place(suspect: Suspect) -> tuple[int, int, str]:
    return _FATES.index(suspect.fate), suspect.state.rank, suspect.rule


def _ended(suspect: Suspect, findings: Sequence[Finding]) -> Suspect:
    """The suspect with its fate, by the findings of its rule."""
    if not findings:
        return replace(suspect, fate=_DROPPED.get(suspect.state, Fate.NOTE))
    if all(finding.role is Role.SYMPTOM for finding in findings):
        return replace(suspect, fate=Fate.CONSEQUENCE, explained_by=findings[0].explained_by)
    kept = any(finding.is_grave for finding in findings)
    is_small = any(finding.is_minor for finding in findings)
    return replace(suspect, fate=Fate.KEPT if kept else Fate.NOTE, is_small=suspect.is_small or is_small)


def _gate(
    rule: GateRule,
    catalogue: Catalogue,
    read: Callable[[str], Reading],
    worded: words.Read,
    suspects: Mapping[str, Sequence[Suspect]],
) -> Gate:
    holds, by = decided(rule.binds.root, read) if rule.binds is not None else (None, ())
    measures = (one.do for one in rule.measure if one.when is None or one.when.judge(read)[0])
    return Gate(
        rule.gate,
        rule.title,
        holds,
        tuple(filled for says in rule.shows if (filled := words.fill(says, worded))),
        tuple(_compared(comparison, catalogue) for comparison in by),
        tuple(suspects.get(rule.gate, ())),
        next(measures, ""),
    )


def _by(tried: Tried) -> Sequence[Comparison]:
    """What decided the rule: of one that did not hold its mildest condition, which the others imply as a rule."""
    rule, read = tried.rule, tried.read
    if rule.applies is not None:
        holds, by = decided(rule.applies.root, read)
        if holds is not True:
            return by
    results = [decided(condition.root, read) for condition in _by_severity(rule)]
    if tried.state.severity is not None:
        return next((by for holds, by in results if holds), ())
    wanted = None if tried.state is State.UNKNOWN else False
    return next((by for holds, by in reversed(results) if holds is wanted), ())


def _by_severity(rule: Rule) -> Iterator[Condition]:
    return (rule.when[severity] for severity in SEVERITIES if severity in rule.when)


def _compared(comparison: Comparison, catalogue: Catalogue) -> Compared:
    signal = catalogue.signals.get(comparison.signal)  # what is computed in a condition is no signal
    seen, than = comparison.seen, comparison.than
    return Compared(
        signal=comparison.signal,
        says=signal.says if signal is not None else comparison.signal,
        seen=seen if isinstance(seen, Known) else seen.reason,
        is_=comparison.is_,
        than=than.value if isinstance(than, Known) else None,
        than_signal=comparison.than_signal,
        unit=signal.unit if signal is not None else "",
        holds=comparison.holds,
        missing=dict(comparison.unknowns()),
    )
