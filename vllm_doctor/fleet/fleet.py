"""A fleet: every engine that a Prometheus knows, judged by the same rules, worst first, beside the others of its model.

Rules are decided for all engines together (columns.py); an engine of which one fires is examined alone, as a server is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from statistics import median
from urllib.parse import urlencode

from vllm_doctor.expr.columns import values_of
from vllm_doctor.model import restarts
from vllm_doctor.model.kinds import GRAVE, SEVERITIES, Role, SourceKind, Stage, State
from vllm_doctor.model.reading import Column, Known, Reading, Subject, Unknown, Value, Values
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Patient, Problem, Report, SourceSeen, Verdict, worst
from vllm_doctor.model.snapshot import Evaluated, Snapshot
from vllm_doctor.model.speed import Pace, Standing
from vllm_doctor.model.window import Window
from vllm_doctor.prometheus.api import ORIGIN
from vllm_doctor.prometheus.survey import Survey
from vllm_doctor.rules import diagnose, speed
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.columns import Columns
from vllm_doctor.rules.diagnose import Diagnosis, Reader
from vllm_doctor.rules.diagnosis_file import SpeedRule
from vllm_doctor.rules.rule import Outcome, Rule
from vllm_doctor.rules.signal import MEASURED
from vllm_doctor.rules.verdict import of_the_well
from vllm_doctor.text import redact, words

_PEERS = 4
"""Engines of a model from which on a median says something."""
_DOWN = "The server does not answer its Prometheus (up is 0)"
_NAMES = (("pod",), ("instance",), ("namespace", "pod"), ("job", "instance"), ("namespace", "pod", "instance"))
"""The labels that name a server to a person, the first that tell all apart."""


@dataclass(frozen=True, slots=True)
class Outlying:
    """A signal by which an engine stands out of its model."""

    signal: str
    value: float
    median: float


_OF = {
    "generation_tokens_per_second": ("tokens/s", ""),
    "requests_running": ("running", "requests"),
    "requests_waiting": ("waiting", "requests"),
    "kv_cache_usage_usual": ("KV in use", "share"),
    "ttft_p50": ("TTFT", "s"),
    "itl_mean": ("inter-token", "s"),
    "draft_acceptance": ("acceptance", "share"),
}
"""Signals by which engines stand out, in a word, and their units."""


def beside(outlying: Outlying) -> str:
    """In words: "running 117 requests, p50 20 requests (× 5.85)"."""
    factor = f" ({words.times(outlying.value / outlying.median)})" if outlying.median else ""
    what, unit = _OF.get(outlying.signal, (outlying.signal, ""))
    return f"{what} {words.number(outlying.value, unit)}, p50 {words.number(outlying.median, unit)}{factor}"


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, judged. `place`: in the survey; None: its server does not answer.

    `rules`: the causes that were found, as (id, severity), the worst first.
    """

    place: int | None
    name: str
    subject: Mapping[str, str]
    verdict: Verdict
    headline: str
    rules: tuple[tuple[str, str], ...] = ()
    outlying: tuple[Outlying, ...] = ()
    missing: float | None = None
    """Share of the speed that is expected; None: not judged, or as expected."""

    @property
    def model(self) -> str:
        return self.subject.get("model_name", "")


@dataclass(frozen=True)
class Model:
    """The engines of a model. `typical`: the median of a signal over them, where it is known of one."""

    name: str
    engines: int
    verdicts: Mapping[str, int]
    rules: Mapping[str, int]
    """On how many engines each critical or warning rule was found, the worst first."""
    tokens_per_second: float | None
    typical: Mapping[str, Known]
    outlying: tuple[Engine, ...]


@dataclass(frozen=True)
class FleetReport:
    """What was found of a fleet: the engines worst first."""

    at: datetime
    target: str
    window_s: float
    verdict: Verdict
    engines: tuple[Engine, ...]
    models: tuple[Model, ...]
    notes: tuple[str, ...]
    queries: int
    asked_s: float
    """Seconds that the Prometheus took."""
    labels: tuple[str, ...]
    """What names a server."""
    judged_s: float = 0.0
    """All other seconds."""
    fleet: Fleet | None = field(default=None, compare=False)

    def count(self, verdict: Verdict) -> int:
        return sum(engine.verdict is verdict for engine in self.engines)

    def report(self, engine: Engine) -> Report:
        """The whole report on one engine, as it may leave."""
        assert self.fleet is not None
        if engine.place is None:
            return self.fleet.unanswered(engine, self)
        return self.fleet.report(engine.place, self)

    def source(self, engine: Engine, base: str | None = None) -> str:
        """The SOURCE that opens the engine's server: prom+http://host:9090/?pod=x. `base`: not as it may be shown."""
        asked = {label: engine.subject[label] for label in self.labels if label in engine.subject}
        return f"prom+{base or self.target}/?{urlencode(asked)}"

    def readings(self, engine: Engine, signals: Iterable[str]) -> dict[str, Reading]:
        """Signals of one engine, by their names; nothing of one whose server does not answer."""
        assert self.fleet is not None
        return self.fleet.readings(engine.place, signals) if engine.place is not None else {}


class Fleet:
    """The engines of a survey under these rules. Pure. `wishes`: the user's goal and targets."""

    def __init__(
        self, survey: Survey, rules: Sequence[Rule], catalogue: Catalogue, wishes: Mapping[str, Value]
    ) -> None:
        self._survey, self._rules, self._catalogue = _clean(survey), rules, catalogue
        self._subjects = [dict(subject) for subject in survey.engines]
        facts: dict[str, Reading] = {name: Known(value, origin="user") for name, value in wishes.items()}
        facts["stats_published"] = Known(True, origin=ORIGIN)
        facts[restarts.WINDOW] = Known(survey.window_s, origin="")
        # What is the same for all: the facts, and why all else is not known.
        self._common = catalogue.snapshot(Window(), facts, evaluated=Evaluated((), {}))
        self._columns = Columns(len(survey.engines), catalogue, self._column)
        self._ordinary = (Outcome(State.OK), Outcome(State.NOT_APPLICABLE), Outcome(State.UNKNOWN))

    def _column(self, name: str) -> Column:
        if name in self._survey.columns:
            return self._survey.columns[name]
        if self._catalogue.signals[name].way in MEASURED:
            return Unknown(Reason.ABSENT)
        return self._common.read(name, ())[1]

    @cached_property
    def _states(self) -> list[list[State]]:
        """By rule, each engine's state."""
        none = [State.NOT_APPLICABLE] * len(self._survey.engines)  # an engine alone is no path
        return [none if rule.is_of_path else self._columns.states(rule) for rule in self._rules]

    @cached_property
    def _alike(self) -> Mapping[str, Outcome]:
        """The rules that are unknown of all engines for the same reasons, as nothing they ask differs."""
        if min(self._survey.scrapes) < 2:
            return {}  # of some engines rates lack a second scrape, and of others not
        common = _Alone(self._survey, 0, self._catalogue, self._common)
        found = {}
        for rule in self._rules:
            if rule.is_of_path:
                continue
            asked = self._catalogue.behind(rule.signals())
            if all(isinstance(self._column(n), Known | Unknown) for n in asked if self._is_base(n)):
                found[rule.id] = rule.judge(lambda name: common.read(name, self._survey.engines[0])[1])
        return {id: outcome for id, outcome in found.items() if outcome.state is State.UNKNOWN}

    def _is_base(self, name: str) -> bool:
        return self._catalogue.signals[name].formula is None

    # ---- one engine -------------------------------------------------------------------------------------------------

    def diagnosis(self, place: int, because: bool = True) -> Diagnosis:
        """One engine's, as if it were examined alone. Without `because` it does not say why a rule is unknown."""
        snapshot = _Alone(self._survey, place, self._catalogue, self._common)

        def judge(snapshot: Snapshot) -> Iterator[tuple[Rule, Outcome, Reader]]:
            ok, inapplicable, unknown = self._ordinary
            reader = Reader(snapshot, self._survey.engines[place], self._catalogue)
            for rule, states in zip(self._rules, self._states, strict=True):
                state = states[place]
                if state is State.OK:
                    yield rule, ok, reader
                elif state is State.NOT_APPLICABLE:
                    yield rule, inapplicable, reader
                elif state is State.UNKNOWN and not because:
                    yield rule, unknown, reader
                elif state is State.UNKNOWN and rule.id in self._alike:
                    yield rule, self._alike[rule.id], reader
                else:
                    yield from diagnose.outcomes([rule], self._catalogue, snapshot)

        return diagnose.diagnose(self._rules, self._catalogue, [snapshot], judge=judge)

    def report(self, place: int, of: FleetReport) -> Report:
        found = self.diagnosis(place)
        subject = dict(self._survey.engines[place])
        return Report(
            at=of.at,
            verdict=found.verdict,
            headline=found.headline,
            patient=Patient(None, subject.get("model_name"), 1),
            sources=(SourceSeen(SourceKind.PROMETHEUS, of.target, of.window_s, self._survey.scrapes[place], None),),
            findings=found.findings,
            unknown=found.unknown,
            vitals=found.vitals,
            engines=found.engines,
            targets=found.targets,
            states=found.states,
            speeds=found.speeds,
        )

    def readings(self, place: int, signals: Iterable[str]) -> dict[str, Reading]:
        return {name: self._survey.read(name, place)[1] for name in signals}

    def unanswered(self, engine: Engine, of: FleetReport) -> Report:
        problem = Problem("unreachable", engine.headline)
        seen = SourceSeen(SourceKind.PROMETHEUS, of.target, of.window_s, 0, problem)
        nobody = Patient(None, _text(engine.model) or None, None)
        return Report(of.at, engine.verdict, engine.headline, nobody, (seen,), (), (), (), (), (), {}, problem)

    # ---- all of them ------------------------------------------------------------------------------------------------

    def engines(self) -> list[Engine]:
        """All engines, worst first."""
        outlying = self._outlying()
        rows: list[tuple[tuple[float, float, float], Engine]] = []
        for place, named in enumerate(self._subjects):
            name = self._name(named)
            if place in self._suspects:
                found = self.diagnosis(place, because=False)
                gain = max((f.gain.at_most for f in found.findings if f.gain), default=0.0)
                causes = [f for f in found.findings if f.is_grave]
                stage = min((f.stage.rank for f in causes), default=len(Stage))
                rules = tuple(dict.fromkeys((f.rule, f.severity) for f in causes))
                lost = next((one.missing for one in found.speeds if one.standing is Standing.SLOW), None)
                aside = outlying.get(place, ())
                engine = Engine(place, name, named, found.verdict, found.headline, rules, aside, lost)
                rows.append(((-(lost or 0.0), stage, -gain), engine))
            else:
                engine = Engine(place, name, named, Verdict.OK, self._aside(place), (), outlying.get(place, ()))
                rows.append(((0.0, len(Stage), 0.0), engine))
        for labels_of in self._survey.down:
            named = dict(labels_of)
            rows.append(((-2.0, -1, 0.0), Engine(None, self._name(named), named, Verdict.UNKNOWN, _DOWN)))
        order = [Verdict.CRITICAL, Verdict.WARNING, Verdict.UNKNOWN, Verdict.OK]
        rows.sort(key=lambda row: (order.index(row[1].verdict), row[0], row[1].name))
        return [engine for _, engine in rows]

    @cached_property
    def _suspects(self) -> frozenset[int]:
        """Engines that may not be ok: a rule fires that is more than worth knowing, a person would complain, or a vital
        sign is missing."""
        found: set[int] = set()
        for rule, states in zip(self._rules, self._states, strict=True):
            worth = SEVERITIES if rule.role is Role.BLIND else GRAVE
            found.update(place for place, state in enumerate(states) if state.severity in worth)
        for symptom in self._catalogue.symptoms:
            holds = self._columns.holds(symptom.when)
            each = holds if isinstance(holds, list) else [holds] * len(self._survey.engines)
            found.update(place for place, truth in enumerate(each) if truth)
        for signal in self._catalogue.signals.values():
            if signal.needed:
                column = self._columns.read(signal.name)
                values = values_of(column, len(self._survey.engines))
                found.update(place for place, value in enumerate(values) if value is None)
        return frozenset(found)

    @cached_property
    def _worth_knowing(self) -> list[tuple[Rule, list[State]]]:
        """The rules that make a headline of an engine that is well, with their states, where one does."""
        return [
            (rule, states)
            for rule, states in zip(self._rules, self._states, strict=True)
            if (rule.stage in diagnose.HEADLINES or rule.role is Role.SYMPTOM) and State.INFO in states
        ]

    def _aside(self, place: int) -> str:
        """What is worth knowing of an engine that is well."""
        told = [rule for rule, states in self._worth_knowing if states[place] is State.INFO]
        first = min(told, key=lambda rule: (rule.role is not Role.NOT_SERVER, rule.stage.rank), default=None)
        standing, why = self._standings[place] if self._standings else (None, "")
        return of_the_well(first.title if first else "", "", first.role if first else None, standing, why)

    @cached_property
    def _standings(self) -> list[tuple[Standing, str]]:
        """Where each engine's speed stands, and why it is not known; nothing where no speed is judged."""
        rule, size = self._catalogue.speed, len(self._survey.engines)
        if rule is None:
            return []

        def values(name: str) -> list[float | None]:
            column = values_of(self._columns.read(name), size)
            least = -1.0 if name == rule.load else 0.0
            return [value if isinstance(value, float) and value > least else None for value in column]

        named = (rule.measured, rule.bound, rule.low, rule.typical, rule.high, rule.slow_above, rule.load)
        rows = zip(*map(values, named), strict=True)
        standings = [speed.standing_of(Pace(*row[:5]), *row[5:]) for row in rows]
        return list(zip(standings, self._lacks(rule), strict=True))

    def _lacks(self, rule: SpeedRule) -> list[str]:
        """What is not known first of each engine, so that its speed cannot be judged."""
        size = len(self._survey.engines)
        first = [""] * size
        for need in rule.needs:
            values = values_of(self._columns.read(need.signal), size)
            holds = self._columns.holds(need.when) if need.when is not None else True
            each = holds if isinstance(holds, list) else [holds] * size
            for place, (value, truth) in enumerate(zip(values, each, strict=True)):
                if value is None and truth and not first[place]:
                    first[place] = need.says
        return first

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The fewest labels that name a server of these."""
        identity = self._survey.identity
        subjects = self._subjects
        servers = {tuple(s.get(label, "") for label in identity) for s in subjects}
        for names in _NAMES:
            if not set(names) <= set(identity):
                continue
            if len({tuple(s.get(label, "") for label in names) for s in subjects}) == len(servers):
                return names
        return identity

    @cached_property
    def _engines_of(self) -> Counter[tuple[str, ...]]:
        """How many engines each server has."""
        return Counter(tuple(s.get(label, "") for label in self.labels) for s in self._subjects)

    def _name(self, subject: Mapping[str, str]) -> str:
        """What a person calls an engine: its server, and its number there where there are several."""
        parts = [subject[label] for label in self.labels if subject.get(label)]
        if self._engines_of[tuple(subject.get(label, "") for label in self.labels)] > 1:
            parts += [f"engine {subject['engine']}" if "engine" in subject else subject.get("model_name", "")]
        return _text(" ".join(parts) or ", ".join(subject.values()))

    def _by_model(self) -> dict[str, list[int]]:
        models: dict[str, list[int]] = {}
        for place, subject in enumerate(self._survey.engines):
            models.setdefault(dict(subject).get("model_name", ""), []).append(place)
        return models

    def _outlying(self) -> dict[int, tuple[Outlying, ...]]:
        """The engines that stand out of their model, and by what."""
        found: dict[int, list[Outlying]] = {}
        for wanted in self._catalogue.outliers:
            values = values_of(self._columns.read(wanted.signal), len(self._survey.engines))
            for places in self._by_model().values():
                known = [(place, v) for place in places if isinstance(v := values[place], float)]
                if len(known) < _PEERS:
                    continue
                middle = median(value for _, value in known)
                for place, value in known:
                    low, high = sorted((value, middle))
                    if high - low >= wanted.least and high >= wanted.factor * low:
                        found.setdefault(place, []).append(Outlying(wanted.signal, value, middle))
        return {place: tuple(outlying) for place, outlying in found.items()}

    def models(self, engines: Sequence[Engine]) -> list[Model]:
        """The models, in the order of their worst engine."""
        by_name: dict[str, list[Engine]] = {}
        for engine in engines:
            by_name.setdefault(engine.model, []).append(engine)
        made = values_of(self._columns.read("generation_tokens_per_second"), len(self._survey.engines))
        found = []
        for name, of in by_name.items():
            rules = Counter(id for engine in of for id, _ in engine.rules[:1])
            tokens = [v for e in of if e.place is not None and isinstance(v := made[e.place], float)]
            found.append(
                Model(
                    _text(name),
                    len(of),
                    dict(Counter(engine.verdict.value for engine in of)),
                    dict(rules),
                    sum(tokens) if tokens else None,
                    self._typical([engine.place for engine in of if engine.place is not None]),
                    tuple(engine for engine in of if engine.outlying),
                )
            )
        return found

    def _typical(self, places: Sequence[int]) -> dict[str, Known]:
        found = {}
        for name in ("ttft_p99", "itl_p99", "kv_cache_usage", "requests_running", "requests_waiting"):
            known = [r for place in places if isinstance(r := self._survey.read(name, place)[1], Known)]
            known.sort(key=lambda reading: float(reading.value))
            if known:
                found[name] = known[(len(known) - 1) // 2]
        return found


@dataclass(frozen=True)
class _Alone(Snapshot):
    """The snapshot of one engine, whose formulas are computed when they are asked for."""

    def __init__(self, survey: Survey, place: int, catalogue: Catalogue, common: Snapshot) -> None:
        super().__init__((survey.engines[place],), {})
        object.__setattr__(self, "_of", (survey, place, catalogue, common, {}))

    def read(self, name: str, subject: Subject) -> tuple[Subject, Reading]:
        survey, place, catalogue, common, known = self._of  # type: ignore[attr-defined]
        if name not in known:
            signal = catalogue.signals[name]
            if signal.formula is not None:
                keys: set[tuple[str, str]] = set()

                def part(of: str) -> Reading:
                    key, reading = self.read(of, subject)
                    keys.update(key)
                    return reading

                result = signal.formula.evaluate(part)
                known[name] = tuple(sorted(keys)) if isinstance(result, Known) else subject, result
            else:
                is_told = signal.way in MEASURED or name in survey.columns
                known[name] = survey.read(name, place) if is_told else common.read(name, ())
        found: tuple[Subject, Reading] = known[name]
        return found


def judge(
    survey: Survey,
    rules: Sequence[Rule],
    catalogue: Catalogue,
    wishes: Mapping[str, Value],
    at: datetime,
    target: str,
) -> FleetReport:
    """The report on a fleet. Pure."""
    fleet = Fleet(survey, rules, catalogue, wishes)
    engines = fleet.engines()
    models = fleet.models(engines)
    verdict = worst(*(engine.verdict for engine in engines), Verdict.UNKNOWN if survey.is_partial else Verdict.OK)
    return FleetReport(
        at=at,
        target=target,
        window_s=survey.window_s,
        verdict=verdict,
        engines=tuple(engines),
        models=tuple(models),
        notes=tuple(_text(note) for note in survey.notes),
        queries=survey.queries,
        asked_s=survey.seconds,
        labels=fleet.labels,
        fleet=fleet,
    )


def _clean(survey: Survey) -> Survey:
    """The survey with no text that a terminal would obey, and no secret: so every report on it may leave."""
    engines = tuple(tuple((label, _text(value)) for label, value in subject) for subject in survey.engines)
    columns = {
        name: Values([_text(value) if isinstance(value, str) else value for value in column.each], True)
        if isinstance(column, Values) and column.has_text
        else column
        for name, column in survey.columns.items()
    }
    return replace(survey, engines=engines, columns=columns)


def _text(value: str) -> str:
    return redact.text(value, Counter())
