"""A recorded sick server, served and examined."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from vllm_doctor.cli.options import (
    FORMATS,
    NOT_ASKED,
    Parser,
    add_choosing,
    add_config,
    add_judging,
    add_known,
    add_output,
    add_time,
)
from vllm_doctor.cli.output import is_interactive
from vllm_doctor.recording import demo


def parser() -> Parser:
    """Its options: those of an examination, without what a recorded server has not."""
    parser = Parser(
        "vllm-doctor demo",
        "Serve a recorded sick server over real HTTP, and examine it.",
        "[NAME] [options]",
        (
            ("vllm-doctor demo", "a KV cache that is too small, at a terminal"),
            ("vllm-doctor demo max-num-seqs-cap --text", "another fault, as text"),
        ),
    )
    parser.add_argument(
        "name", nargs="?", default="preemption", metavar="NAME", help=f"one of: {', '.join(demo.names())}"
    )
    add_output(parser, FORMATS)
    add_time(parser, "3, terminal 30")
    add_judging(parser)
    add_choosing(parser)
    add_config(parser, "window", "theme")
    add_known(parser)
    parser.set_defaults(**NOT_ASKED)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Serve the recording and examine it; the exit code is that of the verdict."""
    options = parser().settled(arguments)
    recording = options.recorded = demo.find(options.name)
    if options.command is None and recording.server.command:
        options.command = shlex.join(recording.server.command)  # what it was started with when it was recorded
    if is_interactive(options):
        with demo.serving(recording, again=True) as url:
            from vllm_doctor.cli import terminal  # these two late, as in examine.py

            return terminal.run([url], options)
    with demo.serving(recording) as url:
        print(f"vllm-doctor: the recorded server {recording.name!r} answers on {url}", file=sys.stderr)
        from vllm_doctor.cli import one_shot

        return one_shot.run([url], options)
