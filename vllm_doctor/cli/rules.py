"""The rules, to be read, to be checked, and to be begun."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.options import Parser, add_config
from vllm_doctor.cli.output import say
from vllm_doctor.model.errors import UsageError
from vllm_doctor.rules import rule_set, rulebook
from vllm_doctor.rules.rule_set import RuleSet
from vllm_doctor.text import redact


def run(arguments: Sequence[str]) -> int:
    """Print the list, a page, the signals, the schemas, or what the check found well; 0, or it raises."""
    options = parser().settled(arguments)
    asked = [f"--{name}" for name in ("check", "new", "schemas", "signals") if getattr(options, name)]
    asked += [options.id] if options.id else []
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)}: ask for one of them")
    if "--output" in options.given and not options.new:
        raise UsageError("-o is where --new writes a rule: leave it out, or name one (rules --new my-rule -o DIR)")
    if "--rules" in options.given and (options.check or options.new or options.schemas):
        raise UsageError(f"--rules is of the list, a page and --signals, not of {asked[0]}: leave it out")
    if options.check:
        return _check(Path(options.check))
    if options.new:
        return _new(options.new, Path(options.output))
    if options.schemas:
        return _schemas()
    found = rule_set.load([Path(folder) for folder in options.rules])
    if options.signals:
        say(rulebook.signals(found.catalogue))
    else:
        say(rulebook.listing(found) if options.id is None else _page(options.id, found))
    return 0


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor rules",
        "The list of rules; one rule's page; the check of a folder of rules.",
        "[ID] [options]",
        (
            ("vllm-doctor rules preemption", "what a rule looks for, why, and its fixes"),
            ("vllm-doctor rules --check my-rules", "every mistake in a folder, and the examples run"),
        ),
    )
    parser.add_argument("id", nargs="?", metavar="ID")
    parser.add_argument("--check", metavar="DIR", help="report every mistake in DIR, and run the rules' examples")
    parser.add_argument("--new", metavar="ID", help="write a rule to be filled in: ID.yaml")
    parser.add_argument("-o", "--output", metavar="DIR", default=".", help="where --new writes it (here)")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="DIR", help="more rules, signals, log lines, and overrides"
    )
    parser.add_argument("--signals", action="store_true", help="the signals that rules may name")
    parser.add_argument("--schemas", action="store_true", help="where the JSON Schemas for editors are")
    add_config(parser, "rules")
    return parser


def _check(folder: Path) -> int:
    from vllm_doctor.rules import lint

    mistakes, counted = lint.check(folder)
    if not mistakes:
        say(f"{counted} pass\n")
        return 0
    say("".join(f"{redact.text(line, Counter())}\n" for line in mistakes))
    raise UsageError(f"{len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''} in {folder} ({counted})")


def _new(id: str, folder: Path) -> int:
    from vllm_doctor.rules import skeleton

    path = skeleton.write(id, folder)
    say(f"{path}: fill it in; what is missing: vllm-doctor rules --check {shlex.quote(str(folder))}\n")
    return 0


def _schemas() -> int:
    from vllm_doctor.rules import schemas

    say("".join(f"{name:<12}{schemas.path(name)}\n" for name in schemas.NAMES))
    return 0


def _page(id: str, found: RuleSet) -> str:
    rule = next((r for r in found.rules if r.id == id), None)
    if rule is None:
        raise UsageError(chosen_rules.no_rule(id, found.rules))
    return rulebook.page(rule, id in found.skipped)
