"""A fleet that is asked about again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

import pytest

from tests.fake_prometheus import FakePrometheus, targets
from tests.making import shipped_catalogue, shipped_rules
from tests.serving import serving
from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.fleet import FleetReport
from vllm_doctor.fleet.view_model import FleetViewModel
from vllm_doctor.fleet.watch import EVERY, FleetWatch, seen
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.report import Verdict
from vllm_doctor.prometheus.survey import Prometheus
from vllm_doctor.session.view_model import Control, Status, ViewModel

BEGAN = 1_795_000_000.0
TARGET = "http://prometheus:9090"
LOST = SourceError("unreachable", f"{TARGET} refuses connections")


@cache
def report() -> FleetReport:
    """Two engines, one of them sick."""
    with serving(FakePrometheus(zip(targets(2), ("idle", "preemption"), strict=True)).routes()) as server:
        return fleet_of(server.url)


def fleet_of(url: str) -> FleetReport:
    asked = Prometheus(url)
    survey = asked.survey(shipped_catalogue(), (), 600.0, BEGAN, time.monotonic() + 60)
    asked.close()
    at = datetime.fromtimestamp(BEGAN, UTC)
    return fleet.judge(survey, shipped_rules(), shipped_catalogue(), {"goal": "throughput"}, at, TARGET)


@dataclass
class Asked:
    """Answers in turn; an exception is raised."""

    answers: list[FleetReport | Exception]
    seconds: float = 0.0
    count: int = 0

    def __call__(self, progress: Callable[[int, int], None]) -> FleetReport:
        self.count += 1
        progress(3, 84)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Told:
    """Keeps the view models, and stops the watch at the first that is wanted last."""

    control: Control
    last: Callable[[FleetViewModel], bool]
    view_models: list[FleetViewModel] = field(default_factory=list)

    def __call__(self, view_model: ViewModel) -> None:
        assert isinstance(view_model, FleetViewModel)
        self.view_models.append(view_model)
        if self.last(view_model):
            self.control.stop()


def watch_of(*answers: FleetReport | Exception, every: float | None = EVERY) -> tuple[FleetWatch, Asked]:
    asked = Asked(list(answers))
    base = TARGET.replace("://", "://me:secret@")
    return FleetWatch(asked, TARGET, base, every, clock=lambda: asked.seconds, wall=lambda: BEGAN), asked


def told(watch: FleetWatch, last: Callable[[FleetViewModel], bool], again: bool = False) -> Sequence[FleetViewModel]:
    control = Control()
    control.again = again
    heard = Told(control, last)
    watch.run(control, heard)
    return heard.view_models


def has_fleet(view_model: FleetViewModel) -> bool:
    return view_model.fleet is not None and view_model.asking is None


def test_it_asks_and_tells_how_far_it_is() -> None:
    watch, _ = watch_of(report())
    first, asking, found = told(watch, has_fleet)
    assert (first.status, first.fleet, first.target) == (Status.STARTING, None, TARGET)
    assert asking.asking == (3, 84)
    assert (found.status, found.problem) == (Status.LIVE, None)
    assert found.fleet is not None
    assert [engine.verdict for engine in found.fleet.engines] == [Verdict.CRITICAL, Verdict.OK]


def test_where_there_never_was_a_fleet_it_says_why() -> None:
    watch, _ = watch_of(LOST)
    with pytest.raises(SourceError, match="refuses"):
        told(watch, has_fleet)


def test_a_prometheus_that_is_lost_leaves_the_last_table() -> None:
    watch, asked = watch_of(report(), LOST, report())
    before = told(watch, has_fleet)[-1]
    asked.seconds += EVERY
    lost = told(watch, lambda view_model: view_model.status is Status.LOST)[-1]
    assert lost.fleet is before.fleet
    assert lost.problem == str(LOST)
    asked.seconds += EVERY
    assert told(watch, lambda view_model: view_model.problem is None)[-1].status is Status.LIVE


def test_who_comes_back_finds_the_last_picture_and_nothing_is_asked_before_its_time() -> None:
    watch, asked = watch_of(report())
    found = told(watch, has_fleet)[-1]
    asked.seconds += EVERY - 1
    assert told(watch, has_fleet) == [found]
    assert asked.count == 1


@pytest.mark.parametrize("every", [EVERY, None])
def test_the_user_may_ask_anew(every: float | None) -> None:
    watch, asked = watch_of(report(), report(), every=every)
    told(watch, has_fleet)
    told(watch, lambda view_model: asked.count == 2 and view_model.asking is None, again=True)
    assert asked.count == 2


def test_of_a_time_that_is_past_nothing_is_asked_again() -> None:
    watch, asked = watch_of(report(), every=None)
    assert told(watch, has_fleet)[-1].is_past
    asked.seconds += 100 * EVERY
    told(watch, has_fleet)
    assert asked.count == 1


def test_a_row_has_what_opens_its_server() -> None:
    sick = seen(report(), "http://me:secret@prometheus:9090").engines[0]
    assert sick.source == "prom+http://me:secret@prometheus:9090/?instance=host-1%3A8000"
    assert (sick.name, sick.model, sick.rules) == ("host-1:8000", "tiny", ("preemption",))
    assert set(sick.readings) > {"requests_running", "ttft_p99"}
