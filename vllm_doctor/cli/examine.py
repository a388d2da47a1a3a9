"""The command without a name: examine servers, once or at a terminal."""

from __future__ import annotations

import os

from vllm_doctor.cli.options import Parser, add_examining, words_of
from vllm_doctor.cli.output import is_interactive

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_EPILOG = """\
exit codes: 0 ok, 1 warning, 2 critical, 3 no verdict.
other commands: vllm-doctor record [SOURCE]... -o FILE.tar.gz; vllm-doctor compare BEFORE AFTER;
vllm-doctor fleet PROMETHEUS_URL; vllm-doctor alerts [-o DIR]; vllm-doctor rules [ID] [--check DIR] [--signals];
vllm-doctor demo [NAME]; vllm-doctor flags VERSION [FLAG...]; vllm-doctor expect --model MODEL --gpu 4xH100
vllm-doctor regressions [SOURCE] [VERSION | FROM TO]; vllm-doctor recipe [SOURCE]
vllm-doctor profile [PID|URL] [--seconds 10]; vllm-doctor mcp (for an assistant)
"""


def run(arguments: Sequence[str]) -> int:
    """Examine what was named; the exit code is that of the verdict."""
    options = _parsed(arguments)
    words = words_of(options)
    if is_interactive(options):
        from vllm_doctor.cli import terminal  # with textual, which nobody else pays for

        return terminal.run(words, options)
    if not any(map(os.path.exists, words)):  # a live server; what is read from files may take long
        from vllm_doctor.sources.server import own_time

        own_time.hurry()
    from vllm_doctor.cli import one_shot  # with rules and sources: a terminal is drawn before these are loaded

    return one_shot.run(words, options)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("vllm-doctor", "What limits a vLLM server, on what evidence, and what fixes it.")
    parser.epilog = _EPILOG
    parser.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help="a vLLM server: its URL (http://host:8000) or a pid of it; a file of it, or - for standard input, of any"
        " kind and in any order: its log, its command or manifest, what nvidia-smi or collect-env printed, a page of"
        " its /metrics, a benchmark's result, an issue that holds several of them; a recording: a folder or a .tar.gz;"
        " prom+http://host:9090/?pod=x: what a Prometheus knows of it; none: every vLLM server of this host",
    )
    add_examining(parser)
    return parser.parse_intermixed_args(arguments)  # a file may stand behind an option
