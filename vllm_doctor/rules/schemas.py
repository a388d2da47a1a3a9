"""JSON Schemas of the YAML files, so that an editor completes and underlines them: rules/*.schema.json.

They hold the form; what a schema cannot say (signals that are, conditions that can be read) `rules --check` does.
"""

from __future__ import annotations

from pathlib import Path

NAMES = ("rule", "signals", "log-lines", "overrides")


def path(name: str) -> Path:
    """Where the schema lies."""
    return Path(__file__).parent / f"{name}.schema.json"
