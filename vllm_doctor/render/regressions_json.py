"""Known faults of a release, or what an upgrade brings, as JSON, version 1: keys may be added, none removed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Problem
from vllm_doctor.model.version import __version__
from vllm_doctor.regressions import bench, upgrade
from vllm_doctor.regressions.upgrade import Listed, Upgrade

SCHEMA = "vllm-doctor/regressions/v1"


def listed(
    found: Sequence[Listed], lacking: Sequence[Listed], told: Mapping[str, Value], version: str | None, at: datetime
) -> str:
    """One release, or all. `lacking`: what came only later; `told`: what is known of the setup."""
    entries = {"faults": [_entry(one) for one in found], "lacks": [_entry(one) for one in lacking]}
    return _rendered({**_head(at), "error": None, "version": version, "setup": dict(told), **entries})


def upgraded(found: Upgrade, told: Mapping[str, Value], model: str, is_amd: bool, at: datetime) -> str:
    """From one release to another."""
    becomes: dict[str, Any] = {name: [_entry(one) for one in getattr(found, name)] for name in upgrade.BECOMES}
    order = upgrade.bisection(found.before, found.after)
    plan = {
        "most_steps": upgrade.most_steps(len(order)),
        "releases": [
            {"version": version, "image": bench.image(version, is_amd), "wheel": bench.wheel(version)}
            for version in order
        ],
        "benchmark": bench.command(model),
    }
    head = {**_head(at), "error": None, "from": found.before, "to": found.after, "setup": dict(told)}
    return _rendered({**head, **becomes, "bisect": plan})


def failed(at: datetime, problem: Problem) -> str:
    """Where nothing can be told."""
    return _rendered({**_head(at), "error": {"kind": problem.kind, "message": problem.message}})


def _entry(one: Listed) -> dict[str, Any]:
    fault, way = one.fault, one.fault.way
    return {
        "id": fault.id,
        "kind": "improvement" if fault.is_improvement else "fault",
        "held": one.held,
        "is_there": one.is_there,
        "title": fault.title,
        "effect": fault.effect,
        "severity": fault.severity,
        "good": fault.good,
        "since": fault.since,
        "until": fault.until,
        "seen": None if fault.until else fault.seen,
        "times": fault.times if fault.times is not None and math.isfinite(fault.times) else None,
        "when": fault.when.text,
        "also": fault.also or None,
        "cause": fault.cause or None,
        "unknown": list(one.unknown),
        "way": None
        if way is None
        else {
            "do": way.do,
            "set": dict(way.set),
            "unset": list(way.unset),
            "env": dict(way.env),
            "cost": way.cost,
            "risk": way.risk,
        },
        "sources": [{"url": source.url, "says": source.says} for source in fault.sources],
    }


def _head(at: datetime) -> dict[str, Any]:
    return {"schema": SCHEMA, "doctor": __version__, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _rendered(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
