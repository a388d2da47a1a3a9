"""The application: it holds the newest view model, gives it to the page in front, and carries out the keys.

The watch runs in a thread of its own and posts one message, `ViewModelReady`. Nothing that may take time happens
here, so a server that hangs cannot freeze it; an error there is a banner, and the last view model stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from vllm_doctor.model import outside
from vllm_doctor.model.errors import DoctorError
from vllm_doctor.model.report import Finding, Report
from vllm_doctor.session.view_model import WINDOWS, Session, Status, ViewModel, wider
from vllm_doctor.text import words
from vllm_doctor.tui import finding, ink
from vllm_doctor.tui.chooser import Chooser
from vllm_doctor.tui.cure import to_copy
from vllm_doctor.tui.engines import EnginePage, EnginesPage, name_of
from vllm_doctor.tui.explain import ExplainPage
from vllm_doctor.tui.finding import FindingPage
from vllm_doctor.tui.help import HelpPage
from vllm_doctor.tui.host import HostPage
from vllm_doctor.tui.log import LogPage
from vllm_doctor.tui.overview import Overview
from vllm_doctor.tui.page import Page
from vllm_doctor.tui.rules import RulePage, RulesPage

_SAID_SECONDS = 6.0
_FOLDER = "vllm-doctor"
_THEME = "theme"
"""The file that holds the name of the theme that was chosen."""


class ViewModelReady(Message):
    """A newer view_model. Only the newest counts: one that still waits is replaced."""

    def __init__(self, view_model: ViewModel) -> None:
        super().__init__()
        self.view_model = view_model

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ViewModelReady)


class Stopped(Message):
    """The watch has ended: `error` is what it could not do; `is_fault`: of the doctor's own making."""

    def __init__(self, error: Exception, is_fault: bool) -> None:
        super().__init__()
        self.error, self.is_fault = error, is_fault


class DoctorApp(App[None]):
    TITLE = "vllm-doctor"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        Binding("escape,backspace", "return", show=False),
        *(
            Binding(key, f"go('{name}')", show=False)
            for key, name in (("1", "overview"), ("2,e", "engines"), ("3", "host"), ("4", "log"), ("5", "rules"))
        ),
        Binding("x", "go('explain')", show=False),
        Binding("question_mark,f1", "go('help')", show=False),
        Binding("p", "pause", show=False),
        Binding("r", "rescan", show=False),
        Binding("plus,equals_sign", "window(1)", show=False),
        Binding("minus", "window(-1)", show=False),
        Binding("c", "copy_cure", show=False),
        Binding("y", "copy_markdown", show=False),
        Binding("w", "save", show=False),
        Binding("slash", "screen.filter", show=False),
        Binding("s", "screen.sort", show=False),
    ]
    PAGES: ClassVar[dict[str, type[Page]]] = {
        "engines": EnginesPage,
        "host": HostPage,
        "log": LogPage,
        "rules": RulesPage,
        "explain": ExplainPage,
        "help": HelpPage,
        "chooser": Chooser,
    }

    def __init__(
        self, session: Session, now: Callable[[], float] = time.time, within: str = "", first: str = "overview"
    ) -> None:
        theme = os.environ.get("TEXTUAL_THEME") or _kept_theme()
        # The terminal's own palette, unless the user has a theme: said at once, as NO_COLOR is read right here.
        super().__init__(ansi_color=None if theme else True)
        self.session, self.now, self.within, self.first = session, now, within, first
        self.view_model = ViewModel(Status.STARTING, now(), now(), session.control.seconds)
        self.said, self.is_done = "", True
        """The last thing that was done for the user; shown for a few seconds."""
        self.failure: Exception | None = None
        """Why there was nothing to watch."""
        self.crash: Exception | None = None
        self.by_signal = 0
        self.has_returned = False
        """It was left by Esc, to what it was opened from."""
        self._thread: threading.Thread | None = None
        self._silence = 0
        self.theme = theme or _own_theme()
        for name, page in self.PAGES.items():
            self.install_screen(page(), name)

    def get_default_screen(self) -> Screen[None]:
        return Overview()

    # ---- the watch --------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)
        if self.first != "overview":
            self.go(self.first)
        self.theme_changed_signal.subscribe(self, self._theme_chosen)
        self.call_after_refresh(self._begin)  # the frame is drawn before anything is loaded

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        def tell(view_model: ViewModel) -> None:
            self.post_message(ViewModelReady(view_model))

        try:
            self.session.run(tell)
        except DoctorError as error:
            self.post_message(Stopped(error, is_fault=False))
        except Exception as error:
            self.post_message(Stopped(error, is_fault=True))

    def on_view_model_ready(self, event: ViewModelReady) -> None:
        was, self.view_model = self.view_model.status, event.view_model
        if self.view_model.status is Status.CHOOSING and was is not Status.CHOOSING:
            self.go("chooser")
        self._fit()
        self.redraw()

    def _fit(self) -> None:
        """Take the terminal's size where the news of a change was lost: seen in tmux on a machine that was too busy."""
        if self.is_headless or sys.__stderr__ is None:
            return
        with contextlib.suppress(OSError, ValueError):
            size = Size(*os.get_terminal_size(sys.__stderr__.fileno()))
            if size != self.size:
                self.post_message(Resize(size, size))
            elif size != self.screen.size:
                self.screen.post_message(Resize(size, size))

    def on_stopped(self, event: Stopped) -> None:
        if not event.is_fault and self.view_model.report is None:
            self.failure = event.error
            self.exit()
            return
        what = f"{type(event.error).__name__}: {event.error}" if event.is_fault else str(event.error)
        fault = "the doctor's own fault, please report it: " if event.is_fault else ""
        self._change(problem=f"{fault}{what} · r starts over")

    def _change(self, problem: str) -> None:
        self.view_model = replace(self.view_model, problem=problem)
        self.redraw()

    def redraw(self) -> None:
        for screen in self.screen_stack[-1:]:
            if isinstance(screen, Page):
                screen.redraw()
        behind = next((s for s in reversed(self.screen_stack) if isinstance(s, Page)), None)
        if behind is not None and behind is not self.screen:
            behind.redraw()  # the palette is in front of it

    def tell(self, said: str, is_done: bool = True) -> None:
        """Say in the line above the keys what was done, or why it was not."""
        self.said, self.is_done = said, is_done
        self._silence += 1
        number = self._silence
        self.set_timer(_SAID_SECONDS, lambda: self._hush(number))
        self.redraw()

    def _hush(self, number: int) -> None:
        if number == self._silence:
            self.said = ""
            self.redraw()

    # ---- where to ---------------------------------------------------------------------------------------------------

    def go(self, name: str) -> None:
        """To a page, from wherever one is."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if name != "overview":
            self.push_screen(name)

    def enter(self, page: Page) -> None:
        """To a page that is left by going back."""
        self.push_screen(page)

    def open(self, key: str) -> None:
        """What a row stands for: finding:RULE:SEVERITY, rule:ID, unseen:N."""
        kind, _, rest = key.partition(":")
        if kind == "finding":
            self.enter(FindingPage(key))
        elif kind == "rule":
            self.enter(RulePage(rest))
        elif kind == "unseen":
            self.go("rules")
            page = self.get_screen("rules")
            if isinstance(page, Page):
                page.filter = "unknown"
                page.redraw()

    def action_go(self, name: str) -> None:
        if name == "help" and isinstance(self.screen, HelpPage):
            self.action_return()
        else:
            self.go(name)

    def action_return(self) -> None:
        screen = self.screen
        if isinstance(screen, Page) and screen.back():
            return
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.within:
            self.has_returned = True
            self.action_leave()

    def action_leave(self) -> None:
        self.session.control.stop()
        self.exit()

    # ---- what is done -----------------------------------------------------------------------------------------------

    def action_pause(self) -> None:
        if self.view_model.goes_on:
            self.session.control.pause(not self.session.control.paused)
            self.tell("paused: nothing is asked of the server" if self.session.control.paused else "goes on")

    def action_rescan(self) -> None:
        if self._thread is not None and not self._thread.is_alive():
            self._change(problem="")
            self._begin()
        else:
            self.session.control.rescan()
        self.tell("rescanning" if self.view_model.goes_on else "reading again")

    def action_window(self, steps: int) -> None:
        self.set_window(wider(self.session.control.seconds, steps))

    def set_window(self, seconds: float) -> None:
        if not self.view_model.goes_on:
            return
        self.session.control.window(seconds)
        self.tell(f"verdicts are of the last {self.session.control.seconds:.0f} s, as soon as that much was watched")

    def _group(self) -> list[Finding]:
        """The finding that the keys are about: the opened one, that under the cursor, or the first."""
        report = self.view_model.report
        if isinstance(self.screen, FindingPage):
            return self.screen.group
        if isinstance(self.screen, Overview):
            group = finding.group_of(report, self.screen.rows.cursor)
            if group:
                return group
        return [*report.main, *report.aside][:1] if report is not None else []

    def _report(self) -> Report | None:
        """What leaves: of a server that is lost since when it is, before what was judged then."""
        view_model = self.view_model
        report = view_model.report
        if report is None or view_model.status is not Status.LOST:
            return report
        since = f"{'Down' if view_model.is_down else 'No answer'} since {outside.moment(view_model.since):%H:%M:%S} UTC"
        return replace(report, verdict=view_model.verdict, headline=f"{since}; before: {report.headline}")

    def action_copy_cure(self) -> None:
        report = self.view_model.report
        text, what = to_copy(report, self._group()) if report is not None else ("", "")
        if not text:
            self.tell("there is no command to copy: no finding here is fixed by one", is_done=False)
            return
        self.copy_to_clipboard(text)
        path = keep("cure.sh", text + "\n")
        self.tell(f"copied {what}" + (f"; also in {path}" if path else ""))

    def action_copy_markdown(self) -> None:
        from vllm_doctor.render import markdown

        report, group = self._report(), self._group()
        if report is None:
            self.tell("there is no report yet", is_done=False)
            return
        text = markdown.finding(group, report) if group else markdown.render(report)
        self.copy_to_clipboard(text)
        path = keep("finding.md", text)
        self.tell("copied as markdown" + (f"; also in {path}" if path else ""))

    def action_save(self) -> None:
        from vllm_doctor.render import markdown

        report = self._report()
        if report is None:
            self.tell("there is no report yet", is_done=False)
            return
        name = f"vllm-doctor-{datetime.fromtimestamp(self.now()):%Y%m%d-%H%M%S}.md"
        path = save(Path(name).absolute(), markdown.render(report)) or keep(name, markdown.render(report))
        said = f"saved {path}" if path else "the report cannot be written, neither here nor in the home folder"
        self.tell(said)
        if path is not None and self.view_model.goes_on and self.session.record is not None:
            record = self.session.record
            threading.Thread(target=self._record, args=(record, path.with_suffix(".tar.gz"), said), daemon=True).start()

    def _record(self, record: Callable[[], bytes], path: Path, said: str) -> None:
        """Save a recording beside the report; in a thread of its own, as it takes a moment."""
        try:
            written = save(path, record())
        except Exception as error:
            self.call_from_thread(self.tell, f"{said}; no recording: {error}")
            return
        self.call_from_thread(self.tell, f"{said}, and {path.name} to replay" if written else said)

    # ---- the palette ------------------------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for name in ("overview", *list(self.PAGES)[:-1]):
            yield SystemCommand(f"Screen: {name}", "go there", lambda name=name: self.go(name))
        yield SystemCommand("Copy the fix", "the corrected command, and a file next to it", self.action_copy_cure)
        yield SystemCommand("Copy the finding as markdown", "for an issue or a chat", self.action_copy_markdown)
        yield SystemCommand("Save the report", "as markdown, and a recording, in this folder", self.action_save)
        yield SystemCommand("Pause, or go on", "nothing is asked of the server meanwhile", self.action_pause)
        yield SystemCommand("Rescan", "look for the server, its processes and its log again", self.action_rescan)
        for seconds in WINDOWS:
            name, help = f"Window: {words.number(seconds, 's')}", "of how much time the verdict is"
            yield SystemCommand(name, help, lambda seconds=seconds: self.set_window(seconds))
        yield SystemCommand("Theme", "colours: the terminal's own, or others; kept", self.search_themes)
        yield SystemCommand("Quit", "the exit code is that of the last verdict", self.action_leave)

    def _theme_chosen(self, theme: Theme) -> None:
        """Keep it for the next time; of the terminal's own colours there is nothing to keep."""
        self.ansi_color = None  # the theme says whether its colours are the terminal's
        keep(_THEME, "" if theme.name == _own_theme() else theme.name)
        self.tell(f"theme: {theme.name}")

    # ---- the end ----------------------------------------------------------------------------------------------------

    def _signalled(self, number: int) -> None:
        self.by_signal = number
        self.action_leave()

    def _fatal_error(self) -> None:
        """A fault of the application itself: the terminal is restored, and one line is said by whoever ran it."""
        self.crash = self._exception
        if os.environ.get("VLLM_DOCTOR_DEBUG"):
            super()._fatal_error()
            return
        self._close_messages_no_wait()


class Found(Provider):
    """Findings, rules and engines by name."""

    @property
    def _app(self) -> DoctorApp:
        assert isinstance(self.app, DoctorApp)
        return self.app

    def _all(self) -> Iterable[tuple[str, str, Callable[[], None]]]:
        app = self._app
        report = app.view_model.report
        for found in report.findings if report is not None else ():
            key = finding.key_of(found)
            yield f"Finding: {found.rule}", found.title, lambda key=key: app.open(key)  # type: ignore[misc]
        for rule in app.view_model.rules:
            yield f"Rule: {rule.id}", rule.title, lambda id=rule.id: app.open(f"rule:{id}")  # type: ignore[misc]
        for place, engine in enumerate(report.engines if report is not None else ()):
            assert report is not None
            name = name_of(engine, report)
            yield f"Engine: {name}", "its vitals", lambda place=place: app.enter(EnginePage(place))  # type: ignore[misc]

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, help, command in self._all():
            score = max(matcher.match(name), matcher.match(help))
            if score > 0:
                yield Hit(score, Content(name), command, text=name, help=ink.escaped(help))

    async def discover(self) -> Hits:
        for name, help, command in self._all():
            if name.startswith("Finding"):
                yield DiscoveryHit(Content(name), command, text=name, help=ink.escaped(help))


DoctorApp.COMMANDS = App.COMMANDS | {Found}


def keep(name: str, text: str) -> Path | None:
    """Write a file into the user's state folder, else into the temporary one. None: neither can be written."""
    for folder in (_state(), Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid():
                written = save(folder / name, text)
                if written is not None:
                    return written
    return None


def save(path: Path, text: str | bytes) -> Path | None:
    """Write a file whole, readable by its owner only; None where it cannot be written."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError:
        return None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return None
    return path


def _own_theme() -> str:
    """That of the terminal's own colours."""
    return "ansi-light" if _is_light() else "ansi-dark"


def _kept_theme() -> str:
    """The theme that was chosen before; "" where there is none, or not any more."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        name = (_state() / _THEME).read_text().strip()
        return name if name in BUILTIN_THEMES else ""
    return ""


def _state() -> Path:
    """The user's state folder."""
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")) / _FOLDER


def _is_light() -> bool:
    """Whether the terminal says that its background is light."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
