"""Where a server's processes spend their time, as JSON, version 1: keys may be added, none removed
(profile.v1.schema.json)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vllm_doctor.model.profile import Profile
from vllm_doctor.model.report import Problem, Report
from vllm_doctor.model.version import __version__
from vllm_doctor.render import json_profile, json_v1

SCHEMA = "vllm-doctor/profile/v1"


def render(profiles: Mapping[str, Profile], report: Report) -> str:
    """`profiles` by what was looked into; `report`: with the findings that they are evidence of."""
    told = {
        **_head(report.at),
        "error": None if report.error is None else _problem(report.error),
        "parts": {part: says for profile in profiles.values() for part, says in profile.says.items()},
        "profiles": [json_profile.document(target, profile) for target, profile in profiles.items()],
        "findings": json_v1.document(report)["findings"],
    }
    return _rendered(told)


def failed(at: datetime, problem: Problem) -> str:
    """Where nothing could be looked into."""
    return _rendered({**_head(at), "error": _problem(problem), "parts": {}, "profiles": [], "findings": []})


def _problem(problem: Problem) -> dict[str, str]:
    return {"kind": problem.kind, "message": problem.message}


def _head(at: datetime) -> dict[str, Any]:
    return {"schema": SCHEMA, "doctor": __version__, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _rendered(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
