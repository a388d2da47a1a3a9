"""The screens, as text that a reviewer can read in a diff.

UPDATE_SCREENS=1 pytest tests/tui/test_screens.py writes them anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from tests.making import shipped_catalogue
from tests.paths import LOGS
from tests.tui.showing import choices, engines, gpus, host, lines, run, screen, watched
from tests.tui.watching import BEGAN, Clock, Pages, judge, watch_of
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.recording import demo
from vllm_doctor.rules import log_lines, rule
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.view_model import Status, ViewModel
from vllm_doctor.session.watch import Watch
from vllm_doctor.sources.log.source import Log
from vllm_doctor.sources.server.access import Access
from vllm_doctor.tui.app import DoctorApp

FOLDER = Path(__file__).parent / "screens"


@cache
def preempting() -> ViewModel:
    return watched(Pages("preemption"))


@cache
def local() -> ViewModel:
    return watched(Pages("preemption"), host(), gpus())


@cache
def many() -> ViewModel:
    return engines()


@cache
def idle() -> ViewModel:
    return watched(Pages("client-limited"))


@cache
def lost() -> ViewModel:
    clock, pages = Clock(), Pages("preemption")
    watch = watch_of(pages, clock)
    watch.open()
    view_model = None
    for second in range(40):
        pages.down = second >= 33
        view_model = watch.step() or view_model
        clock.sleep(1.0)
    assert view_model is not None
    return view_model


@cache
def past() -> ViewModel:
    """A log, read to its end."""
    told: list[ViewModel] = []
    path = Path("vllm.log.gz")
    path.write_bytes((LOGS / "max-num-seqs-cap.log.gz").read_bytes())
    log = Log([path], log_lines.load(rule.shipped() / log_lines.FOLDER))
    watcher = Source(
        SourceKind.LOG, "vllm.log.gz", "vllm.log.gz", lambda: log.examine("vllm.log.gz"), lambda: log.bytes_read
    )
    watch = Watch(lambda opened: [watcher], judge(), clock=Clock().now, wall=lambda: BEGAN)

    def tell(view_model: ViewModel) -> None:
        told.append(view_model)
        if view_model.status is Status.READ:
            watch.control.stop()

    watch.run(tell)
    return told[-1]


@cache
def recorded() -> ViewModel:
    """A recording, lived through."""
    told: list[ViewModel] = []
    look = Attachment(shipped_catalogue().metrics, Access(), 3.0, 0.0)
    names = [str(demo.folder() / "preemption")]
    watch = Watch(lambda opened: attach(names, look, opened), judge(), clock=Clock().now, wall=lambda: BEGAN)

    def tell(view_model: ViewModel) -> None:
        told.append(view_model)
        if view_model.report is not None and view_model.report.sources[0].window_s > 29:
            watch.control.stop()

    watch.run(tell)
    return told[-1]


def written() -> ViewModel:
    """A command alone."""
    told: list[ViewModel] = []
    command = "vllm serve Qwen/Qwen3-32B -tp 4 --enforce-eager"
    look = Attachment(shipped_catalogue().metrics, Access(), 3.0, 0.0, command=command, gpu="4xH100")
    watch = Watch(lambda opened: attach([], look, opened), judge(), clock=Clock().now, wall=lambda: BEGAN)

    def tell(view_model: ViewModel) -> None:
        told.append(view_model)
        if view_model.report is not None:
            watch.control.stop()

    watch.run(tell)
    return told[-1]


def test_what_a_written_command_will_give_is_on_its_first_screen() -> None:
    for size in ((80, 40), (140, 40)):
        shown = screen(written(), size=size)
        assert "Fits" in shown
        assert "of weights on each GPU" in " ".join(shown.split())
        assert max(map(cell_len, shown.splitlines())) <= size[0]


SCREENS: dict[str, tuple[Callable[[], ViewModel | None], tuple[str, ...]]] = {
    "starting": (lambda: None, ()),
    "overview": (preempting, ()),
    "overview-local": (local, ()),
    "overview-idle": (idle, ()),
    "overview-lost": (lost, ()),
    "overview-log": (past, ()),
    "overview-recorded": (recorded, ()),
    "log-recorded": (recorded, ("4", "left", "left")),
    "finding": (preempting, ("enter",)),
    "engines": (many, ("2",)),
    "host": (local, ("3",)),
    "log": (preempting, ("4",)),
    "log-past": (past, ("4", "down", "down")),
    "rules": (preempting, ("5",)),
    "explain": (preempting, ("x",)),
    "rule": (preempting, ("5", "enter")),
    "chooser": (choices, ()),
    "help": (preempting, ("question_mark",)),
}


SMALL_ONLY = {"starting", "overview-recorded", "log-recorded", "overview-idle", "overview-lost", "rule", "help"}
"""Of these the larger screen shows nothing new."""
KEPT = [
    (name, size) for name in SCREENS for size in ((80, 24), (140, 40)) if size == (80, 24) or name not in SMALL_ONLY
]


@pytest.mark.parametrize(("name", "size"), KEPT, ids=[f"{name}-{size[0]}x{size[1]}" for name, size in KEPT])
def test_a_screen(name: str, size: tuple[int, int]) -> None:
    make, keys = SCREENS[name]
    found = screen(make(), *keys, size=size)
    assert max(map(cell_len, found.splitlines())) <= size[0]
    path = FOLDER / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")


def test_each_kept_screen_is_one_that_is_shown() -> None:
    wanted = {f"{name}-{size[0]}x{size[1]}.txt" for name, size in KEPT}
    assert {path.name for path in FOLDER.iterdir()} == wanted


@pytest.mark.parametrize("size", [(20, 5), (59, 24), (80, 14)])
def test_a_terminal_that_is_too_small_says_so(size: tuple[int, int]) -> None:
    found = screen(preempting(), size=size)
    assert "Too small" in found
    assert "60×15" in found
    assert "preemption" not in found


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (109, 30), (110, 30), (250, 80)])
def test_the_verdict_its_cause_and_its_cure_are_on_the_first_screen(size: tuple[int, int]) -> None:
    head = "\n".join(screen(preempting(), size=size).splitlines()[:9])
    assert "CRITICAL" in head
    assert "The KV cache is too" in head
    assert "recomputed" in head or size[0] < 80
    assert "--num-gpu-blocks-override" in head or size[0] < 80


@pytest.mark.parametrize("size", [(60, 15), (250, 80)])
def test_every_screen_fits_every_size(size: tuple[int, int]) -> None:
    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for key in ("1", "2", "3", "4", "5", "x", "question_mark"):
            await pilot.press(key)
            await pilot.pause()
            found = lines(app)
            assert len(found) == size[1]
            assert max(map(cell_len, found)) <= size[0]
            assert "q quit" in found[-1] or size[0] < 80

    run(steps, local(), size)
