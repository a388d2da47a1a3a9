"""What could not be seen, and how to see it: all of it for a page, in short for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Report, SourceSeen, UnknownRule
from vllm_doctor.render.page import Fold, Words, code, listed
from vllm_doctor.render.parts import coverage

_RUNNING = (Reason.NOT_IN_COMMAND, Reason.NOT_LOCAL, Reason.NO_LOG)
"""Why something is not known of a command alone: nothing runs yet."""
_ASKED = 6


def unseen(report: Report, whole: bool) -> tuple[Fold, ...]:
    items: tuple[Words, ...] = tuple(everything(report)) if whole else tuple(in_short(report))
    return (Fold("Not checked", items, count(report)),) if items else ()


def count(report: Report) -> str:
    """How many rules could not be judged, in words; empty: none."""
    rules = len(report.unknown)
    return f"{rules} rule{'s' if rules > 1 else ''} could not be checked" if rules else ""


def everything(report: Report) -> Iterator[Words]:
    """What the sources had to say, then every rule that could not be judged by its reasons, then what would help."""
    for source, said in _said(report):
        yield (code(_targets(report, source.kind, said)), f": {said}") if said in source.notes else said
    by_reason = report.unknown_by_reason
    for reason in sorted(by_reason, key=lambda reason: (reason is not Reason.NOT_IN_LOG, reason is Reason.NOT_LOCAL)):
        yield f"{HOW_TO_LEARN[reason][0].upper()}{HOW_TO_LEARN[reason][1:]}. Rules: ", *listed(by_reason[reason])
    kinds = {source.kind for source in report.sources}
    if "log" not in kinds:
        yield "the log: add its file as another argument"
    if "host" not in kinds:
        yield "CPU and GPUs: run vllm-doctor on the server's host"


def in_short(report: Report) -> list[str]:
    """A sentence each."""
    said = list(_of_sources(report))
    blind = any(finding.role == "blind" for finding in report.findings)
    if report.is_postmortem:
        return [*said, *_not_told_by_log([] if blind else report.unknown, report)]
    by_reason = {} if blind else report.unknown_by_reason
    kinds = {source.kind for source in report.sources}
    if report.is_of_trace:
        said.append(
            f"What a trace does not hold ({len(report.unknown)} rules): give the server's URL, its log or command, too."
        )
        return said
    if report.is_unmeasured:
        running = {rule for reason in _RUNNING for rule in by_reason.pop(reason, [])}
        needed = f" ({len(running)} rules)" if running else ""
        said.append(f"What only a running server shows{needed}: examine it then, on its host or by its URL.")
        if report.patient.gpu is None:
            said.append("Its GPUs: name them with --gpu 8xH100.")
    if report.is_of_benchmark:
        server = {rule for reason in (*_RUNNING, Reason.NOT_IN_BENCH) for rule in by_reason.pop(reason, [])}
        said.append(
            f"What the result does not hold ({len(server)} rules): give its command, or the server's URL or log."
        )
        if report.patient.gpu is None:
            said.append("Its GPUs: name them with --gpu 8xH100.")
    need_log = by_reason.pop(Reason.NO_LOG, []) if "log" not in kinds else []
    for reason, rules in by_reason.items():
        said.append(_because(rules, coverage.how(reason, kinds)))
    if report.is_unmeasured or report.is_of_benchmark:
        return said
    if "log" not in kinds:
        needed = f"{len(need_log)} rule{'s need' if len(need_log) > 1 else ' needs'} " if need_log else ""
        said.append(f"{needed}the log: add its file as another argument.")
    if "host" not in kinds:
        lacking = "CPU and GPUs" if kinds & {"log", "command"} else "CPU, GPUs and flags"
        said.append(f"{lacking}: run vllm-doctor on its host.")
    return said


def _of_sources(report: Report) -> Iterator[str]:
    for source, said in _said(report):
        is_named = said in source.notes and source.kind != "gpu" and not report.is_unmeasured
        yield f"{_targets(report, source.kind, said)}: {said}" if is_named else said


def _said(report: Report) -> Iterator[tuple[SourceSeen, str]]:
    """What the sources could not do, and their notes: what several of a kind say, as of many pods, once."""
    told: set[tuple[SourceKind, str]] = set()
    for source in report.sources:
        for said in (*((source.error.message,) if source.error is not None else ()), *source.notes):
            if (source.kind, said) not in told:
                told.add((source.kind, said))
                yield source, said


def _targets(report: Report, kind: SourceKind, note: str) -> str:
    """The sources of a kind with this note."""
    first, *more = (source.target for source in report.sources if source.kind == kind and note in source.notes)
    return f"{first} and {len(more)} more" if more else first


def _because(rules: Sequence[str], how: str) -> str:
    return f"{_named(rules, 3)}: {how.removesuffix('?')}{'?' if how.endswith('?') else '.'}"


def _not_told_by_log(unknown: Sequence[UnknownRule], report: Report) -> Iterator[str]:
    """First what the log itself lacks, then what else, then the host, in a line each: every rule once.

    Those that ask the log for the most come first: they are of the server's work, not of a line that was not written.
    """
    lacks = [u for u in unknown if Reason.NOT_IN_LOG in u.because.values()]
    host = [u for u in unknown if u not in lacks and Reason.NOT_LOCAL in u.because.values()]
    others: dict[Reason, list[str]] = {}
    for rule in unknown:
        if rule not in lacks and rule not in host:
            others.setdefault(next(iter(rule.because.values()), Reason.ABSENT), []).append(rule.rule)
    if lacks:
        lacks.sort(key=lambda u: -sum(reason is Reason.NOT_IN_LOG for reason in u.because.values()))
        yield (
            f"not in this log, but needed by {_named([u.rule for u in lacks], _ASKED)}."
            " Ask /metrics while the server runs: vllm-doctor http://HOST:PORT."
        )
    for reason, rules in others.items():
        yield _because(rules, HOW_TO_LEARN[reason])
    if host or not any(source.kind == "host" for source in report.sources):
        needed = f" (for {_named([u.rule for u in host], 3)})" if host else ""
        yield f"CPU and GPUs{needed}: run vllm-doctor on its host."


def _named(rules: Sequence[str], most: int) -> str:
    return ", ".join(rules[:most]) + (f" and {len(rules) - most} more" if len(rules) > most else "")
