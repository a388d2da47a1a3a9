"""Where a server's processes spend their time, as JSON, version 1: keys may be added, none removed
(profile.v1.schema.json)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vllm_doctor.model.profile import ProcessProfile, Profile, ThreadProfile
from vllm_doctor.model.report import Problem, Report
from vllm_doctor.model.version import __version__
from vllm_doctor.render import json_v1

SCHEMA = "vllm-doctor/profile/v1"


def render(profiles: Mapping[str, Profile], report: Report, parts: Mapping[str, str]) -> str:
    """`profiles` by what was looked into; `report`: with the findings that they are evidence of."""
    told = {
        **_head(report.at),
        "error": None if report.error is None else _problem(report.error),
        "parts": dict(parts),
        "profiles": [_profile(target, profile) for target, profile in profiles.items()],
        "findings": json_v1.document(report)["findings"],
    }
    return _rendered(told)


def failed(at: datetime, problem: Problem) -> str:
    """Where nothing could be looked into."""
    return _rendered({**_head(at), "error": _problem(problem), "parts": {}, "profiles": [], "findings": []})


def _profile(target: str, profile: Profile) -> dict[str, Any]:
    return {
        "target": target,
        "seconds": profile.seconds,
        "rate": profile.rate,
        "native": profile.native,
        "processes": [_process(one) for one in profile.processes],
    }


def _process(one: ProcessProfile) -> dict[str, Any]:
    return {
        "role": one.role,
        "pid": one.pid,
        "error": None if one.problem is None else _problem(one.problem),
        "samples": one.samples,
        "unread": one.errors,
        "sampler_cores": _rounded(one.sampler_cpu),
        "notes": list(one.notes),
        "threads": [_thread(thread, thread is one.main) for thread in one.threads],
    }


def _thread(thread: ThreadProfile, is_main: bool) -> dict[str, Any]:
    return {
        "name": thread.name,
        "id": thread.number,
        "is_main": is_main,
        "samples": thread.samples,
        "cores": _rounded(thread.cpu),
        "busy": _rounded(thread.busy),
        "shares": {part: _rounded(share) for part, share in thread.shares.items()},
        "unassigned": [{"frames": frames, "share": _rounded(share)} for frames, share in thread.unassigned],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _problem(problem: Problem) -> dict[str, str]:
    return {"kind": problem.kind, "message": problem.message}


def _head(at: datetime) -> dict[str, Any]:
    return {"schema": SCHEMA, "doctor": __version__, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _rendered(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
