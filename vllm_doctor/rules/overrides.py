"""overrides.yaml in a folder of one's own: what is changed in rules that others wrote.

    overrides:
      preemption:
        skip: true                    # not judged at all
      kv-cache-full:
        when:                         # a condition, a threshold above all, written anew
          warning: kv_cache_usage > 0.97
          critical: null              # no longer that severity
      swap-used:
        severity: {critical: warning} # what was critical is a warning
        because: our nodes always swap

`because` is optional and is shown wherever the rule is. A severity that `severity` moves keeps its condition, or the
one that `when` gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_doctor.expr.condition import Condition
from vllm_doctor.model.kinds import SEVERITIES, Severity
from vllm_doctor.rules import document
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.diagnosis_file import condition_of
from vllm_doctor.rules.document import Problems, Table
from vllm_doctor.rules.rule import Rule

KEYS = ("skip", "when", "severity", "because")


@dataclass(frozen=True, slots=True)
class Override:
    """What is changed in one rule. `when`: severity -> its new condition, None where it is dropped."""

    rule: str
    skip: bool
    when: Mapping[Severity, Condition | None]
    severity: Mapping[Severity, Severity]
    because: str
    table: Table

    @property
    def place(self) -> str:
        """File and line, and why."""
        return f"{self.table.path}:{self.table.line}" + (f" ({self.because})" if self.because else "")


def load(
    folders: Iterable[Path], rules: Sequence[Rule], catalogue: Catalogue, problems: Problems | None = None
) -> dict[str, Override]:
    """The overrides of all folders, by rule. Raises DocumentError; with `problems`, mistakes are noted there."""
    found: dict[str, Override] = {}
    known = {rule.id for rule in rules}
    for path in (path for folder in folders for path in places.overrides(folder)):
        with document.gathered(problems):
            root = document.read(path, problems=problems)
            root.allow("overrides")
            table = root.table("overrides")
            for id in table:
                if id not in known:
                    from difflib import get_close_matches  # late: only for a mistake

                    near = get_close_matches(id, known, 1)
                    table.mistake(f"no rule {id!r}" + (f"; meant {near[0]!r}?" if near else ""), id)
                elif id in found:
                    table.mistake(f"rule {id!r} is overridden twice (first in {found[id].place}): keep one", id)
                else:
                    found[id] = _override(id, table.table(id), catalogue)
    for rule in rules:
        if rule.id in found:
            _check(rule, found[rule.id])
    return found


def _override(id: str, table: Table, catalogue: Catalogue) -> Override:
    table.allow(*KEYS)
    skip = table.get("skip", False)
    if not isinstance(skip, bool):
        table.mistake("'skip' must be true or false", "skip")
    when, severity = table.table("when"), table.table("severity")
    when.allow(*SEVERITIES)
    severity.allow(*SEVERITIES)
    if not skip and not when and not severity:
        table.mistake("an override needs skip: true, 'when' or 'severity'")
    if skip is True and (when or severity):
        table.mistake("'skip' stands alone: the rule is not judged", "skip")
    conditions: dict[Severity, Condition | None] = {}
    for key in (one for one in SEVERITIES if one in when):
        if when[key] is None:
            conditions[key] = None
            continue
        with document.gathered(table.problems):
            conditions[key] = condition_of(when, key.value, catalogue.signals.__contains__)
    moved = {key: severity.one_of(key.value, SEVERITIES) for key in SEVERITIES if key in severity}
    because = table.text("because") if "because" in table else ""
    return Override(id, skip is True, conditions, moved, because, table)


def _check(rule: Rule, override: Override) -> None:
    """That what is changed is there, and that something is left."""
    table = override.table
    conditions = {**rule.when, **override.when}
    for severity, condition in override.when.items():
        if condition is None and severity not in rule.when:
            table.table("when").mistake(f"rule {rule.id!r} is never {severity}: leave it out", severity)
    targets: set[Severity] = set()
    for severity, to in override.severity.items():
        if conditions.get(severity) is None:
            table.table("severity").mistake(f"rule {rule.id!r} is never {severity}: leave it out", severity)
        stays = to not in override.severity and conditions.get(to) is not None
        if stays or to in targets:
            table.table("severity").mistake(f"two conditions would be {to}: drop one (when: {{{to}: null}})", severity)
        targets.add(to)
    if not override.skip and not any(conditions.values()):
        table.mistake("no condition is left: write skip: true", "when")


def applied(rule: Rule, override: Override) -> Rule:
    """The rule as the override has it; its page and its findings say so."""
    conditions = {**rule.when, **override.when}
    moved = {override.severity.get(severity, severity): condition for severity, condition in conditions.items()}
    when = {s: c for s in SEVERITIES if (c := moved.get(s)) is not None}
    said = f"This rule is changed by {override.place}.".replace("{", "(").replace("}", ")")
    return replace(rule, when=when, here=(*rule.here, said), overridden=override.place)
