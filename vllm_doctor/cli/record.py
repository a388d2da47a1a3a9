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

from vllm_doctor.cli import chosen_rules, packing
from vllm_doctor.cli.options import (
    Parser,
    access_of,
    add_choosing,
    add_quiet,
    add_sourcing,
    attachment_of,
    seconds,
    wishes_of,
    words_of,
)
from vllm_doctor.cli.output import say, write_whole
from vllm_doctor.compare import bench_run, measure, vllm_bench
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reading import Value
from vllm_doctor.session import progress
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.capture import Recorder
from vllm_doctor.sources.server.fetch import PATIENCE
from vllm_doctor.text import words

_DURATION = 60.0

if TYPE_CHECKING:
    from vllm_doctor.compare.comparison import Result
    from vllm_doctor.rules.catalogue import Catalogue
    from vllm_doctor.rules.rule import Rule
    from vllm_doctor.session.source import Source
    from vllm_doctor.session.view_model import ViewModel


def run(arguments: Sequence[str]) -> int:
    """Take a recording; 0 where it was written."""
    options = parser().settled(arguments)
    if options.duration is None:
        options.duration = _DURATION if options.bench is None else bench_run.BOUND
    path = _path(options)
    given = _bench(options)
    rules, signals = chosen_rules.load(options)
    look = attachment_of(
        options, access_of(options), signals, options.duration, time.monotonic() + options.duration + 8
    )
    name = look.rules()
    wishes: dict[str, Value] = {"goal": "throughput", **wishes_of(options)}
    if given is not None:
        parts = _benched(options, given, look, wishes, name)
    elif options.on:
        parts = _on(options, look, rules, signals, wishes, name)
    else:
        with contextlib.ExitStack() as opened:
            sources = attach(words_of(options), look, opened)
            if any(source.recording for source in sources):
                raise UsageError("a recording is recorded already: copy it")
            if any(source.kind == SourceKind.PAGE for source in sources):
                raise UsageError("a saved page is one moment, and kept already: give the server's URL")
            duration = options.duration if any(source.follow is not None for source in sources) else 0.0
            with progress.of_recording(duration, is_quiet=options.quiet) as tell:
                parts = Recorder(sources, duration, name, wishes, options.share).take(tell)
    packed, report, found = packing.packed(path.name, parts, look, rules, signals)
    write_whole(path, [packed], is_private=True)  # it holds logs
    scrapes = sum(len(source.metrics.times) for source in found.sources if source.metrics is not None)
    masked = ", ".join(f"{count} × {what}" for what, count in report.redacted.items()) or "nothing"
    say(
        f"{path}: {len(packed) / 1000:,.0f} kB, {scrapes} scrapes in {found.seconds:.0f} s; masked: {masked}\n"
        f"{report.verdict.value.upper()}  {report.headline}\n"
    )
    if found.bench is not None:
        say(_measured_by(vllm_bench.result([found.bench], path.name)))
    return 0


def _measured_by(client: Result) -> str:
    """What a benchmark measured, in one line."""
    told = [f"{client.measures['finished'].value:,.0f} requests"]
    for name in ("tokens_out", "ttft", "itl"):
        if name in client.measures:
            definition = measure.definitions()[name]
            told.append(f"{definition.says} {words.number(client.measures[name].value, definition.unit)}")
    return f"{client.seen_by}: {', '.join(told)}\n"


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor record",
        "Keep what the doctor sees, without secrets: to replay, to compare, to attach to an issue.",
        "[SOURCE]... -o FILE [options]",
        (
            ("vllm-doctor record http://127.0.0.1:8000 -o vllm.tar.gz", "a minute of a running server"),
            ("vllm-doctor record -o vllm.tar.gz --share --duration 5m", "of this host's servers, to give away"),
        ),
    )
    add = parser.add_argument
    add("source", nargs="*", metavar="SOURCE", help="as for vllm-doctor itself")
    add("-o", dest="output", metavar="FILE", help="the recording, a .tar.gz that only you can read")
    add("--duration", type=seconds, metavar="SECONDS", help="how long (60; with --bench at most, 1h)")
    add("--on", choices=("warning", "critical"), help="wait for such a verdict; as long before as after it is kept")
    add("--bench", metavar="'ARGS'", help="run `vllm bench serve ARGS` against it meanwhile, and keep its result")
    add("--share", action="store_true", help="pseudonyms for hosts, addresses, users and paths, to give it away")
    add_quiet(parser)
    add_choosing(parser)
    add_sourcing(parser)
    return parser


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


def _bench(options: argparse.Namespace) -> list[str] | None:
    """What --bench gives, as words; told at once where it cannot be."""
    if options.bench is None:
        return None
    if options.on:
        raise UsageError("--on waits for what comes by itself, and --bench makes it: give one of them")
    return bench_run.words(options.bench)


def _benched(
    options: argparse.Namespace, given: Sequence[str], look: Attachment, wishes: dict[str, Value], name: str
) -> dict[str, bytes]:
    """What was seen from the benchmark's first request to its end, with its result, as parts."""
    with ExitStack() as opened:
        sources = attach(words_of(options), look, opened)
        servers = [source for source in sources if source.server is not None]
        if len(servers) != 1 or (server := servers[0].server) is None:
            raise UsageError("--bench loads one running server: give its URL or its pid")
        is_local = any(source.kind == SourceKind.HOST for source in sources)
        vllm = bench_run.program(server, is_local)
        identity = server.identify(server.scrape(time.monotonic() + PATIENCE).page, time.monotonic() + PATIENCE)
        credentials = look.access.credentials(bench_run.loaded(given, server))
        key = credentials.get("authorization", "").partition("Bearer ")[2] or None
        most = options.duration
        run = opened.enter_context(bench_run.running(vllm, given, server, identity.models_answer, key))
        tell = opened.enter_context(progress.of_recording(most, True, options.quiet))
        run.await_load(server, most, tell)
        recorder = Recorder(
            sources,
            max(0.0, most - run.seconds),
            name,
            wishes,
            options.share,
            is_over=run.is_over,
            more=lambda masked: {"bench.json": run.result(masked)},
        )
        return recorder.take(tell)


def _on(
    options: argparse.Namespace,
    look: Attachment,
    rules: Sequence[Rule],
    signals: Catalogue,
    wishes: dict[str, Value],
    name: str,
) -> dict[str, bytes]:
    """Watch until the verdict is so bad, and as long again; what was seen before and after, as parts."""
    from vllm_doctor.session.view_model import DEFAULT_WINDOW, Control  # imported here: only --on watches
    from vllm_doctor.session.watch import Judge, Watch

    if sys.stderr.isatty() and not options.quiet:
        print(f"vllm-doctor: watching until the verdict is {options.on}; Ctrl-C ends it", file=sys.stderr)
    bad = {"critical"} if options.on == "critical" else {"critical", "warning"}
    look = replace(look, keep=2 * options.duration)
    until: list[float] = []
    parts: list[dict[str, bytes]] = []

    def attached(opened: ExitStack) -> Sequence[Source]:
        sources = attach(words_of(options), look, opened)
        if not any(source.server for source in sources):
            raise UsageError("--on watches a running server: give its URL or its pid")
        return sources

    control = Control(min(DEFAULT_WINDOW, max(1.0, options.duration)))
    watch = Watch(attached, Judge(rules, signals, wishes), control)

    def tell(view_model: ViewModel) -> None:
        if not until and view_model.report is not None and view_model.report.verdict.value in bad:
            until.append(time.monotonic() + options.duration)
            print(f"vllm-doctor: {view_model.report.verdict.value}: {view_model.report.headline}", file=sys.stderr)
        if until and time.monotonic() >= until[0] and not control.stopped:
            parts.append(watch.record(name, options.share))
            control.stop()

    watch.run(tell)
    return parts[0]
