"""The rules as files for a Prometheus, a Loki and a Grafana."""

from __future__ import annotations

import argparse
import contextlib
import re
import time
from collections.abc import Sequence
from pathlib import Path

from vllm_doctor.alerting import alerts, recording_rules
from vllm_doctor.alerting import files as render
from vllm_doctor.cli import chosen_rules
from vllm_doctor.cli.options import Parser, access_of, add_accessing, add_choosing, seconds, wishes_of
from vllm_doctor.cli.output import say, write_folder
from vllm_doctor.model import restarts
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reading import Known
from vllm_doctor.prometheus import query
from vllm_doctor.rules import rule
from vllm_doctor.text.durations import promql

_LOGS = '{app="vllm"}'
_SERVER_LABELS = "job,namespace,pod,container,instance"


def run(arguments: Sequence[str]) -> int:
    """Write them; 0, or it raises."""
    options = parser().settled(arguments)
    if options.window < 1:
        raise UsageError("--window: at least a second; a rate needs two scrapes in it")
    rules, signals = chosen_rules.load(options)
    matchers = tuple(matcher for text in options.select for matcher in query.matchers(text))
    try:
        query.matchers(options.logs)
    except UsageError:
        raise UsageError(f"--logs {options.logs}: write it as Loki has it: '{_LOGS}'") from None
    _check(options)
    exporters = (signal.exporter for signal in signals.signals.values() if signal.exporter is not None)
    others = frozenset(name for exporter in exporters for name in query.exporter_metrics(exporter))
    exported, vllm = _exported(options, signals.metrics, others)
    try:
        labels = tuple(label.strip() for label in options.by.split(","))
        scope = query.Scope(matchers, labels, promql(options.window), exported=exported)
    except ValueError as error:
        raise UsageError(f"--by {options.by}: {error}") from None
    recorder = recording_rules.Recorder(
        signals, scope, {restarts.WINDOW: options.window, "goal": "throughput", **wishes_of(options)}
    )
    written = alerts.of_rules(rules, recorder)
    choices = render.Choices(options.hold, vllm, options.runbooks or "")
    if options.output is None:
        say(render.stream(written, choices))
        return 0
    from vllm_doctor.alerting import grafana, log_alerts
    from vllm_doctor.rules import log_lines  # imported here: a folder has more than Prometheus reads

    files = render.files(written, choices)
    found = log_alerts.of_rules(rules, log_lines.load(rule.shipped(), *chosen_rules.folders(options)), recorder)
    files["loki.yaml"] = render.loki(found, options.logs, choices)
    files["grafana.json"] = grafana.render(signals, rules, scope)
    write_folder(Path(options.output), files)
    told = [f"{len(written.alerts) + 1} alerts, {len(written.records)} recorded series: {', '.join(files)}", ""]
    say("\n".join([*told, *render.left_out(written)]) + "\n")
    return 0


def _check(options: argparse.Namespace) -> None:
    """Raises UsageError for an option that nothing is done with."""
    if options.url is None and options.prometheus is None:
        for option in ("--timeout", "--header", "--token-file", "--token-for", "--ca-file", "--insecure"):
            if option in options.given:
                raise UsageError(f"{option} is how --url or --prometheus is asked, and neither is given")
    if options.output is None and "--logs" in options.given:
        raise UsageError("--logs is of loki.yaml, which -o DIR writes: give it, too")


def parser() -> Parser:
    """Its options."""
    parser = Parser(
        "vllm-doctor alerts",
        "The rules as recording and alerting rules of a Prometheus, with tests for promtool.",
        "[-o DIR] [options]",
        (
            ("vllm-doctor alerts -o alerts", "all files: Prometheus, promtool tests, Loki, a Grafana dashboard"),
            ("vllm-doctor alerts --prometheus http://prometheus:9090 -o alerts", "only series that are there"),
        ),
    )
    add = parser.add_argument
    add("-o", dest="output", metavar="DIR", help="write all files to DIR, or none; else one rule file goes to stdout")
    add("--for", dest="hold", type=seconds, default=300.0, metavar="TIME", help="how long before it alerts (5m)")
    add("--window", type=seconds, default=300.0, metavar="TIME", help="what rates and p50 are taken over (5m)")
    add(
        "--by", default=_SERVER_LABELS, metavar="LABELS", help=f"the labels that distinguish servers ({_SERVER_LABELS})"
    )
    add(
        "--select",
        action="append",
        default=[],
        metavar="MATCHERS",
        help="only servers with these labels: 'namespace=\"prod\"'",
    )
    add("--logs", default=_LOGS, metavar="SELECTOR", help=f"Loki's streams of vLLM's logs ({_LOGS})")
    add(
        "--runbooks",
        type=_site,
        metavar="URL",
        help="where this documentation is served: each alert then names its rule's page (else the rule's source)",
    )
    add("--url", metavar="URL", help="a vLLM server: only what it exports is written")
    add("--prometheus", metavar="URL", help="only series that this Prometheus has are written")
    add("--timeout", type=seconds, default=20.0, metavar="SECONDS", help="for their answers (20)")
    add_choosing(parser)
    add_accessing(parser)
    return parser


def _site(url: str) -> str:
    """A URL that everybody who gets an alert may see, without its last slash."""
    if re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", url) is None:
        raise argparse.ArgumentTypeError("write http:// or https://, a host and a path, without a password or a query")
    return url.rstrip("/")


def _exported(
    options: argparse.Namespace, metrics: frozenset[str], others: frozenset[str]
) -> tuple[frozenset[str] | None, str | None]:
    """Which of vLLM's metrics the server at --url has, or of these and others the Prometheus; and vLLM's version.

    None: nobody was asked.
    """
    deadline = time.monotonic() + options.timeout
    version = None
    if options.url and options.prometheus:
        raise UsageError("--url and --prometheus both say which series there are: give one of them")
    if options.url:
        from vllm_doctor.sources.server.server import Server  # these two late: a client, where somebody is asked

        with contextlib.closing(Server(options.url, metrics, access_of(options))) as server:
            seen = server.examine(0, deadline)
        if seen.error is not None:
            raise SourceError(seen.error.kind, seen.error.message)
        target, exported = server.target, frozenset(name for name in metrics if seen.window.series(name))
        told = seen.facts.get("vllm_version")
        version = str(told.value) if isinstance(told, Known) else None
    elif options.prometheus:
        from vllm_doctor.prometheus.api import Api

        with contextlib.closing(Api(options.prometheus, access_of(options))) as asked:
            rows = asked.rows(
                f'group by (__name__) ({{__name__=~"{"|".join(sorted(metrics | others))}"}})', time.time(), deadline
            )
        target, exported = asked.target, frozenset(row.labels.get("__name__", "") for row in rows)
    else:
        return None, None
    if not any(name.startswith("vllm:") for name in exported):
        raise SourceError("not-vllm", f"{target}: no statistics of a vLLM are there, so there is nothing to alert on")
    return exported, version
