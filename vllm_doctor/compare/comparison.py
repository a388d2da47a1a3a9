"""Did it get better? Two results, before and after, measure by measure. Pure.

PASS needs the same load, a measure that decides (measures.yaml) better beyond the spread, and none of its kind worse.
The statistics are simple, and stated: a difference counts where it is at least `LEAST_CHANGE`, and where Welch's t of
the samples (parts of the time, or whole runs; at least `LEAST_SAMPLES` in each) says that chance alone would make it
less than once in 100 times, were they independent. Where only a least and a most are known, these ranges must not
overlap; one run without known spread is taken as ± `ASSUMED`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vllm_doctor.compare import measure
from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Measure
from vllm_doctor.text.words import number, plain, times

LEAST_SAMPLES = measure.LEAST_PARTS
LEAST_CHANGE = 0.10
"""A smaller difference is not told apart from one run to another: only repeated runs could."""
_LENGTHS = ("prompt_tokens", "output_tokens")
ASSUMED = 0.15
"""The spread from run to run that is assumed of a single run: what the lab's server had."""
SAME_LOAD = 0.10
LEAST_SECONDS = 10.0
LEAST_REQUESTS = 10
# Student's t at 0.995, of 3 to 30 degrees of freedom: a table of any textbook.
_T = (
    5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878,
    2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750,
)  # fmt: skip
_FEW_REQUESTS = 50
"""A mean of the lengths of fewer is not known within `SAME_LOAD`, where they vary as those of chats do."""
_GIVEN_UP = 0.01
_OTHER_GOAL = {
    "throughput": "which of them matters is yours to say; --goal throughput decides by tokens and requests per second",
    "latency": "which of them matters is yours to say; --goal latency decides by latencies",
}
_GRAVE = "critical"
_DIFFERENTLY = "one was measured by {} and the other by {}, which count differently: compare two of a kind"


class Outcome(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"

    @property
    def exit_code(self) -> int:
        return _EXIT_CODES[self]


_EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 2, Outcome.INCONCLUSIVE: 3}


@dataclass(frozen=True)
class Advice:
    """A change that the doctor advised: a flag, or a variable; None: to be taken out. `first`: its first choice."""

    name: str
    now: Value | None
    rule: str
    first: bool = True


@dataclass(frozen=True)
class Result:
    """What was measured before, or after.

    `kind`: report, recording, server, log, bench, guidellm; `seen_by`: "server", or the client's program.

    `flags`: those of its command line, None where that was not seen. `found`: its main findings, rule -> severity.
    `asked`: the load that a benchmark was told to make, each by its name; None: not limited. `lacks`: why it is not
    enough to conclude anything from, in clauses.
    """

    name: str
    kind: str
    measures: Mapping[str, Measure]
    seconds: float | None = None
    model: str | None = None
    vllm: str | None = None
    hardware: str | None = None
    flags: Mapping[str, Value] | None = None
    advice: tuple[Advice, ...] = ()
    found: Mapping[str, str] = field(default_factory=dict)
    verdict: str | None = None
    asked: Mapping[str, Value | None] | None = None
    lacks: tuple[str, ...] = ()
    bench: Result | None = None
    """Of a recording: the result of the benchmark that ran meanwhile."""
    seen_by: str = "server"
    at: str | None = None
    """When it was examined, as reports write it: texts that sort by time."""

    @property
    def by_client(self) -> Result | None:
        """With the figures of its benchmark, and the server's own beside them; None: there was none."""
        if self.bench is None:
            return self if self.seen_by != "server" else None
        return replace(
            self,
            measures={**self.measures, **self.bench.measures},
            seconds=self.bench.seconds,
            asked=self.bench.asked,
            lacks=(*self.lacks, *self.bench.lacks),
            seen_by=self.bench.seen_by,
            bench=None,
        )


@dataclass(frozen=True)
class Row:
    """One measure, before and after; `word`: better, worse, the same, changed, or cannot tell."""

    name: str
    says: str
    unit: str
    before: Measure | None
    after: Measure | None
    word: str
    factor: float | None
    decides: str


@dataclass(frozen=True)
class LoadRow:
    """What the clients asked for; `same`: None where it is not known."""

    name: str
    says: str
    unit: str
    before: Measure | Value | None
    after: Measure | Value | None
    same: bool | None


@dataclass(frozen=True)
class Difference:
    """A flag that changed; `advised`: yes, another value, or no; `rule`: whose advice it was."""

    name: str
    was: Value | None
    now: Value | None
    advised: str
    rule: str | None


@dataclass(frozen=True)
class Comparison:
    """`reasons`: why it is inconclusive. `same_load`: None where it cannot be told."""

    outcome: Outcome
    headline: str
    reasons: tuple[str, ...]
    before: Result
    after: Result
    goal: str
    rows: tuple[Row, ...]
    load: tuple[LoadRow, ...]
    same_load: bool | None
    load_says: str
    changes: tuple[Difference, ...] | None
    """None: one of the two command lines was not seen."""
    not_done: tuple[Advice, ...]
    gone: tuple[str, ...]
    """Findings before that are not there after; `new`: the reverse."""
    stayed: tuple[str, ...]
    new: tuple[str, ...]
    notes: tuple[str, ...] = ()


def compared(before: Result, after: Result, goal: str = "throughput", open_loop: bool = False) -> Comparison:
    """What became of the server. `goal`: what decides first, throughput or latency.

    `open_loop`: requests come at a rate of their own, so that the same rate is the same load.
    """
    if before.by_client is not None and after.by_client is not None:
        before, after = before.by_client, after.by_client
    rows = _rows(before, after)
    load = _load(before, after)
    same_load, load_says = _same_load(load, before, after, open_loop)
    new = tuple(rule for rule in after.found if rule not in before.found)
    spoiled = _spoiled(before, after, new)
    outcome, reasons = _outcome(before, after, rows, goal, same_load, load_says, spoiled)
    if same_load is not True:
        rows = tuple(replace(row, word="changed") if row.word in ("better", "worse") else row for row in rows)
    changes = _changes(before, after)
    advised = any(change.advised == "yes" for change in changes or ())
    return Comparison(
        outcome,
        _headline(outcome, rows, reasons, advised, goal) + _swapped(before, after, outcome),
        tuple(reasons),
        before,
        after,
        goal,
        tuple(row for row in rows if row.name != "finished"),
        load,
        same_load,
        load_says,
        changes,
        _not_done(before, changes),
        tuple(rule for rule in before.found if rule not in after.found),
        tuple(rule for rule in before.found if rule in after.found),
        new,
        tuple(_notes(before, after)),
    )


def _swapped(before: Result, after: Result, outcome: Outcome) -> str:
    """What the order of the two makes doubtful."""
    if outcome is Outcome.INCONCLUSIVE or before.at is None or after.at is None or before.at <= after.at:
        return ""
    return f" (BEFORE was examined after AFTER, {before.at} and {after.at}: swapped?)"


def _rows(before: Result, after: Result) -> tuple[Row, ...]:
    """The measures that one of the two has, but for those of the load."""
    rows = (_row(definition, before, after) for definition in measure.definitions().values() if not definition.load)
    return tuple(row for row in rows if row.before is not None or row.after is not None)


def _outcome(
    before: Result,
    after: Result,
    rows: Sequence[Row],
    goal: str,
    same_load: bool | None,
    load_says: str,
    spoiled: list[str],
) -> tuple[Outcome, list[str]]:
    """The outcome; of INCONCLUSIVE, the reasons. `spoiled`: why something better would be no pass."""
    if lacking := _lacking(before, after):
        return Outcome.INCONCLUSIVE, lacking
    if same_load is not True:
        return Outcome.INCONCLUSIVE, [load_says]
    decided, why = _decided(rows, goal, _how_long(before, after))
    if decided is None:
        return Outcome.INCONCLUSIVE, [why]
    if decided == "better":
        return (Outcome.INCONCLUSIVE, spoiled) if spoiled else (Outcome.PASS, [])
    return Outcome.FAIL, []


def _spread(found: Measure) -> tuple[float, float] | None:
    """Between what the figure lies: its samples, its bucket, or what is assumed; None: too few samples."""
    if found.spread == "bucket" or (found.samples >= LEAST_SAMPLES and found.spread in ("parts", "runs")):
        return found.low, found.high
    if found.spread == "runs":
        return found.low * (1 - ASSUMED), found.high * (1 + ASSUMED)
    return None


def _apart(was: Measure, now: Measure, before: Result, after: Result) -> bool | None:
    """Whether the two differ by more than their samples spread; None: too few samples."""
    one, other = _spread(was), _spread(now)
    if one is None or other is None:
        return None
    if was.deviation is None or now.deviation is None or min(was.samples, now.samples) < LEAST_SAMPLES:
        return one[1] < other[0] or other[1] < one[0]
    largest = max(was.deviation, now.deviation)
    if not largest:
        return was.value != now.value
    # In parts of the larger one, whose square may be no number.
    error = (was.deviation / largest) ** 2 / _independent(was, before)
    its = (now.deviation / largest) ** 2 / _independent(now, after)
    freedom = (error + its) ** 2 / (error**2 / (was.samples - 1) + its**2 / (now.samples - 1))
    return abs(now.value - was.value) / largest > _quantile(freedom) * math.sqrt(error + its)


def _independent(found: Measure, result: Result) -> float:
    """How many of the samples are independent: of parts shorter than a request takes, as many as requests fit in."""
    request = result.measures.get("request_time")
    if found.spread != "parts" or request is None or not request.value or result.seconds is None:
        return found.samples
    return min(found.samples, max(1.0, result.seconds / request.value))


def _quantile(freedom: float) -> float:
    """Of Student's t, what its amount exceeds once in 100 times: of the next smaller number of degrees of freedom."""
    row = int(freedom + 1e-9) - (LEAST_SAMPLES - 1)
    return _T[max(0, min(row, len(_T) - 1))]


def _word(definition: measure.Definition, before: Result, after: Result) -> str:
    was, now = before.measures.get(definition.name), after.measures.get(definition.name)
    if was is None or now is None:
        return "cannot tell"
    if was.value == now.value == 0:
        return "the same"
    apart = _apart(was, now, before, after)
    if apart is None:
        return "cannot tell"
    if not apart or abs(now.value - was.value) < LEAST_CHANGE * max(abs(was.value), abs(now.value)):
        return "the same"
    if not definition.better:
        return "changed"
    return "better" if (now.value > was.value) == (definition.better == "more") else "worse"


def _row(definition: measure.Definition, before: Result, after: Result) -> Row:
    was, now = before.measures.get(definition.name), after.measures.get(definition.name)
    word = _word(definition, before, after)
    if definition.whole and not definition.better:
        word = ""
    if before.seen_by != after.seen_by:
        word = "cannot tell"
    factor = now.value / was.value if was is not None and now is not None and was.value > 0 else None
    return Row(definition.name, definition.says, definition.unit, was, now, word, factor, definition.decides)


def _decided(rows: Sequence[Row], goal: str, how_long: str) -> tuple[str | None, str]:
    """ "better" or "worse" by the goal's measures; where these stayed the same, by the others. Else None, and why.

    `how_long`: what to do where the time was short; "" where it was not.
    """
    other = "latency" if goal == "throughput" else "throughput"
    for kind in (goal, other):
        words = {row.word for row in rows if row.decides == kind}
        if {"better", "worse"} <= words:
            better, worse = (_named(rows, kind, word) for word in ("better", "worse"))
            return None, f"{better} got better and {worse} worse: {_OTHER_GOAL[other]}"
        if "better" in words:
            return "better", ""
        if "worse" in words:
            return "worse", ""
        if "the same" not in words:
            why = f"too few samples to separate a difference of {kind} from the spread"
            return None, why + (how_long or ": sample longer")
    why = f"no difference beyond the spread and {number(LEAST_CHANGE, 'share')}"
    return None, why + (how_long or ": if there is one, more runs are needed")


def _named(rows: Sequence[Row], kind: str, word: str) -> str:
    return " and ".join(row.says for row in rows if row.decides == kind and row.word == word)


def window_for(measures: Mapping[str, Measure], seconds: float) -> int | None:
    """Seconds for which to sample a server, to tell whether it got better; None where it was sampled long enough.

    Four requests, one after the other, and a quarter more, as their time is not the same each time.
    """
    request = measures.get("request_time")
    if request is None or seconds >= LEAST_SAMPLES * request.value:
        return None
    return math.ceil(LEAST_SAMPLES * 1.25 * request.value / 10) * 10


def _how_long(before: Result, after: Result) -> str:
    """Where a time holds fewer requests, one after the other, than it must have parts: how long to sample."""
    short = [
        (f"{when} {number(round(result.seconds), 's')} of requests that took {number(measured.value, 's')}", window)
        for when, result in _both(before, after)
        if result.seconds is not None
        and (window := window_for(result.measures, result.seconds)) is not None
        and (measured := result.measures["request_time"])
    ]
    if not short:
        return ""
    said = " and ".join(clause for clause, _ in short)
    return f": sampled were {said}; sample both for --window {max(window for _, window in short)}"


def _lacking(before: Result, after: Result) -> list[str]:
    """Why these two cannot be compared, or tell too little."""
    lacking = [
        f"{when}, {clause}" for when, result in _both(before, after) for clause in [*result.lacks, *_too_little(result)]
    ]
    if before.seen_by != after.seen_by:
        lacking.append(_DIFFERENTLY.format(*sorted({before.seen_by, after.seen_by})))
    if before.model is None or after.model is None:
        lacking.append(
            "the model is unknown for " + ("either result" if before.model == after.model else "one of them")
        )
    return lacking


def _both(before: Result, after: Result) -> tuple[tuple[str, Result], tuple[str, Result]]:
    return ("before", before), ("after", after)


def _too_little(result: Result) -> list[str]:
    if result.lacks:
        return []
    tokens = result.measures.get("tokens_out") or result.measures.get("tokens_in")
    if tokens is None:
        return ["no rates were measured: sample longer (--window 20), or compare recordings"]
    if tokens.value == 0:
        return ["idle: nothing to compare"]
    little = []
    if result.seconds is not None and result.seconds < LEAST_SECONDS - 0.5:
        little.append(f"it was sampled for {number(round(result.seconds, 1), 's')} only; {LEAST_SECONDS:.0f} s are the"
                      " least (--window 20)")  # fmt: skip
    finished = result.measures.get("finished")
    if finished is not None and finished.value < LEAST_REQUESTS:
        little.append(f"of requests finished {number(finished.value, 'requests')}, and {LEAST_REQUESTS} are the least")
    return little


def _load(before: Result, after: Result) -> tuple[LoadRow, ...]:
    rows: list[LoadRow] = []
    if before.asked is not None and after.asked is not None:
        for name in dict.fromkeys([*before.asked, *after.asked]):
            was, now = before.asked.get(name), after.asked.get(name)
            rows.append(LoadRow(name, name.replace("_", " "), "", was, now, was == now))
    for definition in measure.definitions().values():
        if definition.load:
            one, two = before.measures.get(definition.name), after.measures.get(definition.name)
            if one is None and two is None:
                continue
            same = None if one is None or two is None else _is_near(one, two, SAME_LOAD)
            rows.append(LoadRow(definition.name, definition.says, definition.unit, one, two, same))
    return tuple(rows)


def _is_near(one: Measure | Value | None, two: Measure | Value | None, share: float) -> bool:
    """Whether the two are measured, and differ by no more than this share."""
    if not isinstance(one, Measure) or not isinstance(two, Measure):
        return False
    return abs(one.value - two.value) <= share * max(abs(one.value), abs(two.value))


def _same_load(load: Sequence[LoadRow], before: Result, after: Result, open_loop: bool) -> tuple[bool | None, str]:
    """Whether the clients asked for the same, in words."""
    by_name = {row.name: row for row in load}
    decisive = [name for name in (*(before.asked or {}), *_LENGTHS) if name in by_name]
    if before.asked is None or after.asked is None:
        decisive.append("arrivals" if open_loop else "in_flight")
    known = [by_name[name] for name in decisive if name in by_name]
    differing = [row for row in known if row.same is False]
    if differing:
        hint = _hint(by_name, differing) or _of_few(before, after, differing)
        return False, f"not the same load: {', '.join(map(_shift, differing))}{hint}"
    unknown = [name for name in decisive if name not in by_name or by_name[name].same is None]
    unknown += [name for name in _LENGTHS if name not in by_name]
    if unknown:
        named = ", ".join(map(_says, unknown))
        return None, f"whether the load was the same is unknown: not known for both: {named}"
    return True, ", ".join(map(_shift, known))


def _says(name: str) -> str:
    """A measure in words."""
    definition = measure.definitions().get(name)
    return name if definition is None else definition.says


def _hint(by_name: Mapping[str, LoadRow], differing: Sequence[LoadRow]) -> str:
    """Where as many came in a second, but other numbers are in flight: fewer clients look as a faster server does."""
    arrivals = by_name.get("arrivals")
    if [row.name for row in differing] == ["in_flight"] and arrivals is not None and arrivals.same:
        return " (the request rate was the same: if it does not depend on the server, add --open-loop)"
    return ""


def _of_few(before: Result, after: Result, differing: Sequence[LoadRow]) -> str:
    """Where the lengths of few requests differ: how long to sample for a mean of more."""
    if not all(row.name in _LENGTHS and _is_near(row.before, row.after, 3 * SAME_LOAD) for row in differing):
        return ""
    few = [
        (f"{when} of {number(done.value, 'requests')} requests", result.seconds * _FEW_REQUESTS / done.value)
        for when, result in _both(before, after)
        if (done := result.measures.get("finished")) is not None
        and 0 < done.value < _FEW_REQUESTS
        and result.seconds is not None
    ]
    if not few:
        return ""
    said = " and ".join(clause for clause, _ in few)
    return f" ({said}: means of few vary; sample both for --window {math.ceil(max(s for _, s in few) / 10) * 10})"


def _shift(row: LoadRow) -> str:
    was, now = _said(row.before, row.unit), _said(row.after, row.unit)
    return f"{row.says} {was}" if was == now else f"{row.says} {was} → {now}"


def _said(value: Measure | Value | None, unit: str) -> str:
    if isinstance(value, Measure):
        return number(value.value, unit)
    if value is None:
        return "not limited"
    return number(value, unit) if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def _spoiled(before: Result, after: Result, new: Iterable[str]) -> list[str]:
    """What keeps a faster server from being a cured one."""
    spoiled = [
        f"it is faster, but there is a critical finding that was not there before: {rule}"
        for rule in new
        if after.found[rule] == _GRAVE
    ]
    was, now = before.measures.get("given_up"), after.measures.get("given_up")
    if now is not None and now.value > (was.value if was is not None else 0.0) + _GIVEN_UP:
        spoiled.append(f"it is faster, but {number(now.value, 'share')} of the requests failed or were given up")
    return spoiled


def _changes(before: Result, after: Result) -> tuple[Difference, ...] | None:
    if before.flags is None or after.flags is None:
        return None
    found = []
    for name in dict.fromkeys([*before.flags, *after.flags]):
        was, now = before.flags.get(name), after.flags.get(name)
        if was == now:
            continue
        of_flag = [advice for advice in before.advice if advice.name == name]
        follows = next((advice for advice in of_flag if _is_same(advice.now, now)), None)
        advised = "yes" if follows else "another value" if of_flag else "no"
        rule = follows.rule if follows else of_flag[0].rule if of_flag else None
        found.append(Difference(name, was, now, advised, rule))
    return tuple(found)


def _is_same(one: Value | None, two: Value | None) -> bool:
    return one == two or (one is not None and two is not None and str(plain(one)) == str(plain(two)))


def _not_done(before: Result, changes: Sequence[Difference] | None) -> tuple[Advice, ...]:
    """What was advised first, of flags, and is not so after."""
    if changes is None:
        return ()
    done = {change.name for change in changes}
    return tuple(a for a in before.advice if a.first and a.name.startswith("-") and a.name not in done)


def _notes(before: Result, after: Result) -> Iterable[str]:
    if before.seen_by == after.seen_by != "server" and "recording" in (before.kind, after.kind):
        yield (
            f"generation tokens, requests and latencies are those of {before.seen_by}: its client saw each request, and"
            " the load is known; the rest is the server's own"
        )
    for what, was, now in (("vLLM", before.vllm, after.vllm), ("hardware", before.hardware, after.hardware)):
        if was and now and was != now:
            yield f"{what}: {was} → {now}"
    for when, result in _both(before, after):
        single = next((m for m in result.measures.values() if m.spread == "runs" and m.samples < LEAST_SAMPLES), None)
        if single is not None:
            runs = "one run" if single.samples == 1 else f"{single.samples} runs"
            assumed = number(ASSUMED, "share")
            yield f"{when}, {runs}: ± {assumed} is assumed from run to run ({LEAST_SAMPLES} runs would decide)"


def _headline(outcome: Outcome, rows: Sequence[Row], reasons: Sequence[str], advised: bool, goal: str) -> str:
    if outcome is Outcome.INCONCLUSIVE:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"Nothing can be concluded: {reasons[0]}{more}"
    word = "better" if outcome is Outcome.PASS else "worse"
    telling = sorted(
        (row for row in rows if row.word == word),
        key=lambda row: (row.decides != goal, not row.decides, row.name not in ("tokens_out", "waiting", "ttft")),
    )
    first = [row for row in telling if row.decides][:1]
    second = [row for row in telling if row.name in ("waiting", "ttft", "request_time") and row not in first][:1]
    told = ", ".join(_trend(row) for row in [*first, *second])
    if outcome is Outcome.FAIL:
        return f"It got worse: {told}"
    price = [row for row in rows if row.word == "worse" and row.decides][:1]
    paid = f"; the price: {_trend(price[0])}" if price else ""
    return f"{'The fix worked' if advised else 'It got better'}: {told}{paid}"


def _trend(row: Row) -> str:
    assert row.before is not None
    assert row.after is not None
    by = f" ({times(row.factor)})" if row.factor is not None and row.factor > 0 else ""
    return f"{row.says} {number(row.before.value, row.unit)} → {number(row.after.value, row.unit)}{by}"
