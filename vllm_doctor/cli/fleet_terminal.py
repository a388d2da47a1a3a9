"""A fleet at a terminal: the table of its engines, and those that are opened from it, one after the other."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_doctor.cli import commands, terminal
from vllm_doctor.cli.options import access_of
from vllm_doctor.cli.output import exit_code
from vllm_doctor.fleet.view_model import FleetViewModel
from vllm_doctor.model.errors import DoctorError
from vllm_doctor.session.view_model import Session, ViewModel, verdict_of
from vllm_doctor.tui.fleet import FleetApp, Place

if TYPE_CHECKING:
    from vllm_doctor.fleet.watch import FleetWatch

_OF_ENGINES = (
    *("window", "rules", "rule", "skip", "goal", "slo"),
    *("header", "token_file", "token_for", "ca_file", "insecure"),
)
"""Options of the fleet that hold for an engine of it, too."""


def run(options: argparse.Namespace) -> int:
    """Show the table until the user quits; the exit code is that of the worst engine."""
    terminal.prepare()
    place, said = Place(), ""
    with ExitStack() as opened:
        watching: list[FleetWatch] = []
        while True:
            table = FleetApp(_session(options, watching, opened), place, said)
            table.run()
            terminal.check(table)
            place, said = table.page.place, ""
            if table.wanted is None:
                return _code(table.view_model, options)
            try:
                engine = terminal.shown([table.wanted.source], _of_engine(options), within="fleet")
            except DoctorError as error:  # it went away between two looks
                said = f"{table.wanted.name} cannot be opened: {error}"
                continue
            if not engine.has_returned:
                return _code(table.view_model, options)


def _session(options: argparse.Namespace, watching: list[FleetWatch], opened: ExitStack) -> Session:
    """What the table shows. The watch is made once, after the first frame is drawn, and kept from table to table."""

    def watch(sources: Sequence[str], tell: Callable[[ViewModel], None]) -> None:
        from vllm_doctor.cli import asked_fleet
        from vllm_doctor.fleet.watch import EVERY, FleetWatch
        from vllm_doctor.prometheus.survey import Prometheus

        if not watching:
            asked = opened.enter_context(closing(Prometheus(options.url, access_of(options))))
            every = None if options.at else EVERY
            ask = asked_fleet.asking(options, asked)
            watching.append(FleetWatch(ask, asked.target, asked.api.base, every, asked_fleet.window_of(options)))
        watching[0].run(session.control, tell)

    session = Session(watch, lambda rule: "", (options.url,))
    return session


def _of_engine(options: argparse.Namespace) -> argparse.Namespace:
    """The options of an examination of one engine."""
    found = commands.parser("").parse_args([])
    for name in _OF_ENGINES:
        setattr(found, name, getattr(options, name))
    return found


def _code(view_model: ViewModel, options: argparse.Namespace) -> int:
    fleet = view_model.fleet if isinstance(view_model, FleetViewModel) else None
    verdict = verdict_of(view_model)
    return verdict.exit_code if fleet is None else exit_code(replace(fleet, verdict=verdict), options.fail_on)
