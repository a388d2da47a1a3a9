"""The command line: the only place that wires sources, rules and renderers together."""

from __future__ import annotations

import sys

from vllm_doctor import __version__

TYPE_CHECKING = (
    False  # typing's own costs a third of `vllm-doctor --version`; imports below are late for the same reason
)
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import ExitStack
    from datetime import datetime
    from pathlib import Path
    from typing import Any, NoReturn

    from vllm_doctor.attach import Attachment
    from vllm_doctor.catalogue import Catalogue
    from vllm_doctor.examination import Watcher
    from vllm_doctor.fleet import FleetReport
    from vllm_doctor.observation import Observation
    from vllm_doctor.picture import Choice, Picture, Session
    from vllm_doctor.report import Report
    from vllm_doctor.rule import Rule
    from vllm_doctor.signal import Value
    from vllm_doctor.sources.access import Access
    from vllm_doctor.sources.recording import Recording
    from vllm_doctor.watch import Watch

FORMATS = ("text", "json", "markdown", "html", "nagios", "checkmk", "openmetrics", "patch")
COULD_NOT_TELL = 3
_ONE_DAY = 86400.0
_WINDOW = 3.0
_COMPARED_WINDOW = 20.0
_KEPT = 60.0
"""Seconds of a watched server that can be recorded afterwards."""
_ASKED, _QUERIES = 600.0, 60.0
"""Seconds: the window that a Prometheus is asked of, and all that its queries may take."""
_EPILOG = """\
exit codes: 0 ok, 1 warning, 2 critical, 3 could not tell.
other commands: vllm-doctor record [SOURCE]... -o FILE.tar.gz; vllm-doctor compare BEFORE AFTER;
vllm-doctor fleet PROMETHEUS_URL; vllm-doctor alerts [-o DIR]; vllm-doctor rules [ID] [--check DIR] [--signals];
vllm-doctor demo [NAME]; vllm-doctor flags VERSION [FLAG...]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code. Never raises: the user gets one line, hooks get an exit code."""
    arguments = ["--json" if a == "--json=v1" else a for a in (sys.argv[1:] if argv is None else argv)]
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: >&-
        return COULD_NOT_TELL
    try:
        code = _dispatched(arguments)
        sys.stdout.flush()
        return code
    except OSError as error:  # the reader of our output has gone, or the disk is full
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            print(f"vllm-doctor: the output cannot be written ({error.strerror})", file=sys.stderr)
        return COULD_NOT_TELL


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere: Python would complain about it at its end."""
    import contextlib
    import os

    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _dispatched(arguments: Sequence[str]) -> int:
    if arguments == ["--version"]:
        print(f"vllm-doctor {__version__}")
        return 0
    from vllm_doctor.errors import DoctorError, SourceError

    try:
        match arguments[:1]:
            case ["rules"]:
                return _rules(arguments[1:])
            case ["flags"]:
                return _flags(arguments[1:])
            case ["alerts"]:
                return _alerts(arguments[1:])
            case ["fleet"]:
                return _fleet(arguments[1:])
            case ["compare"]:
                return _compare(arguments[1:])
            case ["demo"]:
                return _demo(arguments[1:])
            case ["record"]:
                return _record(arguments[1:])
            case _:
                return _examine(arguments)
    except SourceError as error:
        return _failed(arguments, error.kind, str(error))
    except DoctorError as error:
        return _failed(arguments, "usage", str(error))
    except SystemExit as stop:  # argparse: --help
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return _failed(arguments, "interrupted", "interrupted")
    except OSError:
        raise
    except Exception as error:
        import os

        if os.environ.get("VLLM_DOCTOR_DEBUG"):
            raise
        text = f"internal error: {type(error).__name__}: {error} (VLLM_DOCTOR_DEBUG=1 shows where; please report it)"
        return _failed(arguments, "internal", text)


def _failed(arguments: Sequence[str], kind: str, message: str) -> int:
    """One line on stderr; where JSON was asked for, JSON on stdout all the same."""
    from collections import Counter

    from vllm_doctor import redact

    line = redact.text(message, Counter())
    print(f"vllm-doctor: {line}", file=sys.stderr)
    if any(a.startswith("--json") or a == "--format=json" for a in arguments) or "json" in arguments:
        from datetime import UTC, datetime

        from vllm_doctor.render import compare_json, json_v1
        from vllm_doctor.report import Patient, Problem, Report, Verdict

        if arguments[:1] == ["fleet"]:
            from vllm_doctor.render import fleet_json

            _say(fleet_json.failed(datetime.now(UTC), Problem(kind, line)))
            return COULD_NOT_TELL
        if arguments[:1] == ["compare"]:
            _say(compare_json.failed(kind, line, datetime.now(UTC)))
            return COULD_NOT_TELL
        nobody = Patient(None, None, None)
        problem = Problem(kind, line)
        report = Report(datetime.now(UTC), Verdict.UNKNOWN, line, nobody, (), (), (), (), (), (), {}, problem)
        _say(json_v1.render(report))
    return COULD_NOT_TELL


def _parser(prog: str = "vllm-doctor") -> argparse.ArgumentParser:
    import argparse

    from vllm_doctor.errors import UsageError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            """argparse would exit with 2, which means critical here."""
            raise UsageError(f"{message} (vllm-doctor --help)")

    return Parser(prog=prog, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)


def _options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--text", action="store_true", help="text output (the default where the output is no terminal)")
    add("--json", action="store_true", help="JSON output, version 1 (--json=v1 pins it)")
    add("--format", choices=FORMATS, help="output format")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add("--window", type=_seconds, metavar="SECONDS", help="time between first and last scrape (3; at a terminal 30)")
    add("--state", metavar="FILE", help="keep the last scrape there: a hook then answers at once, over the time since")
    add("--timeout", type=_seconds, metavar="SECONDS", help="for the whole run (8 + window)")
    add("--since", metavar="TIME", help="of a log: from here on (13:30, 2025-11-20T13:30, or 2h before its end)")
    add("--until", metavar="TIME", help="of a log: up to here")
    add("--last", metavar="TIME", help="of a log: only its end (2h)")
    add("--strict", action="store_true", help="any unknown rule makes the verdict unknown")
    _judging(parser)
    _sourcing(parser)
    add("--version", action="version", version=f"vllm-doctor {__version__}")


def _judging(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--fail-on", choices=("warning", "critical", "never"), default="warning", help="exit non-zero from here on")
    _choosing(parser)


def _choosing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--goal", choices=("throughput", "latency"), help="what matters to you (throughput)")
    add("--slo", action="append", default=[], metavar="NAME=TIME", help="target: ttft=2s, itl=50ms")
    add("--rules", action="append", default=[], metavar="DIR", help="more rules")
    add("--rule", action="append", default=[], metavar="ID", help="only this rule")
    add("--skip", action="append", default=[], metavar="ID", help="not this rule")


def _sourcing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--command", metavar="TEXT|FILE", help="how the server was, or will be, started: a command line or YAML")
    _accessing(parser)
    add("--nvidia-smi", metavar="FILE", help="GPUs from a file of `nvidia-smi -q -x`, not from the driver")
    add("--gpu", metavar="NAME", help="the GPUs, where none can be seen: H100, 8xL40S, 'NVIDIA A100-SXM4-80GB'")


def _accessing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--header", action="append", default=[], metavar="'K: V'", help="HTTP header to send")
    add("--token-file", metavar="FILE", help="send the token in FILE as Authorization: Bearer")
    add("--ca-file", metavar="FILE", help="certificates to trust (PEM)")
    add("--insecure", action="store_true", help="do not check the server's certificate")


def _seconds(text: str) -> float:
    """ "3", "3s", "50ms", "2m" as seconds; raises ValueError, as argparse wants."""
    import math

    for unit, factor in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)):
        if text.endswith(unit):
            value = float(text.removesuffix(unit)) * factor
            if not (math.isfinite(value) and 0 <= value <= 86400):
                break
            return value
    raise ValueError(text)


def _examine(arguments: Sequence[str]) -> int:
    parser = _parser()
    parser.description = "What limits a vLLM server, on what evidence, and what cures it."
    parser.epilog = _EPILOG
    parser.add_argument(
        "source",
        nargs="*",
        metavar="SOURCE",
        help="a vLLM server: its URL (http://host:8000) or a pid of it; its log: a file, or - for standard input;"
        " a recording: a folder or a .tar.gz; none: every vLLM server of this host",
    )
    _options(parser)
    options = parser.parse_args(arguments)
    return _interactive(options.source, options) if _is_interactive(options) else _run(options.source, options)


def _demo(arguments: Sequence[str]) -> int:
    from vllm_doctor import demo

    parser = _parser("vllm-doctor demo")
    parser.description = "Serve a recorded sick server over real HTTP, and examine it."
    parser.add_argument("name", nargs="?", default="preemption", help=f"one of: {', '.join(demo.names())}")
    _options(parser)
    options = parser.parse_args(arguments)
    recording = demo.find(options.name)
    if _is_interactive(options):
        with demo.serving(recording, again=True) as url:
            return _interactive([url], options)
    with demo.serving(recording) as url:
        print(f"vllm-doctor: the recorded server {recording.name!r} answers on {url}", file=sys.stderr)
        return _run([url], options)


def _fleet(arguments: Sequence[str]) -> int:
    """Judge every engine that a Prometheus knows; the exit code is that of the worst."""
    import contextlib
    import gc
    import os
    import time
    from dataclasses import replace
    from datetime import UTC, datetime
    from pathlib import Path

    from vllm_doctor import catalogue, fleet, progress, query, rule
    from vllm_doctor.render import fleet_json, fleet_text, json_v1
    from vllm_doctor.sources import prometheus

    parser = _parser("vllm-doctor fleet")
    parser.description = "Every vLLM engine that a Prometheus (Thanos, Mimir, VictoriaMetrics) knows, the worst first."
    add = parser.add_argument
    add("url", metavar="PROMETHEUS_URL", help="http://prometheus:9090; a path prefix is kept")
    add("--window", type=_seconds, metavar="SECONDS", help="what is judged: so long before --at (10m)")
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
    add("--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for all queries together (60)")
    _judging(parser)
    _accessing(parser)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    gc.set_threshold(100_000)
    shipped = rule.shipped()
    signals = catalogue.load(shipped / "signals.yaml")
    rules = _chosen(rule.load([shipped, *map(Path, options.rules)], signals), options)
    matchers = tuple(matcher for text in options.select for matcher in query.matchers(text))
    now = datetime.now(UTC)
    at = _moment(options.at, now) if options.at else now
    window = prometheus.WINDOW if options.window is None else max(1.0, options.window)
    with contextlib.closing(prometheus.Prometheus(options.url, _access(options))) as asked, progress.counted() as tell:
        survey = asked.survey(signals, matchers, window, at.timestamp(), begun + options.timeout, tell)
        report = fleet.judge(survey, rules, signals, {"goal": "throughput", **_wishes(options)}, at, asked.target)
    report = replace(report, judged_s=max(0.0, time.monotonic() - begun - survey.seconds))
    if options.json or options.format == "json":
        pieces = fleet_json.render(report, json_v1.document)
    else:
        colour = not options.output and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        pieces = iter([fleet_text.render(report, colour and os.environ.get("TERM") != "dumb")])
    if options.output:
        _write_whole(Path(options.output), (piece.encode() for piece in pieces))
    else:
        for piece in pieces:
            _say(piece)
    return _exit_code(report, options.fail_on)


def _moment(text: str, now: datetime) -> datetime:
    """A time of --at. Raises UsageError."""
    from datetime import UTC, datetime, timedelta

    from vllm_doctor.errors import UsageError
    from vllm_doctor.sources.log.source import period

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


def _record(arguments: Sequence[str]) -> int:
    """Take a recording; 0 where it was written."""
    import contextlib
    import time
    from pathlib import Path

    from vllm_doctor import catalogue, progress, rule
    from vllm_doctor.attach import Attachment
    from vllm_doctor.errors import UsageError
    from vllm_doctor.recorder import Recorder

    parser = _parser("vllm-doctor record")
    parser.description = "Keep what the doctor sees, without secrets: to replay, to compare, to attach to an issue."
    parser.add_argument("source", nargs="*", metavar="SOURCE", help="as of vllm-doctor itself")
    add = parser.add_argument
    add("-o", dest="output", metavar="FILE", help="the recording, a .tar.gz: written whole or not at all")
    add("--duration", type=_seconds, default=60.0, metavar="SECONDS", help="how long (60)")
    add("--on", choices=("warning", "critical"), help="wait for such a verdict; as long before as after it is kept")
    add("--share", action="store_true", help="pseudonyms for hosts, addresses, users and paths, to give it away")
    _choosing(parser)
    _sourcing(parser)
    options = parser.parse_args(arguments)
    if not options.output:
        raise UsageError("where to? vllm-doctor record [SOURCE]... -o FILE.tar.gz")
    path = Path(options.output)
    if options.output.endswith("/") or path.is_dir():
        raise UsageError(f"-o {path} is a folder: give the name of a file, such as {path / 'vllm.tar.gz'}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"-o {path}: there is no such folder")
    shipped = rule.shipped()
    signals = catalogue.load(shipped / "signals.yaml")
    rules = _chosen(rule.load([shipped, *map(Path, options.rules)], signals), options)
    name = _rules_version(options)
    look = Attachment(
        signals.metrics,
        _access(options),
        options.duration,
        time.monotonic() + options.duration + 8,
        Path(options.nvidia_smi) if options.nvidia_smi else None,
        command=options.command,
        gpu=options.gpu,
        rules=lambda: name,
    )
    wishes: dict[str, Value] = {"goal": "throughput", **_wishes(options)}
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
    packed, report, found = _with_report(path.name, parts, look, rules, signals)
    _write_whole(path, [packed])
    scrapes = sum(len(source.metrics.times) for source in found.sources if source.metrics is not None)
    masked = ", ".join(f"{count} × {what}" for what, count in report.redacted.items()) or "nothing"
    _say(
        f"{path}: {len(packed) / 1000:,.0f} kB, {scrapes} scrapes in {found.seconds:.0f} s; masked: {masked}\n"
        f"{report.verdict.value.upper()}  {report.headline}\n"
    )
    return 0


def _with_report(
    name: str, parts: dict[str, bytes], look: Attachment, rules: Sequence[Rule], signals: Catalogue
) -> tuple[bytes, Report, Recording]:
    """A recording as a file, with the report on what it holds, read back: so it is the same wherever it is read."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from vllm_doctor import examination, redact
    from vllm_doctor.render import json_v1
    from vllm_doctor.sources import archive, recording

    found = recording.parsed(name, parts)
    observations = examination.observe(list(look.of_recording(found)), _ONE_DAY)
    report = redact.report(examination.judge(observations, rules, signals, {}, datetime.now(UTC)))
    seen = replace(report.recordings[0], verdict=report.verdict.value, headline=report.headline)
    report = replace(report, at=found.taken, recordings=(seen,))
    return archive.packed(parts | {"report.json": json_v1.render(report).encode()}), report, found


def _on(
    options: argparse.Namespace,
    look: Attachment,
    rules: Sequence[Rule],
    signals: Catalogue,
    wishes: dict[str, Value],
    name: str,
) -> dict[str, bytes]:
    """Watch until the verdict is so bad, and as long again; what was seen before and after, as parts."""
    import time
    from dataclasses import replace

    from vllm_doctor.errors import UsageError
    from vllm_doctor.picture import DEFAULT_WINDOW, Control
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


def _rules_version(options: argparse.Namespace) -> str:
    """The name of the rules that judge."""
    import hashlib
    from pathlib import Path

    from vllm_doctor import rule

    version = rule.version([rule.shipped(), *map(Path, options.rules)])
    if not (options.rule or options.skip):
        return version
    return hashlib.sha256(repr((version, sorted(options.rule), sorted(options.skip))).encode()).hexdigest()[:12]


def _rules(arguments: Sequence[str]) -> int:
    from pathlib import Path

    from vllm_doctor import catalogue, rule, rulebook
    from vllm_doctor.errors import UsageError

    parser = _parser("vllm-doctor rules")
    parser.description = "The list of rules; one rule's page; the lint of a folder of rules."
    parser.add_argument("id", nargs="?", metavar="ID")
    parser.add_argument("--check", metavar="DIR", help="lint the rules in DIR and run their examples")
    parser.add_argument("--rules", action="append", default=[], metavar="DIR", help="more rules")
    parser.add_argument("--signals", action="store_true", help="the signals that rules may name")
    options = parser.parse_args(arguments)
    shipped = rule.shipped()
    signals = catalogue.load(shipped / "signals.yaml")
    if options.check:
        _say(rulebook.check(Path(options.check), [shipped], signals))
        return 0
    if options.signals:
        _say(rulebook.signals(signals))
        return 0
    rules = rule.load([shipped, *map(Path, options.rules)], signals)
    if options.id is None:
        _say(rulebook.listing(rules))
        return 0
    found = next((r for r in rules if r.id == options.id), None)
    if found is None:
        near = [r.id for r in rules if options.id in r.id or r.id in options.id]
        raise UsageError(
            f"no rule {options.id!r}" + (f"; meant {near[0]!r}?" if near else "; the list: vllm-doctor rules")
        )
    _say(rulebook.page(found))
    return 0


def _flags(arguments: Sequence[str]) -> int:
    """0: the version has all that were named; 1: it lacks one."""
    from vllm_doctor import ask_vllm, flag_pages, flags
    from vllm_doctor.errors import UsageError

    parser = _parser("vllm-doctor flags")
    parser.description = "What a vLLM version takes: all its flags, or a page each for those named."
    parser.usage = "vllm-doctor flags VERSION [FLAG | VLLM_VARIABLE | vllm:metric]... [--ask-vllm [PATH]]"
    parser.add_argument("words", nargs="*", metavar="VERSION [FLAG...]")
    asking = "ask the parser of an installed vLLM, not the catalogue: its python, or its vllm script (that on the PATH)"
    parser.add_argument("--ask-vllm", nargs="?", const="", metavar="PATH", help=asking)
    options, dashed = parser.parse_known_args(arguments)
    names = [word for word in arguments if word in (*options.words, *dashed)]  # in their order
    version = names.pop(0) if names and flags.release(names[0]) else None
    if options.ask_vllm is not None:
        asked = ask_vllm.ask(options.ask_vllm or None)
        is_another = version and flags.release(version) != flags.release(asked.version)
        remark = f"asked of the installed {asked.version}, not of {version}" if is_another else ""
    elif version is None:
        raise UsageError(
            f"{names[0]!r} is no version" if names else "which version? vllm-doctor flags 0.32.0 [FLAG...]"
        )
    else:
        found, remark = flags.parser(version), flags.judgement(version)
        if found is None:
            raise UsageError(remark)
        asked = found
    for name in names:
        if not flag_pages.is_name(name):
            raise UsageError(f"{name!r} is neither a flag nor a VLLM_VARIABLE nor a vllm:metric")
    if not names:
        _say(flag_pages.listing(asked, remark))
        return 0
    pages = [flag_pages.page(asked, name, remark) for name in names]
    _say("\n".join(page.text for page in pages))
    return 0 if all(page.is_there for page in pages) else 1


def _alerts(arguments: Sequence[str]) -> int:
    """The rules as files for Prometheus."""
    from pathlib import Path

    from vllm_doctor import alerts, catalogue, log_alerts, log_lines, query, recorded, rule
    from vllm_doctor.errors import UsageError
    from vllm_doctor.render import alerts as render
    from vllm_doctor.render import grafana

    parser = _parser("vllm-doctor alerts")
    parser.description = "The rules as recording and alerting rules of a Prometheus, with tests for promtool."
    add = parser.add_argument
    add("-o", dest="output", metavar="DIR", help="write all files to DIR, or none; else one rule file goes to stdout")
    add("--for", dest="hold", type=_seconds, default=300.0, metavar="TIME", help="how long before it alerts (5m)")
    add("--window", type=_seconds, default=300.0, metavar="TIME", help="what rates and medians are taken over (5m)")
    add("--by", default=_SERVER_LABELS, metavar="LABELS", help=f"the labels that tell servers apart ({_SERVER_LABELS})")
    add(
        "--select",
        action="append",
        default=[],
        metavar="MATCHERS",
        help="only servers with these labels: 'namespace=\"prod\"'",
    )
    add("--logs", default=_LOGS, metavar="SELECTOR", help=f"Loki's streams of vLLM's logs ({_LOGS})")
    add("--url", metavar="URL", help="a vLLM server: only what it exports is written")
    add("--prometheus", metavar="URL", help="only series that this Prometheus has are written")
    add("--timeout", type=_seconds, default=20.0, metavar="SECONDS", help="for their answers (20)")
    _choosing(parser)
    _accessing(parser)
    options = parser.parse_args(arguments)
    if options.window < 1:
        raise UsageError("--window: at least a second; a rate needs two scrapes in it")
    shipped = rule.shipped()
    signals = catalogue.load(shipped / "signals.yaml")
    rules = _chosen(rule.load([shipped, *map(Path, options.rules)], signals), options)
    matchers = tuple(matcher for text in options.select for matcher in query.matchers(text))
    try:
        query.matchers(options.logs)
    except UsageError:
        raise UsageError(f"--logs {options.logs}: write it as Loki has it: '{_LOGS}'") from None
    exporters = (signal.exporter for signal in signals.signals.values() if signal.exporter is not None)
    others = frozenset(name for exporter in exporters for name in query.exporter_metrics(exporter))
    exported, vllm = _exported(options, signals.metrics, others)
    try:
        labels = tuple(label.strip() for label in options.by.split(","))
        scope = query.Scope(matchers, labels, render.duration(options.window), exported=exported)
    except ValueError as error:
        raise UsageError(f"--by {options.by}: {error}") from None
    recorder = recorded.Recorder(signals, scope, {"goal": "throughput", **_wishes(options)})
    written = alerts.of_rules(rules, recorder)
    choices = render.Choices(options.hold, vllm)
    if options.output is None:
        _say(render.stream(written, choices))
        return 0
    files = render.files(written, choices)
    found = log_alerts.of_rules(rules, log_lines.load(shipped / log_lines.FOLDER), recorder)
    files["loki.yaml"] = render.loki(found, options.logs)
    files["grafana.json"] = grafana.render(signals, rules, scope)
    _write_folder(Path(options.output), files)
    told = [f"{len(written.alerts) + 1} alerts, {len(written.records)} recorded series: {', '.join(files)}", ""]
    _say("\n".join([*told, *render.left_out(written)]) + "\n")
    return 0


_LOGS = '{app="vllm"}'
_SERVER_LABELS = "job,namespace,pod,container,instance"


def _exported(
    options: argparse.Namespace, metrics: frozenset[str], others: frozenset[str]
) -> tuple[frozenset[str] | None, str | None]:
    """Which of vLLM's metrics the server at --url has, or of these and others the Prometheus; and vLLM's version.

    None: nobody was asked.
    """
    import contextlib
    import time

    from vllm_doctor.errors import SourceError, UsageError
    from vllm_doctor.signal import Known
    from vllm_doctor.sources.prometheus import Prometheus
    from vllm_doctor.sources.server import Server

    deadline = time.monotonic() + options.timeout
    version = None
    if options.url and options.prometheus:
        raise UsageError("--url and --prometheus both say which series there are: give one of them")
    if options.url:
        with contextlib.closing(Server(options.url, metrics, _access(options))) as server:
            seen = server.examine(0, deadline)
        if seen.error is not None:
            raise SourceError(seen.error.kind, seen.error.message)
        target, exported = server.target, frozenset(name for name in metrics if seen.window.series(name))
        told = seen.facts.get("vllm_version")
        version = str(told.value) if isinstance(told, Known) else None
    elif options.prometheus:
        with contextlib.closing(Prometheus(options.prometheus, _access(options))) as asked:
            rows = asked.rows(
                f'group by (__name__) ({{__name__=~"{"|".join(sorted(metrics | others))}"}})', time.time(), deadline
            )
        target, exported = asked.target, frozenset(row.labels.get("__name__", "") for row in rows)
    else:
        return None, None
    if not any(name.startswith("vllm:") for name in exported):
        raise SourceError("not-vllm", f"{target}: no statistics of a vLLM are there, so there is nothing to alert on")
    return exported, version


def _run(sources: Sequence[str], options: argparse.Namespace) -> int:
    """Examine these sources and write the report; the exit code."""
    report = _judges(options)(sources)
    _write(report, options)
    if options.format == "patch" and report.error is None:
        from vllm_doctor.render import patch

        if remark := patch.remark(report):
            print(f"vllm-doctor: {remark}", file=sys.stderr)
    if report.error is not None:
        print(f"vllm-doctor: {report.error.message}", file=sys.stderr)
    return _exit_code(report, options.fail_on)


def _judges(options: argparse.Namespace) -> Callable[[Sequence[str]], Report]:
    """What examines sources, with the rules read once: the report, as it may leave."""
    import contextlib
    import gc
    import time
    from datetime import UTC, datetime
    from pathlib import Path

    from vllm_doctor import catalogue, examination, progress, redact, rule
    from vllm_doctor.attach import Attachment

    gc.set_threshold(50_000)  # rules and samples are many objects without cycles, and live to the end
    window = _WINDOW if options.window is None else options.window
    shipped = rule.shipped()
    signals = catalogue.load(shipped / "signals.yaml")
    rules = _chosen(rule.load([shipped, *map(Path, options.rules)], signals), options)
    since = _since(options)
    patched = options.format == "patch"
    state = None
    if options.state:
        from vllm_doctor.sources.state import State

        state = State(Path(options.state))

    def examine(sources: Sequence[str]) -> Report:
        from_prometheus = any(source.startswith("prom+") for source in sources)
        timeout = (_QUERIES if from_prometheus else 8 + window) if options.timeout is None else options.timeout
        look = Attachment(
            signals.metrics,
            _access(options),
            window,
            time.monotonic() + timeout,
            Path(options.nvidia_smi) if options.nvidia_smi else None,
            since=since,
            until=options.until,
            command=options.command,
            gpu=options.gpu,
            signals=signals,
            asked=_ASKED if options.window is None else options.window,
            state=state,
            rules=lambda: _rules_version(options),
        )
        wishes = _wishes(options)
        with contextlib.ExitStack() as opened:
            watchers = look.watchers(sources, opened)
            if not any(watcher.recording for watcher in watchers):
                wishes.setdefault("goal", "throughput")
            past = ("log", "command", "gpu-name")
            if options.timeout is None and all(watcher.recording or watcher.kind in past for watcher in watchers):
                timeout = _ONE_DAY  # a log is read to its end; nobody waits for an answer
            opened.enter_context(progress.shown(watchers))
            observations = examination.observe(watchers, timeout)
        report = examination.judge(observations, rules, signals, wishes, datetime.now(UTC), options.strict, patched)
        return redact.report(_with_measures(report, observations, options))

    return examine


def _with_measures(report: Report, observations: Sequence[Observation], options: argparse.Namespace) -> Report:
    """The report with what is measured over time, for those outputs that have it."""
    form = options.format or ("json" if options.json else "text")
    is_compared = hasattr(options, "before")
    if form not in ("json", "html") and not is_compared:
        return report
    from dataclasses import replace

    from vllm_doctor import measure

    window = measure.window_of(observations)
    if window is None:
        return report
    return replace(report, measures=measure.measured(window), courses=measure.courses(window) if form == "html" else ())


def _is_interactive(options: argparse.Namespace) -> bool:
    """Whether a person sits at a terminal that can be drawn on. Where it cannot, one line says why."""
    import os

    asked = options.text or options.json or options.format or options.output or options.state
    if asked or not sys.stdout.isatty():
        return False
    why = None
    if os.environ.get("TERM", "") in ("", "dumb"):
        why = f"TERM is {os.environ.get('TERM') or 'not set'}"
    elif not sys.stdin.isatty():
        why = "the input is no terminal, so no key could be read"
    elif "utf" not in (sys.stdout.encoding or "").lower():
        why = f"it shows {sys.stdout.encoding}, not UTF-8"
    if why is not None:
        print(f"vllm-doctor: text, as this terminal cannot be drawn on: {why}", file=sys.stderr)
    return why is None


def _interactive(sources: Sequence[str], options: argparse.Namespace) -> int:
    """Watch these sources at the terminal; the exit code is that of the last verdict."""
    import gc
    import os

    if not os.environ.get("NO_COLOR"):  # as no-color.org has it: not where it is empty
        os.environ.pop("NO_COLOR", None)
    from vllm_doctor.picture import verdict_of
    from vllm_doctor.tui.app import DoctorApp

    gc.set_threshold(50_000)
    sys.setswitchinterval(0.001)  # a key is answered while a page is judged
    wishes, access, since = _wishes(options), _access(options), _since(options)
    session = _session(sources, options, wishes, access, since)
    if options.window or any(source.startswith("prom+") for source in sources):
        session.control.seconds = options.window or _ASKED
    app = DoctorApp(session)
    app.run()
    if app.crash is not None:
        raise app.crash
    if app.failure is not None:
        raise app.failure
    if app.by_signal:
        return 128 + app.by_signal
    report = app.picture.report
    return verdict_of(app.picture).exit_code if report is None else _exit_code(report, options.fail_on)


def _session(
    sources: Sequence[str], options: argparse.Namespace, wishes: dict[str, Value], access: Access, since: str | None
) -> Session:
    """What the terminal shows; everything here is loaded after its frame is drawn."""
    from pathlib import Path

    from vllm_doctor.picture import Session

    rules: list[Rule] = []

    watching: list[tuple[Watch, Attachment, Catalogue]] = []

    def watch(chosen: Sequence[str], tell: Callable[[Picture], None]) -> None:
        import gc
        import time

        from vllm_doctor import catalogue, rule
        from vllm_doctor.attach import Attachment, is_recording
        from vllm_doctor.watch import Judge, Watch

        shipped = rule.shipped()
        signals = catalogue.load(shipped / "signals.yaml")
        rules[:] = _chosen(rule.load([shipped, *map(Path, options.rules)], signals), options)
        gc.freeze()  # all this lives to the end
        look = Attachment(
            signals.metrics,
            access,
            _WINDOW,
            time.monotonic() + _ONE_DAY,
            Path(options.nvidia_smi) if options.nvidia_smi else None,
            since=since,
            until=options.until,
            command=options.command,
            gpu=options.gpu,
            keep=_KEPT,
            rules=lambda: _rules_version(options),
            signals=signals,
            asked=_ASKED if options.window is None else options.window,
        )
        # A recording tells for itself by which goal it was judged.
        goal: dict[str, Value] = {} if any(map(is_recording, chosen)) else {"goal": "throughput"}
        judge = Judge(rules, signals, goal | wishes, options.strict)
        made = Watch(lambda opened: look.watchers(chosen, opened), judge, session.control)
        watching[:] = [(made, look, signals)]
        made.run(tell)

    def record() -> bytes:
        made, look, signals = watching[0]
        return _with_report("recording", made.record(look.rules()), look, rules, signals)[0]

    def page(id: str) -> str:
        from vllm_doctor import rulebook

        found = next((rule for rule in rules if rule.id == id), None)
        return rulebook.page(found) if found is not None else ""

    def find() -> Sequence[Choice]:
        from vllm_doctor import attach

        return attach.choices()

    here = find if not sources and options.command is None else None
    session = Session(watch, page, tuple(sources), here, record=record)
    return session


def _compare(arguments: Sequence[str]) -> int:
    """0: it got better; 2: worse; 3: nothing can be concluded."""
    from datetime import UTC, datetime
    from pathlib import Path

    from vllm_doctor import comparison, redact, sides
    from vllm_doctor.errors import UsageError

    parser = _parser("vllm-doctor compare")
    parser.description = "Did the cure work? What got better or worse between two examinations under the same load."
    parser.epilog = "exit codes: 0 PASS, better; 2 FAIL, worse; 3 INCONCLUSIVE, or nothing to compare."
    told = "a report (--json), a recording, a result of `vllm bench serve` or GuideLLM, a log, a URL or a pid"
    parser.add_argument("before", metavar="BEFORE", help=told)
    parser.add_argument("after", metavar="AFTER", help="the same, of the server after the change")
    parser.add_argument(
        "--open-loop",
        action="store_true",
        help="requests come at a rate of their own, whatever the server does: the same rate is the same load",
    )
    _options(parser)
    options = parser.parse_args(arguments)
    form = options.format or ("json" if options.json else "text")
    if form not in ("text", "json"):
        raise UsageError(f"compare has no --format {form}: text or json")
    if options.window is None:
        options.window = _COMPARED_WINDOW
    judges: list[Callable[[Sequence[str]], Report]] = []

    def look(source: str) -> dict[str, Any]:
        from vllm_doctor.render import json_v1

        if not judges:
            judges.append(_judges(options))
        return json_v1.document(judges[0]([source]))

    before, after = sides.of_source(options.before, look), sides.of_source(options.after, look)
    if before.model is not None and after.model is not None and before.model != after.model:
        raise UsageError(f"two different models cannot be compared: {before.model} before, {after.model} after")
    found = redact.anything(comparison.compared(before, after, options.goal or "throughput", options.open_loop))
    if form == "json":
        from vllm_doctor.render import compare_json

        rendered = compare_json.render(found, datetime.now(UTC))
    else:
        from vllm_doctor.render import compare_text

        rendered = compare_text.render(found, _is_coloured(options))
    if options.output:
        _write_whole(Path(options.output), [rendered.encode()])
    else:
        _say(rendered)
    return found.outcome.exit_code


def _since(options: argparse.Namespace) -> str | None:
    from vllm_doctor.errors import UsageError

    if options.last and options.since:
        raise UsageError("--last and --since both say where to begin: give one of them")
    since: str | None = options.last or options.since
    return since


def _exit_code(report: Report | FleetReport, fail_on: str) -> int:
    from vllm_doctor.report import Report, Verdict

    if fail_on == "never" and not (isinstance(report, Report) and report.error is not None):
        return 0
    if fail_on == "critical" and report.verdict is Verdict.WARNING:
        return 0
    return report.verdict.exit_code


def _chosen(rules: Sequence[Rule], options: argparse.Namespace) -> list[Rule]:
    from vllm_doctor.errors import UsageError

    known = {r.id for r in rules}
    for id in [*options.rule, *options.skip]:
        if id not in known:
            raise UsageError(f"no rule {id!r}; the list: vllm-doctor rules")
    return [r for r in rules if (not options.rule or r.id in options.rule) and r.id not in options.skip]


def _wishes(options: argparse.Namespace) -> dict[str, Value]:
    from vllm_doctor.errors import UsageError

    wishes: dict[str, Value] = {"goal": options.goal} if options.goal else {}
    for text in options.slo:
        name, _, target = text.partition("=")
        try:
            if name not in ("ttft", "itl"):
                raise ValueError
            wishes[f"slo_{name}"] = _seconds(target)
        except ValueError:
            raise UsageError(f"--slo {text}: write ttft=2s or itl=50ms") from None
    return wishes


def _access(options: argparse.Namespace) -> Access:
    from pathlib import Path

    from vllm_doctor.errors import UsageError
    from vllm_doctor.sources.access import Access

    headers: dict[str, str] = {}
    for header in options.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not (name + value).isascii() or not (name + value).isprintable():
            raise UsageError("--header: write it as 'Name: value'")
        headers[name.strip()] = value.strip()
    if options.token_file:
        try:
            token = Path(options.token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--token-file {options.token_file}: cannot be read ({error})") from None
        if not token or not token.isascii() or not token.isprintable():
            raise UsageError(f"--token-file {options.token_file}: must hold one token, on one line")
        headers["Authorization"] = f"Bearer {token}"
    return Access(headers, Path(options.ca_file) if options.ca_file else None, options.insecure)


def _write(report: Report, options: argparse.Namespace) -> None:
    form = options.format or ("json" if options.json else "text")
    if form == "text":
        from vllm_doctor.render import text

        # A report without a patient is the one line on stderr.
        rendered = text.render(report, _is_coloured(options)) if report.vitals or options.output else ""
    else:
        from importlib import import_module

        module = import_module(f"vllm_doctor.render.{'json_v1' if form == 'json' else form}")
        rendered = module.render(report)
    if options.output:
        from pathlib import Path

        _write_whole(Path(options.output), [rendered.encode()])
    else:
        _say(rendered)


def _is_coloured(options: argparse.Namespace) -> bool:
    import os

    return (
        not options.output
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def _say(text: str) -> None:
    """Write to stdout; a terminal without UTF-8 gets "?", not a crash."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def _write_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """Write beside the file and rename: a reader sees the old one or the new one, never a half.

    A device or a pipe (/dev/null, /dev/stdout) is written to, not replaced.
    """
    import os
    import tempfile

    from vllm_doctor.errors import UsageError

    temporary = ""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                device.writelines(pieces)
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise UsageError(f"-o {path}: cannot be written ({error.strerror})") from None


def _write_folder(path: Path, files: dict[str, str]) -> None:
    """Write beside the folder and rename: it has all files or is as it was. A folder with other files is left alone."""
    import os
    import shutil
    import tempfile

    from vllm_doctor.errors import UsageError

    temporary = ""
    try:
        if path.exists() and (others := sorted({entry.name for entry in path.iterdir()} - files.keys())):
            raise UsageError(f"-o {path}: holds other files ({others[0]}): name a new folder")
        temporary = tempfile.mkdtemp(dir=path.absolute().parent, prefix=f".{path.name}.")
        new, old = os.path.join(temporary, "new"), os.path.join(temporary, "old")
        os.mkdir(new, 0o755)
        for name, text in files.items():
            with open(os.path.join(new, name), "w", encoding="utf-8") as file:
                file.write(text)
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written ({error.strerror})") from None
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
