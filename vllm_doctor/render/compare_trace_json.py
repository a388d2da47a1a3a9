"""Two traces compared, as JSON: the form of any comparison (compare.v1.schema.json), with what of a step grew."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from vllm_doctor.compare.traces import Growth, TraceComparison
from vllm_doctor.model.trace import TraceSeen
from vllm_doctor.render import compare_json
from vllm_doctor.render.json_values import number


def render(comparison: TraceComparison, goal: str, at: datetime) -> str:
    return json.dumps(document(comparison, goal, at), allow_nan=False, indent=1) + "\n"


def document(comparison: TraceComparison, goal: str, at: datetime) -> dict[str, Any]:
    before, after = comparison.before, comparison.after
    return compare_json.head(comparison.outcome.value, comparison.headline, comparison.reasons, at) | {
        "goal": goal,
        "before": _side(before),
        "after": _side(after),
        "same_load": None,
        "load": [],
        "measures": [],
        "changes": None,
        "advice_not_followed": [],
        "findings": {"gone": [], "stayed": [], "new": []},
        "notes": list(dict.fromkeys([*before.notes, *after.notes])),
        "trace": {
            "steps": {"before": before.told.steps or None, "after": after.told.steps or None},
            "step": _growth(comparison.step),
            "parts": [{"part": one.name, "says": one.says, **_growth(one)} for one in comparison.parts],
            "families": [
                {"family": one.name, "precision": one.precision or None, "says": one.says, **_growth(one)}
                for one in comparison.families
            ],
        },
    }


def _side(seen: TraceSeen) -> dict[str, Any]:
    rank = seen.told
    return {
        "name": rank.target,
        "kind": "trace",
        "seen_by": seen.tool,
        "seconds": number(rank.seconds),
        "model": None,
        "vllm": rank.vllm,
        "hardware": rank.device,
        "verdict": None,
        "findings": {},
    }


def _growth(growth: Growth) -> dict[str, Any]:
    return {"before": number(growth.before), "after": number(growth.after), "by": number(growth.by)}
