"""What a trace alone concludes, where no finding does harm: the device works, or what the trace does not tell. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.model import trace
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Reading
from vllm_doctor.model.report import Verdict
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.trace import TraceSeen
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.patients import Examined
from vllm_doctor.text import words

_BESIDE = frozenset({SourceKind.TRACE, SourceKind.COMMAND, SourceKind.GPU, SourceKind.GPU_NAME, SourceKind.COLLECT_ENV})
"""What tells which server was traced, and measures nothing."""
_MOST_UNEXPLAINED, _MOST_IDLE = 0.1, 0.2
"""Shares of the time beyond which a trace without a finding is no all-clear."""


def concluded(observations: Sequence[Observation]) -> tuple[Verdict, str] | None:
    """None where something else than traces was measured, or they could not be read."""
    seen = next((o.trace for o in observations if o.trace is not None), None)
    if seen is None or any(o.kind not in _BESIDE for o in observations):
        return None
    rank = seen.told
    most = f", most of it {rank.families[0].says}" if rank.families and rank.families[0].name != trace.OTHER else ""
    if rank.is_on_cpu and rank.is_whole:
        inside = words.number(rank.share(trace.OPERATORS), "share")
        return Verdict.UNKNOWN, f"A trace without a device: {inside} of the time is in operators{most}"
    if rank.idle_unknown:
        return Verdict.UNKNOWN, f"The trace does not hold all that ran: {rank.idle_unknown}"
    unexplained = rank.share(trace.UNEXPLAINED)
    if unexplained > _MOST_UNEXPLAINED:
        return (
            Verdict.UNKNOWN,
            f"{words.number(unexplained, 'share')} of the time the device is idle, and the trace does not show why",
        )
    idle = rank.idle / rank.seconds if rank.seconds else 0.0
    if idle > _MOST_IDLE:
        most_of = max(trace.IDLE, key=lambda part: rank.parts.get(part, 0.0))
        slowed = "; Python's stacks were recorded, which slows the host" if rank.has_stacks else ""
        share = words.number(idle, "share")
        return (
            Verdict.UNKNOWN,
            f"The device is idle {share} of the time, most of it {trace.SAYS[most_of].removeprefix('idle: ')}{slowed}",
        )
    works = words.number(1.0 - idle, "share")
    return Verdict.OK, f"The device works {works} of the time{most}"


def with_bounds(examined: Sequence[Examined], snapshots: Sequence[Snapshot], catalogue: Catalogue) -> TraceSeen | None:
    """The trace, with how fast its kernels could be, as far as its server is known; None: there is none."""
    for patient, snapshot in zip(examined, snapshots, strict=False):
        seen = next((o.trace for o in patient.observations if o.trace is not None), None)
        if seen is None:
            continue
        from vllm_doctor.rules import kernel_bounds  # late: few are

        def read(name: str, snapshot: Snapshot = snapshot) -> tuple[Reading, str]:
            return snapshot.read(name, snapshot.subjects[0])[1], catalogue.signals[name].unit

        return kernel_bounds.beside(seen, read)
    return next((o.trace for patient in examined for o in patient.observations if o.trace is not None), None)
