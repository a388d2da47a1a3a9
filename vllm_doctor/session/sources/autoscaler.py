"""What an autoscaler is told to look at: of the servers beside it, or by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session.source import Source

if TYPE_CHECKING:
    from vllm_doctor.launch.autoscaler import Trigger
    from vllm_doctor.launch.source import StartSource


def of_texts(
    told: Sequence[tuple[str, tuple[Trigger, ...]]], commands: Sequence[StartSource], beside: Sequence[Source]
) -> list[Source]:
    """Each file's triggers, of every server beside them, or as a patient of their own; by their names. Their metrics
    are those of the vLLM that the `commands` start, where these tell one."""
    versions = {start.version for source in commands for start in source.starts if start.version}
    version = versions.pop() if len(versions) == 1 else None
    found: list[Source] = []
    for name, triggers in told:
        for patient in dict.fromkeys(one.patient for one in beside) or (name,):
            found.append(Source(SourceKind.AUTOSCALER, name, patient, partial(_seen, name, triggers, patient, version)))
    return found


def _seen(name: str, triggers: tuple[Trigger, ...], patient: str, version: str | None) -> Observation:
    from vllm_doctor.launch import autoscaler

    taken_as = "an autoscaler's triggers"
    return Observation(
        SourceKind.AUTOSCALER, name, facts=autoscaler.facts(triggers, version), patient=patient, taken_as=taken_as
    )
