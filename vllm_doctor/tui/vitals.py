"""The vital signs, each with its value, its trend and the threshold that a rule has for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import IN_SHORT
from vllm_doctor.model.report import Report
from vllm_doctor.session.view_model import ViewModel
from vllm_doctor.text import words
from vllm_doctor.tui.ink import DIM, fit, say
from vllm_doctor.tui.page import View
from vllm_doctor.tui.plot import CALM, PLAIN, bars, scale

_LABEL, _VALUE, _BESIDE = 10, 13, 2
_LEAST_SPAN = 120.0
LOW = 20
"""Lines below which only what matters most is shown."""
_STEPS = (1, 2, 3, 5, 10, 15, 20, 30, 60, 120)
"""Seconds that a column may stand for."""


@dataclass(frozen=True)
class Sign:
    """One vital sign as it is drawn. `top`: of its scale; `mark`: the value above which a rule finds fault."""

    label: str
    value: str
    track: str = ""
    top: float = 1.0
    mark: float | None = None
    is_high: bool = False
    is_known: bool = True


@dataclass(frozen=True)
class Stretch:
    """From when to when trends are drawn: whole steps, so that no column changes but the last."""

    first: float
    last: float

    @property
    def seconds(self) -> float:
        return self.last - self.first


def stretch(view_model: ViewModel, columns: int) -> Stretch:
    """What so many columns show: what was watched, at least a second each, at most two windows and two minutes."""
    times = view_model.trend.times
    last, first = (times[-1], times[0]) if times else (view_model.at, view_model.at)
    wanted = min(last - first, max(_LEAST_SPAN, 2 * view_model.window))
    step = next((step for step in _STEPS if step * columns >= wanted), _STEPS[-1])
    end = math.floor(last / step) * step + step
    return Stretch(end - step * columns, end)


def room(width: int) -> int:
    """The columns of a trend where all are drawn."""
    return (width - _BESIDE - 2) // 2 - _LABEL - _VALUE - 2


def draw(view: View, width: int, height: int) -> list[Text]:
    """Two columns of vital signs, `height` lines each."""
    left, right = signs(view.view_model)
    each = (width - _BESIDE - 2) // 2
    lines: list[Text] = []
    for a, b in zip(left, right, strict=True):
        for one, other in zip(_cell(view, a, each, height), _cell(view, b, each, height), strict=True):
            lines.append(Text.assemble(" ", one, " " * _BESIDE, other, no_wrap=True, end=""))
    return [*lines, _latencies(view.view_model.report, each), _machine(view, each)] if view.height >= LOW else lines


def signs(view_model: ViewModel) -> tuple[list[Sign], list[Sign]]:
    cap = view_model.limits.get("max_num_seqs")
    running = _sign(view_model, "requests_running", "running", "requests", cap)
    if cap is not None and running.is_known:
        running = Sign(running.label, f"{running.value} of {words.number(cap)}", running.track, cap)
    left = [running, _waiting(view_model), _sign(view_model, "kv_cache_usage", "KV cache", "share", 1.0)]
    right = [
        _sign(view_model, "generation_tokens_per_second", "gen tok", "1/s"),
        _sign(view_model, "prompt_tokens_per_second", "prompt tok", "1/s"),
        _sign(view_model, "preemptions_per_second", "preempted", "1/s"),
    ]
    return left, right


def _sign(view_model: ViewModel, name: str, label: str, unit: str, top: float | None = None) -> Sign:
    value, mark = view_model.trend.last(name), view_model.marks.get(name)
    values = view_model.trend.values.get(name, ())
    top = scale(values) if top is None else top
    if value is None:
        why = view_model.lacking.get(name)
        return Sign(label, IN_SHORT[why] if why is not None else "", name, top, mark, False, False)
    text, is_high = words.number(value, unit), mark is not None and value > mark
    if mark is not None:
        compared = f"{text} {'>' if is_high else '<'} {words.number(mark, unit)}"
        text = compared if len(compared) <= _VALUE else text
    return Sign(label, text, name, top, mark, is_high)


def _waiting(view_model: ViewModel) -> Sign:
    """With the reason, where the server tells it."""
    sign = _sign(view_model, "requests_waiting", "waiting", "requests")
    waiting, capacity = view_model.trend.last("requests_waiting"), view_model.trend.last("waiting_for_capacity")
    if not waiting or capacity is None:
        return sign
    reason = "capacity" if capacity > 0.95 * waiting else "deferred" if capacity < 0.05 * waiting else ""
    told = f"{sign.value} {reason or f'({words.number(capacity)} cap.)'}"
    return Sign(sign.label, told, sign.track, sign.top, sign.mark, sign.is_high)


def _cell(view: View, sign: Sign, width: int, height: int) -> list[Text]:
    """A label, a value and a trend, in so many lines."""
    room = width - _LABEL - _VALUE - 2
    shown = stretch(view.view_model, room)
    trend = view.view_model.trend.columns(sign.track, shown.first, shown.last, room)
    drawn = bars(trend, sign.top, height, sign.mark, "red", CALM if sign.mark is not None else PLAIN)
    value = fit(sign.value, _VALUE, right=True)
    style = DIM if not sign.is_known else "bold red" if sign.is_high else "bold"
    lines = []
    for place, plot in enumerate(drawn):
        if place == height - 1:
            head = say(fit(sign.label, _LABEL), " ", (value, style), " ")
        elif place == 0 and height > 1:
            head = say((fit(f"{words.number(sign.top, _unit(sign))} ┤", width - room, right=True), DIM))
        else:
            head = say(" " * (width - room))
        lines.append(Text.assemble(head, plot, no_wrap=True, end=""))
    return lines


def _unit(sign: Sign) -> str:
    return "share" if sign.track == "kv_cache_usage" else ""


def _latencies(report: Report | None, width: int) -> Text:
    """TTFT and ITL of the whole window, as the bounds of their buckets."""
    cells = []
    for name, label in (("ttft", "TTFT"), ("itl", "ITL")):
        target = next((t for t in report.targets if t.name == f"slo_{name}"), None) if report else None
        parts: list[str | tuple[str, str]] = [fit(label, 6)]
        for quantile in ("p50", "p99"):
            text, known = _vital(report, f"{name}_{quantile}")
            missed = quantile == "p99" and target is not None and target.met is False
            parts += [(f"{quantile} ", DIM), (text, "bold red" if missed else "bold" if known else DIM), "  "]
        if target is not None:
            word = {True: "met", False: "MISSED", None: "?"}[target.met]
            parts.append((f"{words.number(target.seconds, 's')} {word}", "red" if target.met is False else DIM))
        line = say(*parts)
        line.truncate(width, overflow="ellipsis", pad=True)
        cells.append(line)
    return Text.assemble(" ", cells[0], " " * _BESIDE, cells[1], no_wrap=True, end="")


def _vital(report: Report | None, name: str) -> tuple[str, bool]:
    vital = next((v for v in report.vitals if v.name == name), None) if report is not None else None
    if vital is None:
        return "", False
    if not isinstance(vital.seen, Known):
        return str(vital.seen), False
    return words.reading(vital.seen, vital.unit), True


def _machine(view: View, width: int) -> Text:
    """The GPU and the processes, or why they cannot be seen."""
    view_model = view.view_model
    cells = [_gpu(view, width), _cpu(view, width)]
    if view_model.report is not None and not any(source.kind == "host" for source in view_model.report.sources):
        return say((" GPU, CPU  no data: run vllm-doctor on the server's host", DIM))
    return Text.assemble(" ", cells[0], " " * _BESIDE, cells[1], no_wrap=True, end="")


def _gpu(view: View, width: int) -> Text:
    busy, clock = view.view_model.trend.last("gpu_utilization"), view.view_model.trend.last("gpu_clock")
    if busy is None:
        why = view.view_model.lacking.get("gpu_utilization")
        none = view.view_model.report is not None and view.view_model.report.patient.gpus == 0
        told = "none here" if none else f"no data ({IN_SHORT[why]})" if why else ""
        return say((fit(f"{'GPU':<{_LABEL}} {told}", width), DIM))
    value = words.number(busy, "share") + (f" {clock:.0f} MHz" if clock is not None else "")
    return _cell(view, Sign("GPU", value, "gpu_utilization"), width, 1)[0]


def _cpu(view: View, width: int) -> Text:
    engine, api = view.view_model.trend.last("engine_cpu"), view.view_model.trend.last("api_cpu")
    if engine is None and api is None:
        why = view.view_model.lacking.get("engine_cpu")
        return say((fit(f"{'CPU':<{_LABEL}} {f'no data ({IN_SHORT[why]})' if why else ''}", width), DIM))
    known: Sequence[tuple[str, float | None]] = (("engine", engine), ("API", api))
    told = " · ".join(f"{name} {words.number(value)}" for name, value in known if value is not None)
    return say(fit("CPU cores", _LABEL), " ", (fit(told, width - _LABEL - 1), "bold"))
