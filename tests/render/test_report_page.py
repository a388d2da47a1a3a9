"""One page, many painters: what one of them shows, all show, and none knows another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.render.reports import BEGAN, HOUR, crash_loop, finding, postmortem, run, span, trend, unreachable
from tests.render.test_html import Page as Parsed
from tests.test_fixtures import judged
from tests.test_layers import imported
from vllm_doctor.model.kinds import Confidence, Role, Stage
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change, Correction, Gain, LeftOut, RecordingSeen, Report, Target, Verdict
from vllm_doctor.render import html, markdown, report_page, text
from vllm_doctor.render.page import (
    Block,
    Card,
    Command,
    Diff,
    Explains,
    Figures,
    Fold,
    Footer,
    Head,
    Labelled,
    Lines,
    Note,
    Numbered,
    Page,
    Shell,
    Table,
    plain,
)  # fmt: skip
from vllm_doctor.render.parts import finding as parts
from vllm_doctor.tui.ink import painted


def rich_in_kinds() -> Report:
    """A log's report with a finding, a note, a symptom, a corrected command, and what was left out."""
    cap = replace(finding("cap", "Requests queue"), gain=Gain(2.1, "slots"))
    cap = replace(cap, stage=Stage.LIMIT, confidence=Confidence.MEDIUM)
    told = replace(cap.remedies[0], then=("It holds 11.",), starts_unknown={"gpu": Reason.DENIED}, gain=Gain(1.2, "x"))
    cap = replace(cap, remedies=(told, replace(told, do="Or so")))
    symptom = replace(finding("slow", "It is slow", role=Role.SYMPTOM), explained_by="cap")
    left = LeftOut("other", "Admit less", "--max-num-seqs 128 cures cap")
    correction = Correction(("vllm", "serve", "m"), (Change("--max-num-seqs", 64.0, 128.0, "cap"),), (left,))
    found = [cap, finding("eager", "Graphs are off"), symptom, finding("note", "It waits", "info", "not-server")]
    runs = [run(BEGAN, BEGAN + HOUR, BEGAN + HOUR), run(BEGAN + 2 * HOUR, BEGAN + 10 * HOUR)]
    report = postmortem(found, runs, [span("cap", BEGAN, BEGAN + HOUR)], timeline=trend(BEGAN, BEGAN + 10 * HOUR))
    kept = RecordingSeen("a.tar.gz", "2026-11-20T10:00:00Z", 3.0, "0.1.0", "abc", "ok", "Well", False)
    return replace(report, correction=correction, recordings=(kept,), redacted={"address": 2})


def with_targets() -> Report:
    report = judged("preemption", slice(0, 4))
    return replace(report, targets=(Target("slo_ttft", 2.0, Known(3.0), False),))


REPORTS: dict[str, Callable[[], Report]] = {
    "rich in kinds": rich_in_kinds,
    "live": with_targets,
    "crash loop": crash_loop,
    "nothing found": postmortem,
    "unreachable": unreachable,
}
PAINTERS: dict[str, Callable[[Page], str]] = {
    "text": lambda page: text.paint(page, width=200),
    "markdown": lambda page: markdown.paint(page).replace("\\", "").replace("`", ""),
    "html": lambda page: Parsed(html.paint(page)).text,
    "terminal": lambda page: "\n".join(line.plain for line in painted(page, 200)),
}


def said(block: Block) -> Iterator[str]:
    """Each sentence of a block, and each cell."""
    match block:
        case Head():
            yield block.title
        case Lines() | Fold():
            yield from map(plain, block.items)
        case Command():
            yield from block.words
        case Figures() | Numbered():
            yield from (text for item in block.items for text in item)
        case Table():
            yield from (plain(cell) for row in block.rows for cell in row)
            yield from map(plain, block.notes)
        case Diff():
            yield from (line for _, line in block.lines)
        case Shell():
            yield from (*block.commands, block.note)
        case Explains():
            yield from map(plain, block.symptoms)
        case Labelled():
            yield plain(block.text)
            for part in block.body:
                yield from said(part)
        case Card():
            yield from (text for one in block.blocks for text in said(one))
        case Note():
            yield from (block.title, plain(block.text), plain(block.advice))
        case Footer():
            yield from map(plain, block.parts)


def letters(shown: str) -> str:
    """Without what painters differ in: blanks, brackets around a rule, bullets."""
    return "".join(char for char in shown if char.isalnum()).lower()


@pytest.mark.parametrize("painter", PAINTERS)
@pytest.mark.parametrize("name", REPORTS)
def test_what_one_shows_all_show(name: str, painter: str) -> None:
    report = REPORTS[name]()
    for page in (report_page.whole(report), report_page.in_short(report)):
        shown = letters(PAINTERS[painter](page))
        assert [one for block in page for one in said(block) if letters(one) not in shown] == []


def test_the_short_page_says_nothing_that_the_whole_does_not_know_of_its_findings() -> None:
    report = rich_in_kinds()
    short, whole = (
        [said for block in page if isinstance(block, Card) for part in block.blocks for said in _labels(part)]
        for page in (report_page.in_short(report), report_page.whole(report))
    )
    assert short == whole


def _labels(part: Labelled | Explains) -> list[str]:
    return [part.label, plain(part.text)] if isinstance(part, Labelled) else list(map(plain, part.symptoms))


def test_a_painter_knows_no_other() -> None:
    painters = {"text", "markdown", "html"}
    for painter in painters:
        others = {f"render.{other}" for other in painters - {painter}}
        assert {name for name, _ in imported(f"render.{painter}")} & others == set()
    for module in ("render.page", "render.columns", "render.report_page"):
        assert {name for name, _ in imported(module)} & {f"render.{painter}" for painter in painters} == set()


def test_a_template_engine_is_imported_for_html_only() -> None:
    code = "import sys, vllm_doctor.render.text, vllm_doctor.render.markdown; print('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_finding_alone_has_the_server_it_is_of() -> None:
    report = rich_in_kinds()
    group = [report.findings[1]]
    shown = markdown.finding(group, report)
    assert shown.startswith("## WARNING: Graphs are off\n\n- `a.tar.gz`: recorded")
    assert "### `eager`\n\n**Why** " in shown
    assert "Requests queue" not in shown.replace("WARNING Requests queue", "")


def test_the_gist_is_the_first_finding_and_its_cure() -> None:
    assert [plain(words) for words in parts.gist(rich_in_kinds().main)] == [
        "64 run, 44 wait.",
        "Fix: Admit what fits + --max-num-seqs 128 + --async-scheduling + VLLM_X=1  (environment)",
    ]
    assert parts.gist([]) == ()


def test_an_error_beside_a_report_is_said_in_the_whole_page() -> None:
    report = replace(unreachable(), headline="Something else", verdict=Verdict.UNKNOWN)
    assert "**Why** `http://127.0.0.1:1` refuses connections" in markdown.render(report)
