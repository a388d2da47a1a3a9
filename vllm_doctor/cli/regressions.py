"""What is known to be wrong in a vLLM version, and what an upgrade brings."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from vllm_doctor.cli.options import Parser
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
All other options are vLLM's own, as `vllm serve` takes them: -tp 4, --kv-cache-dtype fp8, --speculative-config ...
What is not told (model, GPUs, options) is taken as not known: an entry that depends on it is "possibly" there.
exit codes: 0 answered, 3 wrong usage.
"""


def run(arguments: Sequence[str]) -> int:
    """0: answered, whatever was found."""
    options, given = _parsed(arguments)
    versions = [upgrade.release(word) for word in options.versions]
    rules = rule_set.load([Path(folder) for folder in options.rules])
    read, is_amd = _setup(options, given, rules, versions)
    if len(versions) == 2:
        found = upgrade.upgrade(rules.faults, versions[0], versions[1], read)
        model = redact.text(options.model or "MODEL", Counter())
        if options.json:
            from vllm_doctor.render import regressions_json

            rendered = regressions_json.upgraded(found, model, is_amd, datetime.now(UTC))
        else:
            from vllm_doctor.render import regressions_text

            rendered = regressions_text.upgraded(found, model, is_amd)
    else:
        version = versions[0] if versions else None
        listed = upgrade.listing(rules.faults, version, read)
        if options.json:
            from vllm_doctor.render import regressions_json

            rendered = regressions_json.listed(listed, version, datetime.now(UTC))
        else:
            from vllm_doctor.render import regressions_text

            rendered = regressions_text.listed(listed, version, len(rules.faults))
    write(rendered, options)
    return 0


def _setup(
    options: argparse.Namespace, given: Sequence[str], rules: RuleSet, versions: Sequence[str]
) -> tuple[upgrade.Read, bool]:
    """What is known of the setup, and whether its GPUs are AMD's."""
    if options.command is not None and (given or options.model):
        raise UsageError("--command holds vLLM's own options: write the others there (vllm-doctor regressions --help)")
    if not (options.command or options.model or options.gpu or given):
        return upgrade.unknown, False
    words = ["vllm", "serve", *([options.model] if options.model else []), *given]
    command = options.command if options.command is not None else shlex.join(words)
    read = written.read(command, options.gpu, versions[-1] if versions else flags.newest(), rules.catalogue)
    amd = read("gpu_is_amd")
    return read, isinstance(amd, Known) and amd.value == 1


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(
        "vllm-doctor regressions",
        "Known faults of a vLLM version, or what an upgrade brings this setup, and how to bisect a difference.",
    )
    parser.usage = "vllm-doctor regressions [VERSION | FROM TO] [--model MODEL] [--gpu 4xH100] [vLLM's own options]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the model: its name on the Hugging Face Hub, or its folder")
    add("--gpu", metavar="NAME", help="the GPUs: H100, 8xL40S, 4090, 'RTX PRO 6000'")
    add("--command", metavar="TEXT|FILE", help="how the server is started, in place of --model and vLLM's options")
    add("--rules", action="append", default=[], metavar="DIR", help="more rules, signals and known faults")
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON output, version 1")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    versions, rest = _versions(arguments)
    options, given = parser.parse_known_args(rest)
    options.versions = versions
    return options, given


def _versions(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The versions stand first, at most two."""
    words = list(arguments)
    found: list[str] = []
    while words and not words[0].startswith("-"):
        found.append(words.pop(0))
    if len(found) > 2:
        raise UsageError("one version, or two: vllm-doctor regressions 0.19.0 0.21.0 (vllm-doctor regressions --help)")
    return found, words
