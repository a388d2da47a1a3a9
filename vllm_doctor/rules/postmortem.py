"""What limited a server, and when: its runs cut into stretches of one kind, each judged by the same rules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vllm_doctor.model.elimination import Gate, Suspect
from vllm_doctor.model.kinds import Role, Severity, Stage, State
from vllm_doctor.model.reading import Reading
from vllm_doctor.model.report import Finding, RunSeen, Span, Timeline, UnknownRule, Verdict, worst
from vllm_doctor.model.run import GENERATED, KV_CACHE, PROMPTS, RUNNING, WAITING, Round, Run
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules import elimination
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.causes import ordered
from vllm_doctor.rules.diagnose import Diagnosis, diagnose, outcomes
from vllm_doctor.rules.rule import Rule

_CRAWL, _READS, _FILLS = 0.3, 100.0, 0.005
"""Tokens a second for each running request: fewer come of an engine whose steps take seconds; prompt tokens a second
from which on prompts are what it does (both heuristic). And how much of the KV cache a prompt fills."""
_LEAST_ROUNDS = 3
"""A shorter stretch is a moment, and belongs to its neighbour; in a log of less than eight times that, not even so."""
_SHORT_LOG = 8
_MOST_STRETCHES = 32
_SCANNING, _JUDGING = 0.5, 0.8
"""Shares of the time: until when it is looked when which rule fired, and until when stretches are judged in full."""
_MOST_RUNS = 12
"""Runs of one kind are judged once: a crash loop may hold thousands."""
_FULL = 0.9
NO_STATISTICS = "The log has no statistics: what the server did is unknown"
HUNG = 60.0
"""Seconds in which requests run and nothing moves, from which on it is no long step (rule of thumb)."""
_LONG = 300.0
"""Seconds of a start, from which on they are what its log is read for (rule of thumb)."""
_COLUMNS = 56
_HELD = 2.5
_SILENCE = 10
"""Intervals without a line, after which nobody knows what was in between."""
_BRIEF = 0.1
"""A finding that held for less of the busy time than this comes after those that held longer."""
_PASSING = 120.0
"""Seconds: one that held for so short, and was brief, is no cause of what a log of hours is about. A rule of thumb."""


@dataclass(frozen=True)
class Postmortem:
    """The diagnosis over all runs, and when what held."""

    diagnosis: Diagnosis
    spans: tuple[Span, ...]
    timeline: Timeline | None


@dataclass(frozen=True)
class _Stretch:
    """Rounds `first` to before `last` of a run, with the severities that were found there."""

    run: int
    first: int
    last: int
    seconds: float
    busy: bool
    stalled: bool
    found: Mapping[str, Severity]


_Told = tuple[int, _Stretch | None, Diagnosis]
"""Of which run, of which stretch of it (None: of its facts alone), and what was found."""


def examine(
    runs: Sequence[Run],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wished: Mapping[str, Reading],
    is_over: Callable[[float], bool] = lambda share: False,
    explained: bool = False,
) -> Postmortem:
    """Judge every run; at least one. `is_over`: whether this share of the time is used up; the oldest are left out.

    `explained`: with every rule in the gates (diagnose).
    """
    moving = _moving(runs, rules, catalogue)
    stretches, spans, left_out = _scanned(runs, moving, catalogue, wished, lambda: is_over(_SCANNING))
    moves = {rule.id for rule in moving}
    diagnoses: list[_Told] = []
    served = max((place for place, run in enumerate(runs) if run.up), default=-1)
    for place, stretch in _shown(runs, stretches):
        if diagnoses and is_over(_JUDGING):
            left_out.add(place)
            continue
        run = runs[place]
        window = run.window(stretch.first, stretch.last) if stretch else Window()
        facts = run.facts_between(stretch.first, stretch.last) if stretch else run.facts
        snapshots = [catalogue.snapshot(window, {**facts, **wished})]
        steady = _Steady(run, catalogue, wished)
        steadily = steady if stretch is not None else lambda: None
        diagnosis = diagnose(rules, catalogue, snapshots, steady=steadily, explained=explained)
        if place < served and not run.up:
            diagnosis = _as_history(diagnosis)
        elif stretch is None and not run.up:
            diagnosis = _of_a_start(diagnosis, run)
        diagnoses.append((place, stretch, _timed(diagnosis, run, steady.rounds or stretch)))
        if run.first_at is not None and run.last_at is not None and stretch in (None, _longest(stretches, place)):
            spans += [
                Span(f.rule, f.severity, place, f.subject, run.first_at, run.last_at)
                for f in diagnosis.findings
                if stretch is None or f.rule not in moves
            ]
    joined = _joined(spans)
    whole = _together(diagnoses, rules, catalogue, joined, stretches)
    return Postmortem(
        replace(whole, left_out=len(left_out), headline=_headline(whole, runs[-1])),
        joined,
        timeline(runs),
    )


def _headline(diagnosis: Diagnosis, last: Run) -> str:
    """With who ended the last run, where nothing else is wrong: that it was well does not say that it is there."""
    if any(finding.is_grave for finding in diagnosis.findings):
        return diagnosis.headline
    if last.is_stopped_early:
        by = f" ({last.ended_by})" if last.ended_by else ""
        return f"Stopped from outside{by} while it was starting ({last.stage}): it never served"
    if not (last.stopped and last.ended_by):
        return diagnosis.headline
    requests, before = last.last_load or (0.0, 0.0)
    were = "1 request was" if requests == 1 else f"{requests:,.0f} requests were"
    open_then = f"; {before:.0f} s before, {were} unfinished" if requests else ""
    return f"Stopped from outside ({last.ended_by}){open_then}. {diagnosis.headline}"


def _as_history(diagnosis: Diagnosis) -> Diagnosis:
    """Of a start that failed, and was put right: a later run served."""
    findings = [replace(f, severity=Severity.INFO, role=Role.INFO) if f.is_grave else f for f in diagnosis.findings]
    states = {**diagnosis.states, **{f.rule: State.INFO for f in diagnosis.findings if f.is_grave}}
    return replace(diagnosis, verdict=Verdict.UNKNOWN, findings=tuple(findings), states=states)


def _of_a_start(diagnosis: Diagnosis, run: Run) -> Diagnosis:
    """Of a run that served nobody: what would only make it slow is no graver than what the start ended at."""
    broken = min((f.severity.rank for f in diagnosis.findings if f.stage is Stage.BROKEN), default=None)
    if run.is_stopped_early:
        broken = Severity.INFO.rank if broken is None else broken
    if broken is None:
        return diagnosis
    slow = [f for f in diagnosis.findings if f.stage in (Stage.LIMIT, Stage.SLOW_PATH) and f.severity.rank < broken]
    findings = [replace(f, severity=Severity.INFO, role=Role.INFO) if f in slow else f for f in diagnosis.findings]
    states = {**diagnosis.states, **{f.rule: State.INFO for f in slow}}
    verdict = worst(*(Verdict(f.severity) for f in findings if f.is_grave), Verdict.UNKNOWN)
    return replace(diagnosis, verdict=verdict, findings=tuple(findings), states=states)


def _timed(diagnosis: Diagnosis, run: Run, of: _Stretch | tuple[int, int] | None) -> Diagnosis:
    """The diagnosis, its speeds with the time that they are of."""
    if of is None:
        return replace(diagnosis, speeds=())
    first, last = of if isinstance(of, tuple) else (of.first, of.last)
    time = (run.rounds[first].at - run.interval, run.rounds[last - 1].at)
    return replace(diagnosis, speeds=tuple(replace(speed, stretch=time) for speed in diagnosis.speeds))


class _Steady:
    """The time of a run in which its batch stayed the same for longest, as a snapshot; None where there is none.

    `rounds`: which it is, once it was asked for.
    """

    def __init__(self, run: Run, catalogue: Catalogue, wished: Mapping[str, Reading]) -> None:
        self._run, self._catalogue, self._wished = run, catalogue, wished
        self.rounds: tuple[int, int] | None = None

    def __call__(self) -> Snapshot | None:
        self.rounds = _steadiest(self._run)
        if self.rounds is None:
            return None
        facts = {**self._run.facts_between(*self.rounds), **self._wished}
        return self._catalogue.snapshot(self._run.window(*self.rounds), facts)


def _steadiest(run: Run) -> tuple[int, int] | None:
    """Rounds whose batch was the same as in the round before, most of them and most requests: first, past the last."""
    best, most, begin = None, 0.0, 0
    for place in range(1, len(run.rounds)):
        before, here = run.rounds[place - 1], run.rounds[place]
        running = here.total(RUNNING)
        if running != before.total(RUNNING) or here.at - before.at > _HELD * run.interval:
            begin = place
        elif running * (place - begin) > most:
            best, most = (begin + 1, place + 1), running * (place - begin)
    return best


def _moving(runs: Sequence[Run], rules: Sequence[Rule], catalogue: Catalogue) -> list[Rule]:
    """The rules whose outcome can change within a run: those about what its statistics measure."""
    rounds = (round for run in runs for round in run.rounds[:50])
    measured = {series[0] for round in rounds for values in round.engines.values() for series in values}
    return [rule for rule in rules if catalogue.metrics_behind(rule.signals()) & measured]


def _scanned(
    runs: Sequence[Run],
    moving: Sequence[Rule],
    catalogue: Catalogue,
    wished: Mapping[str, Reading],
    is_over: Callable[[], bool],
) -> tuple[list[_Stretch], list[Span], set[int]]:
    """All stretches of all runs, each judged by the rules that can change; and which of them fired when. The last runs
    first, and the places of those for which there was no time."""
    bounds = [rule.gain[0] for rule in moving if rule.gain is not None]
    bounds += [rule.costs.signal for rule in moving if rule.costs is not None and rule.costs.signal is not None]
    narrow = catalogue.narrowed([*(name for rule in moving for name in rule.signals()), *bounds])
    stretches: list[_Stretch] = []
    spans: list[Span] = []
    for place, run in reversed(list(enumerate(runs))):
        for first, last in _stretches(run):
            if stretches and is_over():
                return sorted(stretches, key=_order), spans, set(range(place + 1))
            snapshot = narrow.snapshot(run.window(first, last), {**run.facts_between(first, last), **wished})
            began, ended = run.rounds[first].at - run.interval, run.rounds[last - 1].at
            found: dict[str, Severity] = {}
            for rule, outcome, reader in outcomes(moving, narrow, snapshot):
                severity = outcome.state.severity
                if severity is not None:
                    found[rule.id] = min(found.get(rule.id, severity), severity, key=lambda one: one.rank)
                    spans.append(Span(rule.id, severity, place, dict(reader.subject), began, ended))
            busy = any(round.total(RUNNING) for round in run.rounds[first:last])
            stalled = all(_stalled(run.rounds[n - 1] if n else None, run.rounds[n]) for n in range(first, last))
            stretches.append(_Stretch(place, first, last, ended - began, busy, stalled, found))
    return sorted(stretches, key=_order), spans, set()


def _order(stretch: _Stretch) -> tuple[int, int]:
    return stretch.run, stretch.first


def _stretches(run: Run) -> list[tuple[int, int]]:
    """Where the rounds are of one kind: idle, busy, stalled, with a queue, with a full KV cache. First, past the last.

    A silence in which nothing is known of the server ends a stretch.
    """
    rounds = run.rounds
    silences = [n for n in range(1, len(rounds)) if rounds[n].at - rounds[n - 1].at > _SILENCE * run.interval]
    if len(silences) >= _MOST_STRETCHES // 2:  # a log of which only some lines were read
        silences = []
    ends: list[tuple[int, int]] = []
    for begin, end in pairwise([0, *silences, len(rounds)]):
        before = rounds[begin - 1] if begin else None
        share = max(1, _MOST_STRETCHES * (end - begin) // max(1, len(rounds)))
        for length in _lengths(before, rounds[begin:end], share):
            ends.append((begin, begin + length))
            begin += length
    return ends


def _lengths(before: Round | None, rounds: Sequence[Round], most: int) -> list[int]:
    """How many rounds follow each other that are of one kind; not more than `most` such runs."""
    runs: list[tuple[object, int]] = []
    for round in rounds:
        waiting, busy = round.total(WAITING) > 0, round.total(RUNNING) > 0
        kind = busy or waiting, waiting, round.most(KV_CACHE) >= _FULL, _stalled(before, round), _crawls(before, round)
        runs.append((kind, 1))
        before = round
    least, enough = 1, max(1, min(_LEAST_ROUNDS, len(rounds) // _SHORT_LOG))
    while True:
        runs = _merged(runs, least)
        if least >= enough and len(runs) <= most:
            return [length for _, length in runs]
        least = least + 1 if least < _LEAST_ROUNDS else least * 2


def _stalled(before: Round | None, round: Round) -> bool:
    """Whether requests ran, and since the round before neither a token came out nor the KV cache took in a prompt."""
    if before is None or not round.total(RUNNING):
        return False
    return all(round.total(series) == before.total(series) for series in (GENERATED, PROMPTS, KV_CACHE))


def _crawls(before: Round | None, round: Round) -> bool:
    """Whether requests ran, and since the round before hardly a token came, and hardly a prompt was read."""
    if before is None or not (running := round.total(RUNNING)):
        return False
    seconds = round.at - before.at
    tokens = round.total(GENERATED) - before.total(GENERATED)
    filled = round.most(KV_CACHE) - before.most(KV_CACHE)
    is_read = round.total(PROMPTS) - before.total(PROMPTS) >= _READS * seconds or filled > _FILLS
    return not is_read and tokens < _CRAWL * running * seconds


def _merged(runs: Sequence[tuple[object, int]], least: int) -> list[tuple[object, int]]:
    """Equal neighbours as one; then a run shorter than `least` joins the longer of its neighbours."""
    merged: list[tuple[object, int]] = []
    for place, (kind, length) in enumerate(runs):
        if merged and merged[-1][0] == kind:
            merged[-1] = (kind, merged[-1][1] + length)
        elif merged and length < least:
            after = runs[place + 1] if place + 1 < len(runs) else (None, 0)
            joins_before = merged[-1][1] >= after[1]
            merged[-1:] = (
                [(merged[-1][0], merged[-1][1] + length)] if joins_before else [merged[-1], (after[0], length)]
            )
        elif merged and merged[-1][1] < least:
            merged[-1] = (kind, merged[-1][1] + length)
        else:
            merged.append((kind, length))
    return merged


def _longest(stretches: Sequence[_Stretch], run: int) -> _Stretch | None:
    """The stretch that stands for a run: the longest with work, else the longest."""
    of_run = [s for s in stretches if s.run == run]
    return max(of_run, key=lambda s: (s.busy, s.seconds), default=None)


def _shown(runs: Sequence[Run], stretches: Sequence[_Stretch]) -> Iterator[tuple[int, _Stretch | None]]:
    """The stretches that are told in full: of each run its longest, and for each verdict where it was worst."""
    kinds: dict[object, int] = {}
    for place, run in enumerate(runs):
        kinds[run.death.cause if run.death else None, run.up, run.command, run.facts.get("vllm_version")] = place
    chosen = sorted(kinds.values())[-_MOST_RUNS:]
    told: list[tuple[int, _Stretch | None]] = [(place, _longest(stretches, place)) for place in chosen]
    for place in chosen:  # and one that never ended
        last = [s for s in stretches if s.run == place][-1:]
        told += [(place, s) for s in last if s.stalled and (place, s) not in told]
    for rule in dict.fromkeys(rule for stretch in stretches for rule in stretch.found):
        where = [s for s in stretches if rule in s.found]
        worst_of = min(where, key=lambda s: (s.found[rule].rank, -s.seconds))
        if not any(s is worst_of for _, s in told):
            told.append((worst_of.run, worst_of))
    yield from told


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans of the same verdict that touch, as one."""
    joined: dict[object, list[Span]] = {}
    for span in sorted(spans, key=lambda s: (s.run, s.first_at)):
        same = joined.setdefault((span.rule, span.severity, span.run, tuple(sorted(span.subject.items()))), [])
        if same and span.first_at - same[-1].last_at < 1.0:
            same[-1] = replace(same[-1], last_at=max(same[-1].last_at, span.last_at))
        else:
            same.append(span)
    return tuple(sorted((s for same in joined.values() for s in same), key=lambda s: (s.first_at, s.rule)))


def _together(
    diagnoses: Sequence[_Told],
    rules: Sequence[Rule],
    catalogue: Catalogue,
    spans: Sequence[Span],
    stretches: Sequence[_Stretch],
) -> Diagnosis:
    """One diagnosis of all: each finding as it was at its worst."""
    busy_seconds = sum(stretch.seconds for stretch in stretches if stretch.busy)
    lasted: dict[str, float] = {}
    for span in spans:
        lasted[span.rule] = lasted.get(span.rule, 0.0) + span.seconds

    def brief(finding: Finding) -> tuple[bool, float]:
        seconds = lasted.get(finding.rule, 0.0)
        return seconds < _BRIEF * busy_seconds, -seconds

    short = min(_PASSING, _BRIEF * busy_seconds)
    passing = _passing(stretches, lasted, short)
    last = {stretch.run: stretch for stretch in stretches}
    diagnoses = [
        (run, stretch, _milder(diagnosis, passing, stretch is not last.get(run) and stretch.seconds < short))
        if stretch is not None
        else (run, stretch, diagnosis)
        for run, stretch, diagnosis in diagnoses
    ]
    findings = ordered(sorted(_at_their_worst(diagnoses), key=brief), rules, lambda finding: brief(finding)[0])
    states: dict[str, State] = {}
    unknown: dict[str, UnknownRule] = {}
    for _, _, diagnosis in diagnoses:
        for id, state in diagnosis.states.items():
            states[id] = min(states.get(id, state), state, key=_STATES.index)
        unknown |= {rule.rule: rule for rule in diagnosis.unknown}
    verdict, headline, shown = _verdict(diagnoses, findings)
    return Diagnosis(
        verdict=verdict,
        headline=headline,
        findings=tuple(findings),
        unknown=tuple(rule for id, rule in sorted(unknown.items()) if states[id] is State.UNKNOWN),
        vitals=shown.vitals,
        engines=shown.engines,
        targets=(),
        states=dict(sorted(states.items())),
        speeds=shown.speeds,
        gates=elimination.settled(
            _gates(shown, [diagnosis for *_, diagnosis in diagnoses], states),
            findings,
            states,
            elimination.belongs(catalogue.gates, rules),
        ),
    )


def _passing(stretches: Sequence[_Stretch], lasted: Mapping[str, float], short: float) -> set[str]:
    """The rules that held for seconds of a log of hours, and not at the end of a run: nobody knows for how long that
    went on."""
    last = {stretch.run: stretch for stretch in stretches}
    at_end = {rule for stretch in last.values() for rule in stretch.found}
    moving = {rule for stretch in stretches for rule in stretch.found}
    return {rule for rule in moving - at_end if lasted.get(rule, 0.0) < short}


def _milder(diagnosis: Diagnosis, passing: set[str], is_short: bool) -> Diagnosis:
    """The diagnosis with what was passing one severity less: what only warned is worth knowing. `is_short`: it is of a
    time so short itself that what stays unknown in it decides nothing."""
    grave = [finding for finding in diagnosis.findings if finding.is_grave]
    if not any(finding.rule in passing for finding in grave):
        is_moment = is_short and not grave and diagnosis.verdict is Verdict.UNKNOWN
        return replace(diagnosis, verdict=Verdict.OK) if is_moment else diagnosis
    findings = tuple(_toned_down(f) if f in grave and f.rule in passing else f for f in diagnosis.findings)
    states = {**diagnosis.states} | {f.rule: State(f.severity) for f in findings if f.rule in passing}
    verdict = diagnosis.verdict
    if verdict is not Verdict.UNKNOWN:
        verdict = worst(*(Verdict(finding.severity) for finding in findings if finding.is_grave))
    return replace(diagnosis, verdict=verdict, findings=findings, states=states)


def _toned_down(finding: Finding) -> Finding:
    if finding.severity is Severity.CRITICAL:
        return replace(finding, severity=Severity.WARNING)
    return replace(finding, severity=Severity.INFO, role=Role.INFO)


def _gates(shown: Diagnosis, diagnoses: Sequence[Diagnosis], states: Mapping[str, State]) -> Iterator[Gate]:
    """The gates as they were when the headline held, each rule as it was at its worst."""
    at_worst: dict[str, Suspect] = {}
    for diagnosis in (shown, *diagnoses):
        for gate in diagnosis.gates:
            for suspect in gate.suspects:
                if suspect.state is states.get(suspect.rule):
                    at_worst.setdefault(suspect.rule, suspect)
    for gate in shown.gates:
        yield replace(gate, suspects=tuple(at_worst.get(suspect.rule, suspect) for suspect in gate.suspects))


_STATES = (*(state for state in State if state.severity), State.OK, State.UNKNOWN, State.NOT_APPLICABLE)
"""Of a rule over time: what was found; else whether it could be judged at any time."""


def _at_their_worst(diagnoses: Sequence[_Told]) -> Iterable[Finding]:
    """Each finding of each subject, from the stretch in which it weighed most."""
    findings: dict[tuple[str, object], tuple[int, Finding]] = {}
    for run, _, diagnosis in diagnoses:
        for finding in diagnosis.findings:
            key = (finding.rule, tuple(sorted(finding.subject.items())))
            of, before = findings.get(key, (run, None))
            # How a server ended is told of the last run that did: what ended an earlier one may be put right.
            is_newer = finding.stage is Stage.BROKEN and run > of
            if before is None or (_weight(finding), not is_newer) < (_weight(before), True):
                findings[key] = run, finding
    return [finding for _, finding in findings.values()]


def _weight(finding: Finding) -> tuple[bool, int]:
    return finding.role is Role.SYMPTOM, finding.severity.rank


def _verdict(diagnoses: Sequence[_Told], findings: Sequence[Finding]) -> tuple[Verdict, str, Diagnosis]:
    """The verdict over all time, its headline, and the stretch's diagnosis whose vital signs go with it.

    `findings`: of all stretches, in their order.
    """
    every = [diagnosis for *_, diagnosis in diagnoses]
    measured = [diagnosis for _, stretch, diagnosis in diagnoses if stretch is not None]
    verdict = worst(
        *(d.verdict for d in measured or every), *(d.verdict for d in every if d.verdict is not Verdict.UNKNOWN)
    )
    grave = next((finding for finding in findings if finding.is_grave), None)
    shown = _shown_with(verdict, grave, diagnoses, measured or every)
    if grave is not None and verdict is not Verdict.UNKNOWN:
        return verdict, shown.headline if shown.is_of_speed else grave.title, shown
    if grave is None and verdict is Verdict.UNKNOWN and not measured:
        return verdict, _without_statistics(findings), shown
    return verdict, shown.headline, shown


def _without_statistics(findings: Sequence[Finding]) -> str:
    """What is suspected where nothing was measured: how a run ended leads, then minutes of a start that were measured,
    then a note that would be a cause."""
    suspected = next((finding for finding in findings if finding.role is Role.ROOT), None)
    if suspected is not None and suspected.stage is Stage.BROKEN:
        return suspected.title
    long = next((finding for finding in findings if _is_long(finding)), None)
    if long is not None:
        return f"{long.title}; the log has no statistics after it"
    if suspected is None:
        return NO_STATISTICS
    return f"{suspected.title}; the log has no statistics that show what it costs"


def _is_long(finding: Finding) -> bool:
    """Whether it is of a time that was measured, and is long."""
    seconds = (each.seen.value for each in finding.evidence if each.unit == "s")
    return any(isinstance(value, float) and value >= _LONG for value in seconds)


def _shown_with(
    verdict: Verdict, grave: Finding | None, diagnoses: Sequence[_Told], judged: Sequence[Diagnosis]
) -> Diagnosis:
    """The diagnosis in which the gravest finding stands, else the usual one; but one that has the verdict."""
    own = (d for *_, d in diagnoses if grave is not None and any(finding is grave for finding in d.findings))
    shown = next(own, None) or _usual(diagnoses)
    return shown if shown.verdict is verdict else next((d for d in judged if d.verdict is verdict), shown)


def _usual(diagnoses: Sequence[_Told]) -> Diagnosis:
    """Of the longest stretch with work; without any statistics, of the last run."""
    of_stretches = [(stretch, diagnosis) for _, stretch, diagnosis in diagnoses if stretch is not None]
    if not of_stretches:
        return diagnoses[-1][2]
    return max(of_stretches, key=lambda told: (told[0].busy, told[0].seconds))[1]


def seen(runs: Sequence[Run]) -> tuple[RunSeen, ...]:
    """The runs, for the report."""
    return tuple(map(_seen, runs))


def _seen(run: Run) -> RunSeen:
    version = run.facts.get("vllm_version")
    death = run.death
    return RunSeen(
        first_at=run.first_at,
        last_at=run.last_at,
        vllm=str(getattr(version, "value", "")) or None,
        model=run.model,
        engines=len({engine for round in run.rounds[:1000] for engine in round.engines}),
        began=run.began,
        up=run.up,
        end="died" if death else "stopped" if run.stopped else "hung" if run.hung >= HUNG else "open",
        died_at=death.at if death else None,
        cause=death.cause if death else None,
        cause_line=death.line if death else None,
        process=death.process if death else None,
        rounds=len(run.rounds),
        stage=death.stage if death else run.stage if run.is_stopped_early else None,
        ended_by=run.ended_by,
        hung_seconds=run.hung,
    )


def timeline(runs: Sequence[Run], steps: int = _COLUMNS) -> Timeline | None:
    """The most in each of so many equal steps of time, of all runs."""
    rounds = [round for run in runs for round in run.rounds]
    if len(rounds) < 2:
        return None
    first = min(run.rounds[0].at - run.interval for run in runs if run.rounds)
    last = max(round.at for round in rounds)
    step = max(last - first, 1e-9) / steps
    columns: list[list[Round]] = [[] for _ in range(steps)]
    for run in runs:
        before = float("-inf")
        for round in run.rounds:
            # A round tells of the time since the one before it, unless the log was silent in between.
            began = before if round.at - before < _HELD * run.interval else round.at - run.interval
            begin, end = int((began - first) / step), int((round.at - first) / step)
            for column in range(max(0, begin), max(begin + 1, end)):
                columns[min(steps - 1, column)].append(round)
            before = round.at

    measures: dict[str, Callable[[Round], float]] = {
        "running": lambda round: round.total(RUNNING),
        "waiting": lambda round: round.total(WAITING),
        "KV cache": lambda round: round.most(KV_CACHE),
    }
    rows = {
        name: tuple(max(map(measure, here), default=None) for here in columns) for name, measure in measures.items()
    }
    return Timeline(first, last, rows)
