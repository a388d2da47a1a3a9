"""All sources looked at at the same time, each in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from vllm_doctor.model.errors import DoctorError, told
from vllm_doctor.model.kinds import READ
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.source import Source
from vllm_doctor.sources.server import own_time

_HANDOVER_SECONDS = 0.5
_STARVED = 0.2
"""The share of its time without a CPU that may have kept the doctor from a source (heuristic)."""


def observe(sources: Sequence[Source], seconds: float) -> list[Observation]:
    """Look at each source in a thread of its own, for at most `seconds`: one that hangs does not hang the doctor.

    A look ends by itself at its own deadline, with what it saw until then; half a second more lets it hand that
    over. Of one that still does not return it is what it has seen so far, or an Observation with an error. Where the
    system gives no thread, they are looked at one after the other.
    """
    seen: dict[int, Observation] = {}
    failed: list[BaseException] = []
    waits: list[float] = []
    """Of threads that have ended: the kernel counts these no more."""

    def run(place: int, source: Source) -> None:
        if source.logs:
            own_time.take_turns()
        try:
            seen[place] = looked(source, source.look)
        except BaseException as error:  # raised again in the caller's thread, which decides
            failed.append(error)
        waits.append(own_time.of_this().waited)

    threads = [threading.Thread(target=run, args=(place, source), daemon=True) for place, source in enumerate(sources)]
    began, before = time.monotonic(), own_time.of_all().waited
    deadline = began + seconds + _HANDOVER_SECONDS
    alone: list[int] = []
    for place, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:
            alone.append(place)
    for place in alone:
        run(place, sources[place])
    for place, thread in enumerate(threads):
        if place not in alone:
            thread.join(max(0.0, deadline - time.monotonic()))
    if failed:
        raise failed[0]
    waited = own_time.of_all().waited - before + sum(waits)
    is_starved = waited > _STARVED * (time.monotonic() - began)
    return [
        seen.get(place) or source.so_far() or _unanswered(source, waited if is_starved else None)
        for place, source in enumerate(sources)
    ]


def looked(source: Source, look: Callable[[], Observation]) -> Observation:
    """What a look at the source gives. Where the doctor itself fails in it, that is its error: the rest is judged.

    Raises DoctorError: what the user asked for cannot be done.
    """
    try:
        return look()
    except DoctorError:
        raise
    except Exception as error:
        if os.environ.get("VLLM_DOCTOR_DEBUG"):
            raise
        return Observation(source.kind, source.target, error=Problem(*told(error)), patient=source.patient)


def _unanswered(source: Source, waited: float | None) -> Observation:
    """A source of which nothing came in time; `waited`: seconds that the doctor had no CPU, if that may be why."""
    what = "was not read to its end in time" if source.kind in READ else "did not answer in time"
    if waited is None:
        problem = Problem("timeout", f"{source.target} {what}: raise --timeout")
    else:
        what = what if source.kind in READ else "was not read in time"
        said = f"the doctor itself waited {waited:.1f} s for a CPU: {source.target} {what}"
        problem = Problem("starved", f"{said}; run it where a CPU is free, or raise --timeout")
    return Observation(source.kind, source.target, error=problem, patient=source.patient)
