"""Which of the changes a start does not have yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_doctor.launch.start import Start
from vllm_doctor.model.report import Change
from vllm_doctor.text import words as wording
from vllm_doctor.vllm import flags


def not_in_force(start: Start, changes: Sequence[Change]) -> tuple[Change, ...]:
    """The changes that this start does not have yet; `was` is its own."""
    found = []
    for change in changes:
        if not change.name.startswith("-"):
            was = start.environment.get(change.name)
            if change.now is None or was != str(wording.plain(change.now)):
                found.append(replace(change, was=was))
        elif change.now is not None:
            if not flags.is_same(start.command.flags.get(change.name), change.now):
                found.append(replace(change, was=start.command.flags.get(change.name)))
        elif change.name in start.command.flags or change.name in start.unknown_flags:
            found.append(replace(change, was=start.command.flags.get(change.name, change.was)))
    return tuple(found)
