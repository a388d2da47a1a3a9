"""One examination: all sources watched at the same time, one report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from vllm_doctor.launch import diff
from vllm_doctor.launch.correction import corrected
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT, FORM
from vllm_doctor.model.observation import Document, Feed, Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import (
    SERVERS,
    Change,
    Correction,
    Finding,
    LifeSeen,
    Patch,
    Patient,
    Problem,
    Report,
    SourceSeen,
    Verdict,
    worst,
)
from vllm_doctor.model.run import Life
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import diagnose
from vllm_doctor.rules.prediction import Changed
from vllm_doctor.rules.rule import Rule
from vllm_doctor.vllm import defaults

if TYPE_CHECKING:
    from vllm_doctor.recording.bundle import Recording
    from vllm_doctor.sources.log.bytes_stream import Origin
    from vllm_doctor.sources.server.server import Server

_HANDOVER_SECONDS = 0.5
_WRITTEN = "command"
Cure = Callable[[Sequence[Finding], Sequence[str]], Correction | None]
_GPU = "gpu"
_NAMED = "gpu-name"
_UNMEASURED_KINDS = frozenset({_WRITTEN, _GPU, _NAMED})
UNMEASURED = "Nothing was measured: judged by its command alone"


@dataclass(frozen=True)
class Watcher:
    """Who looks at what. Watchers of one patient look at the same server."""

    kind: str
    target: str
    patient: str
    look: Callable[[], Observation]
    bytes_read: Callable[[], int] | None = None
    """How far it has come, where that may take long."""
    follow: Callable[[], Feed] | None = None
    """To look again and again; None: what it saw once holds."""
    server: Server | None = None
    """Whose answers can be kept."""
    logs: tuple[Origin, ...] = ()
    """Of a log: its files."""
    recording: Recording | None = None
    """Where it comes from, if it is not of now."""
    replay: Callable[[Callable[[], float]], Feed] | None = None
    """To look at what was recorded as if it were then; asks for the seconds after its start."""


def observe(watchers: Sequence[Watcher], seconds: float) -> list[Observation]:
    """Run each watcher in a thread of its own, for at most `seconds`: one that hangs does not hang the doctor.

    A watcher ends by itself at its own deadline, with what it saw until then; half a second more lets it hand that
    over. One that still does not return is an Observation with an error.
    """
    seen: dict[int, Observation] = {}
    failed: list[BaseException] = []

    def watch(place: int, look: Callable[[], Observation]) -> None:
        try:
            seen[place] = look()
        except BaseException as error:  # told to the caller's thread, which decides
            failed.append(error)

    threads = [
        threading.Thread(target=watch, args=(place, watcher.look), daemon=True)
        for place, watcher in enumerate(watchers)
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
    return [seen.get(place) or _unanswered(watcher) for place, watcher in enumerate(watchers)]


def _unanswered(watcher: Watcher) -> Observation:
    problem = Problem("timeout", f"{watcher.target} did not answer in time: raise --timeout")
    return Observation(watcher.kind, watcher.target, error=problem, patient=watcher.patient)


def judge(
    observations: Sequence[Observation],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wishes: Mapping[str, Value],
    at: datetime,
    strict: bool = False,
    patched: bool = False,
) -> Report:
    """The report on what was observed. Pure. `wishes`: the user's goal and targets, as facts.

    `patched`: with the corrections in the form in which their commands came, which takes long for a long script.
    """
    recordings = tuple({o.recording.target: o.recording for o in observations if o.recording is not None}.values())
    wishes = {name: value for seen in recordings for name, value in seen.wishes.items()} | dict(wishes)
    observations = _without_named_where_seen(observations)
    sources = tuple(
        SourceSeen(
            o.kind,
            o.target,
            o.told.seconds if o.told else o.window.seconds,
            o.told.scrapes if o.told else len(o.window.times),
            o.error,
            o.notes,
        )
        for o in observations
    )
    # A server that does not answer cannot be judged; without its host or its GPUs a part of it can.
    error = next((o.error for o in observations if o.error is not None and o.kind in SERVERS), None)
    # What /version said of a server whose metrics cannot be used is nothing to judge; what its host said is.
    patients = [
        seen
        for seen in _patients(observations)
        if any(o.window.times or o.told or ((o.facts or o.lives) and o.kind not in (*SERVERS, _NAMED)) for o in seen)
    ]
    error = error or next((o.error for o in observations if o.error is not None and not patients), None)
    if not patients:
        headline = error.message if error else "Nothing was examined"
        nobody = Patient(None, None, None)
        nothing = Report(at, Verdict.UNKNOWN, headline, nobody, sources, (), (), (), (), (), {}, error)
        return replace(nothing, recordings=recordings)
    wished: dict[str, Reading] = {name: Known(value, origin="user") for name, value in wishes.items()}
    told = next((o for o in observations if o.lives), None)
    past = None
    lives: tuple[LifeSeen, ...] = ()
    if told is not None:
        from vllm_doctor.rules import postmortem  # late: a live server needs none

        lives = postmortem.seen(told.lives)
        if not any(o.window.times for o in observations):
            past = postmortem.examine(_with_more(told.lives, observations), rules, catalogue, wished)
    snapshots = [
        catalogue.snapshot(
            next((o.window for o in seen if o.window.times), Window()),
            _with_defaults(_facts(seen)) | wished,
            (("server", _name(seen)),) if len(_patients(observations)) > 1 else (),
            next((o.told for o in seen if o.told and not any(other.window.times for other in seen)), None),
        )
        for seen in patients
    ]
    is_measured = not _is_written_alone(observations)
    diagnosis = past.diagnosis if past is not None else diagnose(rules, catalogue, snapshots, is_measured)
    verdict, headline = diagnosis.verdict, diagnosis.headline
    if error is not None:
        # What could not be read is not ok, and a server that stopped answering is what to say first.
        headline = headline if verdict in (Verdict.CRITICAL, Verdict.WARNING) else error.message
        verdict = worst(verdict, Verdict.UNKNOWN)
    if verdict is Verdict.UNKNOWN and error is None and not is_measured:
        headline = UNMEASURED
    if strict and diagnosis.unknown:
        verdict = worst(verdict, Verdict.UNKNOWN)
    started = next((o for o in _believed(observations) if o.command), None) if len(patients) == 1 else None
    command, variables = (started.command, started.variables) if started is not None else ((), {})

    def refuses(changed: Mapping[str, Value | None]) -> str | None:
        return _refusal(snapshots, catalogue, changed)

    def cure(findings: Sequence[Finding], started: Sequence[str]) -> Correction | None:
        return corrected(findings, started, wishes.get("goal"), refuses)

    return Report(
        at=at,
        verdict=verdict,
        headline=headline,
        patient=_patient(patients, snapshots, [engine.subject for engine in diagnosis.engines]),
        sources=sources,
        findings=diagnosis.findings,
        unknown=diagnosis.unknown,
        vitals=diagnosis.vitals,
        engines=diagnosis.engines,
        targets=diagnosis.targets,
        states=diagnosis.states,
        error=error,
        command=command,
        variables=variables,
        correction=cure(diagnosis.findings, command),
        patches=_patches(patients, diagnosis.findings, cure) if patched else (),
        lives=lives,
        spans=past.spans if past is not None else (),
        lines=told.lines if told is not None else None,
        timeline=past.timeline if past is not None else None,
        recordings=recordings,
    )


def _refusal(snapshots: Sequence[Snapshot], catalogue: Catalogue, flags: Mapping[str, Value | None]) -> str | None:
    """Why vLLM would not start with these flags, as far as any of the engines tells."""
    starts = (Changed(one, engine, catalogue, flags).start() for one in snapshots for engine in one.subjects)
    return next((told.refused for told in starts if told.refused), None)


def _patients(observations: Sequence[Observation]) -> list[list[Observation]]:
    """The observations, those of one patient together."""
    found: dict[str, list[Observation]] = {}
    for observation in observations:
        found.setdefault(observation.patient or observation.target, []).append(observation)
    return list(found.values())


def _patches(patients: Sequence[Sequence[Observation]], findings: Sequence[Finding], cure: Cure) -> tuple[Patch, ...]:
    """The corrections of all patients, each in the form in which its command came: a written one before what runs."""
    found: list[Patch] = []
    of_documents: dict[int, tuple[Document, dict[int, Sequence[Change]]]] = {}
    for seen in patients:
        told = [finding for finding in findings if finding.subject.get("server", _name(seen)) == _name(seen)]
        written = sorted((o for o in seen if o.command), key=lambda o: o.kind != _WRITTEN)
        for observation in written[:1]:
            command = next(o.command for o in _believed(seen) if o.command)
            correction = cure(told, command)
            if correction is None:
                continue
            if observation.document is None:
                found.append(diff.of_words(observation.command, correction.changes, observation.target))
                continue
            _, changes = of_documents.setdefault(id(observation.document), (observation.document, {}))
            changes[observation.number] = correction.changes
    return (*found, *(patch for document, changes in of_documents.values() for patch in document.patched(changes)))


def _facts(seen: Sequence[Observation]) -> dict[str, Reading]:
    """What is known of one patient. The first source wins; where the server's own command was read, a written one
    says nothing of its flags."""
    facts: dict[str, Reading] = {}
    for observation in _believed(seen):
        told = observation.facts
        facts = _completed(facts, told) if observation.kind in (_WRITTEN, _NAMED) else {**told, **facts}
    if _is_written_alone(seen) and "flags_judged_as" in facts:
        facts["flags_checked_by"] = facts["flags_judged_as"]
    return facts


def _is_written_alone(observations: Sequence[Observation]) -> bool:
    """Whether a command, and the GPUs for it, are all that there is: nothing runs yet."""
    return {_WRITTEN} <= {observation.kind for observation in observations} <= _UNMEASURED_KINDS


def _with_defaults(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts with what the server takes where it is not told, as far as they do not say so themselves."""
    of_device = defaults.of_device(facts) if FORM in facts else {}
    known = {name: fact for name, fact in facts.items() if isinstance(fact, Known) or name not in of_device}
    return defaults.of_version(facts) | of_device | known


def _without_named_where_seen(observations: Sequence[Observation]) -> list[Observation]:
    """The observations; of a GPU that was named (--gpu) only a note, where the driver tells which one it is."""
    seen = {
        o.patient or o.target: name.value
        for o in observations
        if o.kind == _GPU and isinstance(name := o.facts.get("gpu_name"), Known)
    }

    def checked(o: Observation) -> Observation:
        name = seen.get(o.patient or o.target) if o.kind == _NAMED else None
        note = f"--gpu is not used: the driver tells which GPU it is ({name})"
        return o if name is None else replace(o, facts={}, notes=(*o.notes, note))

    return [checked(o) for o in observations]


def _believed(seen: Sequence[Observation]) -> list[Observation]:
    """What was looked up goes before what a log once told, and that before a command that was given as a text."""
    return sorted(seen, key=lambda o: {"log": 1, _WRITTEN: 2, _NAMED: 3}.get(o.kind, 0))


def _with_more(lives: Sequence[Life], observations: Sequence[Observation]) -> list[Life]:
    """The lives of a log, with what the driver, or a name, tells of their GPUs, and a written command of their flags,
    where the log does not."""
    added = [o.facts for o in _believed(observations) if o.kind in (_GPU, _WRITTEN, _NAMED)]
    found = []
    for life in lives:
        facts: Mapping[str, Reading] = life.facts
        for more in added:
            facts = _completed(facts, more)
        found.append(replace(life, facts=_with_defaults(facts)))
    return found


def _completed(facts: Mapping[str, Reading], written: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts with those of a written command, its flags and its environment each as a whole or not at all."""
    known = {prefix for prefix, whole in (("--", COMMAND), ("$", ENVIRONMENT)) if isinstance(facts.get(whole), Known)}
    added = {
        name: fact
        for name, fact in written.items()
        if not name.startswith(tuple(known)) and not isinstance(facts.get(name), Known)
    }
    return {**facts, **added}


def _name(seen: Sequence[Observation]) -> str:
    return seen[0].patient or seen[0].target


def _patient(
    patients: Sequence[Sequence[Observation]], snapshots: Sequence[Snapshot], engines: Sequence[Mapping[str, str]]
) -> Patient:
    observations = [o for seen in patients for o in seen]
    named_by = [next((o.models for o in seen if o.models), ()) for seen in patients]
    models = [name for names in named_by for name in names[:1]] or [
        subject["model_name"] for subject in engines if "model_name" in subject
    ]
    named = [subject for subject in engines if subject.keys() - {"server"}]

    def told(signal: str) -> list[Value]:
        readings = [snapshot.read(signal, ())[1] for snapshot in snapshots]
        return [reading.value for reading in readings if isinstance(reading, Known)]

    def number(signal: str) -> float | None:
        values = told(signal)
        return float(values[0]) if len(snapshots) == 1 and values else None

    def text(signal: str) -> str | None:
        return ", ".join(sorted({str(value) for value in told(signal)})) or None

    gpus = told("gpus")
    return Patient(
        vllm=text("vllm_version"),
        model=", ".join(dict.fromkeys(models)) or None,
        engines=len(named) or None,
        gpus=round(sum(float(count) for count in gpus)) if len(gpus) == len(snapshots) else None,
        gpu=text("gpu_name"),
        processes=tuple(process for o in observations for process in o.processes),
        cores_wanted=number("cores_wanted"),
        cores_usable=number("cores_usable"),
        cores_terms=text("cores_terms") if len(snapshots) == 1 else None,
    )
