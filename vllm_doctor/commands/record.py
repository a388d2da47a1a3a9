"""What the doctor sees, kept as a file."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor import progress
from vllm_doctor.attach import Attachment
from vllm_doctor.commands import chosen_rules, packing
from vllm_doctor.commands.options import Parser, access_of, add_choosing, add_sourcing, seconds, wishes_of
from vllm_doctor.commands.output import say, write_whole
from vllm_doctor.errors import UsageError
from vllm_doctor.recorder import Recorder
from vllm_doctor.signal import Value

if TYPE_CHECKING:
    from vllm_doctor.catalogue import Catalogue
    from vllm_doctor.examination import Watcher
    from vllm_doctor.picture import Picture
    from vllm_doctor.rule import Rule


def run(arguments: Sequence[str]) -> int:
    """Take a recording; 0 where it was written."""
    options = _parsed(arguments)
    path = _path(options)
    rules, signals = chosen_rules.load(options)
    name = chosen_rules.version(options)
    look = Attachment(
        signals.metrics,
        access_of(options),
        options.duration,
        time.monotonic() + options.duration + 8,
        Path(options.nvidia_smi) if options.nvidia_smi else None,
        command=options.command,
        gpu=options.gpu,
        rules=lambda: name,
    )
    wishes: dict[str, Value] = {"goal": "throughput", **wishes_of(options)}
    if options.on:
        parts = _on(options, look, rules, signals, wishes, name)
    else:
        with contextlib.ExitStack() as opened:
            watchers = look.watchers(options.source, opened)
            if any(watcher.recording for watcher in watchers):
                raise UsageError("a recording is recorded already: copy it")
            duration = options.duration if any(watcher.follow is not None for watcher in watchers) else 0.0
            with progress.of_recording(duration) as tell:
                parts = Recorder(watchers, duration, name, wishes, options.share).take(tell)
    packed, report, found = packing.packed(path.name, parts, look, rules, signals)
    write_whole(path, [packed])
    scrapes = sum(len(source.metrics.times) for source in found.sources if source.metrics is not None)
    masked = ", ".join(f"{count} × {what}" for what, count in report.redacted.items()) or "nothing"
    say(
        f"{path}: {len(packed) / 1000:,.0f} kB, {scrapes} scrapes in {found.seconds:.0f} s; masked: {masked}\n"
        f"{report.verdict.value.upper()}  {report.headline}\n"
    )
    return 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        "vllm-doctor record",
        "Keep what the doctor sees, without secrets: to replay, to compare, to attach to an issue.",
    )
    add = parser.add_argument
    add("source", nargs="*", metavar="SOURCE", help="as of vllm-doctor itself")
    add("-o", dest="output", metavar="FILE", help="the recording, a .tar.gz: written whole or not at all")
    add("--duration", type=seconds, default=60.0, metavar="SECONDS", help="how long (60)")
    add("--on", choices=("warning", "critical"), help="wait for such a verdict; as long before as after it is kept")
    add("--share", action="store_true", help="pseudonyms for hosts, addresses, users and paths, to give it away")
    add_choosing(parser)
    add_sourcing(parser)
    return parser.parse_args(arguments)


def _path(options: argparse.Namespace) -> Path:
    """Where to write; told at once where that cannot be, not after a minute."""
    if not options.output:
        raise UsageError("where to? vllm-doctor record [SOURCE]... -o FILE.tar.gz")
    path = Path(options.output)
    if options.output.endswith("/") or path.is_dir():
        raise UsageError(f"-o {path} is a folder: give the name of a file, such as {path / 'vllm.tar.gz'}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"-o {path}: there is no such folder")
    return path


def _on(
    options: argparse.Namespace,
    look: Attachment,
    rules: Sequence[Rule],
    signals: Catalogue,
    wishes: dict[str, Value],
    name: str,
) -> dict[str, bytes]:
    """Watch until the verdict is so bad, and as long again; what was seen before and after, as parts."""
    from vllm_doctor.picture import DEFAULT_WINDOW, Control  # imported here: only --on watches
    from vllm_doctor.watch import Judge, Watch

    bad = {"critical"} if options.on == "critical" else {"critical", "warning"}
    look = replace(look, keep=2 * options.duration)
    until: list[float] = []
    parts: list[dict[str, bytes]] = []

    def attach(opened: ExitStack) -> Sequence[Watcher]:
        watchers = look.watchers(options.source, opened)
        if not any(watcher.server for watcher in watchers):
            raise UsageError("--on watches a living server: give its URL or its pid")
        return watchers

    control = Control(min(DEFAULT_WINDOW, max(1.0, options.duration)))
    watch = Watch(attach, Judge(rules, signals, wishes), control)

    def tell(picture: Picture) -> None:
        if not until and picture.report is not None and picture.report.verdict.value in bad:
            until.append(time.monotonic() + options.duration)
            print(f"vllm-doctor: {picture.report.verdict.value}: {picture.report.headline}", file=sys.stderr)
        if until and time.monotonic() >= until[0] and not control.stopped:
            parts.append(watch.record(name, options.share))
            control.stop()

    watch.run(tell)
    return parts[0]
