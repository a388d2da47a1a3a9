"""The first screen: the verdict, its cause and its cure; the vital signs; what was found, and what was not seen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from vllm_doctor.model.kinds import SEVERITIES, State
from vllm_doctor.model.report import Finding, Report, Verdict, grouped
from vllm_doctor.render.parts import benchmark, coverage, expectation, profile, speed, unseen
from vllm_doctor.session.view_model import Status
from vllm_doctor.text.durations import duration
from vllm_doctor.tui import finding, log, vitals
from vllm_doctor.tui.cure import brief, to_copy
from vllm_doctor.tui.ink import (
    DIM,
    NOTHING,
    SIGN,
    Row,
    alarm,
    badge,
    cut,
    painted,
    ruled,
    say,
    severity,
    spread,
    wrapped,
)
from vllm_doctor.tui.page import WIDE, Page, View, clock, lost_since

_WORD = {"opportunity": "chance", "not-server": "client", "blind": "blind"}
_SIGN = {"opportunity": "◆", "not-server": "○"}
_MOST_BENCHMARKS = 4
_UNSEEN, _RULES = "unseen:", "rules"


class Overview(Page):
    NAME = "overview"
    HINTS = (
        ("⏎", "open"), ("c", "copy fix"), ("y", "markdown"), ("w", "save"), ("+ -", "window"),
        ("p", "pause"), ("r", "rescan"), ("/", "filter"),
    )  # fmt: skip

    def hints(self) -> Sequence[tuple[str, str]]:
        return [*([("esc", self.doctor.within)] if self.doctor.within else []), *self.HINTS]

    def draw_head(self, view: View) -> list[Text]:
        lines = [*([NOTHING] if view.height >= vitals.LOW else []), *verdict(view)]
        if view.view_model.is_live:
            shown = vitals.stretch(view.view_model, vitals.room(view.width))
            lines.append(ruled(f"last {duration(shown.seconds)}", _speed(view), view.width))
            lines += vitals.draw(view, view.width, _plot_height(view.height))
        elif view.view_model.timeline is not None:
            lines.append(ruled("over time", _speed(view, only_judged=True) or "4: walk along it", view.width))
            lines += log.trends(view, view.width, min(4, _plot_height(view.height)))
        lines += _benchmarks(view)
        lines.append(ruled(*_counts(view), view.width))
        return lines

    def draw_rows(self, view: View) -> list[Row]:
        width = view.width if view.width < WIDE else view.width // 2
        return rows(view, width - 1)

    def draw_side(self, view: View) -> list[Row] | None:
        report = view.view_model.report
        if report is None:
            return None
        group = finding.group_of(report, view.cursor)
        width = view.width - view.width // 2 - 3
        if not group:
            return _unseen_side(report, width)
        return [Row(line) for line in finding.head(group, width)[1:]] + finding.rows(
            view.view_model, report, group, width
        )

    def banner(self, view: View) -> list[Text]:
        """Why a server is lost stands above, in place of the verdict."""
        return [] if view.view_model.status is Status.LOST else super().banner(view)

    def open(self, key: str) -> None:
        self.doctor.open(key)


def _benchmarks(view: View) -> list[Text]:
    """What benchmarks measured, a line each."""
    report = view.view_model.report
    shown = report.benchmarks[:_MOST_BENCHMARKS] if report is not None else ()
    lines = [cut(say(f" {benchmark.in_words(seen)}"), view.width) for seen in shown]
    return [ruled("benchmark", "", view.width), *lines] if lines else []


def _speed(view: View, only_judged: bool = False) -> str:
    """The speed that requests get beside what is expected, in half a line."""
    report = view.view_model.report
    if report is None or report.expected is None or (only_judged and not report.expected.is_judged):
        return ""
    said = speed.in_short(report)
    return cut(say(said), view.width - 20).plain if said else ""


def _plot_height(height: int) -> int:
    return 1 if height < 34 else 2 if height < 44 else 3 if height < 60 else 5


def verdict(view: View) -> list[Text]:
    """The verdict, its root cause, and the cure: three lines, more where there is room."""
    report = view.view_model.report
    room = 1 if view.height < 22 else 2
    if view.view_model.status is Status.LOST:
        return _lost(view, room)
    if report is None:
        return [say((f" {_awaited(view)}", "bold")), NOTHING, NOTHING]
    main = report.main
    root = main[0] if main else report.aside[0] if report.aside else None
    is_headline = root is not None and report.headline.startswith(root.title)
    lines = [_headline(report, root if is_headline else None, view.width)]
    shown = root if main or is_headline else None
    if not is_headline and (slow := speed.of_headline(report)) is not None:
        return [*lines, *_reason(slow, view.width, room), *[NOTHING] * room][: 2 + room]
    lines += _why(report, shown, view.width, room)
    if shown is not None and shown.remedies:
        lines.append(_cure(report, shown, view.width))
    return lines + [NOTHING] * (2 + room - len(lines))


def _lost(view: View, room: int) -> list[Text]:
    """Since when nothing answers, and why; what was judged before that, which is no verdict of now."""
    view_model = view.view_model
    kept = "The last values stay; it is asked again." if view_model.seen_at is not None else "It is asked again."
    lines = [cut(say(alarm(lost_since(view)), "  ", (kept, "bold")), view.width)]
    lines += _reason(view_model.problem or "It does not answer", view.width, room)
    if view_model.report is not None:
        lines.append(cut(say(("   was   ", DIM), *_was(view, view_model.report)), view.width))
    return lines + [NOTHING] * (2 + room - len(lines))


def _was(view: View, report: Report) -> list[str | tuple[str, str]]:
    at = view.view_model.seen_at
    until = f"until {clock(at, view.now)}: " if at is not None else ""
    if report.verdict is Verdict.OK:
        return [f"{until}{report.headline}"]
    return [severity(report.verdict.value), f" {until}{report.headline}"]


def _awaited(view: View) -> str:
    """What there is instead of a report."""
    view_model = view.view_model
    if view_model.status is Status.READING and view_model.read_so_far is not None:
        says = view_model.read_so_far.says
        return says[0].upper() + says[1:]
    if view_model.due_at is not None:
        return f"It answers; judging in {max(1.0, view_model.due_at - view.now):.0f} s: a rate needs two scrapes"
    return "Looking: the first answer is awaited"


def _headline(report: Report, root: Finding | None, width: int) -> Text:
    """`root`: the finding that the headline is of."""
    tag = NOTHING if root is None else say((f"{root.rule} ", DIM))
    return spread(say(badge(report.verdict.value), "  ", (_headline_of(report), "bold")), tag, width)


def _headline_of(report: Report) -> str:
    return "No verdict" if report.error is not None and not report.vitals else report.headline


def _why(report: Report, root: Finding | None, width: int, room: int) -> list[Text]:
    here = _judged(report) if root is None else root.here or root.why
    lines = _reason(here, width, room) if here and not _headline_of(report).endswith(here) else []
    if report.verdict is Verdict.OK and root is not None:
        lines = [*lines[: room - 1], *_reason(_judged(report), width, 1)]
    return lines


def _reason(here: str, width: int, room: int) -> list[Text]:
    why = _few(wrapped(here, width - 2, "   why   "), room)
    why[0].stylize(DIM, 0, 9)
    return why


def _cure(report: Report, root: Finding, width: int) -> Text:
    label = say(("   fix   ", DIM))
    copies = say(("c copies it ", DIM)) if to_copy(report, [root])[0] else NOTHING
    cure = brief(root, width - label.cell_len - copies.cell_len - 1)
    return spread(label + say((cure, "bold")), copies, width)


def _judged(report: Report) -> str:
    """What an ok, or an unknown, is worth."""
    if report.error is not None:
        return report.error.message
    return f"{said}." if (said := coverage.coverage(report)) else ""


def _few(lines: list[Text], most: int) -> list[Text]:
    """The first lines, with a sign that there are more."""
    if len(lines) <= most:
        return lines
    last = lines[most - 1].copy()
    last.append(" …")
    return [*lines[: most - 1], last]


def _counts(view: View) -> tuple[str, str]:
    report = view.view_model.report
    if report is None:
        return "findings", ""
    parts = [f"{report.count(state)} {state}" for state in map(State, SEVERITIES) if report.count(state)]
    if view.view_model.status is Status.LOST:
        return f"findings before: {', '.join(parts) or 'none'}", "as last judged"
    told = [f"{report.count(State.OK)} ok", *([f"{n} unknown"] if (n := report.count(State.UNKNOWN)) else [])]
    return f"findings: {', '.join(parts)}" if parts else "no findings", f"rules: {', '.join(told)}"


def rows(view: View, width: int) -> list[Row]:
    """Findings in causal order, each with what follows from it; then what could not be seen."""
    report = view.view_model.report
    if report is None:
        return []
    found: list[Row] = []
    for group in [*grouped(report.main), *grouped(report.aside)]:
        first = group[0]
        if view.keeps(first.rule, first.title, first.severity):
            found.append(Row(_finding(group, report, width), finding.key_of(first)))
        symptoms = [f for f in report.findings if f.explained_by == first.rule and f.role == "symptom"]
        for symptom in grouped(symptoms):
            if view.keeps(symptom[0].rule, symptom[0].title, symptom[0].severity):
                found.append(Row(_symptom(symptom, report, width), finding.key_of(symptom[0])))
    if not found and not view.filter and view.view_model.verdict is Verdict.OK:
        found.append(Row(say(("  nothing wrong was found in what could be checked", DIM))))
    if not view.filter:
        told = (*expectation.will_give(report, whole=False), *profile.profile(report, whole=False))
        lines = painted(told, width)
        found += [Row(line) for line in (NOTHING, *lines, NOTHING) if lines]
    for place, said in enumerate(unseen.in_short(report)):
        if view.keeps(said):
            label = f" {SIGN['unknown']} no data   " if not place else " " * 13
            found.append(Row(cut(say((label, "cyan"), (said, DIM)), width), f"{_UNSEEN}{place}"))
    return found


def _finding(group: Sequence[Finding], report: Report, width: int) -> Text:
    first = group[0]
    if first.severity == "info":
        word = _WORD.get(first.role, "note")
        head = (f" {_SIGN.get(first.role, SIGN['info'])} {word:<9} ", "")
    else:
        sign, colour = severity(first.severity)
        head = (f" {sign:<11} ", colour)
    bold = "bold" if first.severity != "info" else ""
    return spread(say(head, (first.title, bold)), _tag(group, report), width)


def _symptom(group: Sequence[Finding], report: Report, width: int) -> Text:
    sign = SIGN.get(group[0].severity, " ")
    colour = severity(group[0].severity)[1]
    return spread(
        say(("   └ ", DIM), (f"{sign} ", colour), ("follows: ", DIM), group[0].title), _tag(group, report), width
    )


def _tag(group: Sequence[Finding], report: Report) -> Text:
    on = report.engines_of(group)
    where = f"on {len(on)} of {len(report.engines)} · " if on else ""
    return say((f"{where}{group[0].rule}", DIM))


def _unseen_side(report: Report, width: int) -> list[Row]:
    lines = [say(("Not checked", "bold")), NOTHING]
    for said in unseen.in_short(report):
        lines += wrapped(said, width, "• ", "  ")
    return [Row(line) for line in lines]
