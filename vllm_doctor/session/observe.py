"""All sources looked at at the same time, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.session.source import Source

_HANDOVER_SECONDS = 0.5


def observe(sources: Sequence[Source], seconds: float) -> list[Observation]:
    """Look at each source in a thread of its own, for at most `seconds`: one that hangs does not hang the doctor.

    A look ends by itself at its own deadline, with what it saw until then; half a second more lets it hand that
    over. One that still does not return is an Observation with an error.
    """
    seen: dict[int, Observation] = {}
    failed: list[BaseException] = []

    def run(place: int, look: Callable[[], Observation]) -> None:
        try:
            seen[place] = look()
        except BaseException as error:  # raised again in the caller's thread, which decides
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(place, source.look), daemon=True) for place, source in enumerate(sources)
    ]
    deadline = threading.Event()
    timer = threading.Timer(seconds + _HANDOVER_SECONDS, deadline.set)
    timer.daemon = True
    timer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not deadline.is_set():
            thread.join(0.05)
    timer.cancel()
    if failed:
        raise failed[0]
    return [seen.get(place) or _unanswered(source) for place, source in enumerate(sources)]


def _unanswered(source: Source) -> Observation:
    problem = Problem("timeout", f"{source.target} did not answer in time: raise --timeout")
    return Observation(source.kind, source.target, error=problem, patient=source.patient)
