"""Every engine that a Prometheus knows, judged."""

from __future__ import annotations

import argparse
import contextlib
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vllm_doctor import fleet, progress, query
from vllm_doctor.commands import chosen_rules
from vllm_doctor.commands.options import Parser, access_of, add_accessing, add_choosing, add_failing, seconds, wishes_of
from vllm_doctor.commands.output import exit_code, is_coloured, say, write_whole
from vllm_doctor.errors import UsageError
from vllm_doctor.render import fleet_json, fleet_text, json_v1
from vllm_doctor.sources import prometheus


def run(arguments: Sequence[str]) -> int:
    """Judge every engine; the exit code is that of the worst."""
    options = _parsed(arguments)
    begun = time.monotonic()
    gc.set_threshold(100_000)
    rules, signals = chosen_rules.load(options)
    matchers = tuple(matcher for text in options.select for matcher in query.matchers(text))
    now = datetime.now(UTC)
    at = moment_of(options.at, now) if options.at else now
    window = prometheus.WINDOW if options.window is None else max(1.0, options.window)
    with (
        contextlib.closing(prometheus.Prometheus(options.url, access_of(options))) as asked,
        progress.counted() as tell,
    ):
        survey = asked.survey(signals, matchers, window, at.timestamp(), begun + options.timeout, tell)
        report = fleet.judge(survey, rules, signals, {"goal": "throughput", **wishes_of(options)}, at, asked.target)
    report = replace(report, judged_s=max(0.0, time.monotonic() - begun - survey.seconds))
    if options.json or options.format == "json":
        pieces = fleet_json.render(report, json_v1.document)
    else:
        pieces = iter([fleet_text.render(report, is_coloured(options))])
    if options.output:
        write_whole(Path(options.output), (piece.encode() for piece in pieces))
    else:
        for piece in pieces:
            say(piece)
    return exit_code(report, options.fail_on)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "vllm-doctor fleet",
        "Every vLLM engine that a Prometheus (Thanos, Mimir, VictoriaMetrics) knows, the worst first.",
    )
    add = parser.add_argument
    add("url", metavar="PROMETHEUS_URL", help="http://prometheus:9090; a path prefix is kept")
    add("--window", type=seconds, metavar="SECONDS", help="what is judged: so long before --at (10m)")
    add("--at", metavar="TIME", help="judged at: 2h (ago), 13:30, 2026-11-20T13:30:00Z; default now; UTC")
    add(
        "--select",
        action="append",
        default=[],
        metavar="MATCHERS",
        help="only engines with these labels: 'pod=~\"a.*\"'",
    )
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON: a summary, and a report of each engine")
    add("--format", choices=("text", "json"), help="output format")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add("--timeout", type=seconds, default=60.0, metavar="SECONDS", help="for all queries together (60)")
    add_failing(parser)
    add_choosing(parser)
    add_accessing(parser)
    return parser.parse_args(arguments)


def moment_of(text: str, now: datetime) -> datetime:
    """A time of --at. Raises UsageError."""
    from vllm_doctor.sources.log.source import period  # imported here: most runs ask for now

    try:
        told = period(text)
        if told.at is not None:
            return datetime.fromtimestamp(told.at, UTC)
        if told.ago is not None:
            return now - timedelta(seconds=told.ago)
        moment = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(seconds=told.of_day or 0.0)
        return moment if moment <= now else moment - timedelta(days=1)
    except (OverflowError, ValueError, UsageError):
        raise UsageError(f"--at {text}: write 2h (ago), 13:30, or 2026-11-20T13:30:00Z") from None
