"""What signals read of a profile: shares of the busiest process of each kind, 0 for a part that it was never seen in.

profile_engine.scheduler   the engine core's main thread; profile_api.http: the API server's; profile_worker.…
profile_api_pool.tokenizing   the largest share in any other thread of the API servers
profile_engine_busy        the share in which the main thread neither waits for work nor for the device
"""

from __future__ import annotations

from collections.abc import Iterable

from vllm_doctor.model.profile import DEVICE_WAIT, IDLE, ProcessProfile, Profile
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.process import API_SERVER, ENGINE_CORE, WORKER

ORIGIN = "py-spy"
LEAST = 50
"""Samples of a process: with fewer a share is too coarse to judge by (at 50 a share of a tenth is ± 8 points)."""
NAMES = {ENGINE_CORE: "engine", API_SERVER: "api", WORKER: "worker"}
_REASONS = {"denied": Reason.DENIED, "not-found": Reason.STALE, "timeout": Reason.TIMEOUT}


def of(profile: Profile, parts: Iterable[str]) -> dict[str, Reading]:
    """All facts; unknown, with the reason, where a kind of process was not looked into."""
    ids = tuple(parts)
    facts: dict[str, Reading] = {}
    for role, name in NAMES.items():
        seen = [one for one in profile.processes if one.role == role]
        one = profile.busiest(role)
        main = one.main if one is not None else None
        if one is None or main is None or one.samples < LEAST:
            why = Unknown(_why(seen))
            facts |= {f"profile_{name}.{part}": why for part in ids} | {f"profile_{name}_busy": why}
            continue
        for part in ids:
            facts[f"profile_{name}.{part}"] = Known(_bounded(main.shares.get(part, 0.0)), origin=ORIGIN)
        facts[f"profile_{name}_busy"] = Known(_bounded(main.busy), origin=ORIGIN)
    pools = [
        thread
        for one in profile.processes
        if one.role == API_SERVER and one.samples >= LEAST
        for thread in one.threads
        if thread is not one.main
    ]
    looked = isinstance(facts["profile_api_busy"], Known)
    for part in ids:
        if part in (IDLE, DEVICE_WAIT):
            continue
        share = max((thread.shares.get(part, 0.0) for thread in pools), default=0.0)
        facts[f"profile_api_pool.{part}"] = (
            Known(_bounded(share), origin=ORIGIN) if looked else facts["profile_api_busy"]
        )
    facts["profile_native"] = Known(profile.native, origin=ORIGIN)
    return facts


def _why(seen: Iterable[ProcessProfile]) -> Reason:
    problems = [one.problem.kind for one in seen if one.problem is not None]
    return _REASONS.get(problems[0], Reason.NOT_SUPPORTED) if problems else Reason.ABSENT


def _bounded(share: float) -> float:
    return min(1.0, max(0.0, share))
