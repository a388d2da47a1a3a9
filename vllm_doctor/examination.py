"""One examination: all sources watched at the same time, one report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from vllm_doctor.catalogue import Catalogue
from vllm_doctor.diagnose import diagnose
from vllm_doctor.observation import Observation
from vllm_doctor.report import Patient, Problem, Report, SourceSeen, Verdict, worst
from vllm_doctor.rule import Rule
from vllm_doctor.signal import Value

_HANDOVER_SECONDS = 0.5


def observe(watchers: Sequence[tuple[str, Callable[[], Observation]]], seconds: float) -> list[Observation]:
    """Run each watcher in a thread of its own, for at most `seconds`: one that hangs does not hang the doctor.

    A watcher is (target, function), and ends by itself at its own deadline, with what it saw until then; half a second
    more lets it hand that over. One that still does not return is an Observation with an error.
    """
    seen: dict[int, Observation] = {}
    failed: list[BaseException] = []

    def watch(place: int, function: Callable[[], Observation]) -> None:
        try:
            seen[place] = function()
        except BaseException as error:  # told to the caller's thread, which decides
            failed.append(error)

    threads = [
        threading.Thread(target=watch, args=(place, function), daemon=True)
        for place, (_, function) in enumerate(watchers)
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
    return [
        seen.get(place)
        or Observation("server", target, error=Problem("timeout", f"{target} did not answer in time: raise --timeout"))
        for place, (target, _) in enumerate(watchers)
    ]


def judge(
    observations: Sequence[Observation],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wishes: Mapping[str, Value],
    at: datetime,
    strict: bool = False,
) -> Report:
    """The report on what was observed. Pure. `wishes`: the user's goal and targets, as facts."""
    read = [o for o in observations if o.window.times]
    sources = tuple(
        SourceSeen(o.kind, o.target, o.window.seconds, len(o.window.times), o.error, o.notes) for o in observations
    )
    error = next((o.error for o in observations if o.error is not None), None)
    if not read:
        headline = error.message if error else "Nothing was examined"
        nobody = Patient(None, None, None)
        return Report(at, Verdict.UNKNOWN, headline, nobody, sources, (), (), (), (), (), {}, error)
    snapshots = [
        catalogue.snapshot(o.window, {**o.facts, **wishes}, (("server", o.target),) if len(observations) > 1 else ())
        for o in read
    ]
    diagnosis = diagnose(rules, catalogue, snapshots)
    verdict, headline = diagnosis.verdict, diagnosis.headline
    if error is not None:
        # What could not be read is not ok, and a server that stopped answering is what to say first.
        headline = headline if verdict in (Verdict.CRITICAL, Verdict.WARNING) else error.message
        verdict = worst(verdict, Verdict.UNKNOWN)
    if strict and diagnosis.unknown:
        verdict = worst(verdict, Verdict.UNKNOWN)
    return Report(
        at=at,
        verdict=verdict,
        headline=headline,
        patient=_patient(read, [engine.subject for engine in diagnosis.engines]),
        sources=sources,
        findings=diagnosis.findings,
        unknown=diagnosis.unknown,
        vitals=diagnosis.vitals,
        engines=diagnosis.engines,
        targets=diagnosis.targets,
        states=diagnosis.states,
        error=error,
    )


def _patient(observations: Sequence[Observation], engines: Sequence[Mapping[str, str]]) -> Patient:
    versions = {str(o.facts["vllm_version"]) for o in observations if "vllm_version" in o.facts}
    models = [name for o in observations for name in o.models[:1]] or [
        subject["model_name"] for subject in engines if "model_name" in subject
    ]
    named = [subject for subject in engines if subject.keys() - {"server"}]
    return Patient(
        vllm=", ".join(sorted(versions)) or None,
        model=", ".join(dict.fromkeys(models)) or None,
        engines=len(named) or None,
    )
