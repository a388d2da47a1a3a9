"""A comparison as JSON, version 1 (compare.v1.schema.json): keys may be added, none changed or removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from vllm_doctor.compare.comparison import Advice, Comparison, Difference, LoadRow, Result, Row
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure
from vllm_doctor.model.version import __version__
from vllm_doctor.render.json_values import measured, number

SCHEMA = "vllm-doctor/compare/v1"


def render(comparison: Comparison, at: datetime) -> str:
    return json.dumps(document(comparison, at), allow_nan=False, indent=1) + "\n"


def failed(kind: str, message: str, at: datetime) -> str:
    """Where there was nothing to compare."""
    nothing = head("INCONCLUSIVE", message, [message], at, {"kind": kind, "message": message})
    return json.dumps(nothing, indent=1) + "\n"


def head(
    outcome: str, headline: str, reasons: Sequence[str], at: datetime, error: dict[str, str] | None = None
) -> dict[str, Any]:
    """What the JSON of each comparison begins with."""
    return {
        "schema": SCHEMA,
        "doctor": __version__,
        "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "outcome": outcome,
        "headline": headline,
        "reasons": list(reasons),
        "error": error,
    }


def document(comparison: Comparison, at: datetime) -> dict[str, Any]:
    return head(comparison.outcome.value, comparison.headline, comparison.reasons, at) | {
        "goal": comparison.goal,
        "before": _result(comparison.before),
        "after": _result(comparison.after),
        "same_load": comparison.same_load,
        "load": [_load(row) for row in comparison.load],
        "measures": [_row(row) for row in comparison.rows],
        "changes": None if comparison.changes is None else [_change(change) for change in comparison.changes],
        "advice_not_followed": [_advice(advice) for advice in comparison.not_done],
        "findings": {"gone": list(comparison.gone), "stayed": list(comparison.stayed), "new": list(comparison.new)},
        "notes": list(comparison.notes),
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "kind": result.kind,
        "seen_by": result.seen_by,
        "seconds": number(result.seconds),
        "model": result.model,
        "vllm": result.vllm,
        "hardware": result.hardware,
        "verdict": result.verdict,
        "findings": dict(result.found),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "says": row.says,
        "unit": row.unit,
        "before": _shown(row.before),
        "after": _shown(row.after),
        "factor": number(row.factor),
        "is": row.word or None,
        "decides": row.decides or None,
    }


def _load(row: LoadRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "before": _shown(row.before),
        "after": _shown(row.after),
        "same": row.same,
    }


def _shown(value: Measure | Value | None) -> Any:
    return measured(value) if isinstance(value, Measure) else number(value)


def _change(change: Difference) -> dict[str, Any]:
    return {
        "name": change.name,
        "was": number(change.was),
        "now": number(change.now),
        "advised": change.advised,
        "rule": change.rule,
    }


def _advice(advice: Advice) -> dict[str, Any]:
    return {"name": advice.name, "now": number(advice.now), "rule": advice.rule}
