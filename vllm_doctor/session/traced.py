"""What a trace alone concludes, where no finding does harm: the device works, or what the trace does not tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.model import trace
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Verdict
from vllm_doctor.text import words

_MOST_UNEXPLAINED = 0.1


def concluded(observations: Sequence[Observation]) -> tuple[Verdict, str] | None:
    """None where something else than traces was looked at, or they could not be read."""
    seen = next((o.trace for o in observations if o.trace is not None), None)
    if seen is None or any(o.kind is not SourceKind.TRACE for o in observations):
        return None
    rank = seen.told
    most = f", most of it {rank.families[0].says}" if rank.families else ""
    if rank.is_on_cpu and rank.is_whole:
        inside = words.number(rank.share(trace.OPERATORS), "share")
        return Verdict.UNKNOWN, f"A trace without a device: {inside} of the time is in operators{most}"
    if rank.idle_unknown:
        return Verdict.UNKNOWN, f"The trace does not hold all that ran: {rank.idle_unknown}"
    unexplained = rank.share(trace.UNEXPLAINED)
    if unexplained > _MOST_UNEXPLAINED:
        idle = words.number(unexplained, "share")
        return Verdict.UNKNOWN, f"{idle} of the time the device is idle, and the trace does not tell why"
    works = words.number(1.0 - rank.idle / rank.seconds if rank.seconds else 0.0, "share")
    return Verdict.OK, f"The device works {works} of the time{most}"
