"""Where the processes of a server spend their time, by part, and what of it a flag cures."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.options import (
    Parser,
    access_of,
    add_choosing,
    add_failing,
    add_quiet,
    add_sourcing,
    attachment_of,
    form_of,
    seconds,
    wishes_of,
    words_of,
)
from vllm_doctor.cli.output import is_coloured, write
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import Severity, SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.profile import Profile
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.session import progress
from vllm_doctor.session.attach import attach
from vllm_doctor.session.judge import judge
from vllm_doctor.session.observe import observe
from vllm_doctor.sources.profile.profiler import MOST_RATE, MOST_SECONDS, RATE, SECONDS, How
from vllm_doctor.text import redact

FORMATS = ("text", "json", "markdown", "html", "collapsed")
SIGNALS = "profile_"
"""How the signals begin that a profile gives: a finding that one of them is evidence of follows from it."""
_BESIDE = 12.0
"""Seconds beside those in which it samples: to find the server, to begin, to write."""
_EPILOG = f"""\
SOURCE is a pid of a server of this host, or its URL; none: every vLLM server of this host. Nothing is changed, started
again or stopped, and neither arguments nor local variables are read. It needs py-spy (pip install py-spy), and the
right to read another process's memory: as the server's user or root, in a container with SYS_PTRACE.
At most {MOST_SECONDS:g} seconds, and {MOST_RATE} samples per second.
exit codes: 0 ok, 1 warning, 2 critical, 3 no verdict: a process could not be sampled, or all was idle.
"""


@dataclass(frozen=True)
class _Seen:
    """What was looked into, and the report of the findings that follow from it."""

    profiles: dict[str, Profile]
    report: Report


def run(arguments: Sequence[str]) -> int:
    """The exit code is that of what follows from the profile."""
    options = parser().settled(arguments)
    _check(options)
    how = How(options.seconds, options.rate, options.native)
    seen = _looked(words_of(options), options, how)
    form = form_of(options)
    if form == "json":
        from vllm_doctor.render import profile_json

        rendered = profile_json.render(seen.profiles, seen.report)
    elif form == "collapsed":
        rendered = "".join(_collapsed(seen.profiles))
    else:
        from vllm_doctor.render import profile_page

        page = profile_page.page(list(seen.profiles.values()), seen.report)
        rendered = _painted(page, form, is_coloured(options))
    write(rendered, options)
    if seen.report.error is not None:
        print(f"vllm-doctor: {seen.report.error.message}", file=sys.stderr)
    return _exit_code(seen, options.fail_on)


def _painted(page: object, form: str, colour: bool) -> str:
    from typing import cast

    from vllm_doctor.render.page import Page

    if form == "html":
        from vllm_doctor.render import html

        return html.paint(cast(Page, page))
    if form == "markdown":
        from vllm_doctor.render import markdown

        return markdown.paint(cast(Page, page))
    from vllm_doctor.render import text

    return text.paint(cast(Page, page), colour)


def _collapsed(profiles: dict[str, Profile]) -> list[str]:
    """The stacks of all processes, each under its role and pid, for flamegraph.pl, speedscope or inferno."""
    lines = []
    for profile in profiles.values():
        for process in profile.processes:
            root = f"{process.role} (pid {process.pid})"
            lines += [f"{root};{line}\n" for line in profile.stacks.get(process.pid, "").splitlines()]
    return lines


def _looked(words: Sequence[str], options: argparse.Namespace, how: How) -> _Seen:
    """Raises SourceError where nothing could be looked into."""
    timeout = how.seconds + _BESIDE
    deadline = time.monotonic() + timeout
    rules, signals = chosen_rules.load(options)
    attachment = replace(attachment_of(options, access_of(options), signals, how.seconds, deadline), profile=how)
    with contextlib.ExitStack() as opened:
        sources = attach(words, attachment, opened)
        if not any(source.kind is SourceKind.PROFILE for source in sources):
            raise SourceError(
                "not-found",
                "no process of this server is visible here: run vllm-doctor profile on its host, as root or the"
                " server's user (a container needs --cap-add SYS_PTRACE), or name its pid",
            )
        opened.enter_context(progress.shown(sources, how.seconds, options.quiet))
        observations = observe(sources, timeout)
    found = {o.target: o.profile for o in observations if o.profile is not None and o.error is None}
    if not found:
        problem = next(o.error for o in observations if o.kind is SourceKind.PROFILE and o.error is not None)
        raise SourceError(problem.kind, problem.message)
    return _Seen(found, redact.report(_report(observations, rules, signals, wishes_of(options))))


def _report(observations: Sequence[Observation], rules: object, signals: object, wishes: object) -> Report:
    """Of all that was judged, only what the profile is evidence of."""
    report = judge(observations, rules, signals, wishes, datetime.now(UTC))  # type: ignore[arg-type]
    follows = tuple(
        finding
        for finding in report.findings
        if any(evidence.signal.startswith(SIGNALS) for evidence in finding.evidence)
    )
    return replace(report, findings=follows)


def _exit_code(seen: _Seen, fail_on: str) -> int:
    grave = {finding.severity for finding in seen.report.findings if finding.is_grave}
    if fail_on == "never":
        return 0
    if not grave:
        is_unsure = any(profile.unsure for profile in seen.profiles.values())
        return Verdict.UNKNOWN.exit_code if is_unsure else Verdict.OK.exit_code
    if Severity.CRITICAL in grave:
        return Verdict.CRITICAL.exit_code
    return 0 if fail_on == "critical" else Verdict.WARNING.exit_code


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor profile",
        "Where a server's processes spend their time, without a restart.",
        "[PID|URL]... [--seconds 10] [--rate 20] [--native] [--format FORMAT] [options]",
        (
            ("sudo vllm-doctor profile", "each vLLM server of this host, for ten seconds"),
            ("vllm-doctor profile 27038 --format collapsed -o stacks.txt", "the stacks of one, for a flame graph"),
        ),
    )
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("source", nargs="*", metavar="SOURCE", help="a pid of a server of this host, or its URL")
    add("--seconds", type=seconds, default=SECONDS, metavar="SECONDS", help=f"how long ({SECONDS:g})")
    add("--rate", type=int, default=RATE, metavar="N", help=f"samples per second of each process ({RATE})")
    add(
        "--native",
        action="store_true",
        help="native frames too, and with them garbage collection: stops each process for a moment at each sample",
    )
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON output, version 1")
    add("--format", choices=FORMATS, help="output format; collapsed: the stacks, for a flame graph")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add_failing(parser)
    add_choosing(parser)
    add_sourcing(parser)
    add_quiet(parser)
    return parser


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError."""
    if not 1 <= options.seconds <= MOST_SECONDS:
        raise UsageError(f"--seconds {options.seconds:g}: from 1 to {MOST_SECONDS:g}")
    if not 1 <= options.rate <= MOST_RATE:
        raise UsageError(f"--rate {options.rate}: from 1 to {MOST_RATE}")
