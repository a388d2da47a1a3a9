"""What signals read of a profile: shares of the time of the busiest process of its kind, 0 for what was not seen.

    profile_api.tokenizing   the share in one thread, the one that has most of it; of waits that of the main thread
    profile_api_busy         the share in which the main thread works, and waits for nothing
    profile_api_top          the part that has most of that, and profile_api_top_share

and the same with profile_engine and profile_worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm_doctor.model.profile import LEAST_SAMPLES, WAITS, ProcessProfile, Profile
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules.parts import Part
from vllm_doctor.sources.host.process import API_SERVER, ENGINE_CORE, WORKER

ORIGIN = "py-spy"
NAMES = {ENGINE_CORE: "engine", API_SERVER: "api", WORKER: "worker"}
_REASONS = {"denied": Reason.DENIED, "not-found": Reason.STALE, "timeout": Reason.TIMEOUT}


def of(profile: Profile, parts: Iterable[Part]) -> dict[str, Reading]:
    """All facts; unknown, with the reason, where a kind of process was not looked into."""
    known = tuple(parts)
    facts: dict[str, Reading] = {"profile_native": Known(profile.native, origin=ORIGIN)}
    for role, name in NAMES.items():
        one = profile.busiest(role)
        main = one.main if one is not None else None
        if one is None or main is None or one.samples < LEAST_SAMPLES:
            why = Unknown(_why([seen for seen in profile.processes if seen.role == role]))
            facts |= {f"profile_{name}.{part.id}": why for part in known}
            facts |= {f"profile_{name}_{what}": why for what in ("busy", "top", "top_share")}
            continue
        for part in known:
            threads = [main] if part.id in WAITS else one.threads
            share = max(thread.shares.get(part.id, 0.0) for thread in threads)
            facts[f"profile_{name}.{part.id}"] = _known(share)
        worked = {part: share for part, share in main.shares.items() if part not in WAITS}
        top = max(worked, key=lambda part: worked[part], default="")
        facts[f"profile_{name}_busy"] = _known(main.busy)
        facts[f"profile_{name}_top_share"] = _known(worked.get(top, 0.0))
        says = next((part.says for part in known if part.id == top), "nothing")
        facts[f"profile_{name}_top"] = Known(says, origin=ORIGIN)
    return facts


def _why(seen: Sequence[ProcessProfile]) -> Reason:
    problems = [one.problem.kind for one in seen if one.problem is not None]
    if any(one.threads for one in seen):
        return Reason.BETWEEN  # too few samples
    return _REASONS.get(problems[0], Reason.NOT_SUPPORTED) if problems else Reason.ABSENT


def _known(share: float) -> Known:
    return Known(min(1.0, max(0.0, share)), origin=ORIGIN)
