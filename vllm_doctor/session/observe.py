"""All sources looked at at the same time, each in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from vllm_doctor.model.errors import DoctorError, told
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.source import Source

_HANDOVER_SECONDS = 0.5


def observe(sources: Sequence[Source], seconds: float) -> list[Observation]:
    """Look at each source in a thread of its own, for at most `seconds`: one that hangs does not hang the doctor.

    A look ends by itself at its own deadline, with what it saw until then; half a second more lets it hand that
    over. One that still does not return is an Observation with an error. Where the system gives no thread, they are
    looked at one after the other.
    """
    seen: dict[int, Observation] = {}
    failed: list[BaseException] = []

    def run(place: int, source: Source) -> None:
        try:
            seen[place] = looked(source, source.look)
        except BaseException as error:  # raised again in the caller's thread, which decides
            failed.append(error)

    threads = [threading.Thread(target=run, args=(place, source), daemon=True) for place, source in enumerate(sources)]
    deadline = time.monotonic() + seconds + _HANDOVER_SECONDS
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
    return [seen.get(place) or _unanswered(source) for place, source in enumerate(sources)]


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


def _unanswered(source: Source) -> Observation:
    problem = Problem("timeout", f"{source.target} did not answer in time: raise --timeout")
    return Observation(source.kind, source.target, error=problem, patient=source.patient)
