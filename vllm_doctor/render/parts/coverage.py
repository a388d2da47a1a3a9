"""How much was looked at, which source would show more, and how to learn what is not known: as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Set

from vllm_doctor.model.kinds import SERVERS, SourceKind
from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Report, Verdict

_SCRAPED_ONCE = {
    "prometheus": "a rate needs two scrapes in the window: --window 30m",
    "page": "a rate needs two scrapes: give two files",
}
_WOULD_SHOW: Mapping[Reason, tuple[Set[SourceKind], str]] = {
    Reason.NOT_IN_LOG: (SERVERS, "/metrics"),
    Reason.NOT_IN_COMMAND: (SERVERS, "running server"),
    Reason.NOT_LOCAL: ({SourceKind.HOST}, "host"),
    Reason.NO_LOG: ({SourceKind.LOG}, "log"),
}
"""The kinds of sources that hold what is unknown for a reason."""
_NOT_IN_THIS_LOG = "the log does not hold it: does it begin at the server's start?"


def headline(report: Report) -> str:
    """The report's, of a server that is ok with what that is worth."""
    if report.verdict is not Verdict.OK or not (checked := coverage(report)):
        return report.headline
    return f"{report.headline} ({checked})"


def coverage(report: Report) -> str:
    """ "41 of 126 checks; host and log not given": how much was looked at, and which source would show more."""
    checked, of = report.coverage
    if not of:
        return ""
    kinds, reasons = {source.kind for source in report.sources if source.error is None}, report.unknown_by_reason
    lacking = [name for reason, (kind, name) in _WOULD_SHOW.items() if reason in reasons and not kinds & kind]
    listed = " and ".join(part for part in (", ".join(lacking[:-1]), *lacking[-1:]) if part)
    return f"{checked} of {of} checks" + (f"; {listed} not given" if listed else "")


def how(reason: Reason, kinds: set[SourceKind]) -> str:
    """How to learn it from these sources."""
    if reason is Reason.NOT_IN_LOG:
        return _NOT_IN_THIS_LOG
    if reason is Reason.FIRST_SCRAPE:
        return next((_SCRAPED_ONCE[kind] for kind in _SCRAPED_ONCE if kind in kinds), HOW_TO_LEARN[reason])
    return HOW_TO_LEARN[reason]
