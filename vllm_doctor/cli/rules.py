"""The rules, to be read and to be checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_doctor.cli.options import Parser
from vllm_doctor.cli.output import say
from vllm_doctor.model.errors import UsageError
from vllm_doctor.rules import catalogue, rule, rulebook


def run(arguments: Sequence[str]) -> int:
    """Print the list, a page, the signals, or what the lint found well; 0, or it raises."""
    parser = Parser("vllm-doctor rules", "The list of rules; one rule's page; the lint of a folder of rules.")
    parser.add_argument("id", nargs="?", metavar="ID")
    parser.add_argument("--check", metavar="DIR", help="lint the rules in DIR and run their examples")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="more rules")
    parser.add_argument("--signals", action="store_true", help="the signals that rules may name")
    options = parser.parse_args(arguments)
    shipped = rule.shipped()
    signals = catalogue.load(shipped)
    if options.check:
        say(rulebook.check(Path(options.check), [shipped], signals))
        return 0
    if options.signals:
        say(rulebook.signals(signals))
        return 0
    rules = rule.load([shipped, *map(Path, options.rules)], signals)
    if options.id is None:
        say(rulebook.listing(rules))
        return 0
    found = next((r for r in rules if r.id == options.id), None)
    if found is None:
        near = [r.id for r in rules if options.id in r.id or r.id in options.id]
        raise UsageError(
            f"no rule {options.id!r}" + (f"; meant {near[0]!r}?" if near else "; the list: vllm-doctor rules")
        )
    say(rulebook.page(found))
    return 0
