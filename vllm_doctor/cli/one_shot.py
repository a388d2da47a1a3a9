"""One examination, and one report of it."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.options import (
    GLANCE,
    ONE_DAY,
    PROFILED,
    QUIET,
    WINDOW,
    access_of,
    examining_attachment_of,
    form_of,
    wishes_of,
)
from vllm_doctor.cli.output import exit_code, is_coloured, write
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Report
from vllm_doctor.session import progress
from vllm_doctor.session.applying import Given
from vllm_doctor.session.attach import attach
from vllm_doctor.session.judge import judge
from vllm_doctor.session.observe import observe
from vllm_doctor.session.sources import prometheus
from vllm_doctor.sources.server import own_time
from vllm_doctor.sources.server.own_time import NOTHING, OwnTime
from vllm_doctor.text import redact, words

_QUERIES = 60.0
"""Seconds that all queries of a Prometheus may take together."""
_JUDGING = 1.0
"""Seconds to judge what was observed to the last moment: an engine takes a hundredth of it."""
_LEFT_TO_DO = 0.24
"""Seconds of a CPU that it takes to judge one server and to write, beside looks that were late (measured)."""


def run(sources: Sequence[str], options: argparse.Namespace) -> int:
    """Examine these sources and write the report; the exit code."""
    report = judge_of(options, form_of(options) in ("json", "html"), started=own_time.of_start())(sources)
    _write(report, options)
    if options.format == "patch" and report.error is None:
        from vllm_doctor.render import patch

        if remark := patch.remark(report):
            print(f"vllm-doctor: {remark}", file=sys.stderr)
    if report.error is not None:
        print(f"vllm-doctor: {report.error.message}", file=sys.stderr)
    return exit_code(report, options.fail_on)


def judge_of(
    options: argparse.Namespace,
    is_measured: bool,
    is_quiet: bool = False,
    started: OwnTime = NOTHING,
    given: Given | None = None,
) -> Callable[[Sequence[str]], Report]:
    """What examines sources, with the rules read once: the report, as it may leave.

    Measured: with what is measured over time. Quiet: without a word on how far it has come. `started`: what the program
    took to start, which is part of the time that it has. `given`: the options that wait for a source, where several
    examinations share them.
    """
    begun = time.monotonic() - started.ran - started.waited
    window = options.window
    if window is None and options.profile:
        window = PROFILED
    elif window is None:
        window = GLANCE if options.state else WINDOW  # a hook is waited for; its next run covers the time in between
    rules, signals = chosen_rules.load(options)
    state = None
    if options.state:
        from vllm_doctor.sources.server.state import State

        state = State(Path(options.state))

    def examine(words: Sequence[str]) -> Report:
        from_prometheus = any(map(prometheus.is_named_by, words))
        timeout = (_QUERIES if from_prometheus else 8 + window) if options.timeout is None else options.timeout
        began, reserve = time.monotonic(), 0.0
        if started.ran:
            spare = max(0.0, timeout - window) / 2
            began = max(begun, began - spare)
            # A doctor that gets little of a CPU is done with its looks the sooner: it must still judge and write.
            reserve = min(_LEFT_TO_DO * (own_time.of_main().slowdown - 1), spare)
        look = replace(
            examining_attachment_of(options, access_of(options), signals, window, began + timeout - reserve),
            state=state,
            waited=0.0 if started.ran else None,
        )
        if given is not None:
            look = replace(look, given=given)
        wishes = wishes_of(options)
        with contextlib.ExitStack() as opened:
            sources = attach(words, look, opened)
            if not any(source.recording for source in sources):
                wishes.setdefault("goal", "throughput")
            if options.timeout is None and all(source.is_past for source in sources):
                timeout, reserve = ONE_DAY, 0.0  # nobody waits for an answer
            opened.enter_context(progress.shown(sources, window, is_quiet or options.quiet))
            observations = observe(sources, max(0.0, began + timeout - reserve - time.monotonic()))
        patched = options.format == "patch"
        report = judge(
            observations,
            rules,
            signals,
            wishes,
            datetime.now(UTC),
            options.strict,
            patched,
            _until(began + timeout),
            options.explain,
        )
        if is_measured:
            report = _with_measures(report, observations, form_of(options) == "html")
        return redact.report(report)

    return examine


def _until(deadline: float) -> Callable[[float], bool]:
    """Whether a share of the time from now on is used up."""
    now = time.monotonic()
    left = max(deadline - now, _JUDGING)
    return lambda share: time.monotonic() - now > share * left


def _with_measures(report: Report, observations: Sequence[Observation], has_trends: bool) -> Report:
    """The report with what is measured over time."""
    from vllm_doctor.compare import measure  # imported here: most outputs have no place for it

    window = measure.window_of(observations)
    if window is None:
        return report
    return replace(report, measures=measure.measured(window), trends=measure.trends(window) if has_trends else ())


def _write(report: Report, options: argparse.Namespace) -> None:
    form = form_of(options)
    if form == "text":
        from vllm_doctor.render import text

        # A report without a patient is the one line on stderr.
        rendered = text.render(report, is_coloured(options)) if report.vitals or options.output else ""
    else:
        module = import_module(f"vllm_doctor.render.{'json_v1' if form == 'json' else form}")
        rendered = module.render(report, options.all) if form in QUIET else module.render(report)
    write(rendered, options)
    if form == "json" and options.output and options.window is not None and not options.quiet:
        _advise(report, options.output)


def _advise(report: Report, path: str) -> None:
    """What is kept to be compared after a fix must have seen enough requests: said while the server is still there."""
    from vllm_doctor.compare import comparison

    seconds = max((source.window_s for source in report.sources if source.kind == SourceKind.SERVER), default=0.0)
    measures = {found.name: found for found in report.measures}
    window = comparison.window_for(measures, seconds) if seconds else None
    if window is not None:
        print(
            f"vllm-doctor: {path}: too short to verify a fix by it: a request takes"
            f" {words.number(measures['request_time'].value, 's')}, and it was watched for"
            f" {words.number(round(seconds), 's')}: --window {window}",
            file=sys.stderr,
        )
