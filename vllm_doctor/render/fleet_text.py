"""A fleet as text: how many are sick, each model beside its peers, what was found and where, the worst first."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence

from vllm_doctor.fleet.fleet import Engine, FleetReport, Model, beside
from vllm_doctor.model.kinds import State
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Verdict
from vllm_doctor.render import ansi
from vllm_doctor.text import words

WIDTH = 100
_ORDER = (Verdict.CRITICAL, Verdict.WARNING, Verdict.UNKNOWN)
_MODELS, _NAMES, _OUTLIERS, _GROUPS = 30, 8, 6, 20


def render(report: FleetReport, colour: bool = False) -> str:
    """The report as text; `colour` adds ANSI colours to the verdict words."""
    lines = [*_head(report, colour), "", *_models(report)]
    for group in _groups(report)[:_GROUPS]:
        lines += ["", *_group(group)]
    lines += _outliers(report)
    lines += ["", *_not_seen(report)]
    sick = next((engine for engine in report.engines if engine.verdict is not Verdict.OK), None)
    if sick is not None and sick.place is not None:
        lines.append(f"Open         vllm-doctor {shlex.quote(report.source(sick))}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(report: FleetReport, colour: bool) -> list[str]:
    word = report.verdict.value.upper()
    painted = ansi.block(word, State(report.verdict).colour, colour)
    total = len(report.engines)
    counts = [f"{State(v).sign} {report.count(v):,} {v.value}" for v in (*_ORDER, Verdict.OK)]
    engines = f"{total:,} engine{'s' if total != 1 else ''} of {_counted(len(report.models), 'model')}"
    asked = f"{report.queries} queries in {report.asked_s:.1f} s, evaluated in {report.judged_s:.1f} s"
    window = words.number(report.window_s, "s") if report.window_s < 60 else f"{report.window_s / 60:g} min"
    when = f"last {window} before {report.at:%Y-%m-%d %H:%M:%S} UTC"
    return [f"{painted}  {engines}   {'   '.join(counts)}", "", f"  {report.target} · {when}", f"  {asked}"]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _models(report: FleetReport) -> list[str]:
    head = ("model", "engines", "worst", "gen tok/s", "TTFT p99", "KV", "outliers")
    rows = [head, *(_row(model) for model in report.models[:_MODELS])]
    wide = [min(38, max(len(row[column]) for row in rows)) for column in range(len(head))]
    right = (1, 3, 5)
    lines = []
    for row in rows:
        cells = [_fit(cell, width, place in right) for place, (cell, width) in enumerate(zip(row, wide, strict=True))]
        lines.append(f"  {'  '.join(cells)}")
    if len(report.models) > _MODELS:
        lines.append(f"  and {len(report.models) - _MODELS:,} more models: --json")
    return lines


def _fit(cell: str, width: int, right: bool) -> str:
    cell = cell if len(cell) <= width else f"{cell[: width - 1]}…"
    return cell.rjust(width) if right else cell.ljust(width)


def _row(model: Model) -> tuple[str, ...]:
    worst = next((v for v in _ORDER if model.verdicts.get(v.value)), None)
    if worst is None:
        told = "✔ ok"
    elif model.rules:
        rule, count = next(iter(model.rules.items()))
        more = f", {len(model.rules) - 1} more" if len(model.rules) > 1 else ""
        told = f"{State(worst).sign} {rule} on {count:,}{more}"
    else:
        told = f"{State(worst).sign} {worst.value} on {model.verdicts[worst.value]:,}"
    return (
        model.name or "(no name)",
        f"{model.engines:,}",
        told,
        words.number(model.tokens_per_second) if model.tokens_per_second is not None else "?",
        _typical(model, "ttft_p99", "s"),
        _typical(model, "kv_cache_usage", "share"),
        f"{len(model.outlying):,}" if model.outlying else "",
    )


def _typical(model: Model, name: str, unit: str) -> str:
    known = model.typical.get(name)
    return words.reading(known, unit) if isinstance(known, Known) else "?"


def _groups(report: FleetReport) -> list[list[Engine]]:
    """Engines that are not ok, those of the same trouble together, the worst first."""
    groups: dict[tuple[str, str], list[Engine]] = {}
    for engine in report.engines:
        if engine.verdict is not Verdict.OK:
            rule = engine.rules[0][0] if engine.rules else engine.headline
            groups.setdefault((engine.verdict.value, rule), []).append(engine)
    return list(groups.values())


def _group(engines: Sequence[Engine]) -> list[str]:
    first = engines[0]
    tag = f"  [{first.rules[0][0]}]" if first.rules else ""
    title = f"{State(first.verdict).sign} {first.verdict.value}  {first.headline}"
    lines = [*_wrapped(f"  {title}{tag}", "    ")]
    return [*lines, *_wrapped(f"    {_named([engine.name for engine in engines])}", "    ")]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return f"on {_counted(len(names), 'engine')}: {', '.join(names[:_NAMES])}{more}"


def _outliers(report: FleetReport) -> list[str]:
    """The engines that stand out of their model, those by the most first."""
    told = [
        (max(o.value, o.median) / max(min(o.value, o.median), 1e-9), engine, o)
        for model in report.models
        for engine in model.outlying
        for o in engine.outlying
    ]
    if not told:
        return []
    told.sort(key=lambda one: (-one[0], one[1].name))
    lines = ["", "  Outliers against the p50 of their model (rules of thumb, no verdict)"]
    for _, engine, o in told[:_OUTLIERS]:
        lines += _wrapped(f"    {engine.name}: {beside(o)}", "      ")
    if len(told) > _OUTLIERS:
        lines.append(f"    and {len(told) - _OUTLIERS:,} more: --json")
    return lines


def _not_seen(report: FleetReport) -> list[str]:
    said = [
        *report.notes,
        "flags, logs and hosts of the servers: run vllm-doctor there (on the host, or with its log)",
    ]
    lines: list[str] = []
    for text in said:
        lines += _wrapped(f"{'Not checked' if not lines else '':<13}{text[0].upper()}{text[1:]}.", " " * 13)
    return lines


def _wrapped(text: str, indent: str) -> Iterable[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=True, break_on_hyphens=False)
