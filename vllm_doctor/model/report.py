"""The report: what was found, why, what cures it, what could not be seen. Frozen; every renderer's input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_doctor.model.kinds import GRAVE, SERVERS, Confidence, Role, Severity, SourceKind, Stage, State
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.speed import Expected, Standing

if TYPE_CHECKING:
    from vllm_doctor.model.elimination import Gate
    from vllm_doctor.model.expectation import Expectation
    from vllm_doctor.model.path import PathSeen
    from vllm_doctor.model.pod import PodSeen
    from vllm_doctor.model.prefix import Prefixes
    from vllm_doctor.model.profile import Profile
    from vllm_doctor.model.trace import TraceSeen

SCHEMA = "vllm-doctor/report/v1"
"""The form in which a report is written for machines: a contract."""


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES = {Verdict.OK: 0, Verdict.WARNING: 1, Verdict.CRITICAL: 2, Verdict.UNKNOWN: 3}
_BADNESS = [Verdict.OK, Verdict.UNKNOWN, Verdict.WARNING, Verdict.CRITICAL]


def worst(*verdicts: Verdict) -> Verdict:
    """critical > warning > unknown > ok: evidence of harm wins over not knowing."""
    return max(verdicts, key=_BADNESS.index, default=Verdict.OK)


@dataclass(frozen=True)
class Evidence:
    """One comparison that held: `signal` was `seen`, which `is_` (>, <=, ...) `than`."""

    signal: str
    says: str
    seen: Known
    is_: str
    than: Value
    than_signal: str | None
    unit: str
    origin: str


@dataclass(frozen=True)
class Gain:
    """The most that the cure can bring, as a factor of throughput, and how that was bounded."""

    at_most: float
    basis: str


@dataclass(frozen=True)
class Cost:
    """The most seconds that the cause adds to each output token, and how that was bounded.

    `at_most` None: it lengthens steps, and by how much is not known.
    """

    at_most: float | None
    basis: str
    is_asked: bool = False
    """Speed is missing where it was found."""
    share: float | None = None
    """Of what is missing; None: nothing is, or it is not known."""


@dataclass(frozen=True)
class Remedy:
    do: str
    set: Mapping[str, Value]
    was: Mapping[str, Value]
    """What the flags of `set` and `unset` were on the server's command line, where that was read."""
    unset: tuple[str, ...]
    env: Mapping[str, Value]
    run: tuple[str, ...]
    """Shell commands, outside of vLLM."""
    by: str
    """Who can run them: you, or an administrator."""
    computed: str | None
    """How the value came about, with its numbers."""
    needs: Mapping[str, Reason]
    """Signals without which the value could not be computed."""
    validated_for: str | None
    """The vLLM version that was checked to have these flags."""
    cost: str
    risk: str
    expect: str
    gain: Gain | None
    then: tuple[str, ...] = ()
    """What will be, in sentences with numbers: tokens that the KV cache then holds, requests that fit."""
    starts_unknown: Mapping[str, Reason] = field(default_factory=dict)
    """Signals without which it is not known whether vLLM starts with it."""
    goal: str = ""
    """The goal that it serves at the cost of the other: throughput or latency; "": both."""


@dataclass(frozen=True)
class Finding:
    rule: str
    severity: Severity
    role: Role
    explained_by: str | None
    confidence: Confidence
    subject: Mapping[str, str]
    title: str
    here: str
    """What was seen on this server, in sentences with its numbers."""
    why: str
    threshold_from: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    see: tuple[str, ...]
    stage: Stage
    """Its place in the order of reasoning."""
    gain: Gain | None = None
    """What the cause costs at most, in throughput; None: not known."""
    cost: Cost | None = None
    """Of a cause that lengthens steps."""
    is_minor: bool = False
    """It explains too little of what is missing to be the headline."""

    @property
    def potential(self) -> Gain | None:
        """The most that any of its remedies can bring: the one gain that a reader is told."""
        gains = [gain for gain in (self.gain, *(remedy.gain for remedy in self.remedies)) if gain is not None]
        return max(gains, key=lambda gain: gain.at_most, default=None)

    @property
    def asks_gain(self) -> bool:
        """Whether the reader must be told what it costs, or that this is not known: of a cause of slowness."""
        return self.role == Role.ROOT and self.stage not in (Stage.BLIND, Stage.BROKEN)

    @property
    def is_grave(self) -> bool:
        """Whether it does harm and nothing else explains it."""
        return self.severity in GRAVE and self.role != Role.SYMPTOM


@dataclass(frozen=True)
class Change:
    """A flag, or an environment variable, as it was and as it should be; None: not given."""

    name: str
    was: Value | None
    now: Value | None
    rule: str
    """The finding that it cures."""


@dataclass(frozen=True)
class LeftOut:
    """A finding that the corrected command does not cure, and why: the change it conflicts with, or vLLM's refusal."""

    rule: str
    do: str
    reason: str


@dataclass(frozen=True)
class NextCap:
    """A limit that would hold the queue once the others are out of the way, and by which number.

    `is_cured`: the command takes it away, too; else no flag is known that does.
    """

    rule: str
    says: str
    is_cured: bool


@dataclass(frozen=True)
class Correction:
    """What to start instead: the whole command line, and in what it differs. Variables stand in `changes` only.

    `settings`: where Python makes the engine, what changes in its call, as lines that go ("-") and come ("+").
    """

    now: tuple[str, ...]
    changes: tuple[Change, ...]
    left_out: tuple[LeftOut, ...] = ()
    next_caps: tuple[NextCap, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Patch:
    """Corrections in the form their commands came in. `file`: where these stand; `changes`: by their places in it.

    `lines`: what to apply; none where `problem` says why it cannot be written. `apply`: how, in sentences and commands,
    in which PATCH stands for the file with these lines.
    """

    form: str
    file: str | None
    changes: Mapping[str, tuple[Change, ...]]
    apply: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class UnknownRule:
    rule: str
    because: Mapping[str, Reason]


@dataclass(frozen=True)
class Problem:
    """Why a source could not be read. `kind` is one of errors.SourceError's."""

    kind: str
    message: str


@dataclass(frozen=True)
class SourceSeen:
    kind: SourceKind
    target: str
    window_s: float
    scrapes: int
    error: Problem | None
    notes: tuple[str, ...] = ()
    taken_as: str = ""
    """What a text was taken for: "a compose file"; "" of what is no text."""
    role: str = ""
    """What it is on the path of a request; "" where it is not on one."""


@dataclass(frozen=True)
class BenchSeen:
    """A benchmark's result in short: tokens of a request, rates per second, times in seconds; None: untold."""

    target: str
    tool: str
    model: str | None
    requests: float | None
    failed: float | None
    concurrency: float | None
    """The most requests that were to be in flight."""
    rate: float | None
    """Requests a second that were to be sent."""
    seconds: float | None
    input_len: float | None
    output_len: float | None
    output_tokens_per_second: float | None
    ttft: float | None
    tpot: float | None
    is_tpot_derived: bool = False
    """The tool does not tell it: it follows from the other figures."""


@dataclass(frozen=True)
class Patient:
    vllm: str | None
    model: str | None
    engines: int | None
    gpus: int | None = None
    """The GPUs it uses, as far as they were seen; 0: there is none."""
    gpu: str | None = None
    """Their name."""
    processes: tuple[tuple[str, int], ...] = ()
    """(role, pid), where the server's host was examined."""
    cores_wanted: float | None = None
    """Physical cores by vLLM's rule; `cores_terms` is the sum in words."""
    cores_usable: float | None = None
    cores_terms: str | None = None
    vllm_window: str | None = None
    """Where its version is not known: the releases that it can be of, and by what."""


@dataclass(frozen=True)
class Vital:
    """A vital sign of the whole server: sums of its engines, or their worst."""

    name: str
    says: str
    unit: str
    seen: Known | Reason
    needed: bool = False


@dataclass(frozen=True)
class EngineSeen:
    subject: Mapping[str, str]
    vitals: tuple[Vital, ...]


@dataclass(frozen=True)
class Target:
    """A target the user gave (--slo), and whether it is met; None where the buckets cannot tell."""

    name: str
    seconds: float
    seen: Known | Reason
    met: bool | None


@dataclass(frozen=True)
class RunSeen:
    """One run of a server, as its log tells it. Times are POSIX seconds, None where the log holds none."""

    first_at: float | None
    last_at: float | None
    vllm: str | None
    model: str | None
    engines: int
    began: bool
    """The log holds its start."""
    up: bool
    end: str
    """died, stopped, hung (requests ran and nothing moved to the log's end), or open: the log ends before it does."""
    died_at: float | None = None
    cause: str | None = None
    cause_line: int | None = None
    process: str | None = None
    rounds: int = 0
    stage: str | None = None
    """In which part of its start it died or was stopped, or that it died serving."""
    ended_by: str | None = None
    """Who stopped it, where the log says that."""
    hung_seconds: float = 0.0


@dataclass(frozen=True)
class Span:
    """From when to when a rule's verdict held; `run` counts from 0."""

    rule: str
    severity: Severity
    run: int
    subject: Mapping[str, str]
    first_at: float
    last_at: float

    @property
    def seconds(self) -> float:
        return self.last_at - self.first_at


@dataclass(frozen=True)
class LinesSeen:
    """`read` lines of logs, of which `recognised` said something; `one_in`: more of a kind were counted, not read.

    `zoned`: times are absolute; else the server's local ones, as they stand.
    """

    read: int
    recognised: int
    zoned: bool
    seconds: float = 0.0
    one_in: int = 1


@dataclass(frozen=True)
class Timeline:
    """What was measured from `first_at` to `last_at`, in equal steps: row -> values, None where nothing was."""

    first_at: float
    last_at: float
    rows: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True)
class Measure:
    """One figure of the whole time, and between what its samples lie.

    `spread` tells of what: "parts" of the time, of which there are `samples`, or whole "runs"; "bucket": the bounds are
    those of a histogram's bucket, and it is one sample; "none": it is one sample, without bounds.
    `deviation`: the standard deviation of the samples; None: of one sample, or not told.
    """

    name: str
    value: float
    low: float
    high: float
    samples: int
    spread: str
    deviation: float | None = None

    @classmethod
    def of(cls, name: str, value: float, samples: Sequence[float], spread: str) -> Measure:
        """The figure, which is not always between its samples: a mean of means."""
        deviation = None
        if len(samples) > 1:  # by hand: every report has measures, and `statistics` takes 10 ms to import
            mean = sum(samples) / len(samples)
            found = math.sqrt(sum((one - mean) * (one - mean) for one in samples) / (len(samples) - 1))
            deviation = found if math.isfinite(found) else None
        return cls(name, value, min(value, *samples), max(value, *samples), len(samples), spread, deviation)


@dataclass(frozen=True)
class Trend:
    """A vital sign over time: at which second it was how much; None where it was not known."""

    name: str
    says: str
    unit: str
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class RecordingSeen:
    """A recording that was judged: when it was taken and by whom, and what was said of it then.

    `taken` is RFC 3339; `rules` names the rules of then, `same_rules` whether they are those of now.
    """

    target: str
    taken: str
    seconds: float
    doctor: str
    rules: str
    verdict: str | None = None
    headline: str | None = None
    same_rules: bool | None = None
    wishes: Mapping[str, Value] = field(default_factory=dict)
    """The user's goal and targets of then."""
    redacted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    at: datetime
    verdict: Verdict
    headline: str
    patient: Patient
    sources: tuple[SourceSeen, ...]
    findings: tuple[Finding, ...]
    unknown: tuple[UnknownRule, ...]
    vitals: tuple[Vital, ...]
    engines: tuple[EngineSeen, ...]
    targets: tuple[Target, ...]
    states: Mapping[str, State]
    """Each rule's state over all engines."""
    error: Problem | None = None
    command: tuple[str, ...] = ()
    """The server's command line, where it was read."""
    variables: Mapping[str, bool] = field(default_factory=dict)
    """Pieces of it that a shell expands where it is started, and whether to several words."""
    correction: Correction | None = None
    patches: tuple[Patch, ...] = ()
    """The corrections in the form in which their commands came."""
    redacted: Mapping[str, int] = field(default_factory=dict)
    pods: tuple[PodSeen, ...] = ()
    """Of a workload with several pods: each, examined alone."""
    runs: tuple[RunSeen, ...] = ()
    spans: tuple[Span, ...] = ()
    lines: LinesSeen | None = None
    timeline: Timeline | None = None
    measures: tuple[Measure, ...] = ()
    """Of one server that was seen at more than one time, to be compared with another report."""
    trends: tuple[Trend, ...] = ()
    """Its vital signs over the time seen, where they are drawn."""
    recordings: tuple[RecordingSeen, ...] = ()
    """What was judged is not the present, but what these hold."""
    benchmarks: tuple[BenchSeen, ...] = ()
    """Results that were given."""
    expect: Expectation | None = None
    """Of a command that does not run yet: what it will give."""
    path: PathSeen | None = None
    """Where the time of a request goes between several sources: gateway, router, servers."""
    trace: TraceSeen | None = None
    """Where a step's time goes, as a profiler's trace shows it."""
    prefixes: tuple[Prefixes, ...] = ()
    """Of each source that holds prompts: where they part."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Of each server that was looked into: where the time of its processes goes."""
    speeds: tuple[Expected, ...] = ()
    """Of each engine: the speed that requests get, beside what is expected."""
    gates: tuple[Gate, ...] = ()
    """Where requests and steps are held up, and where not; with their suspects where that was asked for (--explain)."""

    @property
    def is_explained(self) -> bool:
        """Whether it was asked how the verdict came about."""
        return any(gate.suspects for gate in self.gates)

    @property
    def expected(self) -> Expected | None:
        """The engine that lacks most of its expected speed; else one of which the speed is not known."""
        return worst_speed(self.speeds)

    @property
    def coverage(self) -> tuple[int, int]:
        """How many rules could be judged, of those that apply."""
        unknown = self.count(State.UNKNOWN)
        return (judged := len(self.states) - unknown - self.count(State.NOT_APPLICABLE)), judged + unknown

    @property
    def unknown_by_reason(self) -> dict[Reason, list[str]]:
        """The rules that could not be judged, by each reason that they had."""
        found: dict[Reason, list[str]] = {}
        for unknown in self.unknown:
            for reason in dict.fromkeys(unknown.because.values()):
                found.setdefault(reason, []).append(unknown.rule)
        return found

    @property
    def judged_otherwise(self) -> RecordingSeen | None:
        """The recording of which another verdict was given when it was taken."""
        if len(self.recordings) != 1 or self.recordings[0].verdict is None:
            return None
        seen = self.recordings[0]
        return seen if (seen.verdict, seen.headline) != (self.verdict.value, self.headline) else None

    @property
    def is_postmortem(self) -> bool:
        """Of logs alone: no server was asked, or none that answered."""
        return self.lines is not None and not any(s.kind in SERVERS and s.scrapes for s in self.sources)

    @property
    def is_unmeasured(self) -> bool:
        """Of a command, or of GPUs, alone: no server, no process and no log was seen."""
        kinds = {source.kind for source in self.sources if source.error is None}
        return bool(kinds & {SourceKind.COMMAND, SourceKind.GPU}) and not kinds & {
            *SERVERS,
            SourceKind.HOST,
            SourceKind.BENCH,
            *((SourceKind.LOG,) if self.lines is not None else ()),
        }

    @property
    def is_of_benchmark(self) -> bool:
        """Of a benchmark's result: no server, no process and no log was seen."""
        kinds = {source.kind for source in self.sources}
        return SourceKind.BENCH in kinds and not kinds & {*SERVERS, SourceKind.HOST, SourceKind.LOG}

    @property
    def is_of_trace(self) -> bool:
        """Of a profiler's trace alone."""
        return self.trace is not None and all(source.kind == SourceKind.TRACE for source in self.sources)

    @property
    def main(self) -> list[Finding]:
        """What must be told first: causes that do harm."""
        return [f for f in self.findings if f.is_grave]

    @property
    def aside(self) -> list[Finding]:
        """Causes that are only worth knowing."""
        main = self.main
        return [f for f in self.findings if f not in main and f.role != Role.SYMPTOM]

    def engines_of(self, group: Sequence[Finding]) -> list[str]:
        """The engines that these findings are about, in words; none where there is only one engine."""
        named = [", ".join(f"{name} {of}" for name, of in f.subject.items() if name != "model_name") for f in group]
        return [name for name in named if name] if len(self.engines) > 1 else []

    def count(self, state: State) -> int:
        """How many rules are in a state."""
        return sum(found == state for found in self.states.values())

    @property
    def counts(self) -> list[str]:
        """ "26 ok", "1 critical": how many rules are in each state that one is in, and in ok."""
        others = (state for state in State if state not in (State.OK, State.NOT_APPLICABLE) and self.count(state))
        return [f"{self.count(state)} {state}" for state in (State.OK, *others)]


_SPEEDS = (Standing.SLOW, Standing.BEYOND, Standing.UNKNOWN, Standing.TYPICAL, Standing.FAST, Standing.IDLE)
"""What is told of several engines, the first that one of them has."""


def worst_speed(speeds: Iterable[Expected]) -> Expected | None:
    """The engine that lacks most of its expected speed; else one of which the speed is not known."""
    return min(speeds, key=lambda one: (_SPEEDS.index(one.standing), -(one.missing or 0.0)), default=None)


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """The same rule with the same severity on several engines is told once."""
    groups: dict[tuple[str, Severity], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule, finding.severity), []).append(finding)
    return list(groups.values())
