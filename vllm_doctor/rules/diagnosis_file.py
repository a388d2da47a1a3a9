"""What is no signal, but made of signals: rules/diagnosis.yaml.

The symptoms of which a person complains, what vLLM refuses to start with, what is negligible, what makes an engine
an outlier, how the measured speed is judged, and the gates at which requests can be held up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.parser import ConditionError
from vllm_doctor.model.kinds import Hop, Stage
from vllm_doctor.rules import document
from vllm_doctor.rules.signal import Signal
from vllm_doctor.rules.table import Problems, Table, gathered
from vllm_doctor.text import words

FILE = "diagnosis.yaml"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a person would call slow. It demands a cause: where none is found, the report says so."""

    when: Condition
    says: str
    verdict: str
    """The least verdict of a report in which it holds and no root finding explains it."""
    of_speed: bool = False
    """Only what lengthens a step explains it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """With what vLLM does not start. Its signals are read as a changed command would set them (prediction.py)."""

    when: Condition
    says: str
    source: str
    """Where vLLM checks it: the file of its sources."""


@dataclass(frozen=True, slots=True)
class Negligible:
    """A finding is only worth knowing where its potential gain, a factor, is known to be less, and `when` holds."""

    below: float
    when: Condition


@dataclass(frozen=True, slots=True)
class Outlier:
    """An engine is told apart from its peers where this signal is `factor` times their median, or a part of it, and
    differs from it by `least`."""

    signal: str
    factor: float
    least: float


@dataclass(frozen=True, slots=True)
class Need:
    """Without this signal no speed is judged; what is said then, where `when` holds, if there is one."""

    signal: str
    says: str
    when: Condition | None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What to measure next, if there is a `when`, where it holds; of a missing speed also where that is not known."""

    do: str
    when: Condition | None


@dataclass(frozen=True, slots=True)
class GainLimit:
    """What the physical bound of the speed leaves of a gain that comes from one of these signals (none: from any)."""

    signal: str | None
    """A factor on the present speed; None: no engine's bound limits these gains."""
    gains: tuple[str, ...]
    says: str
    """What bounds the gain then, in a sentence over signals."""


@dataclass(frozen=True, slots=True)
class SpeedRule:
    """How a measured speed is judged: the signals that it is made of, and from which shares on what counts.

    A server is slow above `slow_above`, the high end of what is typical and what its assumptions leave open.
    """

    measured: str
    bound: str
    low: str
    typical: str
    high: str
    slow_above: str
    batch: str
    gpus: str
    load: str
    """The signal that is 0 where nothing ran."""
    least_share: float
    """A finding that explains less of what is missing is no headline."""
    leads: float
    """From this share on a note is the cause, and a warning."""
    beyond_flags: float
    """Below this share of the typical speed no flag is the cause."""
    share_there: float
    """The least share that a finding must explain there."""
    outweighs: float
    """From this share on that is missing without a cause, it comes before requests that queue."""
    limits: tuple[GainLimit, ...]
    assumes: tuple[tuple[str, str], ...]
    """(the signal whose origin is told, the sentence)."""
    needs: tuple[Need, ...]
    measure_next: tuple[Measurement, ...]

    def limit_of(self, gain: str) -> GainLimit | None:
        """What limits the gain that this signal is, if anything does."""
        return next((limit for limit in self.limits if not limit.gains or gain in limit.gains), None)

    @property
    def signals(self) -> tuple[str, ...]:
        """All that is read of a server to judge its speed, and what it leaves of gains."""
        named = (self.measured, self.bound, self.low, self.typical, self.high, self.slow_above)
        of_load = (self.batch, self.gpus, self.load)
        whens = (*(need.when for need in self.needs), *(next_.when for next_ in self.measure_next))
        conditions = [when for when in whens if when is not None]
        return (
            *named,
            *of_load,
            *(name for signal, says in self.assumes for name in (signal, *words.names(says))),
            *(need.signal for need in self.needs),
            *(limit.signal for limit in self.limits if limit.signal is not None),
            *(name for limit in self.limits for name in words.names(limit.says)),
            *(name for condition in conditions for name in condition.names),
        )


@dataclass(frozen=True, slots=True)
class GateRule:
    """A place where requests or steps can be held up, and which rules are about it: those of these ids, and of these
    stages those that no gate names."""

    gate: str
    title: str
    rules: tuple[str, ...]
    stages: tuple[Stage, ...]
    shows: tuple[str, ...]
    """Sentences with what is seen there; one with a signal that is not known is left out."""
    binds: Condition | None
    """It holds them up; None: only its rules tell."""
    measure: tuple[Measurement, ...]

    @property
    def signals(self) -> tuple[str, ...]:
        """All that is read of a server for it, beside what its rules read."""
        conditions = [self.binds, *(one.when for one in self.measure)]
        named = (name for condition in conditions if condition is not None for name in condition.names)
        return (*named, *(name for says in self.shows for name in words.names(says)))


@dataclass(frozen=True, slots=True)
class HopRule:
    """A part of the path of a request: the signal of its time, how it is known, and the rules that blame it."""

    hop: str
    signal: str
    says: str
    by: str
    """How its time is known, in a sentence over signals; "" where it is measured as such. `lacks`: what stands against
    it where it is not known."""
    lacks: str
    rules: tuple[str, ...]
    is_optional: bool
    """Not every gateway or router tells it: where none does, it is no part of the path."""


@dataclass(frozen=True, slots=True)
class PathRule:
    """The path of a request: the signal of the whole time, of how many requests it is the mean, and its hops in order.

    `weight`: the signal by which several sources of a role are weighted. `told`: role -> the signal that is above 0 for
    a server that has it without being told so. `ranks`: the signal that is above 0 for one of several servers that
    share the requests.
    """

    total: str
    requests: str
    weight: tuple[str, ...]
    told: tuple[tuple[str, str], ...]
    ranks: str
    hops: tuple[HopRule, ...]

    @property
    def signals(self) -> tuple[str, ...]:
        """All that is read for it."""
        of_hops = (name for hop in self.hops for name in (hop.signal, *words.names(hop.by), *words.names(hop.lacks)))
        return (self.total, self.requests, *self.weight, *(name for _, name in self.told), self.ranks, *of_hops)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole file."""

    symptoms: tuple[Symptom, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    negligible: Negligible | None = None
    outliers: tuple[Outlier, ...] = ()
    speed: SpeedRule | None = None
    gates: tuple[GateRule, ...] = ()
    path: PathRule | None = None


def load(path: Path, signals: Mapping[str, Signal], problems: Problems | None = None) -> Diagnosis:
    """Read the file; where there is none, nothing is made of the signals. Raises DocumentError with the line."""
    if not path.is_file():
        return Diagnosis()
    with gathered(problems):
        return _read(document.read(path, problems=problems), signals)
    return Diagnosis()


def _read(root: Table, signals: Mapping[str, Signal]) -> Diagnosis:
    root.allow("symptoms", "refusals", "negligible", "outliers", "speed", "gates", "path")
    return Diagnosis(
        tuple(_symptom(entry, signals) for entry in root.tables("symptoms")),
        tuple(_refusal(entry, signals) for entry in root.tables("refusals")),
        _negligible(root.table("negligible"), signals) if "negligible" in root else None,
        tuple(_outlier(entry, signals) for entry in root.tables("outliers")),
        _speed(root.table("speed"), signals) if "speed" in root else None,
        tuple(_gate(entry, signals) for entry in root.tables("gates")),
        _path(root.table("path"), signals) if "path" in root else None,
    )


def _symptom(entry: Table, signals: Mapping[str, Signal]) -> Symptom:
    entry.allow("when", "says", "verdict", "of_speed")
    when = condition_of(entry, "when", signals.__contains__)
    verdict = entry.one_of("verdict", ("unknown", "warning", "critical"))
    return Symptom(when, entry.text("says"), verdict, entry.get("of_speed") is True)


def _refusal(entry: Table, signals: Mapping[str, Signal]) -> Refusal:
    entry.allow("when", "says", "from")
    return Refusal(condition_of(entry, "when", signals.__contains__), entry.text("says"), entry.text("from"))


def _negligible(table: Table, signals: Mapping[str, Signal]) -> Negligible:
    table.allow("below", "when")
    below = table.get("below")
    if not isinstance(below, int | float) or isinstance(below, bool):
        table.fail("'below' must be a number: the least potential gain that is worth a restart", "below")
    return Negligible(float(below), condition_of(table, "when", signals.__contains__))


def _outlier(entry: Table, signals: Mapping[str, Signal]) -> Outlier:
    entry.allow("signal", "factor", "least")
    return Outlier(_signal(entry, "signal", signals), _number(entry, "factor"), _number(entry, "least"))


_SPEED = (
    "measured", "bound", "low", "typical", "high", "slow_above", "batch", "gpus", "load",
    "least_share", "leads", "beyond_flags", "share_there", "outweighs", "limits", "assumes", "needs", "measure_next",
)  # fmt: skip


def _speed(table: Table, signals: Mapping[str, Signal]) -> SpeedRule:
    table.allow(*_SPEED)

    for entry in table.tables("assumes"):
        entry.allow("from", "says")
        _check_sentence(entry, entry.text("says"), "says", signals)
    for entry in table.tables("needs"):
        entry.allow("signal", "says", "when")
    return SpeedRule(
        measured=_signal(table, "measured", signals),
        bound=_signal(table, "bound", signals),
        low=_signal(table, "low", signals),
        typical=_signal(table, "typical", signals),
        high=_signal(table, "high", signals),
        slow_above=_signal(table, "slow_above", signals),
        batch=_signal(table, "batch", signals),
        gpus=_signal(table, "gpus", signals),
        load=_signal(table, "load", signals),
        least_share=_number(table, "least_share"),
        leads=_number(table, "leads"),
        beyond_flags=_number(table, "beyond_flags"),
        share_there=_number(table, "share_there"),
        outweighs=_number(table, "outweighs"),
        limits=tuple(_limit(entry, signals) for entry in table.tables("limits")),
        assumes=tuple((_signal(entry, "from", signals), entry.text("says")) for entry in table.tables("assumes")),
        needs=tuple(
            Need(_signal(entry, "signal", signals), entry.text("says"), _when(entry, signals))
            for entry in table.tables("needs")
        ),
        measure_next=_measurements(table, "measure_next", signals),
    )


def _limit(entry: Table, signals: Mapping[str, Signal]) -> GainLimit:
    entry.allow("limit", "gains", "says")
    gains = entry.texts("gains")
    for name in gains:
        if name not in signals:
            entry.mistake(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", "gains")
    if "limit" not in entry:
        return GainLimit(None, gains, "")
    says = entry.text("says")
    _check_sentence(entry, says, "says", signals)
    return GainLimit(_signal(entry, "limit", signals), gains, says)


def _gate(entry: Table, signals: Mapping[str, Signal]) -> GateRule:
    entry.allow("gate", "title", "rules", "stages", "shows", "binds", "measure")
    for says in entry.texts("shows"):
        _check_sentence(entry, says, "shows", signals)
    for stage in entry.texts("stages"):
        if stage not in list(Stage):
            entry.mistake(f"{stage!r} is no stage; one of: {', '.join(Stage)}", "stages")
    return GateRule(
        gate=entry.text("gate"),
        title=entry.text("title"),
        rules=entry.texts("rules"),
        stages=tuple(Stage(stage) for stage in entry.texts("stages") if stage in list(Stage)),
        shows=entry.texts("shows"),
        binds=condition_of(entry, "binds", signals.__contains__) if "binds" in entry else None,
        measure=_measurements(entry, "measure", signals),
    )


def _path(table: Table, signals: Mapping[str, Signal]) -> PathRule:
    table.allow("total", "requests", "weight", "told", "ranks", "hops")
    hops = []
    for entry in table.tables("hops"):
        entry.allow("hop", "signal", "says", "by", "rules", "optional", "lacks")
        by, lacks = (entry.text(key) if key in entry else "" for key in ("by", "lacks"))
        _check_sentence(entry, by, "by", signals)
        _check_sentence(entry, lacks, "lacks", signals)
        hops.append(
            HopRule(
                entry.text("hop"),
                _signal(entry, "signal", signals),
                entry.text("says"),
                by,
                lacks,
                entry.texts("rules"),
                entry.get("optional") is True,
            )
        )
    told = table.table("told")
    told.allow(*Hop)
    for name in (weights := table.texts("weight")):
        if name not in signals:
            table.mistake(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", "weight")
    return PathRule(
        _signal(table, "total", signals),
        _signal(table, "requests", signals),
        weights,
        tuple((role, _signal(told, role, signals)) for role in told),
        _signal(table, "ranks", signals),
        tuple(hops),
    )


def _measurements(table: Table, key: str, signals: Mapping[str, Signal]) -> tuple[Measurement, ...]:
    for entry in table.tables(key):
        entry.allow("do", "when")
    return tuple(Measurement(entry.text("do"), _when(entry, signals)) for entry in table.tables(key))


def _when(entry: Table, signals: Mapping[str, Signal]) -> Condition | None:
    return condition_of(entry, "when", signals.__contains__) if "when" in entry else None


def _check_sentence(entry: Table, says: str, key: str, signals: Mapping[str, Signal]) -> None:
    for name in words.names(says):
        if name not in signals:
            entry.mistake(f"{{{name}}} is not a signal; the list: vllm-doctor rules --signals", key)


def _signal(table: Table, key: str, signals: Mapping[str, Signal]) -> str:
    name = table.text(key)
    if name not in signals:
        table.fail(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", key)
    return name


def _number(table: Table, key: str) -> float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        table.fail(f"{key!r} must be a number above 0", key)
    return float(value)


def condition_of(table: Table, key: str, is_signal: Callable[[str], bool]) -> Condition:
    """The condition under a key; every name in it must be a signal. Raises DocumentError."""
    try:
        condition = Condition(table.text(key))
    except ConditionError as error:
        table.fail(str(error), key)
    for name in condition.names:
        if not is_signal(name):
            table.mistake(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", key)
    return condition
