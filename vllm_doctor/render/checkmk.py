"""Checkmk local check: a service for the verdict, with metrics, one for each finding, and one for all that was skipped.

Each line has exactly four parts: state, "service name", metrics or -, text.
"""

from __future__ import annotations

from vllm_doctor.model.kinds import State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import HOW_TO_LEARN, IN_SHORT, Reason
from vllm_doctor.model.report import Report
from vllm_doctor.render.parts import coverage
from vllm_doctor.text.words import plain

_REASONS = 3
_STATE = {"ok": 0, "info": 0, "warning": 1, "critical": 2, "unknown": 3}


def render(report: Report, is_whole: bool = False) -> str:
    """`is_whole`: a service for each rule that applies, also those that pass or are skipped, as --all asks for."""
    metrics = "|".join(
        f"{vital.name}={plain(round(float(vital.seen.value), 3))}"
        for vital in report.vitals
        if isinstance(vital.seen, Known) and vital.seen.bounds is None
    )
    headline = report.error.message if report.error else coverage.headline(report)
    lines = [f'{report.verdict.exit_code} "vLLM" {metrics or "-"} {headline}']
    because = {unknown.rule: unknown.because for unknown in report.unknown}
    titles = {finding.rule: finding.title for finding in reversed(report.findings)}
    for rule, state in report.states.items():
        if state == State.NOT_APPLICABLE or not (is_whole or rule in titles):
            continue
        text = titles.get(rule, state)
        if state == State.UNKNOWN:
            by_reason: dict[Reason, list[str]] = {}
            for name, reason in because[rule].items():
                by_reason.setdefault(reason, []).append(name)
            text = "unknown, " + "; ".join(
                f"{IN_SHORT[reason]}: {', '.join(by_reason[reason])}" for reason in by_reason
            )
        lines.append(f'{_STATE[state]} "vLLM {rule}" - {text}')
    if report.states and not is_whole:
        lines.append(_skipped(report))
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def _skipped(report: Report) -> str:
    """How many checks were skipped, and why most of them. That is no state of the server: the line is always OK."""
    skipped = report.count(State.UNKNOWN)
    checked, of = report.coverage
    reasons = sorted(report.unknown_by_reason.items(), key=lambda pair: -len(pair[1]))
    why = "; ".join(f"{len(rules)}: {HOW_TO_LEARN[reason]}" for reason, rules in reasons[:_REASONS])
    text = f"{checked} of {of} checks made, {skipped} skipped for want of data" + (f". {why}" if why else "")
    return f'0 "vLLM skipped checks" checks_made={checked}|checks_skipped={skipped} {text}'
