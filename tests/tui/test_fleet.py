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
from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.view_model import EngineRow, FleetSeen, FleetViewModel
from vllm_doctor.fleet.watch import seen
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Verdict
from vllm_doctor.prometheus.survey import Prometheus
from vllm_doctor.session.view_model import Status, ViewModel
from vllm_doctor.tui import fleet as page
from vllm_doctor.tui.app import ViewModelReady
from vllm_doctor.tui.fleet import MOST, FleetApp, Place
from vllm_doctor.tui.ink import Row
from vllm_doctor.tui.page import View

FOLDER = Path(__file__).parent / "fleet_screens"
TARGET = "http://prometheus:9090"
SICK = ("preemption", "prefix-cache-off", "max-num-seqs-cap")
Steps = Callable[[FleetApp, "Pilot[None]"], Awaitable[None]]


@cache
def small() -> FleetViewModel:
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


def pictured(found: FleetSeen | None, **changes: object) -> FleetViewModel:
    status = Status.LIVE if found is not None else Status.STARTING
    made = FleetViewModel(status, BEGAN, BEGAN, 600.0, seen_at=BEGAN, began=BEGAN, target=TARGET, fleet=found)
    return replace(made, **changes)  # type: ignore[arg-type]


def several() -> FleetViewModel:
    """Two models, one engine that does not answer, a note."""
    found = small().fleet
    assert found is not None
    engines = [replace(e, model="llama" if place % 2 else "tiny") for place, e in enumerate(found.engines)]
    gone = EngineRow("gone", "host-99:8000", "tiny", Verdict.UNKNOWN, "The server does not answer its Prometheus")
    order = [*engines[:3], gone, *engines[3:]]
    return pictured(replace(found, engines=tuple(order), notes=(f"{TARGET} warns: partial response", "another")))


def many(count: int) -> FleetViewModel:
    """So many engines, each hundredth of them sick."""

    def row(number: int) -> EngineRow:
        sick = number < count // 100
        values = {"requests_running": Known(float(number % 50)), "kv_cache_usage": Known(0.5)}
        verdict = Verdict.CRITICAL if sick else Verdict.OK
        found = ("preemption",) if sick else ()
        name = f"host-{number}:8000"
        return EngineRow(
            f"k{number}", name, f"model-{number % 3}", verdict, "said", found, values, source=f"prom+{name}"
        )

    rows = tuple(row(number) for number in range(count))
    return pictured(FleetSeen(BEGAN, Verdict.CRITICAL, rows, (), 20.0))


def run(
    steps: Steps, view_model: ViewModel | None, size: tuple[int, int] = (80, 24), place: Place | None = None
) -> FleetApp:
    app = FleetApp(session((TARGET,)), place, now=lambda: BEGAN)

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            if view_model is not None:
                app.post_message(ViewModelReady(view_model))
                await pilot.pause()
            await steps(app, pilot)

    asyncio.run(go())
    return app


def screen(view_model: ViewModel | None, *keys: str, size: tuple[int, int] = (80, 24)) -> str:
    found: list[str] = []

    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        assert all(cell_len(line) <= size[0] for line in lines(app))
        found.append(shown(app))

    run(steps, view_model, size)
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


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (109, 30), (250, 80)])
def test_it_fits_every_size_and_the_sick_are_on_it(size: tuple[int, int]) -> None:
    found = screen(several(), size=size)
    assert "host-0:8000" in found
    assert "preemption" in found
    assert "q quit" in found


def test_a_terminal_that_is_too_small_says_so() -> None:
    assert "Too small" in screen(small(), size=(59, 24))


@pytest.mark.parametrize(
    ("keys", "first"),
    [("", "host-0:8000"), ("s", "host-0:8000"), ("ss", "host-0:8000"), ("sss", "host-3:8000"), ("ssss", "host-2:8000")],
)
def test_it_is_sorted(keys: str, first: str) -> None:
    """The worst first, by model, by name, by requests running, by requests waiting."""
    found = [line for line in screen(small(), *keys).splitlines() if line.startswith(" host-")]
    assert found[0].split()[0] == first


def test_what_is_lost_keeps_the_last_table_and_says_so() -> None:
    found = screen(replace(small(), status=Status.LOST, problem=f"{TARGET} refuses connections"))
    assert "✖ lost" in found
    assert "host-8:8000" in found
    assert "refuses connections. The last values stay" in " ".join(found.split())


def test_a_prometheus_that_is_lost_leaves_no_engine_ok() -> None:
    found = screen(replace(small(), status=Status.LOST, problem=f"{TARGET} refuses connections"))
    assert "✖ No answer since " in found
    assert "✔" not in found
    assert "was ok" in found


def test_what_is_not_known_of_an_engine_is_a_word_and_not_a_program_s() -> None:
    fleet = small().fleet
    assert fleet is not None
    idle = tuple(
        replace(e, readings={**e.readings, "ttft_p99": Unknown(Reason.IDLE), "kv_cache_usage": Unknown(Reason.ABSENT)})
        for e in fleet.engines
    )
    found = screen(replace(small(), fleet=replace(fleet, engines=idle)))
    assert "Unknown" not in found
    assert "idle" in found
    assert "–" in found


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    found = many(3).fleet
    assert found is not None
    evil = replace(found.engines[0], name="\x1b[31mred\x07", model="\u202egpj[b]", headline="[red]x[/red]")
    shown = screen(pictured(replace(found, engines=(evil,))), size=(140, 30))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[red]x[/red]" in shown


def test_enter_opens_the_engine_under_the_cursor() -> None:
    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "enter")
        await pilot.pause()

    app = run(steps, small())
    assert app.wanted is not None
    assert app.wanted.name == "host-2:8000"
    assert app.wanted.source == f"prom+{TARGET}/?instance=host-2%3A8000"
    assert app.session.control.stopped


@pytest.mark.parametrize(
    ("view_model", "said"),
    [
        (lambda: replace(small(), is_past=True), "run without --at"),
        (lambda: pictured(replace(_found(), engines=tuple(e for e in _found().engines if not e.source))), "nothing to"),
    ],
    ids=["past", "down"],
)
def test_what_cannot_be_opened_says_why(view_model: Callable[[], FleetViewModel], said: str) -> None:
    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert said in shown(app)

    app = run(steps, view_model())
    assert app.wanted is None


def _found() -> FleetSeen:
    found = several().fleet
    assert found is not None
    return found


def test_who_comes_back_stands_where_he_was() -> None:
    async def leave(app: FleetApp, pilot: Pilot[None]) -> None:
        for key in ("slash", *"model-1", "enter", "s", "end", "enter"):
            await pilot.press(key)
            await pilot.pause()

    left = run(leave, many(2_000))
    assert left.wanted is not None
    place = left.page.place
    assert (place.filter, place.sort, place.cursor) == ("model-1", 1, left.wanted.key)
    wanted = left.wanted.name

    async def back(app: FleetApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert f" {wanted}" in shown(app)
        assert app.page.rows.cursor == place.cursor

    run(back, many(2_000), place=place)


def test_r_asks_again_and_q_quits() -> None:
    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        began = app._thread
        app._thread = None  # as if it went on
        await pilot.press("r")
        await pilot.pause()
        assert began is not None
        assert app.session.control.again
        assert "asking again" in shown(app)
        await pilot.press("q")

    assert run(steps, small()).wanted is None


def test_a_key_of_a_large_fleet_draws_no_rows_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = page.table

    def counting(view: View, found: FleetSeen) -> tuple[int, list[Row]]:
        count, rows = real(view, found)
        drawn.append(len(rows))
        return count, rows

    monkeypatch.setattr(page, "table", counting)

    async def steps(app: FleetApp, pilot: Pilot[None]) -> None:
        for _ in range(20):
            await pilot.press("down")
        await pilot.pause()

    run(steps, many(10_000))
    assert drawn == [MOST + 1]
