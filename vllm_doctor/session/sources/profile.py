"""The processes of a server of this host, looked into: where their time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.rules import parts
from vllm_doctor.session.source import Source
from vllm_doctor.sources.profile import facts, profiler, py_spy

if TYPE_CHECKING:
    from vllm_doctor.session.attachment import Attachment
    from vllm_doctor.sources.host.process import ServerProcess
    from vllm_doctor.sources.profile.profiler import How

NOBODY = "no API server, engine core or worker of it is visible to this process"


def of_server(found: ServerProcess, sampling: How, how: Attachment, patient: str) -> Source:
    """What it says does not make the server known or unknown: where it may not look, the rest is judged."""
    target = f"profile of pid {found.root}"

    def look() -> Observation:
        known = parts.load(version=found.version)
        if py_spy.program() is None:
            missing = Problem("unreadable", py_spy.INSTALL)
            return Observation(SourceKind.PROFILE, target, error=missing, patient=patient)
        profile = profiler.profile(found.members, known, sampling, how.deadline, how.kernel)
        problems = [one.problem for one in profile.processes if one.problem is not None]
        is_blind = not any(one.threads for one in profile.processes)
        error = (problems[0] if problems else Problem("not-found", NOBODY)) if is_blind else None
        return Observation(
            SourceKind.PROFILE,
            target,
            facts=facts.of(profile, known.parts),
            error=error,
            notes=tuple(dict.fromkeys(problem.message for problem in problems)) if not is_blind else (),
            patient=patient,
            profile=profile,
        )

    return Source(SourceKind.PROFILE, target, patient, look)
