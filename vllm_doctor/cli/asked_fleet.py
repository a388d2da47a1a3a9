"""A fleet as the options say: about which engines a Prometheus is asked, of which time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.options import wishes_of
from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.fleet import FleetReport
from vllm_doctor.model import outside
from vllm_doctor.model.errors import UsageError
from vllm_doctor.prometheus import query
from vllm_doctor.prometheus import survey as prometheus
from vllm_doctor.prometheus.survey import Prometheus

Progress = Callable[[int, int], None]


def asking(options: argparse.Namespace, asked: Prometheus) -> Callable[[Progress], FleetReport]:
    """What asks once, and judges; the rules are read here. Raises UsageError; what is given, SourceError."""
    rules, signals = chosen_rules.load(options)
    matchers = tuple(matcher for text in options.select for matcher in query.matchers(text))
    wishes = {"goal": "throughput", **wishes_of(options)}
    then = moment_of(options.at, datetime.now(UTC)) if options.at else None

    def ask(tell: Progress) -> FleetReport:
        begun = time.monotonic()
        at = then or datetime.now(UTC)
        survey = asked.survey(signals, matchers, window_of(options), at.timestamp(), begun + options.timeout, tell)
        report = fleet.judge(survey, rules, signals, wishes, at, asked.target)
        return replace(report, judged_s=max(0.0, time.monotonic() - begun - survey.seconds))

    return ask


def window_of(options: argparse.Namespace) -> float:
    """Seconds that are judged."""
    return prometheus.WINDOW if options.window is None else max(1.0, options.window)


def moment_of(text: str, now: datetime) -> datetime:
    """A time of --at. Raises UsageError."""
    from vllm_doctor.sources.log.source import period  # imported here: most runs ask for now

    try:
        told = period(text)
        if told.at is not None:
            return outside.moment(told.at)
        if told.ago is not None:
            return now - timedelta(seconds=told.ago)
        moment = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(seconds=told.of_day or 0.0)
        return moment if moment <= now else moment - timedelta(days=1)
    except (OverflowError, ValueError, UsageError):
        raise UsageError(f"--at {text}: write 2h (ago), 13:30, or 2026-11-20T13:30:00Z") from None
