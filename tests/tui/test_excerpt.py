"""Enter on an event shows the lines of the log around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.pilot import Pilot

from tests.tui.showing import run, session, shown, watched
from tests.tui.test_app import press
from tests.tui.test_screens import past
from tests.tui.watching import Pages
from vllm_doctor.model.errors import SourceError
from vllm_doctor.session.view_model import Excerpt, Session
from vllm_doctor.tui.app import DoctorApp


def with_excerpts(*found: Excerpt, error: str = "") -> Session:
    def excerpts(at: float) -> Sequence[Excerpt]:
        if error:
            raise SourceError("not-found", error)
        return found

    return replace(session(), excerpts=excerpts)


async def opened(app: DoctorApp, pilot: Pilot[None]) -> str:
    await press(pilot, "4", "down", "down", "enter")
    for _ in range(200):
        await pilot.pause(0.02)
        if "reading the log" not in shown(app):
            break
    return shown(app)


def test_the_lines_around_the_event_with_their_numbers() -> None:
    excerpt = Excerpt("vllm.log", 1204, ("INFO before", "ERROR it happened here", "\x1b[31m" + "w" * 300), 1)

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        found = await opened(app, pilot)
        assert "max-num-seqs-cap begins" in found
        assert "1,205 ▶ ERROR it happened here" in found
        assert "\x1b" not in found
        assert found.count("w" * 60) >= 3  # a long line in pieces
        await press(pilot, "escape")
        assert "── events" in shown(app)

    run(steps, past(), of=with_excerpts(excerpt))


def test_no_line_of_that_time_and_a_log_that_is_gone_are_said() -> None:
    async def none(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert "no line of the log is of that time" in await opened(app, pilot)

    async def gone(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert "vllm.log is gone" in await opened(app, pilot)

    run(none, past(), of=with_excerpts())
    run(gone, past(), of=with_excerpts(error="vllm.log is gone"))


def test_without_a_log_it_says_how_to_have_one() -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "4", "enter")
        assert "no log was given" in shown(app)

    run(steps, watched(Pages("preemption"), seconds=5))
