"""What decided a gate or a suspect, and what decides an open verdict, as sentences: in JSON and on a page alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_doctor.model.elimination import Compared, Gate, Suspect
from vllm_doctor.model.kinds import Fate
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import HOW_TO_LEARN, IN_SHORT, Reason
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.render.parts import coverage
from vllm_doctor.text import words

_MOST = 3
"""Comparisons of a line; all of them are in JSON."""
_KEPT = {True: "kept", False: "excluded", None: "open"}


def excluded(report: Report) -> list[Gate]:
    """The gates that a number excludes."""
    return [gate for gate in report.gates if gate.kept is False and gate.by]


def measure_next(report: Report) -> str:
    """The measurement that decides a verdict that stays unknown; "" where another was given, or a finding says it.

    What leaves a gate's own condition open comes first, then what nothing can be judged without, then the others.
    """
    if report.verdict is not Verdict.UNKNOWN or report.main or _never_was(report):
        return ""
    open_ = [gate for gate in report.gates if gate.kept is None and gate.measure]
    lacking = next((vital.seen for vital in report.vitals if vital.needed and isinstance(vital.seen, Reason)), None)
    key_metrics = f"the key metrics: {_how(lacking, report)}" if lacking is not None else ""
    ways = (*(gate.measure for gate in open_ if gate.by), key_metrics, *(gate.measure for gate in open_))
    return next(filter(None, ways), "")


def _never_was(report: Report) -> bool:
    """Whether it was stopped before it was up: there is nothing to measure."""
    return bool(report.runs) and report.runs[-1].end == "stopped" and not report.runs[-1].up and report.runs[-1].began


def _how(reason: Reason, report: Report) -> str:
    """What to do for what is not known: "ask /metrics", "give two files"."""
    how = HOW_TO_LEARN[reason]
    if not report.is_postmortem:
        how = coverage.how(reason, {source.kind for source in report.sources})
    return how.partition(": ")[2] or how


def of_gate(gate: Gate) -> str:
    """ "excluded: requests running, usually 3, not >= 85 % of 64; 3 of 64 slots in use" """
    said = "; ".join(filter(None, (because(gate.by), *gate.numbers)))
    return f"{_KEPT[gate.kept]}{': ' if said else ''}{said}"


def of_suspect(suspect: Suspect) -> str:
    """What became of it, and by which comparisons: "dropped: requests in the queue 0, not > 0.1"."""
    said = because(suspect.by)
    word = suspect.fate.value
    if suspect.fate is Fate.CONSEQUENCE:
        word = f"follows from {suspect.explained_by}"
    return f"{word}: {said}" if said else word


def because(by: Sequence[Compared], most: int = _MOST) -> str:
    """ "requests waiting per running one 0.02, not > 0.1", "needs max_num_seqs (not in this log)"."""
    lacking = list(dict.fromkeys(f"{name} ({IN_SHORT[reason]})" for name, reason in missing(by)))
    # Of one signal the first bound: a severity's stricter one says no more.
    said = list({(one.signal, one.is_[:1]): _said(one) for one in reversed(by) if one.holds is not None}.values())[::-1]
    if lacking:
        said.append(f"needs {', '.join(lacking[:most])}{_more(len(lacking) - most)}")
    return ", ".join(said[:most]) + _more(len(said) - most)


def missing(by: Sequence[Compared]) -> Iterator[tuple[str, Reason]]:
    """The signals without which it cannot be decided, and why they are not known."""
    return ((name, reason) for one in by if one.holds is None for name, reason in one.missing.items())


def _more(left: int) -> str:
    return f" and {left} more" if left > 0 else ""


def _said(one: Compared) -> str:
    if not isinstance(one.seen, Known) or one.than is None:
        return one.says
    seen = words.reading(one.seen, one.unit)
    than = words.compared(one.is_, one.than, one.unit, one.than_signal)
    if not than:  # a yes or no says it
        return f"{one.says}: {seen}"
    if one.is_ in ("==", "!="):
        return f"{one.says} {seen}" if one.holds is (one.is_ == "==") else f"{one.says} {seen}, not {than[3:]}"
    return f"{one.says} {seen} {than}" if one.holds else f"{one.says} {seen}, not {than}"
