"""All harnesses, by name: a function for each parser, and for each way through the command line.

Each `of_*.py` has its imports of the package in the functions: a harness is called after the module that it tries.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.fuzz import (
    examinations,
    of_commands,
    of_inputs,
    of_logs,
    of_machines,
    of_prefixes,
    of_recordings,
    of_rules,
    of_servers,
    of_texts,
    of_traces,
)
from tests.fuzz.harness import HARNESSES, all_folders
from tests.making import shipped_catalogue, shipped_rules

REGISTERED = (
    of_servers,
    of_logs,
    of_commands,
    of_rules,
    of_recordings,
    of_machines,
    of_prefixes,
    of_traces,
    of_texts,
    of_inputs,
    examinations,
)
"""By being imported."""


def warm() -> None:
    """Load what many harnesses need, once and not in each process."""
    all_folders()
    of_logs.scanner()
    shipped_catalogue()
    shipped_rules()
    examinations.said(["--command", "vllm serve m"], "json")


def names_of(chosen: Iterable[str]) -> list[str]:
    """The harnesses of these names, all where none is given."""
    unknown = set(chosen) - set(HARNESSES)
    assert not unknown, f"no harness {', '.join(sorted(unknown))}; there are: {', '.join(HARNESSES)}"
    return [name for name in HARNESSES if not chosen or name in chosen]
