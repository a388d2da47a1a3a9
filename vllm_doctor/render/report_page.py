"""A report as a page: the order of its parts. Each part's sentences are made in parts/, once for all painters.

Two pages of it: `in_short` for a terminal, where the vital signs, the runs and what was not seen are a few sentences,
and `whole` to be kept and sent, where they are tables with all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.model.report import Finding, Report, grouped
from vllm_doctor.model.version import __version__
from vllm_doctor.render.page import Block, Footer, Head, Heading, Labelled, Page, Words, code
from vllm_doctor.render.parts import (
    coverage,
    elimination,
    examined,
    expectation,
    finding,
    over_time,
    path,
    pods,
    prefixes,
    profile,
    speed,
    trace,
    unseen,
    vitals,
)


def in_short(report: Report) -> Page:
    if report.error is not None and not report.findings and not report.vitals:
        return Head(report.verdict.value, "No verdict"), Labelled("Why", report.error.message)
    main = report.main
    return (
        _head(report),
        *pods.pods(report),
        *examined.examined(report, whole=False),
        *vitals.vitals(report, whole=False),
        *speed.speed(report, whole=False),
        *path.path(report, whole=False),
        *trace.step(report, whole=False),
        *prefixes.prefixes(report, whole=False),
        *profile.profile(report, whole=False),
        *elimination.undecided(report),
        *expectation.will_give(report, whole=False),
        *over_time.plots(report),
        *over_time.runs(report, whole=False),
        *over_time.numbered(main, report),
        *_cards(main, report, whole=False),
        *finding.correction(report),
        *(finding.note(group, report) for group in grouped(report.aside)),
        *elimination.elimination(report),
        *unseen.unseen(report, whole=False),
        _footer(report, whole=False),
    )


def whole(report: Report) -> Page:
    main, notes = report.main, [finding.note(group, report) for group in grouped(report.aside)]
    is_news = report.error is not None and report.error.message != report.headline
    error: list[Block] = [Labelled("Why", report.error.message)] if report.error is not None and is_news else []
    return (
        _head(report),
        *pods.pods(report),
        *examined.examined(report, whole=True),
        *error,
        *speed.speed(report, whole=True),
        *path.path(report, whole=True),
        *trace.step(report, whole=True),
        *prefixes.prefixes(report, whole=True),
        *profile.profile(report, whole=True),
        *elimination.undecided(report),
        *expectation.will_give(report, whole=True),
        *_under("Over time", over_time.plots(report)),
        *over_time.runs(report, whole=True),
        *_under("Vitals", vitals.vitals(report, whole=True)),
        *over_time.numbered(main, report),
        *_under("Cause and fix" if len(grouped(main)) == 1 else "Causes and fixes", _cards(main, report, whole=True)),
        *finding.correction(report, whole=True),
        *_under("Also found", notes),
        *_under("Stacks", [flame for seen in report.profiles.values() for flame in profile.flames(seen)]),
        *elimination.elimination(report),
        *unseen.unseen(report, whole=True),
        _footer(report, whole=True),
    )


def alone(group: Sequence[Finding], report: Report) -> Page:
    """The findings of one rule, with the server they are of."""
    card = finding.card(group, report, whole=True, headline=group[0].title)
    return Head(card.state, card.title), *examined.examined(report, whole=True), card


def _head(report: Report) -> Head:
    main = report.main
    rule = main[0].rule if main and main[0].title == report.headline else ""
    gist = finding.gist(main) if speed.of_headline(report) is None else ()
    return Head(report.verdict.value, coverage.headline(report), rule, gist)


def _cards(main: Sequence[Finding], report: Report, whole: bool) -> list[Block]:
    return [
        finding.card(group, report, whole, report.headline if whole or not place else "")
        for place, group in enumerate(grouped(main))
    ]


def _under(title: str, blocks: Sequence[Block]) -> list[Block]:
    return [Heading(title), *blocks] if blocks else []


def _footer(report: Report, whole: bool) -> Footer:
    parts: list[Words] = [f"rules: {report.counts[0]}", *report.counts[1:]]
    findings = report.main or report.aside
    if findings:
        parts.append(("more: ", code(f"vllm-doctor rules {findings[0].rule}")))
    if whole and report.redacted:
        parts.append(f"masked: {', '.join(f'{count} × {what}' for what, count in report.redacted.items())}")
    if whole:
        parts.append(f"vllm-doctor {__version__}")
    return Footer(tuple(parts))
