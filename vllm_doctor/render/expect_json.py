"""What a server should do, as JSON, version 1 (expect.v1.schema.json): keys may be added, none changed or removed."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from vllm_doctor.model.report import Problem, Report
from vllm_doctor.model.version import __version__
from vllm_doctor.render import json_expectation
from vllm_doctor.render.json_values import number

SCHEMA = "vllm-doctor/expect/v1"


def render(report: Report) -> str:
    """Of a report on a command alone."""
    return json.dumps(document(report), allow_nan=False, indent=1) + "\n"


def failed(at: datetime, problem: Problem) -> str:
    """Where nothing can be told."""
    nothing = {**_head(at), "error": {"kind": problem.kind, "message": problem.message}, "expect": None}
    return json.dumps(nothing, indent=1) + "\n"


def document(report: Report) -> dict[str, Any]:
    return {
        **_head(report.at),
        "error": None,
        "command": list(report.command),
        "expect": None if report.expect is None else json_expectation.document(report.expect),
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "title": finding.title,
                "here": finding.here,
                "costs_at_most_ms": None
                if finding.cost is None or finding.cost.at_most is None
                else number(finding.cost.at_most * 1000),
            }
            for finding in report.findings
        ],
        "notes": [note for source in report.sources for note in source.notes],
    }


def _head(at: datetime) -> dict[str, Any]:
    return {"schema": SCHEMA, "doctor": __version__, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
