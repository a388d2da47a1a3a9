"""An examination that goes on and on, at a terminal."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_doctor.cli import ended
from vllm_doctor.cli.options import (
    ASKED,
    ONE_DAY,
    WINDOW,
    access_of,
    examining_attachment_of,
    form_of,
    since_of,
    wishes_of,
)
from vllm_doctor.cli.output import exit_code
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Value
from vllm_doctor.session.view_model import Choice, Excerpt, Session, ViewModel, verdict_of
from vllm_doctor.sources.server.access import Access
from vllm_doctor.text import near
from vllm_doctor.tui.app import DoctorApp

if TYPE_CHECKING:
    from vllm_doctor.rules.catalogue import Catalogue
    from vllm_doctor.rules.rule import Rule
    from vllm_doctor.session.attachment import Attachment
    from vllm_doctor.session.watch import Watch

_KEPT = 60.0
"""Seconds of a watched server that can be recorded afterwards."""


def run(sources: Sequence[str], options: argparse.Namespace) -> int:
    """Watch these sources at the terminal; the exit code is that of the last verdict."""
    prepare()
    app = shown(sources, options)
    verdict, report = verdict_of(app.view_model), app.view_model.report
    return verdict.exit_code if report is None else exit_code(replace(report, verdict=verdict), options.fail_on)


def prepare() -> None:
    """What the process needs before it draws. Raises UsageError for a theme that is none."""
    _check_theme(os.environ.get("TEXTUAL_THEME"))
    if not os.environ.get("NO_COLOR"):  # as no-color.org has it: not where it is empty
        os.environ.pop("NO_COLOR", None)
    gc.set_threshold(50_000)
    sys.setswitchinterval(0.001)  # a key is answered while a page is judged


def _check_theme(name: str | None) -> None:
    from textual.theme import BUILTIN_THEMES

    if name and name not in BUILTIN_THEMES:
        there = near.asked(name, BUILTIN_THEMES, f"; there are: {', '.join(sorted(BUILTIN_THEMES))}")
        raise UsageError(f"no theme {name!r} (TEXTUAL_THEME, or theme in the configuration file){there}")


def shown(sources: Sequence[str], options: argparse.Namespace, within: str = "") -> DoctorApp:
    """The application, after the user has left it. `within`: whereto Esc leads from its first page.

    Raises DoctorError where there is nothing to watch.
    """
    wishes, access = wishes_of(options), access_of(options)
    since_of(options)  # what is wrong is said before the frame is drawn
    form_of(options)
    if "--timeout" in options.given:
        raise UsageError("--timeout ends one examination, and a terminal goes on until q: leave it out, or add --text")
    if not sources and options.command is None:
        access.check_found()
    session = _session(sources, options, wishes, access)
    if options.window or any(source.startswith("prom+") for source in sources):
        session.control.seconds = options.window or ASKED
    app = DoctorApp(session, within=within, first="explain" if options.explain else "overview")
    app.run()
    check(app)
    return app


def check(app: DoctorApp) -> None:
    """Raise what ended it: its own fault, that there was nothing to watch, or a signal."""
    if app.crash is not None:
        raise app.crash
    if app.failure is not None:
        raise app.failure
    if app.by_signal:
        raise ended.by(app.by_signal)


def _session(sources: Sequence[str], options: argparse.Namespace, wishes: dict[str, Value], access: Access) -> Session:
    """What the terminal shows; what is imported in here is loaded after its frame is drawn."""
    rules: list[Rule] = []
    watching: list[tuple[Watch, Attachment, Catalogue]] = []

    def watch(chosen: Sequence[str], tell: Callable[[ViewModel], None]) -> None:
        from vllm_doctor.cli import chosen_rules
        from vllm_doctor.session.applying import Given
        from vllm_doctor.session.attach import attach
        from vllm_doctor.session.sources import recording
        from vllm_doctor.session.watch import Judge, Watch

        rules[:], signals = chosen_rules.load(options)
        gc.freeze()  # all this runs to the end
        deadline = time.monotonic() + ONE_DAY
        look = replace(examining_attachment_of(options, access, signals, WINDOW, deadline), keep=_KEPT)
        goal: dict[str, Value] = {"goal": "throughput"}
        if any(map(recording.is_named_by, chosen)):  # replayed; it tells for itself by which goal it was judged
            goal, look = {}, replace(look, given=Given(options.given - {"--window"}))
        judge = Judge(rules, signals, goal | wishes, options.strict)
        made = Watch(lambda opened: attach(chosen, look, opened), judge, session.control)
        watching[:] = [(made, look, signals)]
        made.run(tell)

    def record() -> bytes:
        from vllm_doctor.cli import packing

        made, look, signals = watching[0]
        return packing.packed("recording", made.record(look.rules()), look, rules, signals)[0]

    def excerpts(at: float) -> Sequence[Excerpt]:
        return watching[0][0].excerpts(at) if watching else ()

    def page(id: str) -> str:
        from vllm_doctor.rules import rulebook

        found = next((rule for rule in rules if rule.id == id), None)
        return rulebook.page(found) if found is not None else ""

    def find() -> Sequence[Choice]:
        from vllm_doctor.session.attach import choices

        return choices()

    here = find if not sources and options.command is None else None
    session = Session(
        watch, page, tuple(sources), here, record=record, excerpts=excerpts
    )  # its control is watch's, too
    return session
