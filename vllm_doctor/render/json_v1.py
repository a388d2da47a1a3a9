"""JSON, version 1. A contract (report.v1.schema.json): keys may be added, none changed or removed.

Frozen by its own functions: the report's classes may change, this shape may not.
Numbers are SI units; what is not known is null with its reason beside it; never NaN or Infinity. The text is ASCII, so
that no locale can break it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vllm_doctor.model.elimination import Compared
from vllm_doctor.model.kinds import Fate, State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import (
    SCHEMA,
    BenchSeen,
    Cost,
    Evidence,
    Finding,
    Gain,
    LinesSeen,
    Problem,
    RecordingSeen,
    Remedy,
    Report,
    RunSeen,
    SourceSeen,
    Span,
    Target,
    Vital,
)
from vllm_doctor.model.speed import Expected, Pace
from vllm_doctor.model.version import __version__
from vllm_doctor.render import json_expectation, json_profile, json_trace
from vllm_doctor.render.json_values import known, labels, measured, model_name, number
from vllm_doctor.render.parts import decided
from vllm_doctor.text.times import is_dated, iso

if TYPE_CHECKING:
    from vllm_doctor.model.path import PathSeen
    from vllm_doctor.model.prefix import Prefixes


def render(report: Report) -> str:
    return json.dumps(document(report), allow_nan=False, indent=1) + "\n"


def document(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "doctor": __version__,
        "at": report.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": report.verdict.value,
        "headline": report.headline,
        "error": _problem(report.error),
        "patient": {
            "vllm": report.patient.vllm,
            "vllm_window": report.patient.vllm_window,
            "model": model_name(report.patient.model),
            "engines": report.patient.engines,
            "gpus": report.patient.gpus,
            "gpu": report.patient.gpu,
            "processes": [{"role": role, "pid": pid} for role, pid in report.patient.processes],
            "cores": None
            if report.patient.cores_wanted is None and report.patient.cores_usable is None
            else {
                "wanted": number(report.patient.cores_wanted),
                "usable": number(report.patient.cores_usable),
                "terms": report.patient.cores_terms,
            },
        },
        "sources": [_source(source) for source in report.sources],
        "findings": [_finding(finding) for finding in report.findings],
        "unknown": [
            {"rule": unknown.rule, "because": {name: reason.value for name, reason in unknown.because.items()}}
            for unknown in report.unknown
        ],
        "command": _command(report),
        "expected": _expected(report.expected),
        "path": _path(report.path),
        "pods": [
            {"target": pod.target, "verdict": pod.verdict, "headline": pod.headline, "findings": list(pod.findings)}
            for pod in report.pods
        ],
        "trace": json_trace.document(report.trace),
        "coverage": _coverage(report),
        "excluded": [f"{gate.title}: {decided.because(gate.by)}" for gate in decided.excluded(report)],
        "measure_next": decided.measure_next(report) or None,
        "explain": list(_explained(report)) if report.is_explained else None,
        "vitals": {vital.name: _vital(vital) for vital in report.vitals},
        "vitals_unknown": {
            vital.name: vital.seen.value for vital in report.vitals if not isinstance(vital.seen, Known)
        },
        "engines": [
            {"subject": labels(engine.subject), "vitals": {vital.name: _vital(vital) for vital in engine.vitals}}
            for engine in report.engines
        ],
        "measures": {measure.name: measured(measure) for measure in report.measures},
        "slo": [_target(target) for target in report.targets],
        "rules": dict(report.states),
        "counts": {
            state.replace("-", "_"): report.count(State(state))
            for state in ("ok", "info", "warning", "critical", "unknown", "not-applicable")
        },
        "lives": [_run(run, report) for run in report.runs],
        "spans": [_span(span, report) for span in report.spans],
        "lines": _lines(report.lines),
        "recordings": [_recording(seen) for seen in report.recordings],
        "expect": None if report.expect is None else json_expectation.document(report.expect),
        "benchmarks": [_benchmark(seen) for seen in report.benchmarks],
        "prefixes": [_prefixes(seen) for seen in report.prefixes],
        "profiles": [
            {**json_profile.document(target, seen), "parts": dict(seen.says)}
            for target, seen in report.profiles.items()
        ],
        "redacted": [{"what": what, "count": count} for what, count in report.redacted.items()],
    }


def _expected(speed: Expected | None) -> dict[str, Any] | None:
    """Of several engines the one that lacks most of its speed. null where no server was measured."""
    if speed is None:
        return None
    return {
        "standing": speed.standing.value,
        "subject": labels(speed.subject),
        "tpot_ms": _pace(speed.tpot, 1000.0),
        "output_tokens_per_second": _pace(speed.tokens),
        "requests": number(speed.batch),
        "missing": number(speed.missing) if speed.is_judged else None,
        "explained": [{"rule": one.rule, "share": number(one.share)} for one in speed.explained],
        "unexplained": number(speed.unexplained),
        "assumptions": [f"{one.says} ({one.origin})" for one in speed.assumptions],
        "why_unknown": list(speed.lacks),
        "measure_next": list(speed.measure_next),
    }


def _path(path: PathSeen | None) -> dict[str, Any] | None:
    """null where one server was looked at, or several side by side."""
    if path is None:
        return None
    return {
        "sources": [
            {"role": source.role, "target": source.target, "product": source.product or None} for source in path.sources
        ],
        "seconds": known(path.total) if isinstance(path.total, Known) else None,
        "unknown": None if isinstance(path.total, Known) else path.total.value,
        "requests": number(path.requests),
        "hops": [
            {
                "hop": hop.hop,
                "says": hop.says,
                "seconds": known(hop.seen) if isinstance(hop.seen, Known) else None,
                "unknown": None if isinstance(hop.seen, Known) else hop.seen.value,
                "share": number(hop.share),
                "because": hop.by or None,
                "blamed_by": hop.blamed,
            }
            for hop in path.hops
        ],
        "rest": number(path.rest),
    }


def _explained(report: Report) -> Iterator[dict[str, Any]]:
    """Each gate, and after it its suspects, the kept first."""
    for gate in report.gates:
        yield {
            "gate": gate.gate,
            "kept": gate.kept,
            "because": decided.of_gate(gate),
            "comparisons": [_compared(one) for one in gate.by],
        }
        for one in gate.suspects:
            kept = None if one.fate is Fate.UNKNOWN else one.fate in (Fate.KEPT, Fate.NOTE, Fate.CONSEQUENCE)
            yield {
                "rule": one.rule,
                "of": gate.gate,
                "kept": kept,
                "because": decided.of_suspect(one),
                "fate": one.fate.value,
                "state": one.state.value,
                "explained_by": one.explained_by,
                "comparisons": [_compared(compared) for compared in one.by],
            }


def _compared(one: Compared) -> dict[str, Any]:
    return {
        "signal": one.signal,
        "value": known(one.seen) if isinstance(one.seen, Known) else None,
        "is": one.is_,
        "than": number(one.than),
        "than_signal": one.than_signal,
        "holds": one.holds,
        "unit": one.unit,
        "missing": {name: reason.value for name, reason in one.missing.items()},
    }


def _pace(pace: Pace, factor: float = 1.0) -> dict[str, Any]:
    figures = {
        "measured": pace.measured, "bound": pace.bound, "low": pace.low, "typical": pace.typical, "high": pace.high,
    }  # fmt: skip
    return {name: number(None if value is None else value * factor) for name, value in figures.items()}


def _coverage(report: Report) -> dict[str, int]:
    checked, of = report.coverage
    return {"checked": checked, "of": of}


def _benchmark(seen: BenchSeen) -> dict[str, Any]:
    return {
        "target": seen.target,
        "tool": seen.tool,
        "model": model_name(seen.model),
        "requests": number(seen.requests),
        "failed": number(seen.failed),
        "concurrency": number(seen.concurrency),
        "rate": number(seen.rate),
        "seconds": number(seen.seconds),
        "input_tokens": number(seen.input_len),
        "output_tokens": number(seen.output_len),
        "output_tokens_per_second": number(seen.output_tokens_per_second),
        "ttft": number(seen.ttft),
        "tpot": number(seen.tpot),
        "tpot_derived": seen.is_tpot_derived,
    }


def _prefixes(seen: Prefixes) -> dict[str, Any]:
    return {
        "target": seen.target,
        "unit": seen.unit.value,
        "prompts": seen.prompts,
        "units": seen.units,
        "shared": seen.shared,
        "same_again": seen.again,
        "lost_share": number(seen.lost_share),
        "lost_of_computed": number(seen.lost_of_computed),
        "left_out": seen.left_out,
        "groups": [
            {
                "prompts": group.prompts,
                "at": group.at,
                "at_most": group.at_most,
                "from_start": group.from_start,
                "change": group.change.value,
                "says": group.change.says,
                "is_loss": group.change.is_loss,
                "length": group.length,
                "same_again": group.again,
                "units": group.units,
                "shown": list(group.shown) or None,
            }
            for group in seen.groups
        ],
    }


def _recording(seen: RecordingSeen) -> dict[str, Any]:
    return {
        "target": seen.target,
        "taken": seen.taken,
        "seconds": number(seen.seconds),
        "doctor": seen.doctor,
        "rules": seen.rules,
        "same_rules": seen.same_rules,
        "verdict": seen.verdict,
        "headline": seen.headline,
    }


def _command(report: Report) -> dict[str, Any] | None:
    if not report.command:
        return None
    correction = report.correction
    changes = correction.changes if correction else ()
    return {
        "was": list(report.command),
        "now": list(correction.now) if correction else None,
        "changes": [
            {"name": change.name, "was": number(change.was), "now": number(change.now), "rule": change.rule}
            for change in changes
        ],
        "left_out": [
            {"rule": left.rule, "do": left.do, "reason": left.reason}
            for left in (correction.left_out if correction else ())
        ],
        "next_caps": [
            {"rule": cap.rule, "says": cap.says, "fixed": cap.is_cured}
            for cap in (correction.next_caps if correction else ())
        ],
    }


def _run(run: RunSeen, report: Report) -> dict[str, Any]:
    return {
        "from": _time(run.first_at, report),
        "to": _time(run.last_at, report),
        "vllm": run.vllm,
        "model": model_name(run.model),
        "engines": run.engines,
        "start_seen": run.began,
        "served": run.up,
        "end": run.end,
        "ended_by": run.ended_by,
        "stopped_in": run.stage if run.end == "stopped" else None,
        "death": {
            "at": _time(run.died_at, report),
            "cause": run.cause,
            "line": run.cause_line,
            "process": run.process,
            "stage": run.stage,
        }
        if run.end == "died"
        else None,
        "statistics": run.rounds,
    }


def _span(span: Span, report: Report) -> dict[str, Any]:
    return {
        "rule": span.rule,
        "severity": span.severity,
        "life": span.run,
        "subject": labels(span.subject),
        "from": _time(span.first_at, report),
        "to": _time(span.last_at, report),
        "seconds": number(span.seconds),
    }


def _lines(lines: LinesSeen | None) -> dict[str, Any] | None:
    if lines is None:
        return None
    return {"read": lines.read, "recognised": lines.recognised, "one_in": lines.one_in}


def _time(at: float | None, report: Report) -> str | None:
    """RFC 3339; a log that does not tell its zone gives local times without an offset, one without times none."""
    return None if at is None or not is_dated(at) else iso(at, report.lines is not None and report.lines.zoned)


def _problem(problem: Problem | None) -> dict[str, str] | None:
    return None if problem is None else {"kind": problem.kind, "message": problem.message}


def _source(source: SourceSeen) -> dict[str, Any]:
    return {
        "kind": source.kind,
        "target": source.target,
        "window_s": round(source.window_s, 3),
        "scrapes": source.scrapes,
        "error": _problem(source.error),
        "notes": list(source.notes),
        "taken_as": source.taken_as or None,
        "role": source.role or None,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "role": finding.role,
        "stage": finding.stage,
        "explained_by": finding.explained_by,
        "confidence": finding.confidence,
        "subject": labels(finding.subject),
        "title": finding.title,
        "here": finding.here,
        "why": finding.why,
        "threshold_from": finding.threshold_from,
        "prize": _gain(finding.gain),
        "cost": _cost(finding.cost),
        "evidence": [_evidence(evidence) for evidence in finding.evidence],
        "remedies": [_remedy(remedy) for remedy in finding.remedies],
        "see": list(finding.see),
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    seen = evidence.seen
    result = {
        "signal": evidence.signal,
        "says": evidence.says,
        "value": number(seen.value),
        "is": evidence.is_,
        "than": number(evidence.than),
        "unit": evidence.unit,
        "from": evidence.origin,
    }
    if evidence.than_signal is not None:
        result["than_signal"] = evidence.than_signal
    if seen.bounds is not None and seen.low != seen.high:
        result |= {"low": number(seen.low), "high": number(seen.high)}
    return result


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "do": remedy.do,
        "set": {flag: number(value) for flag, value in remedy.set.items()},
        "was": {flag: number(value) for flag, value in remedy.was.items()},
        "unset": list(remedy.unset),
        "env": {name: number(value) for name, value in remedy.env.items()},
        "run": list(remedy.run),
        "by": remedy.by,
        "computed": remedy.computed,
        "needs": {name: reason.value for name, reason in remedy.needs.items()},
        "validated_for": remedy.validated_for,
        "cost": remedy.cost,
        "risk": remedy.risk,
        "expect": remedy.expect,
        "gain": _gain(remedy.gain),
        "then": list(remedy.then),
        "starts_unknown": {name: reason.value for name, reason in remedy.starts_unknown.items()},
        "goal": remedy.goal or None,
    }


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    return None if gain is None else {"at_most": number(gain.at_most), "basis": gain.basis}


def _cost(cost: Cost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    at_most = None if cost.at_most is None else cost.at_most * 1000
    return {"at_most_ms": number(at_most), "basis": cost.basis or None, "share": number(cost.share)}


def _vital(vital: Vital) -> Any:
    """A number; {low, high} where only the histogram's bucket is known; null where unknown."""
    return known(vital.seen) if isinstance(vital.seen, Known) else None


def _target(target: Target) -> dict[str, Any]:
    seen = target.seen
    return {
        "target": target.name,
        "seconds": target.seconds,
        "low": number(seen.low if seen.low is not None else seen.value) if isinstance(seen, Known) else None,
        "high": number(seen.high if seen.high is not None else seen.value) if isinstance(seen, Known) else None,
        "met": target.met,
        "unknown": None if isinstance(seen, Known) else str(seen),
    }
