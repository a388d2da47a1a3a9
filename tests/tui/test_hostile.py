"""What comes from outside is shown as text: no markup, no escape, nothing that moves the cursor or the columns."""

from __future__ import annotations

from dataclasses import replace

from rich.cells import cell_len
from textual.pilot import Pilot

from tests.render.reports import HOSTILE
from tests.tui.showing import engines, host, run, screen, shown, watched
from tests.tui.watching import Pages
from vllm_doctor.model.kinds import State
from vllm_doctor.model.reading import Known
from vllm_doctor.session.view_model import Choice, Event, Status, ViewModel
from vllm_doctor.text import redact
from vllm_doctor.tui.app import DoctorApp, ViewModelReady

NAMES = [
    "[bold red]evil[/] [@click=app.quit]x[/]",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "模型-七十亿-中文-名字-很长-的-一个-模型",
    "evil\u202egnp.exe",
    "a\nb\r\tc\x00d",
    "e\u0301\u0301\u0301" * 20,
    "👩‍👩‍👧‍👦🏳️‍🌈" * 5,
    "\u200b\u200d\ufeff",
    "x" * 500,
    HOSTILE,
]


def hostile(name: str) -> ViewModel:
    """A view model in which every text from outside is this."""
    view_model = watched(Pages("preemption"), host(placement_name=name, foreign_processes=name), seconds=6)
    report = view_model.report
    assert report is not None
    found = tuple(
        replace(f, title=f"{name} {f.title}", here=name, why=name, subject={"engine": name}) for f in report.findings
    )
    seen = tuple(replace(engine, subject={"engine": name, "model_name": name}) for engine in report.engines)
    patient = replace(report.patient, model=name, vllm=name, gpu=name, gpus=1)
    sources = tuple(replace(source, target=name, notes=(name,)) for source in report.sources)
    report = replace(
        report,
        headline=name,
        findings=found,
        engines=seen,
        patient=patient,
        sources=sources,
        command=("vllm", "serve", name),
    )
    return replace(
        view_model,
        report=redact.report(report),
        problem=name,
        status=Status.LOST,
        events=(Event(view_model.at, State.INFO, name),),
    )


def test_hostile_names_are_text_on_every_screen() -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for name in NAMES:
            app.post_message(ViewModelReady(hostile(name)))
            await pilot.pause()
            for key in ("1", "enter", "2", "3", "4", "5"):
                await pilot.press(key)
                await pilot.pause()
                found = shown(app)
                assert all(char.isprintable() for char in found.replace("\n", ""))
                assert max(map(cell_len, found.splitlines())) <= 80
                assert found.splitlines()[0].startswith(" vllm-doctor")
                assert "q quit" in found.splitlines()[-1]

    run(steps, hostile("x"))


def test_markup_is_shown_as_it_stands() -> None:
    found = screen(hostile("[bold]x[/bold] [link=http://e]y[/link]"), size=(140, 40))
    assert "[bold]x[/bold] [link=http://e]y[/link]" in found


def test_an_escape_is_written_out() -> None:
    assert "\\u001b[31mred" in screen(hostile("\x1b[31mred"), size=(140, 40))
    assert "\\u202e" in screen(hostile("evil\u202egnp.exe"), size=(140, 40))


def test_wide_names_do_not_shift_the_columns_of_a_table() -> None:
    view_model = engines()
    report = view_model.report
    assert report is not None
    wide = tuple(replace(e, subject={**e.subject, "engine": f"{n}模型模型"}) for n, e in enumerate(report.engines))
    found = screen(replace(view_model, report=replace(report, engines=wide)), "2").splitlines()
    rows = [line for line in found if "640/s" in line]
    assert len(rows) == 7
    assert {cell_len(row[: row.index("640/s")]) for row in rows} == {cell_len(rows[0][: rows[0].index("640/s")])}


def test_the_chooser_shows_names_as_text() -> None:
    choice = Choice(("1",), "[red]x[/] 模型", "[@click=app.quit]y[/]")
    view_model = ViewModel(Status.CHOOSING, 0.0, 0.0, 30.0, choices=(choice, choice))
    assert "[red]x[/] 模型" in screen(view_model)
    assert "[@click=app.quit]y[/]" in screen(view_model)


def test_the_palette_shows_engines_as_text() -> None:
    view_model = engines(3)
    report = view_model.report
    assert report is not None
    named = tuple(replace(e, subject={"engine": f"[bold]{n}[/bold]"}) for n, e in enumerate(report.engines))

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+p", *"bold")
        for _ in range(200):
            await pilot.pause(0.05)
            if "[bold]0[/bold]" in shown(app):
                break
        assert "[bold]0[/bold]" in shown(app)

    run(steps, replace(view_model, report=replace(report, engines=named)))


def test_numbers_that_are_no_numbers_are_shown() -> None:
    view_model = watched(Pages("preemption"), host(engine_cpu=float("inf"), cpu_used=1e300), seconds=6)
    assert "∞" in screen(view_model, "3", size=(140, 60))
    strange = replace(view_model, limits={"max_num_seqs": 0.0}, marks={"kv_cache_usage": 0.0})
    assert "running" in screen(strange)
    assert isinstance(Known(1.0).value, float)
