"""From what was observed to the report: one diagnosis of all patients, and the command that would cure it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from vllm_doctor.model import outside
from vllm_doctor.model.kinds import GRAVE, READ, SERVERS, Role, SourceKind, Stage
from vllm_doctor.model.observation import Document, Observation
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.report import (
    Change,
    Correction,
    Finding,
    Patch,
    Patient,
    Problem,
    RecordingSeen,
    Report,
    RunSeen,
    SourceSeen,
    Verdict,
    worst,
    worst_speed,
)
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnose import Diagnosis, diagnose
from vllm_doctor.rules.rule import Rule
from vllm_doctor.session import path, pods
from vllm_doctor.session.cure import Cure
from vllm_doctor.session.patients import (
    Examined,
    has_figure,
    is_benchmark_alone,
    is_said,
    is_unmeasured,
    is_written_alone,
    machine_alone,
    patients,
    with_what_else_is_known,
    without_named_where_seen,
)

if TYPE_CHECKING:
    from vllm_doctor.rules.postmortem import Postmortem  # imported late below: a live server needs none

_OF_PYTHON = Known("engine", origin="cmdline")
_READING, _JUDGING = 0.4, 0.8
"""Shares of the time: until when signals are computed, and until when rules are judged; the rest is to be written."""
UNMEASURED = "Nothing was measured: only its command was checked"
ONLY_GPUS = "Nothing was measured: only the GPUs were read"
ONLY_TRIGGERS = "Nothing was measured: only the autoscaler's triggers were checked"
NO_RESULT = "A benchmark's command without its result: nothing was measured"
SOUND = "No fault found in how the benchmark was made"
AS_EXPECTED = "Requests get the speed that is typical of this model on these GPUs"
BELOW_TYPICAL = "Requests get less than is typical of this model on these GPUs, within the uncertainty of such figures"


def judge(
    observations: Sequence[Observation],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wishes: Mapping[str, Value],
    at: datetime,
    strict: bool = False,
    patched: bool = False,
    is_over: Callable[[float], bool] = lambda share: False,
    explained: bool = False,
) -> Report:
    """The report on what was observed. `wishes`: the user's goal and targets, as facts.

    `patched`: with the corrections in the form in which their commands came, which takes long for a long script.
    `is_over`: whether this share of the time is used up. Engines for which there is none are not judged, which is the
    report's error. `explained`: with what was compared for every rule.
    """
    recordings = tuple({o.recording.target: o.recording for o in observations if o.recording is not None}.values())
    wishes = {name: value for seen in recordings for name, value in seen.wishes.items()} | dict(wishes)
    wished: dict[str, Reading] = {name: Known(value, origin="user") for name, value in wishes.items()}
    observations = without_named_where_seen(observations)
    every = patients(path.without_fronts(observations))
    examined = [patient for patient in every if patient.can_be_judged]
    error = _error(observations, examined) or path.servers_lacking(observations, examined)
    if not examined and not any(o.kind is SourceKind.GATEWAY and o.window.times for o in observations):
        return _nothing_to_judge(at, observations, error, recordings)

    is_measured, is_written = not is_unmeasured(observations), is_written_alone(observations)
    if is_written:
        from vllm_doctor.session import expectation  # late: of a server that runs nothing is predicted

        wished = expectation.under_a_load(wished)
    logs = [o for o in observations if o.runs]
    log = logs[0] if len({o.patient for o in logs}) == 1 else None  # the time of one server is told
    past = _postmortem(log, observations, rules, catalogue, wished, is_over, explained)
    snapshots: list[Snapshot] = []
    for patient in examined:
        if snapshots and is_over(_READING):  # of the others nothing is known
            break
        snapshots.append(patient.snapshot(catalogue, wished, len(every) > 1, lambda: is_over(_READING)))
    cut = {place for place, patient in enumerate(examined[: len(snapshots)]) if patient.is_cut}
    judged = [
        examined[place].without_scrapes().snapshot(catalogue, wished, len(every) > 1) if place in cut else snapshot
        for place, snapshot in enumerate(snapshots)
    ]
    way = path.of(observations, list(zip(examined, snapshots, strict=False)), catalogue)
    judged += [way.snapshot] if way is not None else []
    diagnosis = past.diagnosis if past is not None else None
    if diagnosis is None or _is_seen_now(observations):
        now = diagnose(rules, catalogue, judged, is_measured, is_over=lambda: is_over(_JUDGING), explained=explained)
        if cut:  # one scrape shows how full the server is, and not why: nothing is judged by it
            shown = diagnose((), catalogue, snapshots)
            now = replace(now, vitals=shown.vitals, engines=shown.engines)
        diagnosis = now if diagnosis is None or _is_broken_now(now, diagnosis) else diagnosis
    error = error or _unfinished(diagnosis, len(examined) - len(snapshots), log if past is not None else None)
    unmeasured = "" if is_measured else _of_command(diagnosis.findings) if is_written else ONLY_GPUS
    if {o.kind for o in observations} == {SourceKind.AUTOSCALER}:
        unmeasured = ONLY_TRIGGERS
    is_benchmark = is_benchmark_alone(observations)
    if is_benchmark and not has_figure(observations):
        is_benchmark, unmeasured = False, NO_RESULT
    verdict, headline = _concluded(diagnosis, error, unmeasured, is_benchmark, is_said(observations), strict)
    if error is not None and verdict is Verdict.WARNING and _is_asked_wrongly(observations):
        verdict, headline = Verdict.UNKNOWN, error.message
    trace = None
    if any(o.trace is not None for o in observations):
        from vllm_doctor.session import traced  # late: few servers are traced

        trace = traced.with_bounds(examined, snapshots, catalogue)
        if error is None and verdict is Verdict.UNKNOWN:
            verdict, headline = traced.concluded(observations) or (verdict, headline)
    command, variables = _command(examined)
    is_one_command = is_written and len(examined) == 1
    cure = Cure(snapshots, rules, catalogue, wishes.get("goal"))
    return Report(
        at=at,
        verdict=verdict,
        headline=headline,
        patient=_patient(examined, snapshots, [engine.subject for engine in diagnosis.engines]),
        sources=_sources(observations),
        findings=diagnosis.findings,
        unknown=diagnosis.unknown,
        vitals=diagnosis.vitals,
        engines=diagnosis.engines,
        targets=diagnosis.targets,
        states=diagnosis.states,
        speeds=diagnosis.speeds,
        gates=diagnosis.gates,
        error=error,
        command=command,
        variables=variables,
        correction=_in_its_words(cure(diagnosis.findings, command), examined),
        patches=_patches(examined, diagnosis.findings, cure) if patched else (),
        pods=pods.seen(
            observations,
            lambda own: judge(own, rules, catalogue, wishes, at, strict),
            lambda: is_over(_JUDGING),
        ),
        runs=_runs(log),
        spans=past.spans if past is not None else (),
        lines=log.lines if log is not None else None,
        timeline=past.timeline if past is not None else None,
        recordings=recordings,
        expect=expectation.expected(examined[0], snapshots[0], catalogue, wishes) if is_one_command else None,
        benchmarks=tuple(o.bench for o in observations if o.bench is not None),
        trace=trace,
        path=path.seen(way, diagnosis.findings, catalogue) if way is not None else None,
        prefixes=tuple(o.prefixes for o in observations if o.prefixes is not None),
        profiles={
            o.target: replace(o.profile, stacks={}) for o in observations if o.profile is not None and o.error is None
        },
    )


# ---- what was asked, and what went wrong ---------------------------------------------------------------------------


def _sources(observations: Sequence[Observation]) -> tuple[SourceSeen, ...]:
    return tuple(
        SourceSeen(
            o.kind,
            o.target,
            o.evaluated.seconds if o.evaluated else o.window.seconds,
            o.evaluated.scrapes if o.evaluated else len(o.window.times),
            o.error,
            o.notes,
            o.taken_as,
            o.role,
        )
        for o in observations
    )


def _error(observations: Sequence[Observation], examined: Sequence[Examined]) -> Problem | None:
    """A server that does not answer cannot be judged; without its host or its GPUs a part of it can. Where the doctor
    got no CPU to look at the host, its server may lack one too. What a file holds that was not read in time is not
    known: without a scrape it may be all that was measured."""
    failed = [o for o in observations if o.error is not None]
    starved = [o for o in failed if o.kind is SourceKind.HOST and o.error is not None and o.error.kind == "starved"]
    unread = [] if any(o.window.times for o in observations) else [o for o in failed if _is_unread(o)]
    decisive = (
        [o for o in failed if o.kind in (*SERVERS, SourceKind.GATEWAY)]
        or starved
        or unread
        or ([] if examined else failed)
    )
    return _of_what_lives(decisive[0], observations) if decisive else None


def _of_what_lives(failed: Observation, observations: Sequence[Observation]) -> Problem | None:
    """Why it failed; of a server that refuses connections, that its processes are there."""
    error = failed.error
    seen = next((o for o in observations if o.processes and o.patient in ("", failed.patient)), None)
    if error is None or error.kind != "unreachable" or failed.kind not in SERVERS or seen is None:
        return error
    role, pid = seen.processes[0]
    return Problem(
        error.kind,
        f"{failed.target} does not answer, and its {role} is there (pid {pid}): it is starting, stopping, or hangs",
    )


def _is_asked_wrongly(observations: Sequence[Observation]) -> bool:
    """Whether no server answered, for it was asked by the wrong scheme or its certificate is not trusted: that its log
    shows it to have been slow is no answer to that."""
    servers = [o for o in observations if o.kind in SERVERS]
    return bool(servers) and all(o.error is not None and o.error.kind == "tls" for o in servers)


def _is_unread(observation: Observation) -> bool:
    """Whether it is a file of which there was no time to read all."""
    error = observation.error
    return observation.kind in READ and error is not None and error.kind in ("timeout", "starved")


def _unfinished(diagnosis: Diagnosis, servers: int, log: Observation | None) -> Problem | None:
    """What there was no time for. `servers`: those of which nothing was read."""
    left_out = diagnosis.left_out + servers
    if not left_out:
        return None
    of = f"{len(log.runs):,} runs" if log is not None else f"{left_out + len(diagnosis.engines):,} engines"
    return Problem("timeout", f"{left_out:,} of {of} were not judged in time: raise --timeout")


def _nothing_to_judge(
    at: datetime,
    observations: Sequence[Observation],
    error: Problem | None,
    recordings: tuple[RecordingSeen, ...],
) -> Report:
    error = error or machine_alone(observations)
    return Report(
        at=at,
        verdict=Verdict.UNKNOWN,
        headline=error.message if error else "Nothing was examined",
        patient=Patient(None, None, None),
        sources=_sources(observations),
        findings=(),
        unknown=(),
        vitals=(),
        engines=(),
        targets=(),
        states={},
        error=error,
        recordings=recordings,
    )


def _of_command(findings: Sequence[Finding]) -> str:
    """The headline of a command that nobody has run: what is suspected of it, where that may cost much."""
    suspected = next((finding for finding in findings if finding.role is Role.ROOT and _may_cost(finding)), None)
    return UNMEASURED if suspected is None else f"{suspected.title}; nothing was measured that shows what it costs"


def _may_cost(finding: Finding) -> bool:
    """Whether it may be what to look at first. A note on what the user has switched by hand may not, who often wants it
    so, unless it lengthens each step."""
    is_switched = any(isinstance(value, bool) for remedy in finding.remedies for value in remedy.was.values())
    return finding.severity in GRAVE or finding.cost is not None or not is_switched


def _concluded(
    diagnosis: Diagnosis, error: Problem | None, unmeasured: str, is_benchmark: bool, is_said: bool, strict: bool
) -> tuple[Verdict, str]:
    """The verdict and its headline, with what could not be seen taken into account. `unmeasured`: the headline where
    nothing was measured; "" where something was."""
    verdict, headline = diagnosis.verdict, diagnosis.headline
    if error is not None:
        # What could not be read is not ok, and a server that stopped answering is what to say first.
        headline = headline if verdict in (Verdict.CRITICAL, Verdict.WARNING) else error.message
        verdict = worst(verdict, Verdict.UNKNOWN)
    elif verdict is Verdict.UNKNOWN and is_benchmark:
        verdict, headline = (_of_speed_said if is_said else _of_sound_benchmark)(diagnosis)
    elif verdict is Verdict.UNKNOWN and unmeasured:
        headline = unmeasured
    if strict and diagnosis.unknown:
        verdict = worst(verdict, Verdict.UNKNOWN)
    return verdict, headline


def _of_speed_said(diagnosis: Diagnosis) -> tuple[Verdict, str]:
    """The verdict on a speed that a person named, and its headline; the report's Speed has the figures."""
    lacks, speed = _unjudged(diagnosis), worst_speed(diagnosis.speeds)
    if speed is not None and speed.is_below_typical:
        return Verdict.UNKNOWN, BELOW_TYPICAL
    return (Verdict.OK, AS_EXPECTED) if lacks is None else (Verdict.UNKNOWN, f"Speed not judged{lacks}")


def _unjudged(diagnosis: Diagnosis) -> str | None:
    """What is missing to judge the speed, as the end of a sentence; None: it was judged."""
    speed = worst_speed(diagnosis.speeds)
    if speed is not None and speed.is_judged:
        return None
    return f": {speed.lacks[0]}" if speed is not None and speed.lacks else ""


def _of_sound_benchmark(diagnosis: Diagnosis) -> tuple[Verdict, str]:
    """The headline of a benchmark that was made well, as far as is known: what its speed is beside what is expected."""
    aside = next((found for found in diagnosis.findings if found.role is Role.NOT_SERVER), None)
    if aside is not None:
        return Verdict.OK, f"{aside.title}: {aside.here}"
    lacks = _unjudged(diagnosis)
    if lacks is not None:
        return Verdict.OK, f"{SOUND}; the server's speed is not judged{lacks}"
    return Verdict.OK, f"{SOUND}, and requests got the speed that is expected"


# ---- a log -----------------------------------------------------------------------------------------------------------


def _postmortem(
    log: Observation | None,
    observations: Sequence[Observation],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wished: Mapping[str, Reading],
    is_over: Callable[[float], bool],
    explained: bool,
) -> Postmortem | None:
    """The runs of a log over their time; None where a server is scraped, whose present is what matters."""
    if log is None or any(o.window.times for o in observations):
        return None
    from vllm_doctor.rules import postmortem

    runs = with_what_else_is_known(log.runs, observations)
    return postmortem.examine(runs, rules, catalogue, wished, is_over, explained)


def _is_seen_now(observations: Sequence[Observation]) -> bool:
    """Whether the processes of the server that wrote the log are seen."""
    return any(o.kind is SourceKind.HOST and o.processes for o in observations)


def _is_broken_now(now: Diagnosis, past: Diagnosis) -> bool:
    """Whether the server's processes tell of something that the log, which is of before, does not hold."""
    grave = [finding for finding in now.findings if finding.is_grave]
    known = {finding.rule for finding in past.findings}
    return bool(grave) and grave[0].stage is Stage.BROKEN and grave[0].rule not in known


def _runs(log: Observation | None) -> tuple[RunSeen, ...]:
    if log is None:
        return ()
    from vllm_doctor.rules import postmortem

    return postmortem.seen(log.runs)


# ---- the corrected command -------------------------------------------------------------------------------------------


def _command(examined: Sequence[Examined]) -> tuple[tuple[str, ...], Mapping[str, bool]]:
    """What the one server was started with, and its pieces that a shell expands; nothing where there are several."""
    started = examined[0].started if len(examined) == 1 else None
    return (started.command, started.variables) if started is not None else ((), {})


def _in_its_words(correction: Correction | None, examined: Sequence[Examined]) -> Correction | None:
    """The correction; where Python makes the engine, with the keywords that change: nobody starts a command."""
    started = examined[0].started if len(examined) == 1 else None
    if correction is None or started is None or started.facts.get("usage_context") != _OF_PYTHON:
        return correction
    from vllm_doctor.launch import python_edit  # late: few are programs

    lines = python_edit.settings(correction.changes)
    return replace(correction, settings=tuple((line[0], line[1:]) for line in lines))


def _patches(examined: Sequence[Examined], findings: Sequence[Finding], cure: Cure) -> tuple[Patch, ...]:
    """The corrections of all patients, each in the form in which its command came: a written one before what runs."""
    from vllm_doctor.launch import diff  # late: most outputs show no patch

    found: list[Patch] = []
    of_documents: dict[int, tuple[Document, dict[int, Sequence[Change]]]] = {}
    for patient in examined:
        written = sorted((o for o in patient.observations if o.command), key=lambda o: o.kind != SourceKind.COMMAND)
        if not written:
            continue
        observation, started = written[0], patient.started
        mine = [finding for finding in findings if finding.subject.get("server", patient.name) == patient.name]
        correction = cure(mine, started.command) if started is not None else None
        if correction is None:
            continue
        if observation.document is None:
            found.append(diff.of_words(observation.command, correction.changes, observation.target))
            continue
        _, changes = of_documents.setdefault(id(observation.document), (observation.document, {}))
        changes[observation.number] = correction.changes
    return (*found, *(patch for document, changes in of_documents.values() for patch in document.patched(changes)))


# ---- who it is -------------------------------------------------------------------------------------------------------


def _patient(
    examined: Sequence[Examined], snapshots: Sequence[Snapshot], engines: Sequence[Mapping[str, str]]
) -> Patient:
    models = [patient.models[0] for patient in examined if patient.models] or [
        subject["model_name"] for subject in engines if "model_name" in subject
    ]
    named = [subject for subject in engines if subject.keys() - {"server"}]

    def known(signal: str) -> list[Known]:
        readings = [snapshot.read(signal, ())[1] for snapshot in snapshots]
        return [reading for reading in readings if isinstance(reading, Known)]

    def number(signal: str) -> float | None:
        told = [reading.value for reading in known(signal) if reading.bounds is None]
        return outside.number(told[0]) if len(snapshots) == 1 and told else None

    def text(signal: str) -> str | None:
        return ", ".join(sorted({str(reading.value) for reading in known(signal)})) or None

    gpus = [count for reading in known("gpus") if (count := outside.number(reading.value)) is not None]
    return Patient(
        vllm=text("vllm_version"),
        vllm_window=text("flags_window_says") if len(snapshots) == 1 and not known("vllm_version") else None,
        model=", ".join(dict.fromkeys(models)) or None,
        engines=len(named) or None,
        gpus=round(sum(gpus)) if len(gpus) == len(snapshots) else None,
        gpu=text("gpu_name"),
        processes=tuple(process for patient in examined for o in patient.observations for process in o.processes),
        cores_wanted=number("cores_wanted"),
        cores_usable=number("cores_usable"),
        cores_terms=text("cores_terms") if len(snapshots) == 1 else None,
    )
