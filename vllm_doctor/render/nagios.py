"""One line for Nagios, Icinga, Naemon: state, cause, fix, perfdata. ASCII, and no `|` in the text."""

from __future__ import annotations

from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Finding, Remedy, Report
from vllm_doctor.render.parts import coverage
from vllm_doctor.text import words
from vllm_doctor.text.changes import dropped
from vllm_doctor.text.words import plain

_SHOWN = (
    "requests_running",
    "requests_waiting",
    "kv_cache_usage",
    "generation_tokens_per_second",
    "preemptions_per_second",
)
_ASCII = str.maketrans({"–": "-", "×": "x", "∞": "inf", "|": "/", "\n": " "})


def render(report: Report) -> str:
    perfdata = " ".join(
        f"'{vital.name}'={plain(round(float(vital.seen.value), 3))};;;0"
        for vital in report.vitals
        if vital.name in _SHOWN and isinstance(vital.seen, Known)
    )
    perfdata = " ".join(part for part in (perfdata, _speed(report)) if part)
    text = f"VLLM {report.verdict.value.upper()} - {_text(report)}".translate(_ASCII)
    text = text.encode("ascii", "replace").decode("ascii")
    return f"{text} | {perfdata}\n" if perfdata else f"{text}\n"


def _speed(report: Report) -> str:
    """The time per output token, in seconds, with the end of its typical range as the warning threshold."""
    expected = report.expected
    if expected is None or expected.tpot.measured is None:
        return ""
    high = "" if expected.tpot.high is None else f"{expected.tpot.high:.5g}"
    typical = "" if expected.tpot.typical is None else f" 'tpot_expected'={expected.tpot.typical:.5g}s;;;0"
    return f"'tpot'={expected.tpot.measured:.5g}s;{high};;0{typical}"


def _text(report: Report) -> str:
    if report.error is not None:
        return report.error.message
    first = next((f for f in report.findings if f.severity != "info" or f.role == "blind"), None)
    return coverage.headline(report) if first is None else _finding(first)


def _finding(finding: Finding) -> str:
    text = f"{finding.rule}: {finding.title}"
    if finding.evidence:
        evidence = finding.evidence[0]
        than = words.reading(Known(evidence.than), evidence.unit)
        text += f"; {evidence.says} {words.reading(evidence.seen, evidence.unit)} ({evidence.is_} {than})"
    if finding.remedies:
        text += f"; fix: {_cure(finding.remedies[0])}"
    return text


def _cure(remedy: Remedy) -> str:
    changes = [f"{flag} {plain(value)}" for flag, value in remedy.set.items()]
    changes += [f"drop {flag}" for flag in dropped(remedy) if not remedy.set]
    return ", ".join(changes) or remedy.do
