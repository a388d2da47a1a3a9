"""Rules: one YAML file each. Read, checked, and run on its own examples here; judged in diagnose.py."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.expr import nodes
from vllm_doctor.expr.condition import Condition
from vllm_doctor.expr.scalar import Comparison
from vllm_doctor.model.kinds import SEVERITIES, Confidence, Role, Severity, Stage, State
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import document, regression
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnosis_file import condition_of
from vllm_doctor.rules.folders import shipped as shipped
from vllm_doctor.rules.regression import Regression
from vllm_doctor.rules.table import Problems, Table, gathered
from vllm_doctor.text import files, words
from vllm_doctor.vllm import flags

ORIGINS = ("vllm-docs", "vllm-source", "nvidia", "measured", "heuristic")
COSTS = ("none", "client", "restart", "capacity", "quality")
GOALS = ("throughput", "latency", "")
BY = ("you", "administrator")
"""Who can carry out a remedy's commands."""
STATUSES = ("experimental", "stable")
OF = ("server", "path")
"""What a rule is judged for: each engine of a server, or the whole path of a request."""
ID = "[a-z0-9]+(-[a-z0-9]+)*"
"""The form of a rule's id."""
KEYS = (
    "rule", "title", "status", "of", "stage", "rank", "role", "confidence", "why", "here", "not_this_rule", "applies",
    "when", "cases", "table", "next", "explains", "threshold_from", "gain", "costs", "remedies", "see", "examples",
)  # fmt: skip
REMEDY_KEYS = (
    "do", "if", "set", "unset", "env", "run", "by", "computed", "cost", "risk", "expect", "gain", "then", "goal",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemedyRule:
    """A remedy as written: values are templates over signals until a report fills them."""

    do: str
    condition: Condition | None
    set: Mapping[str, Value]
    unset: tuple[str, ...]
    env: Mapping[str, Value]
    run: tuple[str, ...]
    by: str
    computed: tuple[str, ...]
    """How the values came about, in sentences; one with a signal that is not known is left out."""
    cost: str
    risk: str
    expect: str
    gain: tuple[str, str] | None
    """The signal that bounds what it brings, and how: the rule's gain, unless the remedy says otherwise."""
    then: tuple[str, ...]
    goal: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a cause that lengthens steps: the signal that bounds the seconds it adds to each output token, and how.

    `signal` None: nobody can bound it. `of_cases`: those of its cases that hold tell it.
    """

    signal: str | None
    basis: str = ""
    of_cases: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One of the things that a rule of a table looks for: `holds` decides in two values, `seen` is the evidence;
    `times`: how many times as long it makes an output token at most, infinite where nobody can bound it, None: none."""

    severity: Severity
    holds: Condition
    seen: Condition
    title: str
    says: str
    see: tuple[str, ...]
    times: float | None = None
    is_improvement: bool = False


@dataclass(frozen=True, slots=True)
class Next:
    """When the rule's limit would hold the queue after other changes, read with these flags; a sentence why."""

    when: Condition
    says: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule judged for one engine: a severity, ok, unknown or not-applicable."""

    state: State
    evidence: tuple[Comparison, ...] = ()
    because: tuple[tuple[str, Reason], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    group: str
    title: str
    status: str
    stage: Stage
    role: Role
    confidence: Confidence
    why: str
    here: tuple[str, ...]
    not_this_rule: str
    applies: Condition | None
    when: Mapping[Severity, Condition]
    explains: tuple[str, ...]
    threshold_from: str
    gain: tuple[str, str] | None
    """The signal that bounds what the cause costs, a factor of throughput, and how that is bounded."""
    costs: Costs | None
    """None: it lengthens no step. What only queues requests costs throughput, and no time per output token."""
    remedies: tuple[RemedyRule, ...]
    see: tuple[str, ...]
    table: Table
    next: Next | None = None
    """None: it is no limit that another one hides."""
    overridden: str = ""
    """Where, and why, its conditions were changed."""
    cases: tuple[Case, ...] = ()
    """What it looks for, where that stands in a table: one of them is enough."""
    of: str = "server"
    rank: int = 0
    """Of findings of one severity and stage, those of a higher rank stand first: they explain more of the same loss."""

    @property
    def is_of_path(self) -> bool:
        """Whether it is judged for the path of a request, over several sources, and for no engine."""
        return self.of == "path"

    def signals(self) -> tuple[str, ...]:
        """The signals its conditions name."""
        conditions = [*([self.applies] if self.applies else []), *self.when.values()]
        return tuple(dict.fromkeys(name for condition in conditions for name in condition.names))

    def judge(self, read: Callable[[str], Reading]) -> Outcome:
        """The highest severity whose condition holds; else unknown if one is unknown; else ok."""
        if self.applies is not None:
            holds, seen = self.applies.judge(read)
            if holds is None:
                return Outcome(State.UNKNOWN, (), _unknowns(seen))
            if not holds:
                return Outcome(State.NOT_APPLICABLE)
        because: dict[str, Reason] = {}
        undecided = False
        for severity in SEVERITIES:
            condition = self.when.get(severity)
            if condition is None:
                continue
            holds, seen = condition.judge(read)
            if holds:
                seen += [c for case in self.held(read) for c in case.seen.judge(read)[1]]
                return Outcome(State(severity), tuple(c for c in seen if c.holds))
            if holds is None:
                undecided = True
                because.update(_unknowns(seen))
        return Outcome(State.UNKNOWN, (), tuple(because.items())) if undecided else Outcome(State.OK)

    def held(self, read: Callable[[str], Reading]) -> tuple[Case, ...]:
        """Those of its cases that hold, the gravest first, and of those what lengthens tokens most."""
        held = [case for case in self.cases if case.holds.judge(read)[0]]
        return tuple(sorted(held, key=lambda case: (SEVERITIES.index(case.severity), -(case.times or 0.0))))


def _unknowns(seen: Iterable[Comparison]) -> tuple[tuple[str, Reason], ...]:
    return tuple(unknown for comparison in seen if comparison.holds is None for unknown in comparison.unknowns())


def version(folders: Iterable[Path]) -> str:
    """A name for the rules, signals and log lines in these folders: the same for the same texts."""
    told = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.yaml")):
            told.update(
                f"{path.relative_to(folder).as_posix()}\0".encode() + files.read(path, document.MAX_BYTES) + b"\0"
            )
    return told.hexdigest()[:12]


def load(
    folders: Iterable[Path], catalogue: Catalogue, problems: Problems | None = None, faults: Sequence[Regression] = ()
) -> tuple[Rule, ...]:
    """All rules below these folders, in order of id. Raises DocumentError; a later folder may not redefine a rule.
    `faults`: the entries of the tables, the cases of the rules that have such.

    With `problems`, mistakes are noted there, and a rule that has some comes without what is wrong.
    """
    rules: dict[str, Rule] = {}
    for folder in folders:
        places.check([folder])
        for path in places.rules(folder):
            with gathered(problems):
                rule = read(path, catalogue, problems, faults)
                if rule.id in rules:
                    _fail_twice(rule, rules[rule.id])
                rules[rule.id] = rule
    for rule in rules.values():
        with gathered(problems):
            _check_explains(rule, rules, ())
    return tuple(rules[id] for id in sorted(rules))


def _fail_twice(rule: Rule, first: Rule) -> None:
    path = first.table.path
    if path.resolve().is_relative_to(shipped().resolve()):
        rule.table.fail(
            f"rule {rule.id!r} is shipped already ({path}): give this one its own id, or change that one in "
            f"{places.OVERRIDES}",
            "rule",
        )
    rule.table.fail(f"rule {rule.id!r} stands twice (first in {path}): give this one its own id", "rule")


def _check_explains(rule: Rule, rules: Mapping[str, Rule], path: tuple[str, ...]) -> None:
    if rule.id in path:
        circle = path[path.index(rule.id) :]
        first = circle.index(min(circle))
        named = (*circle[first:], *circle[:first], circle[first])
        rules[named[0]].table.fail(f"rules explain each other in a circle: {' -> '.join(named)}", "explains")
    for other in rule.explains:
        if other in rules:
            _check_explains(rules[other], rules, (*path, rule.id))


def read(path: Path, catalogue: Catalogue, problems: Problems | None = None, faults: Iterable[Regression] = ()) -> Rule:
    """One rule file. `faults`: the entries of the tables of known faults and improvements, for a rule whose cases they
    are. Raises DocumentError with file, line, and what to do."""
    table = document.read(path, until="examples", problems=problems)
    table.allow(*KEYS)
    id = table.text("rule")
    if not re.fullmatch(ID, id):
        table.mistake(f"a rule's id is lower case words joined by '-'; it is {id!r}", "rule")
    elif id != path.stem:
        table.mistake(f"the rule's id {id!r} is not the file's name: rename one ({id}.yaml)", "rule")
    gain = _bound(table, "gain", catalogue)
    held = table.one_of("cases", regression.HELD) if "cases" in table else None
    of = table.one_of("table", regression.TABLES, regression.FAULTS)
    faults = [one for one in faults if one.is_improvement is (of == regression.IMPROVEMENTS)] if held else []
    cases = tuple(_case(fault, held) for fault in faults if held is not None)
    rule = Rule(
        id=id or path.stem,
        group=path.parent.name,
        title=table.text("title"),
        status=table.one_of("status", STATUSES, "experimental"),
        stage=table.one_of("stage", Stage),
        role=table.one_of("role", Role),
        confidence=table.one_of("confidence", Confidence, Confidence.MEDIUM),
        why=" ".join(table.text("why").split()),
        here=table.texts("here"),
        not_this_rule=" ".join(table.text("not_this_rule").split()) if "not_this_rule" in table else "",
        applies=_condition(table, "applies", catalogue) if "applies" in table else None,
        when=_of_cases(cases) if held is not None else _when(table, catalogue),
        explains=table.texts("explains"),
        threshold_from=table.one_of("threshold_from", ORIGINS),
        gain=gain,
        costs=_costs(table, catalogue),
        remedies=(
            *(remedy for fault in faults if held == "certain" for remedy in _remedies_of(fault)),
            *(_remedy(entry, catalogue, gain) for entry in table.tables("remedies")),
        ),
        see=table.texts("see"),
        table=table,
        cases=cases,
        next=_next(table, catalogue),
        of=table.one_of("of", OF, "server"),
        rank=_rank(table),
    )
    for sentence in rule.here:
        _check_places(table, "here", sentence, catalogue)
        _check_sentence(table, "here", sentence)
    return rule


def _rank(table: Table) -> int:
    rank = table.get("rank", 0)
    if type(rank) is not int or not 0 <= rank <= 9:
        table.mistake("'rank' must be a whole number from 0 to 9", "rank")
        return 0
    return rank


def _when(table: Table, catalogue: Catalogue) -> Mapping[Severity, Condition]:
    when = table.table("when")
    when.allow(*SEVERITIES)
    if not when:
        table.mistake("'when' needs a condition under critical, warning or info", "when")
    read = {Severity(key): _condition(when, key, catalogue) for key in when if key in SEVERITIES}
    return {key: condition for key, condition in read.items() if condition is not None}


def _case(fault: Regression, held: regression.Held) -> Case:
    """An entry as a case of a rule: a note, for what it costs this server is another question (`times`)."""
    see = tuple(source.url for source in fault.sources)
    return Case(
        Severity.INFO, fault.holding(held), fault.whole, fault.title, fault.says, see, fault.times, fault.is_improvement
    )


def _of_cases(cases: Sequence[Case]) -> Mapping[Severity, Condition]:
    """One of the cases of this severity holds; where there is none, what never does."""
    when: dict[Severity, Condition] = {}
    for severity in SEVERITIES:
        of = tuple(case.holds.root for case in cases if case.severity == severity)
        if of:
            when[severity] = Condition(nodes.Or(of))
    return when or {Severity.INFO: Condition(regression.NEVER)}


def _remedies_of(fault: Regression) -> Iterator[RemedyRule]:
    """The way round of a known fault; and the release that mends it, or the last one without it."""
    holds = fault.holding("certain")
    if fault.way is not None:
        way = fault.way
        yield RemedyRule(
            way.do, holds, way.set, way.unset, way.env, (), "you", (), way.cost, way.risk, way.expect, None, (), ""
        )
    release = f"Run vLLM {fault.until} or later" if fault.until else f"Run vLLM {fault.good}" if fault.good else ""
    if release:
        risk = "another release changes other things, too: compare the two (vllm-doctor compare)"
        run = f"vllm-doctor regressions {{vllm_version}} {fault.until or fault.good}"
        expect = "at most what its source measured" if fault.is_improvement else "what it removes is back"
        yield RemedyRule(
            f"{release}: {fault.title}", holds, {}, (), {}, (run,), "you", (), "restart", risk, expect, None, (), "",
        )  # fmt: skip


def _next(table: Table, catalogue: Catalogue) -> Next | None:
    """{when: CONDITION, says: SENTENCE}; None where the key is not there."""
    if "next" not in table:
        return None
    written = table.table("next")
    written.allow("when", "says")
    when, says = _condition(written, "when", catalogue), written.text("says")
    _check_places(written, "says", says, catalogue)
    _check_sentence(written, "says", says)
    return Next(when, says) if when is not None else None


def _condition(table: Table, key: str, catalogue: Catalogue) -> Condition | None:
    """None where it is no condition, and mistakes are gathered."""
    with gathered(table.problems):
        return condition_of(table, key, catalogue.signals.__contains__)
    return None


def _bound(table: Table, key: str, catalogue: Catalogue) -> tuple[str, str] | None:
    """{at_most: SIGNAL, basis: TEXT}; None where the key is not there, or says "unknown"."""
    if key not in table or table[key] == "unknown":
        return None
    bound = table.table(key)
    bound.allow("at_most", "basis")
    signal, basis = bound.text("at_most"), bound.text("basis")
    if signal not in catalogue.signals:
        bound.mistake(f"{signal!r} is not a signal", "at_most")
    return signal, basis


def _costs(table: Table, catalogue: Catalogue) -> Costs | None:
    """{at_most: SIGNAL, basis: TEXT}, "unknown" where nobody can bound what it adds to a step, or "cases"."""
    if "costs" not in table:
        return None
    if table["costs"] == "cases":
        return Costs(None, "how many times as long a token takes by the figures of the sources", of_cases=True)
    bound = _bound(table, "costs", catalogue)
    if bound is not None and bound[0] in catalogue.signals and catalogue.signals[bound[0]].unit != "s":
        table.mistake(f"{bound[0]!r} is no time: what a cause costs is in seconds per output token", "costs")
    return Costs(None) if bound is None else Costs(*bound)


def _remedy(table: Table, catalogue: Catalogue, gain: tuple[str, str] | None) -> RemedyRule:
    table.allow(*REMEDY_KEYS)
    settings, env, unset = table.table("set"), table.table("env"), table.texts("unset")
    for given in (settings, env):
        for name, value in given.items():
            if not isinstance(value, str | int | float | bool):
                given.mistake(f"the value of {name} must be a text, a number or a placeholder", name)
            _check_places(given, name, str(value), catalogue)
    for flag in settings:
        _check_flag(settings, flag, flag)
    for flag in unset:
        _check_places(table, "unset", flag, catalogue)
        if not words.names(flag):
            _check_flag(table, "unset", flag)
    if words.names(table.text("do")):
        table.mistake("what to do is the same everywhere: values belong under 'set', 'run' or 'computed'", "do")
    several = isinstance(table.get("computed"), list)
    computed = table.texts("computed") if several or "computed" not in table else (table.text("computed"),)
    for key, sentences in (("computed", computed), ("run", table.texts("run")), ("then", table.texts("then"))):
        for sentence in sentences:
            _check_places(table, key, sentence, catalogue)
            if key != "run":
                _check_sentence(table, key, sentence)
            elif place := words.unquotable(sentence):
                table.mistake(f"{place} stands within quotes: write it without them, it is quoted as a word", key)
    return RemedyRule(
        do=table.text("do"),
        condition=_condition(table, "if", catalogue) if "if" in table else None,
        set=dict(settings),
        unset=unset,
        env=dict(env),
        run=table.texts("run"),
        by=table.one_of("by", BY, "you"),
        computed=computed,
        cost=table.one_of("cost", COSTS),
        risk=table.text("risk"),
        expect=table.text("expect"),
        gain=_bound(table, "gain", catalogue) if "gain" in table else gain,
        then=table.texts("then"),
        goal=table.one_of("goal", GOALS, ""),
    )


def _check_flag(table: Table, key: str, flag: str) -> None:
    if not flag.startswith("--"):
        table.mistake(f"{flag!r} is not a flag: write it as vLLM takes it, with --", key)
    elif not flags.is_flag(flag):
        table.mistake(f"{flag} is a flag of no vLLM", key)


def _check_places(table: Table, key: str, template: str, catalogue: Catalogue) -> None:
    for name in words.names(template):
        if name not in catalogue.signals:
            table.mistake(f"{{{name}}} is not a signal; the list: vllm-doctor rules --signals", key)


def _check_sentence(table: Table, key: str, sentence: str) -> None:
    """What is pasted into a shell stands under `run`, where values are quoted."""
    if words.holds_command(sentence):
        table.mistake("a command with a value in it belongs under 'run', where the value is quoted", key)


def check_examples(rule: Rule, catalogue: Catalogue, problems: Problems | None = None) -> int:
    """Run a rule on its own examples; how many there are. Raises DocumentError at the first that fails.

    With `problems`, all that fail are noted there; a rule that has some is not run.
    """
    path = rule.table.path
    is_well = problems is None or not problems.are_in(path)
    given: set[State] = set()
    count = 0
    table = document.read(path, problems=problems)
    for example in table.tables("examples"):
        expected = example.one_of("gives", State)
        is_formed = _check_values(example, catalogue)
        if is_well and is_formed:
            outcome = rule.judge(lambda name, example=example: example_reading(example.get(name)))  # type: ignore[misc]
            if outcome.state != expected:
                example.mistake(f"the example gives {outcome.state}, not {expected}: fix the condition or the example")
            given.add(outcome.state)
        given.add(expected)
        count += 1
    for needed in (*(State(severity) for severity in rule.when), State.OK, State.UNKNOWN):
        if needed not in given:
            table.mistake(f"an example with gives: {needed} is missing", "examples")
    return count


def _check_values(example: Table, catalogue: Catalogue) -> bool:
    """Whether the example gives values to signals, and nothing else."""
    is_formed = True
    for name, value in example.items():
        if name == "gives":
            continue
        is_bounds = isinstance(value, list) and [type(end) in (int, float) for end in value] == [True, True]
        if name not in catalogue.signals:
            example.mistake(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", name)
            is_formed = False
        elif not is_bounds and not isinstance(value, str | int | float | bool):
            example.mistake(f"{name!r} must be a number, a text, true, false, or [low, high]", name)
            is_formed = False
    return is_formed


def example_reading(value: object) -> Reading:
    """A value of an example as a signal's reading."""
    if isinstance(value, list):  # [low, high]: the bounds of a quantile
        low, high = value
        return Known(float(high), float(low), float(high))
    if isinstance(value, bool | str):
        return Known(value)
    if isinstance(value, int | float):
        return Known(float(value))
    return Unknown(Reason.ABSENT)
