"""The rules that judge, as the options choose them."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable
from pathlib import Path

from vllm_doctor.model.errors import UsageError
from vllm_doctor.rules import rule, rule_set
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule
from vllm_doctor.text import near


def folders(options: argparse.Namespace) -> tuple[Path, ...]:
    """Those of --rules: beside rules they may hold signals, log lines and overrides."""
    return tuple(map(Path, options.rules))


def load(options: argparse.Namespace) -> tuple[list[Rule], Catalogue]:
    """The chosen rules, and the signals that they read. Raises UsageError."""
    found = rule_set.load(folders(options))
    known = {r.id for r in found.rules}
    for id in [*options.rule, *options.skip]:
        if id not in known:
            raise UsageError(no_rule(id, found.rules))
    skipped = {*options.skip, *(found.skipped - set(options.rule))}
    chosen = [r for r in found.rules if (not options.rule or r.id in options.rule) and r.id not in skipped]
    if not chosen:
        raise UsageError("--rule and --skip leave no rule to judge by")
    return chosen, found.catalogue


def no_rule(id: str, rules: Iterable[Rule]) -> str:
    """What to say of an id that none of the rules has: with one that it is written like, or that holds it."""
    ids = [rule.id for rule in rules]
    close = near.name(id, ids) or next((known for known in ids if id and (id in known or known in id)), None)
    return f"no rule {id!r}" + (f"; did you mean {close!r}?" if close else "; the list: vllm-doctor rules")


def version(options: argparse.Namespace) -> str:
    """Their name: other rules, and other overrides, have another."""
    version = rule.version([rule.shipped(), *folders(options)])
    if not (options.rule or options.skip):
        return version
    return hashlib.sha256(repr((version, sorted(options.rule), sorted(options.skip))).encode()).hexdigest()[:12]
