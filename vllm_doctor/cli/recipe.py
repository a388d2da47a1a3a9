"""What the recipe of a model on a GPU sets, beside what a server is set to."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from vllm_doctor.cli.options import Parser, form_of
from vllm_doctor.cli.output import write
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.rules import rule_set
from vllm_doctor.session import written
from vllm_doctor.vllm import flags, recipes

_EPILOG = """\
A SOURCE is what the examination takes: a log, a URL, a manifest, a recording. All other options are vLLM's own.
A recipe is a start that its authors found to work on that hardware, no measurement of each setting.
exit codes: 0 answered, 3 wrong usage, or a source that cannot be read.
"""


def run(arguments: Sequence[str]) -> int:
    """0: answered, whatever was found."""
    options, given = _parsed(arguments)
    form_of(options)
    if (options.command is not None or options.sources) and (given or options.model):
        raise UsageError("a source or --command holds the model and vLLM's options (vllm-doctor recipe --help)")
    command = options.command
    if command is None and not options.sources:
        if not options.model:
            raise UsageError("name a model, a source or a --command (vllm-doctor recipe --help)")
        command = shlex.join(["vllm", "serve", options.model, *given])
    look = written.look(command, options.gpu, None, rule_set.load([]).catalogue, options.sources)
    readings = {name: look.read(name) for name in ("vllm_version", "gpu_name")}
    told = {name: reading.value for name, reading in readings.items() if isinstance(reading, Known)}
    version = str(told.get("vllm_version", flags.newest()))
    found = recipes.beside(look.model, str(told.get("gpu_name", "")), version, look.facts)
    found = replace(found, is_told="vllm_version" in told)
    if options.json:
        from vllm_doctor.render import recipe_json

        rendered = recipe_json.render(found, datetime.now(UTC))
    else:
        from vllm_doctor.render import recipe_text

        rendered = recipe_text.render(found)
    write(rendered, options)
    return 0


def _parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    made = parser()
    words = list(arguments)
    sources: list[str] = []
    while words and (words[0] == "-" or not words[0].startswith("-")):
        sources.append(words.pop(0))
    options, given = made.settled_known(words)
    if slip := made.slip(given, flags.is_flag):
        raise UsageError(slip)
    options.sources = sources
    return options, given


def parser() -> Parser:
    """Its own options."""
    parser = Parser(
        "vllm-doctor recipe",
        "Where vllm-project/recipes has the model and the GPU: what differs, and which of it matters.",
        "[SOURCE] [--model MODEL] [--gpu 4xH100] [vLLM's own options]",
        (
            ("vllm-doctor recipe vllm.log", "compared to what the server of this log was started with"),
            ("vllm-doctor recipe --model Qwen/Qwen3-8B --gpu H100", "of a model on a GPU"),
        ),
    )
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the model: its name on the Hugging Face Hub")
    add("--gpu", metavar="NAME", help="the GPUs: H100, 8xL40S, 'RTX PRO 6000'")
    add("--command", metavar="TEXT|FILE", help="how the server is started, in place of --model and vLLM's options")
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON output, version 1")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    return parser
