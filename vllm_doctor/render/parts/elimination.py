"""How the verdict came about: the gates in their order, and what was kept or dropped there, a line each."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.elimination import Gate, Suspect
from vllm_doctor.model.kinds import Fate
from vllm_doctor.model.reason import IN_SHORT
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.render.page import Heading, Labelled, Lines, Span, Words, code, joined, listed
from vllm_doctor.render.parts import decided

_TITLE = "How this was found"
_LEGEND = "each gate, then its suspects: kept first, the dropped with the number that excludes them"


def elimination(report: Report) -> tuple[Heading | Labelled | Lines, ...]:
    """Nothing where it was not asked for."""
    if not report.is_explained:
        return ()
    gates = [
        Labelled(gate.title, decided.of_gate(gate), (Lines(tuple(said for _, said in suspects(gate))),))
        for gate in report.gates
    ]
    return Heading(_TITLE), Lines((_LEGEND,)), *gates


def undecided(report: Report) -> tuple[Labelled, ...]:
    """Of a verdict that stays unknown: which gates are excluded and by which number, and the one measurement that
    decides."""
    if report.verdict is not Verdict.UNKNOWN or report.is_unmeasured or report.is_of_benchmark or report.is_of_trace:
        return ()
    said = [f"{gate.title}: {decided.because(gate.by[:1])}" for gate in decided.excluded(report)]
    blocks = [Labelled("Excluded", "; ".join(said))] if said else []
    do = decided.measure_next(report)
    return (*blocks, *((Labelled("To decide", do),) if do else ()))


def suspects(gate: Gate) -> Iterator[tuple[str, Words]]:
    """A line for each that was kept or dropped, with the rule that it is of; of the others ("") one for each reason."""
    for suspect in gate.suspects:
        if suspect.fate not in (Fate.UNKNOWN, Fate.NOT_APPLICABLE):
            said = decided.because(suspect.by)
            yield suspect.rule, (*_fate(suspect), f": {said}" if said else "")
    lacking: dict[str, list[Words]] = {}
    for suspect in gate.suspects:
        if suspect.fate is Fate.UNKNOWN:
            name, reason = next(decided.missing(suspect.by), ("", None))
            why = IN_SHORT[reason] if reason is not None else "not judged"
            lacking.setdefault(why, []).append((code(suspect.rule), f" ({name})" if name else ""))
    for why, unknown in lacking.items():
        yield "", (f"unknown, {why}: ", *joined(unknown, ", "))
    if others := [one.rule for one in gate.suspects if one.fate is Fate.NOT_APPLICABLE]:
        yield "", ("does not apply to this server: ", *listed(others))


def _fate(suspect: Suspect) -> tuple[str | Span, ...]:
    if suspect.fate is Fate.CONSEQUENCE:
        return code(suspect.rule), f" follows from {suspect.explained_by}"
    end = ", but explains little" if suspect.fate is Fate.KEPT and suspect.is_small else ""
    return f"{suspect.fate.value} ", code(suspect.rule), end
