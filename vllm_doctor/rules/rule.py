"""Rules: one YAML file each. Read, checked, and run on its own examples here; judged in diagnose.py."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.expr.condition import Comparison, Condition
from vllm_doctor.model.errors import DocumentError, UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import diagnosis_file, document, log_lines, signals_file
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnosis_file import condition_of
from vllm_doctor.rules.document import Table
from vllm_doctor.text import words
from vllm_doctor.vllm import flags

SEVERITIES = ("critical", "warning", "info")
ROLES = ("root", "symptom", "opportunity", "info", "not-server", "blind")
STAGES = ("blind", "broken", "client", "host", "limit", "slow-path", "opportunity")
"""The order of reasoning: a cause of an earlier stage is told first."""
ORIGINS = ("vllm-docs", "vllm-source", "nvidia", "measured", "heuristic")
COSTS = ("none", "client", "restart", "capacity", "quality")
GOALS = ("throughput", "latency", "")
BY = ("you", "administrator")
"""Who can carry out a remedy's commands."""
OK, UNKNOWN, NOT_APPLICABLE = "ok", "unknown", "not-applicable"
_NO_RULES = (log_lines.FOLDER, signals_file.FOLDER)
"""Folders that hold other things."""


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
    """The signal that bounds what it brings, and how: the rule's prize, unless the remedy says otherwise."""
    then: tuple[str, ...]
    goal: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule judged for one engine: a severity, ok, unknown or not-applicable."""

    state: str
    evidence: tuple[Comparison, ...] = ()
    because: tuple[tuple[str, Reason], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    group: str
    title: str
    status: str
    stage: str
    role: str
    confidence: str
    why: str
    here: tuple[str, ...]
    not_this_rule: str
    applies: Condition | None
    when: Mapping[str, Condition]
    explains: tuple[str, ...]
    threshold_from: str
    prize: tuple[str, str] | None
    """The signal that bounds what the cause costs, a factor of throughput, and how that is bounded."""
    remedies: tuple[RemedyRule, ...]
    see: tuple[str, ...]
    table: Table

    def signals(self) -> tuple[str, ...]:
        """The signals its conditions name."""
        conditions = [*([self.applies] if self.applies else []), *self.when.values()]
        return tuple(dict.fromkeys(name for condition in conditions for name in condition.names))

    def judge(self, read: Callable[[str], Reading]) -> Outcome:
        """The highest severity whose condition holds; else unknown if one is unknown; else ok."""
        if self.applies is not None:
            holds, seen = self.applies.judge(read)
            if holds is None:
                return Outcome(UNKNOWN, (), _unknowns(seen))
            if not holds:
                return Outcome(NOT_APPLICABLE)
        because: dict[str, Reason] = {}
        undecided = False
        for severity in SEVERITIES:
            condition = self.when.get(severity)
            if condition is None:
                continue
            holds, seen = condition.judge(read)
            if holds:
                return Outcome(severity, tuple(c for c in seen if c.holds))
            if holds is None:
                undecided = True
                because.update(_unknowns(seen))
        return Outcome(UNKNOWN, (), tuple(because.items())) if undecided else Outcome(OK)


def _unknowns(seen: Iterable[Comparison]) -> tuple[tuple[str, Reason], ...]:
    return tuple(unknown for comparison in seen if comparison.holds is None for unknown in comparison.unknowns())


def version(folders: Iterable[Path]) -> str:
    """A name for the rules, signals and log lines in these folders: the same for the same texts."""
    told = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.yaml")):
            told.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return told.hexdigest()[:12]


def load(folders: Iterable[Path], catalogue: Catalogue) -> tuple[Rule, ...]:
    """All rules below these folders, in order of id. Raises DocumentError; a later folder may not redefine a rule."""
    rules: dict[str, Rule] = {}
    diagnosis = (catalogue.path / diagnosis_file.FILE).resolve()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no such folder of rules: {folder}")
        for path in sorted(folder.rglob("*.yaml")):
            if path.parent.name in _NO_RULES or (path.name == diagnosis.name and path.resolve() == diagnosis):
                continue
            rule = read(path, catalogue)
            if rule.id in rules:
                first = rules[rule.id].table.path
                rule.table.fail(f"rule {rule.id!r} stands twice (first in {first}): give this one its own id", "rule")
            rules[rule.id] = rule
    for rule in rules.values():
        _check_explains(rule, rules, ())
    return tuple(rules[id] for id in sorted(rules))


def _check_explains(rule: Rule, rules: Mapping[str, Rule], path: tuple[str, ...]) -> None:
    if rule.id in path:
        rule.table.fail(f"rules explain each other in a circle: {' -> '.join((*path, rule.id))}", "explains")
    for other in rule.explains:
        if other in rules:
            _check_explains(rules[other], rules, (*path, rule.id))


def read(path: Path, catalogue: Catalogue) -> Rule:
    """One rule file. Raises DocumentError with file, line, and what to do."""
    table = document.read(path, until="examples")
    table.allow(
        "rule", "title", "status", "stage", "role", "confidence", "why", "here", "not_this_rule", "applies",
        "when", "explains", "threshold_from", "prize", "remedies", "see", "examples",
    )  # fmt: skip
    id = table.text("rule")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id):
        table.fail(f"a rule's id is lower case words joined by '-'; it is {id!r}", "rule")
    if id != path.stem:
        table.fail(f"the rule's id {id!r} is not the file's name: rename one ({id}.yaml)", "rule")
    is_signal = catalogue.signals.__contains__
    when_table = table.table("when")
    when_table.allow(*SEVERITIES)
    if not when_table:
        table.fail("'when' needs a condition under critical, warning or info", "when")
    prize = _bound(table, "prize", catalogue)
    rule = Rule(
        id=id,
        group=path.parent.name,
        title=table.text("title"),
        status=table.one_of("status", ("experimental", "stable"), "experimental"),
        stage=table.one_of("stage", STAGES),
        role=table.one_of("role", ROLES),
        confidence=table.one_of("confidence", ("high", "medium", "low"), "medium"),
        why=" ".join(table.text("why").split()),
        here=table.texts("here"),
        not_this_rule=" ".join(table.text("not_this_rule").split()) if "not_this_rule" in table else "",
        applies=condition_of(table, "applies", is_signal) if "applies" in table else None,
        when={key: condition_of(when_table, key, is_signal) for key in when_table},
        explains=table.texts("explains"),
        threshold_from=table.one_of("threshold_from", ORIGINS),
        prize=prize,
        remedies=tuple(_remedy(entry, catalogue, prize) for entry in table.tables("remedies")),
        see=table.texts("see"),
        table=table,
    )
    for sentence in rule.here:
        _check_places(table, "here", sentence, catalogue)
    return rule


def _bound(table: Table, key: str, catalogue: Catalogue) -> tuple[str, str] | None:
    """{at_most: SIGNAL, basis: TEXT}; None where the key is not there, or says "unknown"."""
    if key not in table or table[key] == "unknown":
        return None
    bound = table.table(key)
    bound.allow("at_most", "basis")
    signal = bound.text("at_most")
    if signal not in catalogue.signals:
        bound.fail(f"{signal!r} is not a signal", "at_most")
    return signal, bound.text("basis")


def _remedy(table: Table, catalogue: Catalogue, prize: tuple[str, str] | None) -> RemedyRule:
    table.allow(
        "do", "if", "set", "unset", "env", "run", "by", "computed", "cost", "risk", "expect", "gain", "then", "goal"
    )
    settings, env = table.table("set"), table.table("env")
    for flag, value in [*settings.items(), *env.items()]:
        if not isinstance(value, str | int | float | bool):
            table.fail(f"the value of {flag} must be a text, a number or a placeholder", "set")
        _check_places(table, "set", str(value), catalogue)
    unset = table.texts("unset")
    for text in unset:
        _check_places(table, "unset", text, catalogue)
    named = [*settings, *(flag for flag in unset if not words.names(flag))]
    for flag in named:
        if not flag.startswith("--"):
            table.fail(
                f"{flag!r} is not a flag: write it as vLLM takes it, with --", "set" if flag in settings else "unset"
            )
    for flag in named:
        if not flags.is_flag(flag):
            table.fail(f"{flag} is a flag of no vLLM", "set" if flag in settings else "unset")
    several = isinstance(table.get("computed"), list)
    computed = table.texts("computed") if several or "computed" not in table else (table.text("computed"),)
    for sentence in computed:
        _check_places(table, "computed", sentence, catalogue)
    for command in table.texts("run"):
        _check_places(table, "run", command, catalogue)
    for sentence in table.texts("then"):
        _check_places(table, "then", sentence, catalogue)
    return RemedyRule(
        do=table.text("do"),
        condition=condition_of(table, "if", catalogue.signals.__contains__) if "if" in table else None,
        set=dict(settings),
        unset=unset,
        env=dict(env),
        run=table.texts("run"),
        by=table.one_of("by", BY, "you"),
        computed=computed,
        cost=table.one_of("cost", COSTS),
        risk=table.text("risk"),
        expect=table.text("expect"),
        gain=_bound(table, "gain", catalogue) if "gain" in table else prize,
        then=table.texts("then"),
        goal=table.one_of("goal", GOALS, ""),
    )


def _check_places(table: Table, key: str, template: str, catalogue: Catalogue) -> None:
    for name in words.names(template):
        if name not in catalogue.signals:
            table.fail(f"{{{name}}} is not a signal; the list: vllm-doctor rules --signals", key)


def check_examples(rule: Rule, catalogue: Catalogue) -> int:
    """Run a rule on its own examples; how many there are. Raises DocumentError at the first that fails."""
    given: set[str] = set()
    count = 0
    table = document.read(rule.table.path)
    for example in table.tables("examples"):
        expected = example.one_of("gives", (*SEVERITIES, OK, UNKNOWN, NOT_APPLICABLE))
        for name in example:
            if name != "gives" and name not in catalogue.signals:
                example.fail(f"{name!r} is not a signal; the list: vllm-doctor rules --signals", name)
            value = example[name]
            is_bounds = isinstance(value, list) and [type(end) in (int, float) for end in value] == [True, True]
            if not is_bounds and not isinstance(value, str | int | float | bool):
                example.fail(f"{name!r} must be a number, a text, true, false, or [low, high]", name)
        outcome = rule.judge(lambda name, example=example: example_reading(example.get(name)))  # type: ignore[misc]
        if outcome.state != expected:
            example.fail(f"the example gives {outcome.state}, not {expected}: mend the condition or the example")
        given.add(expected)
        count += 1
    for needed in (*rule.when, OK, UNKNOWN):
        if needed not in given:
            raise DocumentError(table.path, table.lines.get("examples"), f"an example with gives: {needed} is missing")
    return count


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


def shipped() -> Path:
    """The folder of the shipped rules: in the package when installed, beside it in a checkout."""
    folder = Path(__file__).parent
    inside, beside = folder / "shipped", folder.parents[1] / "rules"
    return inside if inside.is_dir() else beside
