"""What was examined: where, the server, what it has of its host, and its command line."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.kinds import SERVERS
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Command, Kind, Lines, Span, Words, code, joined, listed, plain
from vllm_doctor.render.parts import benchmark
from vllm_doctor.text import times, words

_PIDS = 6
_NO_VERSION = {True: "vLLM (version not in the log)", False: "vLLM (version unknown)"}
"""By whether it was looked for in a log."""


def examined(report: Report, whole: bool) -> tuple[Lines | Command, ...]:
    """The past that it is of, the sources, the server and its host, what benchmarks measured, then its command line."""
    return _blocks(
        report,
        (*_recordings(report, whole), *_sources(report, whole), *_server(report, whole), *benchmark.lines(report)),
    )


def patient(report: Report) -> tuple[Lines | Command, ...]:
    """The same without what a recording said when it was taken."""
    return _blocks(report, (*_sources(report, False), *_server(report, False), *benchmark.lines(report)))


def _blocks(report: Report, lines: tuple[Words, ...]) -> tuple[Lines | Command, ...]:
    command = (Command(report.command, report.variables),) if report.command else ()
    return (Lines(lines), *command) if lines else command


def _recordings(report: Report, whole: bool) -> Iterator[Words]:
    """What was judged is of the past: of when, and what was said then where that was something else."""
    for kept in report.recordings:
        day = kept.taken.replace("T", " ").removesuffix("Z")
        by = f", by vllm-doctor {kept.doctor}" if whole else ""
        yield code(kept.target), f": recorded {day} UTC, {words.plain(round(kept.seconds, 1))} s{by}"
    then = report.judged_otherwise
    if then is not None:
        other = "by other rules" if then.same_rules is False else "with other options"
        yield f"Verdict when it was captured, {other}: {str(then.verdict).upper()}  {then.headline}"


def _sources(report: Report, whole: bool) -> Iterator[Words]:
    yield from _servers(report)
    if report.lines is not None:
        yield from _logs(report, whole)
    yield from _texts(report)


def _texts(report: Report) -> Iterator[Words]:
    """Which other texts were read, each as what."""
    texts = {source.target: source.taken_as for source in report.sources if source.taken_as}
    for target, taken_as in texts.items():
        yield code(target), f": {taken_as}"


def _servers(report: Report) -> Iterator[Words]:
    """The servers by their URLs, with the pids of their processes where those were seen."""
    if report.pods:
        return  # each is a row of their table
    targets = [code(source.target) for source in report.sources if source.kind in SERVERS]
    pids = " ".join(f"{role} {pid}" for role, pid in report.patient.processes[:_PIDS])
    if not pids or len(targets) > 1:
        yield from ((target,) for target in targets)
        return
    more = len(report.patient.processes) - _PIDS
    named = f"pids: {pids}{f' and {more} more' if more > 0 else ''}"
    yield (targets[0], f" · {named}") if targets else named


def _logs(report: Report, whole: bool) -> Iterator[Words]:
    """Which logs were read, from when to when, and how much of them said something."""
    read = report.lines
    assert read is not None
    targets = listed([source.target for source in report.sources if source.kind == "log"])
    thinned = f", 1 of {read.one_in} statistics lines read" if read.one_in > 1 else ""
    counted = f"{read.read:,} line{'s' if read.read != 1 else ''}, {read.recognised:,} recognised{thinned}"
    if whole:
        yield (*targets, *([": "] if targets else []), f"{times.span(report)}, {counted}")
        return
    if targets:
        yield targets
    is_read = read.seconds >= 1 and report.is_postmortem  # that of a server that answers is followed
    took = f", read in {read.seconds:.1f} s" if is_read else ""
    yield times.span(report), Span(" · ", Kind.BREAK), f"{counted}{took}"


def _server(report: Report, whole: bool) -> Iterator[Words]:
    patient = report.patient
    engines = f"{patient.engines} engine{'s' if patient.engines != 1 else ''}" if patient.engines else ""
    parts: list[Words] = [
        (code(words.shortened(patient.model or "")),),
        _version(report),
        engines,
    ]
    if report.is_postmortem:
        parts.append(_gpus(report))
        parts.append(f"{len(report.runs):,} server runs" if len(report.runs) > 1 else "")
    elif not (report.is_of_benchmark or report.is_of_trace):
        parts.append(_watched(report))
    yield joined([part for part in parts if plain(part)])
    host = []
    if patient.cores_usable is not None and patient.cores_wanted is not None:
        usable, wanted = words.number(patient.cores_usable), words.number(patient.cores_wanted)
        host.append(f"cores: {usable} usable, {wanted} wanted ({patient.cores_terms})")
    if not report.is_postmortem and patient.gpus is not None:
        host.append(_gpus(report))
    if host:
        yield " · ".join(host)
    if whole:
        yield f"examined {report.at.strftime('%Y-%m-%d %H:%M:%S')} UTC"


def _version(report: Report) -> str:
    known = report.patient.vllm or report.patient.vllm_window
    return f"vLLM {known}" if known else _NO_VERSION[report.is_postmortem]


def _watched(report: Report) -> str:
    """How much of the server was seen."""
    answered = [source for source in report.sources if source.scrapes]
    scrapes = max((source.scrapes for source in answered), default=0)
    if not scrapes:
        if report.trace is not None and report.is_unmeasured:
            return "a profiler's trace"
        return "nothing was measured" if report.is_unmeasured else "no answer from /metrics"
    window = max(source.window_s for source in answered)
    return f"watched for {words.number(round(window, 1), 's')}, {scrapes} scrapes" if scrapes > 1 else "one scrape"


def _gpus(report: Report) -> str:
    count, name = report.patient.gpus, report.patient.gpu
    if count is None:
        return ""
    if count and name:
        return f"{count} × {name}"
    return f"{count} GPU{'s' if count > 1 else ''}" if count else "no GPU"
