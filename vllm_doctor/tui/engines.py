"""Each engine a row; what lies far from the others is marked."""

from __future__ import annotations

from collections.abc import Mapping
from os.path import commonprefix
from statistics import median

from rich.text import Text

from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import EngineSeen, Report, Vital
from vllm_doctor.text import words
from vllm_doctor.tui import finding
from vllm_doctor.tui.ink import DIM, NOTHING, Column, Row, ruled, say, severity, table_head, table_row
from vllm_doctor.tui.page import Page, View

_COLUMNS = (
    ("requests_running", "running", 7, 2.0),
    ("requests_waiting", "waiting", 7, 2.0),
    ("kv_cache_usage", "KV", 6, 0.15),
    ("generation_tokens_per_second", "gen tok", 8, 20.0),
    ("prompt_tokens_per_second", "prompt tok", 10, 20.0),
    ("preemptions_per_second", "preempt", 7, 0.5),
    ("ttft_p99", "TTFT p99", 11, 0.0),
    ("itl_p99", "ITL p99", 11, 0.0),
)
"""Signal, head, width, and the least difference that counts."""
_FEWEST = 3
"""With fewer engines nobody is an outlier."""
_FAR = 0.5
"""So far from the median, of it, is an outlier."""
_ENGINE = "engine:"


class EnginesPage(Page):
    NAME = "engines"
    HINTS = (("⏎", "one engine"), ("s", "sort"), ("/", "filter"), ("w", "save"), ("p", "pause"), ("r", "rescan"))
    SORTS = ("name", "outliers first", *(head for _, head, *_ in _COLUMNS))

    def draw_head(self, view: View) -> list[Text]:
        report = view.view_model.report
        count = len(report.engines) if report is not None else 0
        far = len({place for place, _ in outliers(report)}) if report is not None else 0
        title = f"{count} engine{'s' if count != 1 else ''}"
        told = f"{far} outlier{'s' if far != 1 else ''}" if far else "no outlier" if count >= _FEWEST else ""
        name = self.SORTS[view.sort % len(self.SORTS)]
        return [
            NOTHING,
            ruled(title, f"{told + ' · ' if told else ''}by {name}", view.width),
            table_head(_columns(view)),
        ]

    def draw_rows(self, view: View) -> list[Row]:
        return rows(view)

    def open(self, key: str) -> None:
        self.doctor.enter(EnginePage(int(key.removeprefix(_ENGINE))))


def name_of(engine: EngineSeen, report: Report) -> str:
    """What tells it apart from the others: of their pods and URLs only where these differ."""
    kinds = {name: [e.subject.get(name, "") for e in report.engines] for name in engine.subject}
    parts = [
        engine.subject[name][commonprefix(values).rfind("/") + 1 :]  # noqa: RUF071 - up to a slash
        for name, values in kinds.items()
        if len(set(values)) > 1
    ]
    return " ".join(parts or [engine.subject.get("engine", "the only one")])


def outliers(report: Report) -> set[tuple[int, str]]:
    """(place of the engine, signal) where its value is far from the median of all engines."""
    found: set[tuple[int, str]] = set()
    if len(report.engines) < _FEWEST:
        return found
    for signal, _, _, least in _COLUMNS:
        values = [(place, _value(engine, signal)) for place, engine in enumerate(report.engines)]
        known = [(place, value) for place, value in values if value is not None]
        if len(known) < _FEWEST:
            continue
        middle = median(value for _, value in known)
        found |= {(place, signal) for place, v in known if abs(v - middle) > max(_FAR * abs(middle), least)}
    return found


def rows(view: View) -> list[Row]:
    report = view.view_model.report
    if report is None or not report.engines:
        return [Row(say(("  no engine was found", DIM)))]
    far = outliers(report)
    table = []
    for place in _order(report, far, view.sort):
        engine = report.engines[place]
        name = name_of(engine, report)
        if not view.keeps(name, *engine.subject.values()):
            continue
        cells: list[str | tuple[str, str]] = [name]
        for signal, *_ in _COLUMNS[: len(_columns(view)) - 1]:
            vital = _vital(engine, signal)
            text, is_known = _told(vital)
            if (place, signal) in far:
                cells.append((f"▲{text}", "bold yellow"))
            else:
                cells.append((text, "" if is_known else DIM))
        table.append(Row(table_row(_columns(view), cells), f"{_ENGINE}{place}"))
    return table or [Row(say(("  no engine is named so", DIM)))]


def _columns(view: View) -> list[Column]:
    columns, used = [Column("engine", 8 if view.width < 100 else 24, False)], 10 if view.width < 100 else 26
    for _, head, width, _ in _COLUMNS:
        if used + width + 2 > view.width:
            break
        columns.append(Column(head, width))
        used += width + 2
    return columns


def _order(report: Report, far: set[tuple[int, str]], sort: int) -> list[int]:
    places = list(range(len(report.engines)))
    if sort == 0:
        return sorted(places, key=lambda place: _natural(name_of(report.engines[place], report)))
    if sort == 1:
        return sorted(places, key=lambda place: -sum(engine == place for engine, _ in far))
    signal = _COLUMNS[(sort - 2) % len(_COLUMNS)][0]
    return sorted(places, key=lambda place: -(_value(report.engines[place], signal) or -1.0))


def _natural(name: str) -> tuple[int, str]:
    """Engine 10 comes after engine 9."""
    return (int(name), "") if name.isascii() and name.isdigit() and len(name) < 10 else (2**31, name)


def _vital(engine: EngineSeen, signal: str) -> Vital | None:
    return next((vital for vital in engine.vitals if vital.name == signal), None)


def _value(engine: EngineSeen, signal: str) -> float | None:
    vital = _vital(engine, signal)
    if vital is None or not isinstance(vital.seen, Known) or isinstance(vital.seen.value, str):
        return None
    return float(vital.seen.value)


def _told(vital: Vital | None) -> tuple[str, bool]:
    if vital is None:
        return "", False
    if not isinstance(vital.seen, Known):
        return str(vital.seen), False
    return words.reading(vital.seen, vital.unit), True


class EnginePage(Page):
    """One engine: its vital signs, and what was found of it."""

    NAME = "engine"
    HINTS = (("esc", "back"), ("⏎", "open finding"))

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def draw_head(self, view: View) -> list[Text]:
        report = view.view_model.report
        if report is None or self.place >= len(report.engines):
            return [NOTHING, say((" This engine is gone.", DIM))]
        subject: Mapping[str, str] = report.engines[self.place].subject
        return [
            NOTHING,
            ruled(", ".join(f"{name} {of}" for name, of in subject.items()) or "the server", "", view.width),
        ]

    def draw_rows(self, view: View) -> list[Row]:
        report = view.view_model.report
        if report is None or self.place >= len(report.engines):
            return []
        engine = report.engines[self.place]
        far = outliers(report)
        lines = []
        for vital in engine.vitals:
            text, is_known = _told(vital)
            others = ""
            if (self.place, vital.name) in far:
                known = [v for e in report.engines if (v := _value(e, vital.name)) is not None]
                others = f"  ▲ p50 is {words.number(median(known), vital.unit)}"
            lines.append(Row(say(f"  {vital.says:<40}", (f"{text:>16}", "" if is_known else DIM), (others, "yellow"))))
        mine = [f for f in report.findings if _is_of(f.subject, engine.subject)]
        lines += [Row(NOTHING), Row(say(("  Findings", "bold")))] if mine else []
        for found in mine:
            lines.append(
                Row(say("  ", severity(found.severity), f"  {found.title}  ", (found.rule, DIM)), finding.key_of(found))
            )
        return lines

    def open(self, key: str) -> None:
        self.doctor.open(key)


def _is_of(subject: Mapping[str, str], engine: Mapping[str, str]) -> bool:
    return all(engine.get(name) == value for name, value in subject.items())
