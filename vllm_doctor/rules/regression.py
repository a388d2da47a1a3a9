"""What is known to be wrong in which vLLM, and what came only later: rules/regressions, each entry with a thread that
says so.

An entry has a window of releases, and a condition over signals under which its source saw it. Of a server it holds
certainly, where its release lies within what the source vouches for, all of its condition is known to hold, and what of
the release brings it about is known, so that it is so wherever the condition holds; possibly, where nothing of it is
known not to hold, but a part, or the cause, is not known. Else it says nothing.

    regressions:
      - id            as a rule's, and points
        title         what is wrong, in a few words
        since         the first release that has it
        until         the first release without it, where a source tells one
        seen          the last release in which a source saw it, where none tells an end; left out: only `since`
        good          the last release that a source saw without it, where it came with an upgrade
        when          the condition, over signals
        also          what else the source had that no signal tells, in words: with it nothing is certain
        cause         what in the release does it (a pull request, a dependency): without it nothing is certain
        effect        what it does, with the source's figure
        times         how many times as long an output token takes with it, by the largest figure of its sources, or
                      unknown; left out: it lengthens no token
        severity      warning, unless said otherwise; info
        way           a remedy as in a rule (do, set, unset, env, cost, risk, expect): the way round
        sources       url and says: what was read there

Under `improvements` stands what was not there yet: a fault of all releases before the one that brought it. Its `title`
and `effect` say what is so without it, `until` is the release that brought it, `since` may be left out (any before),
and there is no `good`, no `seen`, no `severity`; `times` is told of a token without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vllm_doctor.expr import nodes
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.nodes import TruthNode
from vllm_doctor.model.kinds import Severity
from vllm_doctor.model.reading import Value
from vllm_doctor.rules import document
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.diagnosis_file import condition_of
from vllm_doctor.rules.table import Problems, Table, gathered
from vllm_doctor.vllm import flags

KEYS = (
    "id", "title", "good", "since", "until", "seen", "when", "also", "cause", "effect", "times", "severity", "way",
    "sources",
)  # fmt: skip
IMPROVEMENT_KEYS = ("id", "title", "since", "until", "when", "also", "cause", "effect", "times", "way", "sources")
FAULTS, IMPROVEMENTS = "faults", "improvements"
TABLES = (FAULTS, IMPROVEMENTS)
"""The two kinds of entries."""
WAY_KEYS = ("do", "set", "unset", "env", "cost", "risk", "expect")
NUMBER = "vllm_number"
"""The signal that orders releases."""
COSTS = ("none", "restart", "capacity", "quality")
_ID = re.compile(r"[a-z0-9.]+(?:-[a-z0-9.]+)*")
_URL = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+)/(?:issues|pull|releases|discussions)/(?:tag/)?([\w.-]+)")
Held = Literal["certain", "possible"]
HELD: tuple[Held, ...] = ("certain", "possible")


@dataclass(frozen=True, slots=True)
class Source:
    """A thread, and what it says."""

    url: str
    says: str

    @property
    def name(self) -> str:
        """As people write it: vllm#57680, another owner's repository with its name."""
        found = _URL.match(self.url)
        return f"{found[2]}#{found[3]}" if found else self.url


@dataclass(frozen=True, slots=True)
class Way:
    """A way round, without another release."""

    do: str
    set: Mapping[str, Value]
    unset: tuple[str, ...]
    env: Mapping[str, Value]
    cost: str
    risk: str
    expect: str


@dataclass(frozen=True, slots=True)
class Regression:
    """One entry, as the module's text tells its keys. `good` None: it did not come with an upgrade, or nobody says;
    `until` None: no later release without it is known. `times` None: it lengthens no token, infinite: nobody can bound
    it."""

    id: str
    title: str
    good: str | None
    since: str
    until: str | None
    seen: str
    when: Condition
    also: str
    cause: str
    effect: str
    severity: Severity
    way: Way | None
    sources: tuple[Source, ...]
    is_improvement: bool = False
    times: float | None = None

    @property
    def can_be_certain(self) -> bool:
        """Whether it is so wherever its condition holds, as far as its sources go."""
        return bool(self.cause) and not self.also

    @property
    def ends(self) -> str:
        """Where it ends, as the end of a sentence."""
        if self.is_improvement:
            return f"there from {self.until} on"
        return f"fixed in {self.until}" if self.until else f"up to {self.seen}, no fix is known"

    @property
    def says(self) -> str:
        """It in one sentence, with who says so."""
        if_also = f" (if {self.also})" if self.also else ""
        named = ", ".join(source.name for source in self.sources)
        if self.is_improvement:
            return f"{self.title}{if_also}: {self.effect}; {self.ends} ({named})."
        good = f"{self.good} was not affected, " if self.good else ""
        return f"{self.title}{if_also}: {self.effect}; {good}seen since {self.since}, {self.ends} ({named})."

    def is_in(self, version: str) -> bool | None:
        """Whether a release has it, whatever the server is like; None: nobody looked."""
        number, first = flags.number(version), flags.number(self.since)
        assert first is not None
        if number is None:
            return None
        end = flags.number(self.until or self.seen)
        assert end is not None
        if self.until:
            return first <= number < end
        return None if number > end else number >= first

    @property
    def _window(self) -> TruthNode:
        first, last = flags.number(self.since), flags.number(self.until or self.seen)
        assert first is not None
        assert last is not None
        name = nodes.Name(NUMBER)
        end = nodes.Compare(name, "<" if self.until else "<=", nodes.Number(last))
        if self.is_improvement and self.since == flags.releases()[0]:
            return end
        return nodes.And((nodes.Compare(name, ">=", nodes.Number(first)), end))

    @property
    def whole(self) -> Condition:
        """The window and its own condition, in three values."""
        return Condition(nodes.And((self._window, self.when.root)))

    def holding(self, held: Held) -> Condition:
        """Whether it holds certainly, or only possibly: in two values. The window is looked at first, as most fail."""
        holds = _is_true(self.when.root)
        if held == "certain":
            return Condition(_is_true(self._window, (holds,)) if self.can_be_certain else NEVER)
        open_to: list[TruthNode] = [
            nodes.Not(_is_true(nodes.Not(self.when.root))),
            nodes.Or(tuple(map(_is_true, self.parts))),
        ]
        if self.can_be_certain:
            open_to.append(nodes.Not(holds))
        return Condition(_is_true(self._window, tuple(open_to)))

    @property
    def parts(self) -> tuple[TruthNode, ...]:
        """What must hold together."""
        return self.when.root.parts if isinstance(self.when.root, nodes.And) else (self.when.root,)


NEVER = nodes.IsKnown(nodes.Where(nodes.Compare(nodes.Name(NUMBER), "<", nodes.Number(0.0)), nodes.Number(1.0)))


def _is_true(condition: TruthNode, then: tuple[TruthNode, ...] = ()) -> TruthNode:
    """Whether it is known to hold, and then these do, which are asked only then: in two values."""
    held: nodes.ValueNode = nodes.Where(condition, nodes.Number(1.0))
    for other in then:
        held = nodes.Where(other, held)
    return nodes.IsKnown(held)


def load(folders: Iterable[Path], signals: Mapping[str, object], problems: Problems | None = None) -> list[Regression]:
    """Those of these folders, in their order. Raises DocumentError with file and line; with `problems`, mistakes are
    noted there, and an entry that has one is left out."""
    found: dict[str, tuple[Regression, Table]] = {}
    for path in (path for folder in folders for path in places.regressions(folder)):
        with gathered(problems):
            root = document.read(path, problems=problems)
            root.allow("regressions", IMPROVEMENTS)
            faults = [(table, False) for table in root.tables("regressions")]
            for table, is_improvement in [*faults, *((table, True) for table in root.tables(IMPROVEMENTS))]:
                with gathered(problems):
                    entry = _improvement(table, signals) if is_improvement else _fault(table, signals)
                    if entry.id in found:
                        first = found[entry.id][1]
                        table.fail(f"entry {entry.id!r} stands twice (first in {first.path}:{first.line})", "id")
                    found[entry.id] = entry, table
    return [entry for entry, _ in found.values()]


def _fault(table: Table, signals: Mapping[str, object]) -> Regression:
    table.allow(*KEYS)
    good, since, until = (_release(table, key) if key in table else "" for key in ("good", "since", "until"))
    since = since or _release(table, "since")
    seen = _release(table, "seen") if "seen" in table else since
    if until and "seen" in table:
        table.fail("'seen' is for what has no 'until'", "seen")
    if good and not _in_order(good, since, is_strict=True):
        table.fail(f"'good' {good} is not before 'since' {since}", "good")
    if not _in_order(since, until or seen, is_strict=bool(until)):
        table.fail(f"'since' {since} is not before its end, {until or seen}", "until" if until else "seen")
    return Regression(
        id=_named(table),
        title=table.text("title"),
        good=good or None,
        since=since,
        until=until or None,
        seen=seen,
        when=condition_of(table, "when", signals.__contains__),
        also=table.text("also") if "also" in table else "",
        cause=table.text("cause") if "cause" in table else "",
        effect=table.text("effect"),
        severity=table.one_of("severity", (Severity.WARNING, Severity.INFO), Severity.WARNING),
        way=_way(table.table("way"), _releases(since, until or seen, not until)) if "way" in table else None,
        sources=tuple(_sources(table)),
        times=_times(table) if "times" in table else None,
    )


def _improvement(table: Table, signals: Mapping[str, object]) -> Regression:
    table.allow(*IMPROVEMENT_KEYS)
    until = _release(table, "until")
    since = _release(table, "since") if "since" in table else flags.releases()[0]
    if not _in_order(since, until, is_strict=True):
        table.fail(f"'since' {since} is not before the release that brought it, {until}", "until")
    return Regression(
        id=_named(table),
        title=table.text("title"),
        good=None,
        since=since,
        until=until,
        seen=since,
        when=condition_of(table, "when", signals.__contains__),
        also=table.text("also") if "also" in table else "",
        cause=table.text("cause") if "cause" in table else "",
        effect=table.text("effect"),
        severity=Severity.INFO,
        way=_way(table.table("way"), _releases(since, until, False)) if "way" in table else None,
        sources=tuple(_sources(table)),
        is_improvement=True,
        times=_times(table) if "times" in table else None,
    )


def _named(table: Table) -> str:
    id = table.text("id")
    if not _ID.fullmatch(id):
        table.fail(f"an entry's id is lower case words joined by '-'; it is {id!r}", "id")
    return id


def _times(table: Table) -> float:
    times = table["times"]
    if times == "unknown":
        return math.inf
    if isinstance(times, bool) or not isinstance(times, int | float) or not 1 < times < math.inf:
        table.fail(f"'times' is a number above 1, or unknown; it is {times!r}", "times")
    return float(times)


def _release(table: Table, key: str) -> str:
    """A release; of those before the first of which all is known any version that can be one."""
    text = table.text(key)
    if not flags.is_named_release(text):
        table.fail(f"{text!r} is no release of vLLM (write 0.26.0)", key)
    return text


def _in_order(first: str, last: str, is_strict: bool) -> bool:
    one, other = flags.number(first), flags.number(last)
    return one is not None and other is not None and (one < other if is_strict else one <= other)


def _releases(first: str, last: str, is_in: bool) -> list[str]:
    """The known releases from one to another, which is one of them or not."""
    return [
        release
        for release in flags.releases()
        if _in_order(first, release, is_strict=False) and _in_order(release, last, is_strict=not is_in)
    ]


def _way(table: Table, releases: list[str]) -> Way:
    """A way round, whose flags and variables each release of the window has."""
    table.allow(*WAY_KEYS)
    settings, env = table.table("set"), table.table("env")
    unset = table.texts("unset")
    if not releases and (settings or env or unset):
        table.fail("nothing is known of the flags of these releases: say in 'do' alone what helps", "do")
    for flag in (*settings, *unset):
        lacking = [release for release in releases if flags.has(release, flag) is False]
        if not flags.is_flag(flag) or lacking:
            table.fail(
                f"{flag} is no flag of vLLM {lacking[0] if lacking else releases[0]}",
                "set" if flag in settings else "unset",
            )
    for name, value in env.items():
        lacking = [release for release in releases if flags.environment(release, name) is None]
        if name.startswith("VLLM_") and lacking:
            table.fail(f"vLLM {lacking[0]} does not know {name}", "env")
        if not isinstance(value, str | int | float):
            table.fail(f"the value of {name} must be a text or a number", "env")
    return Way(
        do=table.text("do"),
        set=dict(settings),
        unset=unset,
        env=dict(env),
        cost=table.one_of("cost", COSTS, "restart"),
        risk=table.text("risk", "what the change was made for is lost, too: measure before and after"),
        expect=table.text("expect", "what it removes is back"),
    )


def _sources(table: Table) -> Iterator[Source]:
    listed = list(table.tables("sources"))
    if not listed:
        table.fail("an entry needs a source that was read: url and says", "sources")
    for source in listed:
        source.allow("url", "says")
        url = source.text("url")
        if not _URL.fullmatch(url):
            source.fail(f"{url!r} is no thread on GitHub", "url")
        yield Source(url, source.text("says"))
