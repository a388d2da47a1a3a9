"""A fleet as JSON, version 1 (fleet.v1.schema.json): a summary, and the report v1 of each engine.

Written engine by engine: ten thousand reports at once would not fit in memory. The rules of json_v1 hold here too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from vllm_doctor.fleet.fleet import Engine, FleetReport, Model
from vllm_doctor.model.report import Problem, Report, Verdict
from vllm_doctor.model.version import __version__
from vllm_doctor.render.json_values import known, number
from vllm_doctor.text import redact

SCHEMA = "vllm-doctor/fleet/v1"


def render(report: FleetReport, document: Callable[[Report], dict[str, Any]]) -> Iterator[str]:
    """The text, in pieces. `document`: a report as JSON (json_v1)."""
    head = _head(report.at, report.verdict, None) | {
        "source": {
            "kind": "prometheus",
            "target": report.target,
            "window_s": report.window_s,
            "queries": report.queries,
            "seconds": number(report.asked_s),
            "notes": list(report.notes),
        },
        "counts": {"engines": len(report.engines)} | {verdict.value: report.count(verdict) for verdict in Verdict},
        "models": [_model(model) for model in report.models],
    }
    yield json.dumps(head, allow_nan=False, indent=1).removesuffix("\n}") + ',\n "engines": ['
    for place, engine in enumerate(report.engines):
        told = _engine(engine) | {"source": report.source(engine), "report": document(report.report(engine))}
        yield ("," if place else "") + "\n  " + json.dumps(told, allow_nan=False, separators=(",", ":"))
    yield "\n ]\n}\n"


def failed(at: datetime, problem: Problem) -> str:
    """What is said where there is no fleet to tell of."""
    nobody: dict[str, Any] = {
        "source": None,
        "counts": {"engines": 0} | {verdict.value: 0 for verdict in Verdict},
        "models": [],
        "engines": [],
    }
    return json.dumps(_head(at, Verdict.UNKNOWN, problem) | nobody, allow_nan=False, indent=1) + "\n"


def _head(at: datetime, verdict: Verdict, problem: Problem | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "doctor": __version__,
        "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "verdict": verdict.value,
        "error": None if problem is None else {"kind": problem.kind, "message": problem.message},
    }


def _model(model: Model) -> dict[str, Any]:
    return {
        "model": _clean(model.name),
        "engines": model.engines,
        "verdicts": {verdict.value: model.verdicts.get(verdict.value, 0) for verdict in Verdict},
        "rules": dict(model.rules),
        "generation_tokens_per_second": number(model.tokens_per_second),
        "median": {name: known(seen) for name, seen in model.typical.items()},
        "outliers": [engine.name for engine in model.outlying],
    }


def _engine(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "subject": {_clean(name): _clean(value) for name, value in engine.subject.items()},
        "verdict": engine.verdict.value,
        "headline": engine.headline,
        "rules": [{"rule": rule, "severity": severity} for rule, severity in engine.rules],
        "missing": number(engine.missing),
        "outliers": [
            {"signal": o.signal, "value": number(o.value), "median": number(o.median)} for o in engine.outlying
        ],
    }


def _clean(text: str) -> str:
    return redact.text(text, Counter())
