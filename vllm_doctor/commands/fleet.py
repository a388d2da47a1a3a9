"""Every engine that a Prometheus knows, judged."""

from __future__ import annotations

import argparse
import contextlib
import gc
from collections.abc import Sequence
from pathlib import Path

from vllm_doctor import progress
from vllm_doctor.commands import asked_fleet
from vllm_doctor.commands.options import Parser, access_of, add_accessing, add_choosing, add_failing, seconds
from vllm_doctor.commands.output import exit_code, is_coloured, is_interactive, say, write_whole
from vllm_doctor.render import fleet_json, fleet_text, json_v1
from vllm_doctor.sources import prometheus


def run(arguments: Sequence[str]) -> int:
    """Judge every engine; the exit code is that of the worst."""
    options = _parsed(arguments)
    if is_interactive(options):
        from vllm_doctor.commands import fleet_terminal  # with textual, which nobody else pays for

        return fleet_terminal.run(options)
    gc.set_threshold(100_000)
    with (
        contextlib.closing(prometheus.Prometheus(options.url, access_of(options))) as asked,
        progress.counted() as tell,
    ):
        report = asked_fleet.asking(options, asked)(tell)
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
    add("--text", action="store_true", help="text output (the default where the output is no terminal)")
    add("--json", action="store_true", help="JSON: a summary, and a report of each engine")
    add("--format", choices=("text", "json"), help="output format")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add("--timeout", type=seconds, default=60.0, metavar="SECONDS", help="for all queries together (60)")
    add_failing(parser)
    add_choosing(parser)
    add_accessing(parser)
    parser.set_defaults(state=None)
    return parser.parse_args(arguments)
