"""A finding opened: why, on what evidence over time, what cures it, and the corrected command."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from vllm_doctor.model.report import Finding, Report, grouped
from vllm_doctor.render.columns import INDENT
from vllm_doctor.render.page import Block, Labelled, Table
from vllm_doctor.render.parts import finding as parts
from vllm_doctor.session.view_model import ViewModel
from vllm_doctor.text import words
from vllm_doctor.text.durations import duration
from vllm_doctor.tui.ink import DIM, NOTHING, Row, badge, fit, painted, say, wrapped
from vllm_doctor.tui.page import Page, View
from vllm_doctor.tui.plot import CALM, PLAIN, bars, scale
from vllm_doctor.tui.vitals import stretch

_NAMES = {"requests_waiting": ("queue_per_running", "requests_waiting_steady", "requests_waiting_max")}


def key_of(finding: Finding) -> str:
    return f"finding:{finding.rule}:{finding.severity}"


def group_of(report: Report | None, key: str) -> list[Finding]:
    """The findings that a row stands for."""
    groups = grouped(report.findings) if report is not None else []
    return next((group for group in groups if key_of(group[0]) == key), [])


class FindingPage(Page):
    """All about one finding. When it is no longer found, what was last known stays, and that is said."""

    NAME = "finding"
    HINTS = (("esc", "back"), ("c", "copy fix"), ("y", "markdown"), ("w", "save"), ("↑ ↓", "scroll"))

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self._known: list[Finding] = []
        self._report: Report | None = None
        self._is_gone = False

    @property
    def group(self) -> list[Finding]:
        """What is shown; as it was last found."""
        found = group_of(self.doctor.view_model.report, self.key)
        self._is_gone = not found
        if found:
            self._known, self._report = found, self.doctor.view_model.report
        return self._known

    def draw_head(self, view: View) -> list[Text]:
        group = self.group
        if not group:
            return []
        return head(group, view.width, self._is_gone)

    def draw_rows(self, view: View) -> list[Row]:
        group, report = self.group, self._report
        if not group or report is None:
            return [Row(say((" Resolved: it is no longer found.", DIM)))]
        return rows(view.view_model, report, group, view.width - 2)


def head(group: Sequence[Finding], width: int, is_gone: bool = False) -> list[Text]:
    finding = group[0]
    about = say((f" {finding.rule} · {finding.role} · {finding.confidence} confidence", DIM))
    word, style = badge(finding.severity)
    title = wrapped(finding.title, width - 1, f"{word}  ", style="bold")
    title[0].stylize(style, 0, len(word))
    lines = [NOTHING, *title, about]
    if is_gone:
        lines.append(say((" ✔ resolved; the last state is shown", "green")))
    return lines


def rows(view_model: ViewModel, report: Report, group: Sequence[Finding], width: int) -> list[Row]:
    """Why, evidence, its trend, remedies, the corrected command, and where to read on."""
    finding = group[0]
    blocks = parts.about(group, report)
    place = next((n for n, block in enumerate(blocks, 1) if _is_evidence(block)), len(blocks))
    lines = [NOTHING, *painted(blocks[:place], width), *_trends(view_model, finding, width)]
    lines += painted(blocks[place:], width, blocks[place - 1])
    changes = report.correction.changes if report.correction is not None else ()
    if any(change.rule == finding.rule for change in changes):
        lines += painted(parts.correction(report), width, blocks[-1])
    elif finding.role == "symptom" and finding.explained_by:
        lines += [Text(""), say((f"{'  Follows':<{INDENT}}", "bold"), f"from {finding.explained_by}: fix that.")]
    if finding.see:
        lines += [Text("")]
        for place, url in enumerate(finding.see):
            lines += wrapped(url, width, f"{'  See' if not place else '':<{INDENT}}", " " * INDENT, DIM)
    return [Row(line) for line in lines]


def _is_evidence(block: Block) -> bool:
    return isinstance(block, Labelled) and any(isinstance(part, Table) for part in block.body)


def _trends(view_model: ViewModel, finding: Finding, width: int) -> list[Text]:
    """How what the evidence is made of went, against its thresholds."""
    if not view_model.trend.times or not view_model.is_live:
        return []
    lines: list[Text] = []
    room = max(10, min(60, width - INDENT - 40))
    shown = stretch(view_model, room)
    thresholds = {e.signal: e for e in finding.evidence}
    for name, values in view_model.trend.values.items():
        near = (name, *_NAMES.get(name, ()))
        evidence = next((thresholds[signal] for signal in near if signal in thresholds), None)
        if evidence is None:
            continue
        same = evidence.signal == name and isinstance(evidence.than, float)
        mark = float(evidence.than) if same else None
        top = 1.0 if evidence.unit == "share" and same else scale([*values, mark or 0.0])
        trend = view_model.trend.columns(name, shown.first, shown.last, room)
        said = words.compared(evidence.is_, evidence.than, evidence.unit) if same else ""
        label = f"{'  Trend' if not lines else '':<{INDENT}}"
        told = say((label, "bold"), fit(evidence.says, 30), " ")
        lines.append(
            Text.assemble(
                told,
                bars(trend, top, 1, mark, "red", CALM if mark is not None else PLAIN)[0],
                f"  {said}",
                no_wrap=True,
                end="",
            )
        )
    if lines:
        lines.append(say((f"{'':<{INDENT}}the last {duration(shown.seconds)}", DIM)))
    return [Text(""), *lines] if lines else []
