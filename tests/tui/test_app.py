"""Keys, copying, saving, banners and the end, without a terminal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.showing import choices, engines, host, lines, run, screen, session, shown, watched
from tests.tui.watching import Clock, Pages, watch_of
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.report import EngineSeen, Verdict
from vllm_doctor.session.progress import ReadSoFar
from vllm_doctor.session.view_model import WINDOWS, Control, Session, Status, ViewModel
from vllm_doctor.tui.app import DoctorApp, ViewModelReady
from vllm_doctor.tui.engines import name_of
from vllm_doctor.tui.overview import Overview


@pytest.fixture(scope="module")
def view_model() -> ViewModel:
    return watched(Pages("preemption"), host())


def cursor(app: DoctorApp) -> str:
    assert isinstance(app.screen, Overview)
    return app.screen.rows.cursor


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def test_the_frame_is_there_before_anything_is_known() -> None:
    found = screen(None)
    assert "starting" in found
    assert "Looking" in found
    assert "q quit" in found


def test_the_cursor_walks_over_findings_by_arrows_and_letters(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        first = cursor(app)
        await press(pilot, "j")
        second = cursor(app)
        await press(pilot, "up")
        assert cursor(app) == first
        await press(pilot, "down", "k", "down")
        assert cursor(app) == second
        await press(pilot, "G")
        assert cursor(app).startswith("unseen:")
        await press(pilot, "g")
        assert cursor(app) == first == "finding:preemption:critical"

    run(steps, view_model)


def test_the_cursor_stays_on_its_row_when_others_come_and_go(view_model: ViewModel) -> None:
    report = view_model.report
    assert report is not None
    symptom = next(f for f in report.findings if f.role == "symptom")
    fewer = replace(
        view_model, report=replace(report, findings=tuple(f for f in report.findings if f.rule != "preemption"))
    )

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "j")
        assert cursor(app) == f"finding:{symptom.rule}:{symptom.severity}"
        app.post_message(ViewModelReady(replace(view_model, at=view_model.at + 1)))
        await pilot.pause()
        assert cursor(app) == f"finding:{symptom.rule}:{symptom.severity}"
        app.post_message(ViewModelReady(fewer))
        await pilot.pause()
        assert cursor(app) != ""

    run(steps, view_model)


def test_a_finding_opens_and_closes(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        opened = shown(app)
        assert "preemption · root · high confidence" in opened
        assert "thresholds: rule of thumb" in opened
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)

    run(steps, view_model)


def test_a_finding_that_is_gone_stays_as_it_was(view_model: ViewModel) -> None:
    report = view_model.report
    assert report is not None

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        app.post_message(ViewModelReady(replace(view_model, report=replace(report, findings=()))))
        await pilot.pause()
        found = shown(app)
        assert "resolved" in found
        assert "recomputed" in found

    run(steps, view_model)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("2", "engine"),
        ("e", "engine"),
        ("3", "processes"),
        ("4", "events"),
        ("5", "by verdict"),
        ("question_mark", "Keys"),
    ],
)
def test_each_screen_has_its_key_and_is_left_by_one(view_model: ViewModel, key: str, text: str) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for back in ("1", "escape"):
            await press(pilot, key)
            assert text in shown(app)
            await press(pilot, back)
            assert "CRITICAL" in shown(app)

    run(steps, view_model)


def test_c_copies_the_corrected_command_and_writes_it_to_a_file(view_model: ViewModel, tmp_path: Path) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "c")
        assert app.clipboard == "vllm serve tiny --max-num-seqs 64"
        file = tmp_path / "state/vllm-doctor/cure.sh"
        assert file.read_text() == "vllm serve tiny --max-num-seqs 64\n"
        assert file.stat().st_mode & 0o077 == 0
        assert "copied the corrected command" in shown(app)

    run(steps, view_model)


def test_without_a_command_line_c_copies_what_the_remedy_changes() -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "c")
        assert app.clipboard == "# remove --num-gpu-blocks-override from the command"

    run(steps, watched(Pages("preemption")))


def test_a_folder_that_cannot_be_written_costs_the_file_only(
    view_model: ViewModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "c")
        assert app.clipboard.startswith("vllm serve")
        assert "copied the corrected command" in shown(app)

    run(steps, view_model)


def test_y_copies_the_finding_under_the_cursor_as_markdown(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "y")
        assert app.clipboard.startswith("## CRITICAL: The KV cache is too small")
        await press(pilot, "j", "y")
        assert app.clipboard.startswith("## WARNING: The KV cache is full")

    run(steps, view_model)


def test_w_saves_the_whole_report_here(view_model: ViewModel, tmp_path: Path) -> None:
    assert "saved" in screen(view_model, "w", size=(140, 24))
    (saved,) = tmp_path.glob("vllm-doctor-*.md")
    assert saved.read_text().startswith("## CRITICAL")


@pytest.mark.parametrize(
    ("record", "says"),
    [(lambda: b"a recording", "to replay"), (lambda: b"".index(b"x"), "no recording: ")],
)
def test_w_saves_a_recording_beside_it(
    record: Callable[[], bytes], says: str, view_model: ViewModel, tmp_path: Path
) -> None:
    of = replace(session(), record=record)
    told: list[str] = []

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "w")
        for _ in range(200):
            await pilot.pause(0.02)
            if says in app.said:
                break
        told.append(app.said)

    run(steps, view_model, (140, 24), of)
    assert says in told[0]
    saved = [path.read_bytes() for path in tmp_path.glob("vllm-doctor-*.tar.gz")]
    assert saved == ([b"a recording"] if "replay" in says else [])
    assert len(list(tmp_path.glob("vllm-doctor-*.md"))) == 1


def test_slash_filters_the_rows_and_escape_shows_all_again(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5", "slash", *"swap")
        assert "host-swap" in shown(app)
        assert "fd-limit" not in shown(app)
        assert "preemption " not in shown(app).split("rules: ")[1]
        await press(pilot, "enter")
        assert "only these rows" in shown(app)
        await press(pilot, "escape")
        assert "preemption" in shown(app)
        assert "only these rows" not in shown(app)
        await press(pilot, "slash", *"q2p")  # letters that are keys elsewhere are letters here
        assert "no rule is named so" in shown(app)
        await press(pilot, "backspace", "backspace", "backspace", "enter")
        assert "preemption" in shown(app)

    run(steps, view_model)


def test_s_sorts_the_rows_by_something_else(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "5")
        assert "preemption" in lines(app)[4]
        await press(pilot, "s")
        assert "sorted by group" in shown(app)
        assert "preemption" not in lines(app)[4]
        await press(pilot, "s")
        assert "admission-limit-self-made" in lines(app)[4]
        await press(pilot, "s")
        assert "preemption" in lines(app)[4]

    run(steps, view_model)


def test_an_engine_unlike_the_others_is_marked_and_opens() -> None:
    found = screen(engines(), "2", "s")
    assert "▲117" in found.splitlines()[5]
    assert "p50 is" in screen(engines(), "2", "s", "enter")
    assert "▲" not in screen(engines(2), "2").replace("▲ ", "")  # of two nobody is an outlier


def test_pause_window_and_rescan_reach_the_watch(view_model: ViewModel) -> None:
    given = session()

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        control = given.control
        await press(pilot, "p")
        assert control.paused
        await press(pilot, "p")
        assert not control.paused
        await press(pilot, "plus")
        assert control.seconds == 60
        await press(pilot, "minus", "minus")
        assert control.seconds == 10
        assert "10 s" in shown(app)

    run(steps, view_model, of=given)


def test_tab_goes_to_the_other_pane(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert isinstance(app.screen, Overview)
        await press(pilot, "tab")
        assert app.screen.side.has_focus
        before = app.screen.side.scroll_offset.y
        await press(pilot, "down", "down")
        assert app.screen.side.scroll_offset.y == before + 2
        await press(pilot, "tab")
        assert app.screen.rows.has_focus

    run(steps, view_model, (140, 30))


def test_the_mouse_chooses_opens_and_presses_keys(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        row = next(n for n, line in enumerate(lines(app)) if "kv-cache-saturated" in line)
        await pilot.click(offset=(20, row))
        await pilot.pause()
        assert cursor(app).startswith("finding:kv-cache-saturated")
        await pilot.click(offset=(20, row))
        await pilot.pause()
        assert "kv-cache-saturated · symptom" in shown(app)
        foot = lines(app)[-1]
        await pilot.click(offset=(foot.index("rules"), 23))
        await pilot.pause()
        assert "by verdict" in shown(app)

    run(steps, view_model)


def test_pods_are_told_apart_by_what_differs_in_their_names() -> None:
    report = engines(2).report
    assert report is not None
    pods = tuple(
        EngineSeen({"engine": "0", "server": f"k8s://inference/pod/vllm-7d9f8c6b5-{name}"}, ()) for name in ("aa", "ab")
    )
    report = replace(report, engines=pods)
    assert [name_of(pod, report) for pod in pods] == ["vllm-7d9f8c6b5-aa", "vllm-7d9f8c6b5-ab"]


def test_the_palette_finds_rules_engines_and_actions(view_model: ViewModel) -> None:
    for typed, found in (("cpu-thro", "Rule: cpu-throttled"), ("rescan", "Rescan"), ("preemp", "Finding: preemption")):

        async def steps(app: DoctorApp, pilot: Pilot[None], typed: str = typed, found: str = found) -> None:
            await press(pilot, "ctrl+p", *typed)
            for _ in range(200):
                await pilot.pause(0.05)
                if found in shown(app):
                    break
            assert found in shown(app)

        run(steps, view_model)


def test_several_servers_are_chosen_from() -> None:
    given = session(())

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert "Which one is slow?" in shown(app)
        await press(pilot, "down", "enter")
        assert given.control.chosen == ("9120",)
        assert isinstance(app.screen, Overview)

    run(steps, choices(), of=given)


def test_all_of_them_can_be_watched_together() -> None:
    given = session(())

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "end", "enter")
        assert given.control.chosen == ("7831", "9120", "9555")

    run(steps, choices(), of=given)


def failing(error: Exception, first: ViewModel | None = None) -> Session:
    def watch(sources: object, tell: object) -> None:
        if first is not None and callable(tell):
            tell(first)
        raise error

    return Session(watch, lambda id: "", ("x",))


def test_nothing_to_watch_ends_it_with_the_reason() -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for _ in range(50):
            await pilot.pause(0.02)
            if app.failure is not None:
                return

    app = run(steps, of=failing(UsageError("no such server")))
    assert str(app.failure) == "no such server"


def test_a_fault_in_the_watch_is_a_banner_and_not_the_end(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for _ in range(50):
            await pilot.pause(0.02)
            if "fault" in shown(app):
                break
        found = shown(app)
        assert "the doctor's own fault" in found
        assert "ZeroDivisionError" in found
        assert "CRITICAL" in found
        await press(pilot, "2")
        assert "engine" in shown(app)

    app = run(steps, of=failing(ZeroDivisionError("division by zero"), view_model))
    assert app.failure is None
    assert app.crash is None


def test_a_fault_in_the_application_ends_it_without_a_traceback(
    view_model: ViewModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: object, view: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr("vllm_doctor.tui.rules.RulesPage.draw_rows", broken)
    app = DoctorApp(session())

    async def go() -> None:
        async with app.run_test() as pilot:
            await pilot.press("5")
            await pilot.pause()

    with pytest.raises(KeyError):
        asyncio.run(go())
    assert isinstance(app.crash, KeyError)
    assert "Traceback" not in "".join(capsys.readouterr())


def test_lost_paused_and_reading_are_told_in_words(view_model: ViewModel) -> None:
    lost = replace(view_model, status=Status.LOST, problem="http://h:1 refuses connections", since=view_model.at - 5)
    assert "✖ lost" in screen(lost)
    assert "The last values stay" in screen(lost)
    assert "‖ paused" in screen(replace(view_model, status=Status.PAUSED))
    reading = ViewModel(Status.READING, view_model.at, view_model.at, 30.0, read_so_far=ReadSoFar(123_000_000))
    assert "Reading the log: 123 MB so far" in screen(reading)
    known = replace(reading, read_so_far=ReadSoFar(123_000_000, 0.41, 6.2))
    assert "Reading the log: 41 %, about 6 s left" in screen(known)


def test_a_terminal_may_grow_and_shrink(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for size, text in (((140, 40), "│"), ((40, 10), "Too small"), ((80, 24), "CRITICAL"), ((20, 5), "Too small")):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert text in shown(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "Too small" not in shown(app)
        assert "│" not in shown(app)

    run(steps, view_model)


def test_leaving_stops_the_watch(view_model: ViewModel) -> None:
    given = session()

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "q")

    run(steps, view_model, of=given)
    assert given.control.stopped
    assert isinstance(given.control, Control)


@pytest.mark.parametrize("variable", ["NO_COLOR", ""])
def test_no_color_is_obeyed(view_model: ViewModel, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        strips = app.screen._compositor.render_strips()  # what is drawn, with its colours
        coloured = [
            segment.text
            for strip in strips
            for segment in strip
            if segment.style is not None and segment.style.color is not None and not segment.style.color.is_default
        ]
        assert bool(coloured) is not bool(variable)

    run(steps, view_model)


@pytest.mark.parametrize("within", ["fleet", ""])
def test_esc_leads_back_to_what_it_was_opened_from(within: str, view_model: ViewModel) -> None:
    app = DoctorApp(session(), now=lambda: view_model.at, within=within)

    async def go() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            app.post_message(ViewModelReady(view_model))
            await press(pilot, "enter", "escape")
            assert ("esc fleet" in shown(app)) == bool(within)
            assert not app.has_returned  # only from the finding to the overview
            await press(pilot, "escape")

    asyncio.run(go())
    assert app.has_returned == app.session.control.stopped == bool(within)


def test_a_theme_that_is_chosen_is_kept_for_the_next_time(view_model: ViewModel, tmp_path: Path) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert app.theme == "ansi-dark"
        [chooser] = [one for one in app.get_system_commands(app.screen) if one.title == "Theme"]
        assert chooser.callback == app.search_themes
        app.theme = "nord"
        await pilot.pause()
        assert "theme: nord" in shown(app)

    async def again(app: DoctorApp, pilot: Pilot[None]) -> None:
        assert app.theme == "nord"

    run(steps, view_model)
    assert (tmp_path / "state/vllm-doctor/theme").read_text() == "nord"
    run(again, view_model)
    (tmp_path / "state/vllm-doctor/theme").write_text("no such theme")
    assert DoctorApp(session()).theme == "ansi-dark"


def test_the_window_is_chosen_in_the_palette(view_model: ViewModel) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        windows = [one for one in app.get_system_commands(app.screen) if one.title.startswith("Window: ")]
        assert len(windows) == len(WINDOWS)
        windows[-1].callback()
        await pilot.pause()
        assert app.session.control.seconds == WINDOWS[-1]

    run(steps, view_model)


@pytest.fixture(scope="module")
def well() -> ViewModel:
    """Of a server that was well, and is down."""
    clock, pages = Clock(), Pages("healthy-busy")
    watch = watch_of(pages, clock)
    watch.open()
    found = None
    for second in range(20):
        pages.down = second >= 12
        found = watch.step() or found
        clock.sleep(1.0)
    assert found is not None
    return found


@pytest.mark.parametrize("key", ["1", "2", "3", "4", "5", "x"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_no_screen_of_a_lost_server_says_ok(well: ViewModel, key: str, size: tuple[int, int]) -> None:
    assert well.status is Status.LOST
    assert well.report is not None
    assert well.report.verdict is Verdict.OK
    shown = screen(well, key, size=size)
    assert "down since " in shown
    assert "✔ OK" not in shown
    assert "✔ ok" not in shown
    assert re.search(r"\d ok", shown) is None


def test_its_verdict_is_unknown_and_it_says_what_was_before(well: ViewModel) -> None:
    shown = screen(well)
    assert well.verdict is Verdict.UNKNOWN
    assert "✖ Down since " in shown
    assert re.search(r"was   until \d\d:\d\d:\d\d: Nothing wrong found", shown)
    assert "✖ No answer since " in screen(replace(well, is_down=False))


def test_what_is_saved_of_a_lost_server_says_so_too(well: ViewModel, tmp_path: Path) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        await press(pilot, "w")

    run(steps, well)
    [path] = tmp_path.glob("vllm-doctor-*.md")
    assert path.read_text().startswith("## UNKNOWN: Down since ")


def test_the_timeline_agrees_with_the_verdict(view_model: ViewModel) -> None:
    later = replace(view_model, spans=())  # as if the finding had ended
    assert "The KV cache is too small" in screen(later, "4").split("── events")[0]
    assert "nothing was found then" not in screen(later, "4")


def test_an_ok_carries_what_it_is_worth() -> None:
    shown = screen(watched(Pages("healthy-busy")))
    assert "✔ OK" in shown
    assert re.search(r"why   \d+ of \d+ checks; host and log not given\.", shown)


def test_when_the_first_verdict_is_due_is_said(view_model: ViewModel) -> None:
    early = replace(view_model, report=None, due_at=view_model.at + 3)
    assert "It answers; judging in 3 s" in screen(early)
