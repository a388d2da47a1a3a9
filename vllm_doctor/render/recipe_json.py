"""A server beside its recipe, as JSON, version 1: keys may be added, none removed."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from vllm_doctor.model.report import Problem
from vllm_doctor.model.version import __version__
from vllm_doctor.vllm import recipes
from vllm_doctor.vllm.recipes import Beside

SCHEMA = "vllm-doctor/recipe/v1"


def render(found: Beside, at: datetime) -> str:
    recipe = found.recipe
    return _rendered(
        {
            **_head(at),
            "error": None,
            "recipe": None
            if recipe is None
            else {
                "repository": recipes.REPOSITORY,
                "commit": recipes.commit(),
                "source": recipe.source,
                "model": recipe.model,
                "gpu": recipe.gpu,
                "since": recipe.since,
            },
            "vllm": found.version,
            "why_not": found.why_not or None,
            "differences": [
                {
                    "name": one.name,
                    "recipe": one.recipe,
                    "here": one.here,
                    "matters": one.matters or None,
                    "default": one.default or None,
                }
                for one in found.differences
            ],
        }
    )


def failed(at: datetime, problem: Problem) -> str:
    """Where nothing can be told."""
    return _rendered({**_head(at), "error": {"kind": problem.kind, "message": problem.message}})


def _head(at: datetime) -> dict[str, Any]:
    return {"schema": SCHEMA, "doctor": __version__, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _rendered(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, indent=1, ensure_ascii=False) + "\n"
