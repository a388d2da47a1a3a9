"""What is known to be wrong in a vLLM version, and what an upgrade brings."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vllm_doctor.cli.options import Parser, add_config, form_of
from vllm_doctor.cli.output import write
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.regressions import upgrade
from vllm_doctor.rules import rule_set
from vllm_doctor.rules.rule_set import RuleSet
from vllm_doctor.session import written
from vllm_doctor.text import redact
from vllm_doctor.vllm import flags

_EPILOG = """\
A SOURCE is what the examination takes: a log (its first lines are enough), a URL, a manifest, a recording. Its version
is read from it, or from the image in --command; with one VERSION given with it: what the upgrade to that brings.
All other options are vLLM's own, as `vllm serve` takes them: -tp 4, --kv-cache-dtype fp8, --speculative-config ...
What is not given (model, GPUs, options) counts as not known: an entry that depends on it is "possibly" there.
exit codes: 0 answered, 3 wrong usage, or a source that cannot be read.
"""


@dataclass(frozen=True)
class _Setup:
    """`read`: None where nothing is told. `version`: the one that runs, where a source or a command says so.

    `notes`: what --gpu is taken for.
    """

    read: upgrade.Read | None = None
    version: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()

    def of(self, signal: str) -> object:
        """Its value, None where that is not known."""
        reading = self.read(signal) if self.read else None
        return reading.value if isinstance(reading, Known) else None


def run(arguments: Sequence[str]) -> int:
    """0: answered, whatever was found."""
    options, given = _parsed(arguments)
    form_of(options)
    rules = rule_set.load([Path(folder) for folder in options.rules])
    setup = _setup(options, given, rules, [upgrade.release(word) for word in options.versions])
    named = _versions(setup, options.versions)
    builds = [version for version in named if not upgrade.is_release(version)]
    versions = list(dict.fromkeys(map(upgrade.release, named)))
    notes = [f"{version} is judged as {upgrade.release(version)}: of a build nothing is certain." for version in builds]
    notes += [f"{note}." for note in setup.notes]
    told = {} if setup.read is None else upgrade.setup(setup.read)
    if len(versions) == 2:
        entries = [*rules.faults, *rules.improvements]
        found = upgrade.upgrade(entries, versions[0], versions[1], setup.read)
        found = upgrade.of_builds(found) if builds else found
        model = redact.text(options.model or setup.model or "MODEL", Counter())
        is_amd = setup.of("gpu_is_amd") == 1
        if options.json:
            from vllm_doctor.render import regressions_json

            rendered = regressions_json.upgraded(found, told, model, is_amd, datetime.now(UTC))
        else:
            from vllm_doctor.render import regressions_text

            about = regressions_text.About(setup.read is not None, told, notes, rules.catalogue.signals)
            rendered = regressions_text.upgraded(found, about, model, is_amd)
    else:
        version = versions[0] if versions else None
        listed, lacking = (
            upgrade.listing(entries, version, setup.read) for entries in (rules.faults, rules.improvements)
        )
        if builds:
            listed, lacking = upgrade.as_build(listed), upgrade.as_build(lacking)
        if options.json:
            from vllm_doctor.render import regressions_json

            rendered = regressions_json.listed(listed, lacking, told, version, datetime.now(UTC))
        else:
            from vllm_doctor.render import regressions_text

            about = regressions_text.About(setup.read is not None, told, notes, rules.catalogue.signals)
            rendered = regressions_text.listed(listed, lacking, about, version, len(rules.faults))
    write(rendered, options)
    return 0


def _versions(setup: _Setup, given: Sequence[str]) -> list[str]:
    """What is asked of, or from which to which; none: any. What runs is the first, where one is given."""
    own = [setup.version] if setup.version and len(given) < 2 else []
    return [*own, *given]


def _setup(options: argparse.Namespace, given: Sequence[str], rules: RuleSet, versions: Sequence[str]) -> _Setup:
    """What is known of the setup."""
    if (options.command is not None or options.sources) and (given or options.model):
        raise UsageError(
            "a source or --command holds vLLM's own options: write the others there (vllm-doctor regressions --help)"
        )
    command = options.command
    if command is None and (options.model or options.gpu or given) and not options.sources:
        words = ["vllm", "serve", *([options.model] if options.model else []), *given]
        command = shlex.join(words)
    if command is None and not options.sources:
        return _Setup()
    look = written.look(command, options.gpu, None, rules.catalogue, options.sources)
    told = look.read("vllm_version")
    if isinstance(told, Known):
        return _Setup(look.read, str(told.value), look.model, look.notes)
    if not options.sources:  # what the command alone leaves open, as that release has it
        look = written.look(command, options.gpu, versions[-1] if versions else flags.newest(), rules.catalogue)
    return _Setup(look.read, None, look.model, look.notes)


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    made = parser()
    words, rest = _words(arguments)
    options, given = made.settled_known(rest)
    if slip := made.slip(given, flags.is_flag):
        raise UsageError(slip)
    options.versions = [word for word in words if upgrade.is_version(word)]
    options.sources = [word for word in words if not upgrade.is_version(word)]
    if len(options.versions) > 2:
        raise UsageError("one version, or two: vllm-doctor regressions 0.19.0 0.21.0 (vllm-doctor regressions --help)")
    return options, given


def parser() -> Parser:
    """Its own options."""
    parser = Parser(
        "vllm-doctor regressions",
        "Known faults of a vLLM version and what came only later, or what an upgrade brings this setup, and how to"
        " bisect a difference.",
        "[SOURCE] [VERSION | FROM TO] [--model MODEL] [--gpu 4xH100] [vLLM's own options]",
        (
            ("vllm-doctor regressions 0.19.0 0.21.0 --gpu H100", "what an upgrade brings on this GPU"),
            ("vllm-doctor regressions vllm.log", "known faults of the version, model and flags of a log"),
        ),
    )
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the model: its name on the Hugging Face Hub, or its folder")
    add("--gpu", metavar="NAME", help="the GPUs: H100, 8xL40S, 4090, 'RTX PRO 6000'")
    add("--command", metavar="TEXT|FILE", help="how the server is started, in place of --model and vLLM's options")
    add("--rules", action="append", default=[], metavar="DIR", help="more rules, signals and known faults")
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON output, version 1")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add_config(parser, "rules")
    return parser


def _words(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Sources and versions stand first."""
    words = list(arguments)
    found: list[str] = []
    while words and (words[0] == "-" or not words[0].startswith("-")):
        found.append(words.pop(0))
    return found, words
