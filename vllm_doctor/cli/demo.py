"""A recorded sick server, served and examined."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from vllm_doctor.cli.options import Parser, add_examining
from vllm_doctor.cli.output import is_interactive
from vllm_doctor.recording import demo


def run(arguments: Sequence[str]) -> int:
    """Serve the recording and examine it; the exit code is that of the verdict."""
    parser = Parser("vllm-doctor demo", "Serve a recorded sick server over real HTTP, and examine it.")
    parser.add_argument("name", nargs="?", default="preemption", help=f"one of: {', '.join(demo.names())}")
    add_examining(parser)
    options = parser.parse_args(arguments)
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
