"""The server's host: its processes, what they get of the CPU, its control group and its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.reason import HOW_TO_LEARN, IN_SHORT, Reason
from vllm_doctor.render.parts import examined
from vllm_doctor.session.view_model import Fact, ViewModel
from vllm_doctor.text import words
from vllm_doctor.tui.ink import DIM, NOTHING, Column, Row, fit, painted, ruled, say, table_head, table_row, wrapped
from vllm_doctor.tui.page import Page, View
from vllm_doctor.tui.plot import bars

_PROCESSES = (
    Column("process", 16, False), Column("pid", 9), Column("cores", 7), Column("waits", 7), Column("threads", 7),
)  # fmt: skip
_GPUS = (
    Column("GPU", 22, False), Column("busy", 5), Column("memory", 13), Column("clock", 13), Column("power", 9),
    Column("", 5),
)  # fmt: skip
_GROUPS = (
    ("cores", ("core", "cpus", "cpu_", "last_cpu", "threads", "numa", "process", "placement")),
    ("load", ("engine_", "worker_", "api_", "foreign", "swap", "major", "involuntary", "fd_", "shm")),
    ("GPU", ("gpu", "pcie", "nvlink", "mig", "driver")),
)


_WHICH = "which"
"""Facts that only name what another one counts."""


class HostPage(Page):
    NAME = "host"
    HINTS = (("↑ ↓", "scroll"), ("/", "filter"), ("w", "save"), ("p", "pause"), ("r", "rescan"))

    def draw_head(self, view: View) -> list[Text]:
        return [NOTHING]

    def draw_rows(self, view: View) -> list[Row]:
        return [Row(line) for line in lines(view)]


def lines(view: View) -> list[Text]:
    view_model, width = view.view_model, view.width - 1
    report = view_model.report
    if report is None:
        return [say(("  no data yet", DIM))]
    found = painted(examined.patient(report), width)
    kinds = {source.kind for source in report.sources}
    if view_model.processes:
        found += [
            NOTHING,
            ruled("processes", "cores used, share of time waiting for one", width),
            *_processes(view_model),
        ]
    if view_model.gpus:
        found += [NOTHING, ruled("GPUs", "", width), *_gpus(view_model)]
    if view_model.facts:
        found += _facts(view, width)
    elif "host" not in kinds:
        found += [NOTHING, *wrapped(
            "No data of the host: run vllm-doctor on the server's own host to see its processes, cores, control group"
            " and GPUs.", width, "  ", "  ",
        )]  # fmt: skip
    return found


def _processes(view_model: ViewModel) -> Iterator[Text]:
    yield table_head(_PROCESSES)
    for row in view_model.processes:
        cores = float(row.cores.value) if isinstance(row.cores, Known) and isinstance(row.cores.value, float) else None
        waits = _text(row.waited, "share")
        high = isinstance(row.waited, Known) and isinstance(row.waited.value, float) and row.waited.value > 0.1
        line = table_row(
            _PROCESSES,
            [row.role, str(row.pid), _text(row.cores, ""), (waits, "bold red" if high else ""), str(row.threads)],
        )
        # A full bar is one core: what one thread can use.
        bar = bars([min(1.0, cores)], 1.0)[0] if cores is not None else NOTHING
        yield Text.assemble(line, "  ", bar, no_wrap=True, end="")


def _gpus(view_model: ViewModel) -> Iterator[Text]:
    yield table_head(_GPUS)
    for gpu in view_model.gpus:
        at = gpu.readings
        yield table_row(
            _GPUS,
            [
                f"{gpu.index}  {gpu.name.removeprefix('NVIDIA ')}",
                (_text(at["utilization"], "share"), "bold"),
                _of(at["memory_used"], at["memory_total"], "bytes"),
                _of(at["clock"], at["clock_max"], "MHz"),
                _of(at["power"], at["power_limit"], "W"),
                _text(at["temperature"], "°C"),
            ],
        )


def _of(now: Reading, most: Reading, unit: str) -> str:
    """ "412 of 700 W"."""
    if not isinstance(now, Known) or not isinstance(most, Known):
        return _text(now, unit)
    number, _, own = words.reading(now, unit).partition(" ")
    other, _, shared = words.reading(most, unit).partition(" ")
    told = f"{number}/{other} {shared}" if own == shared else f"{number} {own}/{other} {shared}"
    return told.replace(",", "") if unit == "MHz" else told


def _text(reading: Reading, unit: str) -> str:
    return words.reading(reading, unit) if isinstance(reading, Known) else IN_SHORT[reading.reason]


def _facts(view: View, width: int) -> Iterator[Text]:
    """What is known, by group; then what is not, by reason."""
    left = [fact for fact in view.view_model.facts if view.keeps(fact.name, fact.says)]
    for title, starts in _GROUPS:
        here = [fact for fact in left if fact.name.startswith(starts)]
        left = [fact for fact in left if fact not in here]
        yield from _group(title, here, width)
    yield from _group("other", left, width)
    unknown: dict[Reason, list[str]] = {}
    for fact in view.view_model.facts:
        if not isinstance(fact.reading, Known) and fact.says != _WHICH and view.keeps(fact.name, fact.says):
            unknown.setdefault(fact.reading.reason, []).append(fact.says)
    if unknown:
        yield NOTHING
        yield ruled("not known", "", width)
        for reason, names in unknown.items():
            yield from wrapped(HOW_TO_LEARN[reason], width, "  ", "  ")
            yield from wrapped(", ".join(names), width, "    ", "    ", DIM)


def _group(title: str, facts: list[Fact], width: int) -> Iterator[Text]:
    known = [(fact, fact.reading) for fact in facts if isinstance(fact.reading, Known)]
    if not known:
        return
    yield NOTHING
    yield ruled(title, "", width)
    for fact, reading in known:
        value = words.reading(reading, fact.unit)
        says = fit(fact.says, min(46, width - 24))
        first, *rest = wrapped(value, width - len(says) - 4)
        yield Text.assemble(say(f"  {says}  "), first, no_wrap=True, end="")
        for line in rest:
            yield Text.assemble(" " * (len(says) + 4), line, no_wrap=True, end="")
