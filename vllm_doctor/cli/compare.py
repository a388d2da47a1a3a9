"""Two examinations under the same load, compared."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vllm_doctor.cli.options import (
    NOT_ASKED,
    Parser,
    add_choosing,
    add_log_range,
    add_output,
    add_sourcing,
    add_time,
    form_of,
    given_of,
)
from vllm_doctor.cli.output import is_coloured, write
from vllm_doctor.compare import comparison, results
from vllm_doctor.compare.comparison import Result
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.report import Report
from vllm_doctor.session.sources import trace
from vllm_doctor.session.sources.log import STDIN
from vllm_doctor.text import redact

_WINDOW = 20.0
"""Seconds for which a server is watched: fewer say less of the difference."""
_LONGEST = 300.0
"""The most for which AFTER is watched because BEFORE was."""
_OF_TRACES = frozenset({"--text", "--json", "--format", "-o", "--goal", "--quiet", "--no-config"})
"""The options that a comparison of traces takes."""
_OF_RESULTS = _OF_TRACES | {"--open-loop", "--rules"}
"""Those of a comparison of results, of which none is examined."""
_LOOKED_AT = ("recording", "server", "log")
"""Kinds of results that hold more of their setup than a result tells."""


def run(arguments: Sequence[str]) -> int:
    """0: it got better; 2: worse; 3: nothing can be concluded."""
    options = parser().settled(arguments)
    form = form_of(options)
    are_traces = [trace.is_on_stdin() if word == STDIN else trace.is_named_by(word) for word in _sides(options)]
    if any(are_traces):
        _of_one_kind(options, are_traces)
        return _of_traces(options, form)
    is_asked = options.window is not None
    if not is_asked:
        options.window = _WINDOW
    judges: list[Callable[[Sequence[str]], Report]] = []
    given = given_of(options, is_more=True)

    def look(source: str) -> dict[str, Any]:
        from vllm_doctor.cli import one_shot  # imported here: files that hold reports need no rules and no client
        from vllm_doctor.render import json_v1

        if not judges:
            judges.append(one_shot.judge_of(options, is_measured=True, given=given))
        return json_v1.document(judges[0]([source]))

    before = results.of_source(options.before, look)
    if not is_asked and not judges:
        options.window = min(max(_WINDOW, before.seconds or 0.0), _LONGEST)
    after = results.of_source(options.after, look)
    given.check()
    if not judges and (strangers := sorted(options.given - _OF_RESULTS)):
        raise UsageError(f"{strangers[0]} is of an examination, and both sides are results already: leave it out")
    if before.model is not None and after.model is not None and before.model != after.model:
        raise UsageError(f"two different models cannot be compared: {before.model} before, {after.model} after")
    compared = comparison.compared(before, after, options.goal or "throughput", options.open_loop)
    found = redact.anything(replace(compared, notes=(*compared.notes, *_known_faults(before, after, options))))
    if form == "json":
        from vllm_doctor.render import compare_json

        rendered = compare_json.render(found, datetime.now(UTC))
    else:
        from vllm_doctor.render import compare_text

        rendered = compare_text.render(found, is_coloured(options))
    write(rendered, options)
    return found.outcome.exit_code


def _sides(options: argparse.Namespace) -> tuple[str, str]:
    return options.before, options.after


def _of_one_kind(options: argparse.Namespace, are_traces: Sequence[bool]) -> None:
    """Raises UsageError where a trace stands beside something else."""
    if _sides(options) == (STDIN, STDIN):
        raise UsageError("standard input gives one trace: name the other one")
    if not all(are_traces):
        sides = ["standard input" if word == STDIN else word for word in _sides(options)]
        one, other = sides if are_traces[0] else reversed(sides)
        raise UsageError(f"{one} is a profiler's trace, and {other} is none: a trace is compared with another trace")


def _of_traces(options: argparse.Namespace, form: str) -> int:
    """Two traces of a profiler: what of a step grew. Raises UsageError for an option that says nothing of traces."""
    if strangers := sorted(options.given - _OF_TRACES):
        raise UsageError(f"{strangers[0]} is not of traces: of two of them only the steps are compared; leave it out")
    from vllm_doctor.compare import traces
    from vllm_doctor.sources.trace import source

    seen = []
    for name in _sides(options):
        found = source.examine(trace.origins(name), name)
        if found.trace is None:
            raise SourceError(found.error.kind, found.error.message) if found.error else UsageError(f"{name}: no trace")
        seen.append(found.trace)
    compared = redact.anything(traces.compared(*seen))
    if form == "json":
        from vllm_doctor.render import compare_trace_json

        rendered = compare_trace_json.render(compared, options.goal or "throughput", datetime.now(UTC))
    else:
        from vllm_doctor.render import compare_trace_text

        rendered = compare_trace_text.render(compared, is_coloured(options))
    write(rendered, options)
    return compared.outcome.exit_code


def _known_faults(before: Result, after: Result, options: argparse.Namespace) -> list[str]:
    """Of two releases, what is known of this setup, one line each."""
    from vllm_doctor.model.errors import DoctorError
    from vllm_doctor.vllm import flags

    one, other = (flags.number(result.vllm or "") for result in (before, after))
    if one is None or other is None or one == other or not (before.vllm and after.vllm):
        return []
    from vllm_doctor.regressions import upgrade
    from vllm_doctor.rules import rule_set
    from vllm_doctor.session import written

    rules = rule_set.load([Path(folder) for folder in options.rules])
    first, last = (before.vllm, after.vllm) if one < other else (after.vllm, before.vllm)
    try:
        if after.kind in _LOOKED_AT:
            read = written.look(None, None, None, rules.catalogue, [options.after]).read
        else:
            read = written.look(_command(after), after.hardware, after.vllm, rules.catalogue).read
    except DoctorError:
        read = upgrade.unknown
    lines = list(upgrade.lines(upgrade.upgrade([*rules.faults, *rules.improvements], first, last, read)))
    return [*lines, f"what is known of these two releases: vllm-doctor regressions {first} {last}"]


def _command(result: Result) -> str:
    """What its server was started with, as far as it tells."""
    words = ["vllm", "serve", *([result.model] if result.model else [])]
    for name, value in (result.flags or {}).items():
        if name.startswith("--") and value is True:
            words.append(name)
        elif name.startswith("--") and value is not False:
            words.append(f"{name}={int(value) if isinstance(value, float) and value.is_integer() else value}")
    return shlex.join(words)


def parser() -> Parser:
    """Its options: those of an examination that hold for both sides."""
    parser = Parser(
        "vllm-doctor compare",
        "Verify the fix: what got better or worse between two examinations under the same load.",
        "BEFORE AFTER [options]",
        (
            ("vllm-doctor compare before.json after.json", "two saved reports (vllm-doctor URL --json -o before.json)"),
            ("vllm-doctor compare before.tar.gz http://127.0.0.1:8000", "a recording, and the server as it runs now"),
        ),
    )
    parser.epilog = "exit codes: 0 PASS, better; 2 FAIL, worse; 3 INCONCLUSIVE, or nothing to compare."
    told = (
        "a report (--json), a recording, a result of `vllm bench serve` or GuideLLM, a log, a URL or a pid; a"
        " profiler's trace, against another"
    )
    parser.add_argument("before", metavar="BEFORE", help=told)
    parser.add_argument("after", metavar="AFTER", help="the same, of the server after the change")
    parser.add_argument(
        "--open-loop",
        action="store_true",
        help="requests come at a rate of their own, whatever the server does: the same rate is the same load",
    )
    add_output(parser, ("text", "json"))
    add_time(parser, f"{_WINDOW:.0f}; AFTER as long as BEFORE was")
    add_log_range(parser)
    add_sourcing(parser, has_roles=False)
    add_choosing(parser)
    parser.set_defaults(**NOT_ASKED)
    return parser
