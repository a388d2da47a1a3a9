"""All that could not be seen, for pages that are read at leisure; the terminal has the short form, text.not_seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Report


@dataclass(frozen=True)
class Unseen:
    """What a source said (`target`), or why rules could not be judged (`reason`), and how to learn it."""

    says: str
    target: str = ""
    reason: str = ""
    rules: tuple[str, ...] = ()


def told(report: Report) -> Iterator[Unseen]:
    """What the sources had to say, then every rule that could not be judged by its reasons, then what would help."""
    for source in report.sources:
        if source.error is not None:
            yield Unseen(source.error.message)
        yield from (Unseen(note, source.target) for note in source.notes)
    by_reason = report.unknown_by_reason
    for reason in sorted(by_reason, key=lambda reason: (reason is not Reason.NOT_IN_LOG, reason is Reason.NOT_LOCAL)):
        yield Unseen(HOW_TO_LEARN[reason], reason=reason.value, rules=tuple(by_reason[reason]))
    kinds = {source.kind for source in report.sources}
    if "log" not in kinds:
        yield Unseen("the log: add its file as another argument")
    if "host" not in kinds:
        yield Unseen("CPU and GPUs: run vllm-doctor on the server's host")


def count(report: Report) -> str:
    """How many rules could not be judged, in words; empty: none."""
    rules = len(report.unknown)
    return f"{rules} rule{'s' if rules > 1 else ''} could not be judged" if rules else ""
