"""The processes of a server of this host, looked into: where their time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Feed, Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.rules import parts
from vllm_doctor.session.source import Source
from vllm_doctor.sources.profile import facts, profiler, py_spy

if TYPE_CHECKING:
    from vllm_doctor.session.attachment import Attachment
    from vllm_doctor.sources.host.process import ServerProcess
    from vllm_doctor.sources.profile.profiler import How

EVERY = 60.0
"""Seconds from one look to the next, where it is watched: so its server lends it a sixth of the time at most."""
_BESIDE = 12.0
"""Seconds that a look may take beside those in which it samples."""
NOBODY = "no API server, engine core or worker of it is visible to this process"


def of_server(found: ServerProcess, sampling: How, how: Attachment, patient: str) -> Source:
    """What it says does not make the server known or unknown: where it may not look, the rest is judged."""
    target = f"profile of pid {found.root}"

    def look(deadline: float) -> Observation:
        known = parts.load(version=found.version)
        if py_spy.program() is None:
            missing = Problem("unreadable", py_spy.INSTALL)
            return Observation(SourceKind.PROFILE, target, error=missing, patient=patient)
        profile = profiler.profile(found.members, known, sampling, deadline, how.kernel)
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

    def follow() -> Feed:
        return _Followed(lambda: look(time.monotonic() + sampling.seconds + _BESIDE))

    return Source(SourceKind.PROFILE, target, patient, lambda: look(how.deadline), follow=follow)


@dataclass
class _Followed:
    """Where its time goes now and then: what was seen long ago is no evidence of what limits it now."""

    see: Callable[[], Observation]
    every: float = EVERY

    def look(self, seconds: float) -> Observation:
        """`seconds`: how long the rest is looked at. No flame graph: no terminal draws one."""
        seen = self.see()
        return seen if seen.profile is None else replace(seen, profile=replace(seen.profile, stacks={}, flames={}))
