"""Every engine that a Prometheus knows, judged."""

from __future__ import annotations

from vllm_doctor.cli.options import (
    Parser,
    add_accessing,
    add_choosing,
    add_config,
    add_failing,
    add_quiet,
    form_of,
    seconds,
)
from vllm_doctor.cli.output import is_interactive

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Judge every engine; the exit code is that of the worst."""
    options = parser().settled(arguments)
    form_of(options)
    if is_interactive(options):
        from vllm_doctor.cli import fleet_terminal  # with textual, which nobody else pays for

        return fleet_terminal.run(options)
    from vllm_doctor.cli import fleet_one_shot

    return fleet_one_shot.run(options)


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor fleet",
        "Every vLLM engine that a Prometheus (Thanos, Mimir, VictoriaMetrics) knows, the worst first.",
        "PROMETHEUS_URL [options]",
        (
            ("vllm-doctor fleet http://prometheus:9090", "all engines, the worst first"),
            ("vllm-doctor fleet http://prometheus:9090 --select 'namespace=\"prod\"' --json", "those of a namespace"),
        ),
    )
    add = parser.add_argument
    add("url", metavar="PROMETHEUS_URL", help="http://prometheus:9090; a path prefix is kept")
    add("--window", type=seconds, metavar="SECONDS", help="the time that is evaluated, up to --at (10m)")
    add("--at", metavar="TIME", help="evaluated at: 2h (ago), 13:30, 2026-11-20T13:30:00Z; default now; UTC")
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
    add_quiet(parser)
    add_config(parser, "theme")
    parser.set_defaults(state=None)
    return parser
