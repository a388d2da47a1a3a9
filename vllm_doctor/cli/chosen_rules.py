"""The rules that judge, as the options choose them."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from vllm_doctor.model.errors import UsageError
from vllm_doctor.rules import catalogue, compiled, rule
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import Rule


def load(options: argparse.Namespace) -> tuple[list[Rule], Catalogue]:
    """The chosen rules, and the signals that they read. Raises UsageError."""
    shipped = rule.shipped()
    signals = catalogue.load(shipped)
    rules = rule.load([shipped, *map(Path, options.rules)], signals)
    compiled.write()
    known = {r.id for r in rules}
    for id in [*options.rule, *options.skip]:
        if id not in known:
            raise UsageError(f"no rule {id!r}; the list: vllm-doctor rules")
    return [r for r in rules if (not options.rule or r.id in options.rule) and r.id not in options.skip], signals


def version(options: argparse.Namespace) -> str:
    """Their name: other rules have another."""
    version = rule.version([rule.shipped(), *map(Path, options.rules)])
    if not (options.rule or options.skip):
        return version
    return hashlib.sha256(repr((version, sorted(options.rule), sorted(options.skip))).encode()).hexdigest()[:12]
