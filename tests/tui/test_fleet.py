"""The table of a fleet's engines: what it shows, its keys, and how an engine is opened from it.

UPDATE_SCREENS=1 pytest tests/tui/test_fleet.py writes its screens anew.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from tests.fake_prometheus import FakePrometheus, targets
from tests.making import shipped_catalogue, shipped_rules
from tests.serving import serving
from tests.tui.showing import lines, session, shown
from tests.tui.watching import BEGAN
from vllm_doctor import fleet
from vllm_doctor.fleet_picture import EngineRow, FleetPicture, FleetSeen
from vllm_doctor.fleet_watch import seen
from vllm_doctor.picture import Picture, Status
from vllm_doctor.report import Verdict
from vllm_doctor.signal import Known
from vllm_doctor.sources.prometheus import Prometheus
from vllm_doctor.tui.app import Pictured
from vllm_doctor.tui.fleet import FleetApp, Place

FOLDER = Path(__file__).parent / "fleet_screens"
TARGET = "http://prometheus:9090"
SICK = ("preemption", "prefix-cache-off", "max-num-seqs-cap")
Steps = Callable[[FleetApp, "Pilot[None]"], Awaitable[None]]


@cache
def small() -> FleetPicture:
    """Nine engines of one model, three of them sick."""
    kinds = [*SICK, *["healthy-busy"] * 5, "idle"]
    with serving(FakePrometheus(zip(targets(len(kinds)), kinds, strict=True)).routes()) as server:
        asked = Prometheus(server.url)
        survey = asked.survey(shipped_catalogue(), (), 600.0, BEGAN, time.monotonic() + 60)
        asked.close()
    at = datetime.fromtimestamp(BEGAN, UTC)
    wishes = {"goal": "throughput"}
    report = replace(
        fleet.judge(survey, shipped_rules(), shipped_catalogue(), wishes, at, TARGET), asked_s=1.0, judged_s=0.5
    )
    return pictured(seen(report, TARGET))


def pictured(found: FleetSeen | None, **changes: object) -> FleetPicture:
    status = Status.LIVE if found is not None else Status.STARTING
    made = FleetPicture(status, BEGAN, BEGAN, 600.0, seen_at=BEGAN, began=BEGAN, target=TARGET, fleet=found)
    return replace(made, **changes)  # type: ignore[arg-type]


def several() -> FleetPicture:
    """Two models, one engine that does not answer, a note."""
    found = small().fleet
    assert found is not None
    engines = [replace(e, model="llama" if place % 2 else "tiny") for place, e in enumerate(found.engines)]
    gone = EngineRow("gone", "host-99:8000", "tiny", Verdict.UNKNOWN, "The server does not answer its Prometheus")
    order = [*engines[:3], gone, *engines[3:]]
    return pictured(replace(found, engines=tuple(order), notes=(f"{TARGET} warns: partial response", "another")))


def many(count: int) -> FleetPicture:
    """So many engines, each hundredth of them sick."""

    def row(number: int) -> EngineRow:
        sick = number < count // 100
        values = {"requests_running": Known(float(number % 50)), "kv_cache_usage": Known(0.5)}
        verdict = Verdict.CRITICAL if sick else Verdict.OK
        found = ("preemption",) if sick else ()
        return EngineRow(f"k{number}", f"host-{number}:8000", f"model-{number % 3}", verdict, "said", found, values)

    rows = tuple(row(number) for number in range(count))
    return pictured(FleetSeen(BEGAN, Verdict.CRITICAL, rows, (), 20.0))


def run(
    steps: Steps, picture: Picture | None, size: tuple[int, int] = (80, 24), place: Place | None = None
) -> FleetApp:
    app = FleetApp(session((TARGET,)), place, now=lambda: BEGAN)

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            if picture is not None:
                app.post_message(Pictured(picture))
                await pilot.pause()
            await steps(app, pilot)

    asyncio.run(go())
    return app


def screen(picture: Picture | None, *keys: str, size: tuple[int, int] = (80, 24)) -> str:
    found: list[str] = []

    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        assert all(cell_len(line) <= size[0] for line in lines(app))
        found.append(shown(app))

    run(steps, picture, size)
    return found[0]


SCREENS: dict[str, Callable[[], str]] = {
    "fleet-80x24": lambda: screen(small()),
    "fleet-140x30": lambda: screen(several(), size=(140, 30)),
    "fleet-by-model": lambda: screen(several(), "s", size=(100, 30)),
    "fleet-filtered": lambda: screen(several(), "slash", *"host-1", "enter"),
    "fleet-lost": lambda: screen(replace(small(), status=Status.LOST, problem=f"{TARGET} refuses connections")),
    "fleet-asking": lambda: screen(pictured(None, asking=(12, 84))),
    "fleet-many": lambda: screen(many(10_000), "G"),
    "fleet-help": lambda: screen(small(), "question_mark"),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str) -> None:
    path, found = FOLDER / f"{name}.txt", SCREENS[name]()
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")


def test_each_kept_screen_is_one_that_is_shown() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SCREENS)
