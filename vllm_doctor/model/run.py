"""One run of a server, from start to end, as a log tells it: facts, and the statistics as slow scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from vllm_doctor.model import drift
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.restarts import WINDOW
from vllm_doctor.model.window import Labels, Sample, Window

Series = tuple[str, Labels]
"""A metric and its labels, without those that name the engine."""

RUNNING: Series = ("vllm:num_requests_running", ())
WAITING: Series = ("vllm:num_requests_waiting", ())
GENERATED: Series = ("vllm:generation_tokens_total", ())
PROMPTS: Series = ("vllm:prompt_tokens_total", ())
KV_CACHE: Series = ("vllm:kv_cache_usage_perc", ())
_MOST_POINTS = 200
_LEAST_GAPS = 4
"""Fewer times between rounds tell no beat."""
_CLOCK = 1.5
"""Seconds: what a clock of whole seconds, and a timer that drifts, are off by."""


@dataclass(frozen=True, slots=True)
class Round:
    """The statistics that the engines of one server printed at about the same time; counters since the run began."""

    at: float
    engines: Mapping[str, Mapping[Series, float]]

    def total(self, series: Series) -> float:
        """The sum over the engines."""
        return sum([values.get(series, 0.0) for values in self.engines.values()])

    def most(self, series: Series) -> float:
        """The largest of the engines' values."""
        return max([values.get(series, 0.0) for values in self.engines.values()], default=0.0)


@dataclass(frozen=True, slots=True)
class Death:
    """`at` what time and line the server died, in which process, and by what (None: the log shows no exception).

    `stage`: of its start, or that it served; `part`: of the server; None where nothing tells.
    """

    at: float | None
    line: int
    process: str
    cause: str | None
    serving: bool
    stage: str | None = None
    part: str | None = None


@dataclass(frozen=True)
class Run:
    """Times are POSIX seconds, None where the log holds none; `interval` is seconds between two rounds.

    `began`: the log holds its start; else it begins in the middle of a run. `up`: it served.
    """

    first_at: float | None
    last_at: float | None
    began: bool
    up: bool
    stopped: bool
    death: Death | None
    facts: Mapping[str, Reading]
    rounds: tuple[Round, ...] = ()
    interval: float = 10.0
    model: str | None = None
    command: tuple[str, ...] = ()
    last_start: str | None = None
    """The last line of a start that the log holds, by its name in the table."""
    when: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    """When each line was printed, and how often at a time: what is not of the start, by its name in the table."""
    stage: str | None = None
    """Where in its start the last line leaves it that tells one."""
    went_on_at: float | None = None
    """The time of the last line of its start, or of its statistics."""
    ended_by: str | None = None
    """Who stopped it, where the log says that."""
    made: bool = False
    """The engine was up: one that a program has embedded serves nobody, and is complete then."""

    @property
    def is_stopped_early(self) -> bool:
        """Whether it was stopped from outside while it started."""
        return self.stopped and self._is_half_started

    @property
    def is_open_start(self) -> bool:
        """Whether it was starting, and nothing says how that ended."""
        return not self.stopped and self.death is None and self._is_half_started

    @property
    def _is_half_started(self) -> bool:
        return self.began and not (self.up or self.made) and self.stage not in (None, "API server", "serving")

    @property
    def hung(self) -> float:
        """Seconds up to the end of the log in which requests ran, and nothing that a round measures moved.

        A prompt that is computed chunk by chunk moves the KV cache; one that waits for the engine alone does not. 0
        where it was stopped or died: then that is its end.
        """
        if self.death is not None or self.stopped:
            return 0.0
        still = 0.0
        for before, here in pairwise(self.rounds[-_MOST_POINTS:]):
            moved = any(before.total(series) != here.total(series) for series in (GENERATED, PROMPTS, KV_CACHE))
            still = 0.0 if moved or not here.total(RUNNING) else still + here.at - before.at
        return still

    @property
    def last_load(self) -> tuple[float, float] | None:
        """The requests that ran or waited by the last statistics, and the seconds from there to the end of the log.
        None where that was too long before to tell of the end, or no time is known."""
        if not self.rounds or self.last_at is None:
            return None
        last = self.rounds[-1]
        before = self.last_at - last.at
        if not 0 <= before < 2 * self.interval:
            return None
        return last.total(RUNNING) + last.total(WAITING), before

    def window(self, first: int, last: int) -> Window:
        """The rounds from `first` to before `last` as scrapes, at most 200 of them.

        The counters of the round before come first: what a line tells of its interval began there.
        """
        window = Window()
        window.origin = "log"
        before = self.rounds[first - 1] if first else Round(0.0, {})
        began = self.rounds[first].at - self.interval
        if before.at < began - 1.5 * self.interval:  # a silence in between, or nothing
            before = replace(before, at=began)
        here = self.rounds[first:last]
        step = -(-len(here) // _MOST_POINTS)
        window.add(before.at, self._counters(before, here[0]))
        for round in (*here[:-1][::step], here[-1]):
            window.add(round.at, self._samples(round))
        return window

    @property
    def largest_request(self) -> float | None:
        """The share of the KV cache that one request held, at least: of all rounds the largest share of an engine over
        the requests that ran on it. None where the log tells none."""
        shares = (
            values.get(KV_CACHE, 0.0) / values[RUNNING]
            for round in self.rounds
            for values in round.engines.values()
            if values.get(RUNNING, 0.0) >= 1
        )
        return max(shares, default=None)

    @property
    def fastest_decode(self) -> tuple[float, float] | None:
        """The least time between two tokens of a request while the same requests ran and no prompt was computed, and
        how many they were. None where no two rounds were like that."""
        best = min(self._decodes, key=lambda one: one[0], default=None)
        return None if best is None else (best[0], best[1].total(RUNNING))

    @property
    def decode_drift(self) -> dict[str, Reading]:
        """How the same load went early and late in the run (drift.facts): only rounds without a prompt are compared.

        Of several engines nothing: a round tells their sum.
        """
        moments = (
            drift.Moment(here.at, seconds, here.total(RUNNING), here.most(KV_CACHE))
            for seconds, here in self._decodes
            if len(here.engines) == 1
        )
        return drift.facts(moments, "log")

    @cached_property
    def _decodes(self) -> tuple[tuple[float, Round], ...]:
        """The time between two tokens of a request, of two rounds in which the same requests ran and no prompt was
        computed; and the later round."""
        return tuple(
            (running * (here.at - before.at) / tokens, here)
            for before, here in pairwise(self.rounds)
            if here.at - before.at < 1.5 * self.interval
            and 0 < (running := before.total(RUNNING)) == here.total(RUNNING)
            and before.total(PROMPTS) == here.total(PROMPTS)
            and (tokens := here.total(GENERATED) - before.total(GENERATED)) > 0
        )

    def lateness(self, first: int, last: int) -> dict[str, Reading]:
        """Of the rounds from `first` to before `last` between which requests ran: the share that came late
        (stats_late_share), and the longest time between two (stats_gap).

        A timer prints them. Where lines are missing the next one still comes at its beat; where what prints them stood
        still, it does not.
        """
        here = self.rounds[first:last]
        gaps = [b.at - a.at for a, b in pairwise(here) if a.total(RUNNING) and b.total(RUNNING)]
        if len(gaps) < _LEAST_GAPS:
            return {}
        beat = min(gaps)
        late = [gap for gap in gaps if gap > 1.5 * beat and abs(gap - beat * round(gap / beat)) > _CLOCK]
        found = {"stats_late_share": len(late) / len(gaps), "stats_gap": max(gaps)}
        return {name: Known(value, origin="log") for name, value in found.items()}

    def facts_between(self, first: int, last: int) -> Mapping[str, Reading]:
        """The facts, and beside each count of a line (log:LINE) that of the time from round `first` to before `last`
        (log:LINE@here); how long that is; and whether its statistics came late (lateness)."""
        began, ended = self.rounds[first].at - self.interval, self.rounds[last - 1].at
        here = {
            name.removesuffix("@serving"): sum(
                times for at, times in self.when.get(name[4:-8], ()) if began < at <= ended
            )
            for name in self.facts
            if name.startswith("log:") and name.endswith("@serving")
        }
        counts = {f"{name}@here": Known(float(count), origin="log") for name, count in here.items()}
        watched = {WINDOW: Known(ended - began, origin="log")}
        return {**self.facts, **counts, **watched, **self.lateness(first, last)}

    def shifted(self, seconds: float) -> Run:
        """The same run at another time."""
        if not seconds:
            return self
        death = self.death
        return replace(
            self,
            first_at=None if self.first_at is None else self.first_at + seconds,
            last_at=None if self.last_at is None else self.last_at + seconds,
            death=replace(death, at=death.at + seconds) if death is not None and death.at is not None else death,
            rounds=tuple(replace(round, at=round.at + seconds) for round in self.rounds),
            when={id: tuple((at + seconds, times) for at, times in seen) for id, seen in self.when.items()},
        )

    def _samples(self, round: Round) -> list[Sample]:
        return [
            Sample(metric, self._labels(engine, labels), value)
            for engine, values in round.engines.items()
            for (metric, labels), value in values.items()
        ]

    def _counters(self, before: Round, after: Round) -> list[Sample]:
        """The counters of a round, 0 where an engine had not yet printed any."""
        return [
            Sample(metric, self._labels(engine, labels), before.engines.get(engine, {}).get((metric, labels), 0.0))
            for engine, values in after.engines.items()
            for metric, labels in values
            if metric.endswith("_total")
        ]

    def _labels(self, engine: str, labels: Labels) -> Labels:
        return tuple(sorted((("engine", engine), *((("model_name", self.model),) if self.model else ()), *labels)))
