"""All that judges: the shipped rules and signals, those of one's own folders, and what their overrides change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.rules import catalogue, overrides, pickled, regression, rule
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.overrides import Override
from vllm_doctor.rules.regression import Regression
from vllm_doctor.rules.rule import Rule
from vllm_doctor.rules.table import Problems


@dataclass(frozen=True)
class RuleSet:
    """`as_written`: the rules before the overrides. Those that an override skips are among `rules` all the same.
    `faults`: what is known to be wrong in which vLLM; `improvements`: what came only with a later one."""

    rules: tuple[Rule, ...]
    as_written: tuple[Rule, ...]
    catalogue: Catalogue
    overrides: Mapping[str, Override]
    faults: tuple[Regression, ...]
    improvements: tuple[Regression, ...]

    @property
    def judging(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.id not in self.skipped)

    @property
    def skipped(self) -> frozenset[str]:
        return frozenset(id for id, override in self.overrides.items() if override.skip)


def load(folders: Sequence[Path], problems: Problems | None = None) -> RuleSet:
    """What these folders hold, beside what is shipped. Raises DocumentError, UsageError where there is no folder.

    With `problems`, mistakes are noted there, and what is wrong is left out as far as it can be.
    """
    others = own(folders)
    if not others and problems is None:
        return pickled.load(pickled.RULES, lambda: _read([], None))
    places.check(others)
    return _read(others, problems)


def _read(others: Sequence[Path], problems: Problems | None) -> RuleSet:
    shipped = places.shipped()
    signals = catalogue.load(shipped, *others, problems=problems)
    entries = regression.load([shipped, *others], signals.signals, problems)
    rules = rule.load([shipped, *others], signals, problems, entries)
    changes = overrides.load(others, rules, signals, problems)
    faults = tuple(entry for entry in entries if not entry.is_improvement)
    improvements = tuple(entry for entry in entries if entry.is_improvement)
    changed = (overrides.applied(one, changes[one.id]) if one.id in changes else one for one in rules)
    return RuleSet(tuple(changed), rules, signals, changes, faults, improvements)


def own(folders: Sequence[Path]) -> list[Path]:
    """Those that are not among the shipped ones."""
    shipped = places.shipped().resolve()
    return [folder for folder in folders if not folder.resolve().is_relative_to(shipped)]
