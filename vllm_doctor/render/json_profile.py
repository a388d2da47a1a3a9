"""A profile as JSON: shares of the time watched, by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_doctor.model.profile import ProcessProfile, Profile, ThreadProfile


def document(target: str, profile: Profile) -> dict[str, Any]:
    return {
        "target": target,
        "seconds": profile.seconds,
        "rate": profile.rate,
        "native": profile.native,
        "unsure": profile.unsure or None,
        "processes": [_process(one) for one in profile.processes],
    }


def _process(one: ProcessProfile) -> dict[str, Any]:
    problem, main = one.problem, one.main
    return {
        "role": one.role,
        "pid": one.pid,
        "error": None if problem is None else {"kind": problem.kind, "message": problem.message},
        "samples": one.samples,
        "unread": one.errors,
        "sampler_cores": _rounded(one.sampler_cpu),
        "notes": list(one.notes),
        "threads": [_thread(thread, thread is main) for thread in one.threads],
    }


def _thread(thread: ThreadProfile, is_main: bool) -> dict[str, Any]:
    return {
        "name": thread.name,
        "id": thread.number,
        "is_main": is_main,
        "samples": thread.samples,
        "cores": _rounded(thread.cpu),
        "busy": _rounded(thread.busy),
        "shares": {part: _rounded(share) for part, share in thread.shares.items()},
        "unassigned": [{"frames": frames, "share": _rounded(share)} for frames, share in thread.unassigned],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
