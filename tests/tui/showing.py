"""The application without a terminal: view models are given to it, and what it shows is read back as lines."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from textual.pilot import Pilot

from tests.making import shipped_rules
from tests.tui.watching import BEGAN, TARGET, Clock, Pages, Told, watch_of
from vllm_doctor.model.facts import COMMAND
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import GpuSeen, Observation, ProcessSeen
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import EngineSeen
from vllm_doctor.rules import rulebook
from vllm_doctor.session.source import Source
from vllm_doctor.session.view_model import Choice, Session, Status, ViewModel
from vllm_doctor.tui.app import DoctorApp, ViewModelReady

_CELL = 12.2
"""The width of a character in an exported screen."""
GIB = 1024.0**3
COMMAND_LINE = ("vllm", "serve", "tiny", "--max-num-seqs", "64", "--num-gpu-blocks-override", "80")


def lines(app: DoctorApp) -> list[str]:
    """What stands on the screen."""
    found: dict[int, str] = {}
    pattern = r'<text [^>]*?x="([\d.]+)"[^>]*?clip-path="url\(#[^"]*-line-(\d+)\)"[^>]*>([^<]*)</text>'
    for x, number, text in re.findall(pattern, app.export_screenshot(title="")):
        line = found.get(int(number), "")
        found[int(number)] = line + " " * (round(float(x) / _CELL) - cell_len(line)) + html.unescape(text)
    return [found.get(number, "").replace("\xa0", " ").rstrip() for number in range(app.size.height)]


def shown(app: DoctorApp) -> str:
    return "\n".join(lines(app)) + "\n"


def session(sources: Sequence[str] = (TARGET,)) -> Session:
    """One that watches nothing by itself."""

    def page(id: str) -> str:
        return next((rulebook.page(rule) for rule in shipped_rules() if rule.id == id), "")

    return Session(lambda chosen, tell: None, page, tuple(sources))


Steps = Callable[[DoctorApp, "Pilot[None]"], Awaitable[None]]


def run(
    steps: Steps, view_model: ViewModel | None = None, size: tuple[int, int] = (80, 24), of: Session | None = None
) -> DoctorApp:
    """Open the application with this view model, and do these steps in it."""
    app = DoctorApp(of or session(), now=lambda: view_model.at if view_model is not None else BEGAN)

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            if view_model is not None:
                app.post_message(ViewModelReady(view_model))
                await pilot.pause()
            await steps(app, pilot)

    asyncio.run(go())
    return app


def screen(
    view_model: ViewModel | None, *keys: str, size: tuple[int, int] = (80, 24), of: Session | None = None
) -> str:
    """What is shown of a view model after these keys."""
    found: list[str] = []

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        found.append(shown(app))

    run(steps, view_model, size, of)
    return found[0]


def watched(pages: Pages, *others: Source, seconds: int = 26, clock: Clock | None = None) -> ViewModel:
    """The last view model of a server that was watched for so long."""
    clock = clock or Clock()
    watch = watch_of(pages, clock, *others)
    watch.open()
    view_model: ViewModel | None = None
    for _ in range(seconds):
        view_model = watch.step() or view_model
        clock.sleep(1.0)
    watch.close()
    assert view_model is not None
    return view_model


def host(**facts: Reading | float | str) -> Source:
    """A host of which the processes were seen."""
    told: dict[str, Reading] = {COMMAND: Known(True, origin="cmdline")}
    given: dict[str, Any] = {
        "--max-num-seqs": 64.0, "--num-gpu-blocks-override": 80.0, "cores_usable": 2.0, "cores_wanted": 3.0,
        "cores_terms": "1 API server + 1 engine core + 1 worker", "cpus_usable": 4.0, "engine_cpu": 0.93,
        "api_cpu": 0.21, "engine_cpu_wait": 0.34, "cpu_demand": 2.6, "cpu_used": 1.7, "placement": "container",
    } | facts  # fmt: skip
    for name, value in given.items():
        told[name] = value if not isinstance(value, str | float) else Known(value, origin="proc")
    rows = (
        ProcessSeen("api-server", 7831, Known(0.21), Known(0.02), 44),
        ProcessSeen("engine-core", 7902, Known(0.93), Known(0.34), 61),
        ProcessSeen("worker", 7950, Known(0.55), Known(0.08), 59),
    )
    seen = Observation(SourceKind.HOST, "pid 7831", facts=told, models=("tiny",), patient=TARGET, command=COMMAND_LINE,
        processes=(("api-server", 7831), ("engine-core", 7902), ("worker", 7950)), process_rows=rows,
    )  # fmt: skip
    return Source(SourceKind.HOST, seen.target, TARGET, lambda: seen, follow=lambda: Told(seen))


def gpus() -> Source:
    """Two GPUs, one of them hot."""

    def row(index: int, busy: float, clock: float, heat: float) -> GpuSeen:
        readings: dict[str, Reading] = {
            "utilization": Known(busy), "memory_used": Known(71.4 * GIB), "memory_total": Known(79.6 * GIB),
            "clock": Known(clock), "clock_max": Known(1980.0), "power": Known(412.0), "power_limit": Known(700.0),
            "temperature": Known(heat),
        }  # fmt: skip
        return GpuSeen(index, "NVIDIA H100 80GB HBM3", readings)

    facts: dict[str, Reading] = {
        "gpus": Known(2.0), "gpu_name": Known("NVIDIA H100 80GB HBM3"), "gpu_utilization": Known(0.61),
        "gpu_clock": Known(1980.0), "gpu_clock_max": Known(1980.0), "gpu_temperature": Known(64.0),
    }  # fmt: skip
    seen = Observation(
        SourceKind.GPU,
        "NVIDIA driver",
        facts=facts,
        patient=TARGET,
        gpu_rows=(row(0, 0.61, 1980, 64), row(1, 0.58, 1410, 86)),
    )
    return Source(SourceKind.GPU, seen.target, TARGET, lambda: seen, follow=lambda: Told(seen, 2.0))


def engines(count: int = 8) -> ViewModel:
    """A server of many engines, one of which has all the work."""
    view_model = watched(Pages("data-parallel"))
    report = view_model.report
    assert report is not None

    def engine(number: int) -> EngineSeen:
        far = number == 3
        values = {
            "requests_running": 64.0 if far else 20.0 + number % 3,
            "requests_waiting": 117.0 if far else 0.0,
            "kv_cache_usage": 0.98 if far else 0.31,
            "generation_tokens_per_second": 812.0 if far else 640.0,
        }
        vitals = tuple(
            replace(vital, seen=Known(values[vital.name])) if vital.name in values else vital
            for vital in report.engines[0].vitals
        )
        return EngineSeen({"engine": str(number), "model_name": "tiny"}, vitals)

    many = tuple(engine(number) for number in range(count))
    return replace(view_model, report=replace(report, engines=many, patient=replace(report.patient, engines=count)))


def choices() -> ViewModel:
    now = BEGAN
    found = (
        Choice(("7831",), "meta-llama/Llama-3.1-8B", "127.0.0.1:8000 · pid 7831 · vLLM 0.32.0 · root"),
        Choice(("9120",), "Qwen/Qwen3-32B", "127.0.0.1:8001 · pid 9120 · vLLM 0.31.1 · ml"),
        Choice(("9555",), "BAAI/bge-m3", "no reachable port · pid 9555 · ml"),
    )
    return ViewModel(Status.CHOOSING, now, now, 30.0, choices=found)


def in_utc(set_variable: Callable[[str, str], None]) -> None:
    """Clocks are shown in local time: here everywhere the same."""
    set_variable("TZ", "UTC")
    time.tzset()
