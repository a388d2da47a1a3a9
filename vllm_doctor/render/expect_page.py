"""What a server should do, as a page: the answer, what it holds, how fast it is, and each assumption."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.expectation import Expectation
from vllm_doctor.model.report import Report, grouped
from vllm_doctor.render.page import Block, Command, Fold, Head, Labelled, Lines, Page, Words, code, joined, rule
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
        *_findings(report),
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


def _findings(report: Report) -> Iterator[Labelled]:
    """What the rules find in the command: each in a line."""
    lines: tuple[Words, ...] = tuple(
        (f"{group[0].severity.sign} {group[0].title} ", rule(group[0].rule))
        for group in grouped([*report.main, *report.aside])
    )
    if lines:
        yield Labelled("Findings", lines[0], (Lines(lines[1:]),) if lines[1:] else ())


def _notes(report: Report) -> Iterator[Fold]:
    notes: tuple[Words, ...] = tuple(note for source in report.sources for note in source.notes)
    if notes:
        yield Fold("Note", notes)
