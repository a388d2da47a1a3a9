"""One look at a fleet, and one report on it."""

from __future__ import annotations

import argparse
import contextlib
import gc
from pathlib import Path

from vllm_doctor.cli import asked_fleet
from vllm_doctor.cli.options import access_of
from vllm_doctor.cli.output import exit_code, is_coloured, say, write_whole
from vllm_doctor.prometheus import survey
from vllm_doctor.render import fleet_json, fleet_text, json_v1
from vllm_doctor.session import progress


def run(options: argparse.Namespace) -> int:
    """Judge every engine, and write it; the exit code."""
    gc.set_threshold(100_000)
    with (
        contextlib.closing(survey.Prometheus(options.url, access_of(options))) as asked,
        progress.counted(options.quiet) as tell,
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
