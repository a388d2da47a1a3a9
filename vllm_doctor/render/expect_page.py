"""What a server should do, as a page: the answer, what it holds, how fast it is, and each assumption."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.expectation import Expectation
from vllm_doctor.model.report import Report
from vllm_doctor.render.page import Block, Command, Fold, Head, Lines, Page, Words, code, joined
from vllm_doctor.render.parts import expectation as parts
from vllm_doctor.text import words


def page(report: Report, expectation: Expectation) -> Page:
    """Of a report on a command alone."""
    return (
        Head(*parts.headline(expectation)),
        *_examined(report, expectation),
        parts.load(expectation),
        parts.fits(expectation),
        parts.speed(expectation.loads[0]),
        *parts.findings(report),
        parts.assumed(expectation),
        *parts.unknown(expectation),
        *_notes(report),
    )


def _examined(report: Report, expectation: Expectation) -> Iterator[Block]:
    patient = report.patient
    count, here = expectation.gpus, expectation.gpus_here
    of = f" of {words.number(here)}" if count is not None and here is not None and here > count else ""
    gpus = f"{words.number(count)}{of} × {patient.gpu}" if count is not None and patient.gpu else ""
    named: list[Words] = [(code(words.shortened(patient.model or "model unknown")),), gpus]
    named.append(f"vLLM {patient.vllm}" if patient.vllm else "")
    yield Lines((joined([part for part in named if part]),))
    if report.command:
        yield Command(report.command, report.variables)


def _notes(report: Report) -> Iterator[Fold]:
    notes: tuple[Words, ...] = tuple(note for source in report.sources for note in source.notes)
    if notes:
        yield Fold("Note", notes)
