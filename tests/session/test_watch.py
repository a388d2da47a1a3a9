"""A watch of recorded servers: time passes only when the test says so, and nothing is looked at in a thread."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.fake_prometheus import FakePrometheus, targets
from tests.paths import LOGS
from tests.serving import Answer, Request, Route, pages, serving, vllm
from tests.tui.showing import host, watched
from tests.tui.watching import BEGAN, TARGET, Clock, Pages, Told, judge, server, watch_of
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Verdict
from vllm_doctor.rules import log_lines, rule
from vllm_doctor.session import past, tracks
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.source import Source
from vllm_doctor.session.view_model import (
    WINDOWS,
    Choice,
    Control,
    Session,
    Status,
    Trend,
    ViewModel,
    verdict_of,
    wider,
)
from vllm_doctor.session.watch import Watch
from vllm_doctor.sources.log.source import Log
from vllm_doctor.sources.server.access import Access

LOG = LOGS / "max-num-seqs-cap.log.gz"


def steps(of: Watch, clock: Clock, count: int) -> list[ViewModel]:
    """The view models of so many seconds."""
    found = []
    for _ in range(count):
        view_model = of.step()
        found += [view_model] if view_model is not None else []
        clock.sleep(1.0)
    return found


def opened(shown: Pages, clock: Clock, *others: Source, control: Control | None = None) -> Watch:
    made = watch_of(shown, clock, *others, control=control)
    made.open()
    return made


def test_it_scrapes_once_a_second_and_tells_a_picture_each_time() -> None:
    clock, shown = Clock(), Pages("preemption")
    found = steps(opened(shown, clock), clock, 20)
    assert shown.asked == 20
    assert len(found) == 20
    assert {view_model.status for view_model in found[1:]} == {Status.LIVE}
    assert found[-1].report is not None
    assert found[-1].report.verdict is Verdict.CRITICAL
    assert verdict_of(found[-1]) is Verdict.CRITICAL


def test_the_first_verdict_waits_for_a_second_scrape() -> None:
    clock = Clock()
    found = steps(opened(Pages("preemption"), clock), clock, 3)
    assert found[0].report is None
    assert found[0].trend.last("requests_running") is not None  # what needs no rate is there at once
    first = next(view_model.report for view_model in found if view_model.report is not None)
    assert first.sources[0].scrapes == 2


def test_a_verdict_is_of_the_window_and_no_more() -> None:
    clock = Clock()
    found = steps(opened(Pages("preemption"), clock, control=Control(10.0)), clock, 40)
    report = found[-1].report
    assert report is not None
    assert 9 <= report.sources[0].window_s <= 11


def test_a_longer_window_keeps_no_more_scrapes() -> None:
    clock = Clock()
    found = steps(opened(Pages("preemption"), clock, control=Control(120.0)), clock, 200)
    report = found[-1].report
    assert report is not None
    assert 110 <= report.sources[0].window_s <= 125
    assert report.sources[0].scrapes <= 34


def test_what_it_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "_KEPT", 50)
    clock = Clock()
    found = steps(opened(Pages("idle"), clock), clock, 170)[-1]
    assert len(found.trend.times) == 50
    assert all(len(values) == 50 for values in found.trend.values.values())
    assert found.trend.times[-1] == BEGAN + 169
    assert found.trend.times[0] > BEGAN + 100


def test_a_server_that_goes_away_is_lost_and_its_picture_stays() -> None:
    clock, shown = Clock(), Pages("preemption")
    made = opened(shown, clock)
    steps(made, clock, 20)
    shown.down = True
    lost = steps(made, clock, 10)[-1]
    assert lost.status is Status.LOST
    assert lost.problem is not None
    assert "refuses connections" in lost.problem
    assert lost.report is not None
    assert lost.report.verdict is Verdict.CRITICAL
    assert lost.seen_at == BEGAN + 19
    assert lost.trend.last("requests_running") is None  # a gap, not a value


def test_it_comes_back_by_itself_and_counts_anew() -> None:
    clock, shown = Clock(), Pages("preemption")
    made = opened(shown, clock)
    steps(made, clock, 20)
    shown.down = True
    steps(made, clock, 10)
    shown.down, shown.started, shown.offset = False, clock.wall() - 1, clock.seconds
    found = steps(made, clock, 8)
    back = found[-1]
    assert back.status is Status.LIVE
    assert back.problem is None
    assert back.report is not None
    assert back.report.error is None
    assert back.report.sources[0].window_s < 10  # nothing of its former run
    rate = back.trend.last("generation_tokens_per_second")
    assert rate is not None
    assert 0 <= rate < 10_000
    told = [event.text for event in back.events]
    assert any("refuses connections" in text for text in told)
    assert "reconnected" in told
    assert any(math.isnan(value) for value in back.trend.values["requests_running"])


def test_a_crash_loop_is_remembered_from_one_life_to_the_next() -> None:
    clock, shown = Clock(), Pages("idle")
    made = opened(shown, clock)
    steps(made, clock, 5)
    for _ in range(3):
        shown.down = True
        steps(made, clock, 20)
        shown.down, shown.started, shown.offset = False, clock.wall() - 1, clock.seconds
        found = steps(made, clock, 10)
    report = found[-1].report
    assert report is not None
    assert (report.verdict, report.findings[0].rule) == (Verdict.CRITICAL, "restart-loop")
    assert "Restarts: 3. One every 30 s." in report.findings[0].here
    clock.sleep(3700)
    later = steps(made, clock, 8)[-1].report
    assert later is not None
    assert "restart-loop" not in [finding.rule for finding in later.findings]


def test_a_server_that_never_answered_is_asked_on_and_on() -> None:
    clock, shown = Clock(), Pages("preemption", down=True)
    made = opened(shown, clock)
    found = steps(made, clock, 10)[-1]
    assert found.status is Status.LOST
    assert found.report is not None
    assert found.report.verdict is Verdict.UNKNOWN
    shown.down = False
    assert steps(made, clock, 6)[-1].status is Status.LIVE


def test_a_server_that_hangs_does_not_stop_the_pictures() -> None:
    ended = threading.Event()

    class Hanging:
        every = 1.0

        def look(self, seconds: float) -> Observation:
            ended.wait(60)
            return Observation(SourceKind.SERVER, TARGET)

    clock = Clock()
    watcher = Source(SourceKind.SERVER, TARGET, TARGET, lambda: Observation(SourceKind.SERVER, TARGET), follow=Hanging)
    made = Watch(lambda opened: [watcher], judge(), clock=clock.now, wall=clock.wall)
    made.open()
    try:
        found = steps(made, clock, 6)
        assert found[-1].status is Status.LOST
        assert found[-1].problem == f"{TARGET} does not answer"
    finally:
        ended.set()
        made.close()


def test_a_pause_asks_nothing_of_the_server() -> None:
    clock, shown, control = Clock(), Pages("preemption"), Control()
    made = opened(shown, clock, control=control)
    steps(made, clock, 5)
    control.pause(True)
    paused = steps(made, clock, 10)
    assert [view_model.status for view_model in paused] == [Status.PAUSED]
    assert shown.asked == 5
    control.pause(False)
    assert steps(made, clock, 2)[-1].status is Status.LIVE
    assert shown.asked == 7


def test_a_fault_in_one_source_is_told_and_the_others_go_on() -> None:
    class Broken:
        every = 1.0

        def look(self, seconds: float) -> Observation:
            raise ZeroDivisionError("broken")

    clock = Clock()
    broken = Source(SourceKind.HOST, "pid 1", TARGET, lambda: Observation(SourceKind.HOST, "pid 1"), follow=Broken)
    found = steps(opened(Pages("preemption"), clock, broken), clock, 6)[-1]
    assert found.status is Status.LIVE
    assert found.problem is not None
    assert found.problem.startswith("internal error: ZeroDivisionError: broken")
    assert found.problem.endswith("(host pid 1)")
    assert found.report is not None


def test_a_host_whose_processes_ended_is_looked_for_anew() -> None:
    clock, attached = Clock(), []
    gone = Told(Observation(SourceKind.HOST, "pid 1", patient=TARGET))

    def attach_again(opened: ExitStack) -> Sequence[Source]:
        attached.append(clock.seconds)
        return [
            server(Pages("preemption"), clock),
            Source(SourceKind.HOST, "pid 1", TARGET, lambda: gone.observation, follow=lambda: gone),
        ]

    made = Watch(attach_again, judge(), clock=clock.now, wall=clock.wall, inline=True)
    made.open()
    steps(made, clock, 10)
    assert attached == [0]
    gone.error = "pid 1 has ended"
    steps(made, clock, 20)
    assert 1 < len(attached) <= 6  # now and then, not all the time


def test_what_cannot_be_attached_to_again_leaves_the_view_model() -> None:
    clock, tries = Clock(), []

    def attach_once(opened: ExitStack) -> Sequence[Source]:
        tries.append(clock.seconds)
        if len(tries) > 1:
            raise UsageError("no such pid")
        return [server(Pages("preemption"), clock)]

    control = Control()
    made = Watch(attach_once, judge(), control, clock.now, clock.wall, inline=True)
    made.open()
    steps(made, clock, 5)
    control.rescan()
    assert steps(made, clock, 3)[-1].status is Status.LIVE
    assert len(tries) == 2


def test_verdicts_are_spans_that_end_when_the_server_is_lost() -> None:
    clock, shown = Clock(), Pages("preemption")
    made = opened(shown, clock)
    steps(made, clock, 20)
    shown.down = True
    steps(made, clock, 10)
    shown.down = False
    found = steps(made, clock, 20)[-1]
    spans = [span for span in found.spans if span.rule == "preemption"]
    assert len(spans) == 2
    assert spans[0].last_at < BEGAN + 21
    assert spans[1].first_at > BEGAN + 29


def test_thresholds_and_limits_are_the_rules_and_the_servers() -> None:
    found = watched(Pages("preemption"), host())
    assert found.marks["kv_cache_usage"] == 0.8
    assert found.limits["max_num_seqs"] == 64
    assert found.limits["cores_usable"] == 2
    assert "engine_cpu" not in found.lacking
    assert found.processes[1].role == "engine-core"


def test_a_fact_from_outside_can_move_no_cursor() -> None:
    found = watched(Pages("preemption"), host(placement_name="\x1b[2Jx\u202e"), seconds=4)
    (fact,) = (fact for fact in found.facts if fact.name == "placement_name")
    assert str(getattr(fact.reading, "value", "")).isprintable()


def test_where_judging_takes_long_a_verdict_is_less_frequent() -> None:
    def verdicts(seconds: float) -> int:
        """How many there are in a minute, where everything takes so many CPU seconds."""
        clock, ticks = Clock(), itertools.count()
        made = watch_of(Pages("preemption"), clock, cpu=lambda: seconds * next(ticks))
        made.open()
        return len({view_model.report.at for view_model in steps(made, clock, 60) if view_model.report is not None})

    assert verdicts(0.0) >= 15
    assert verdicts(1.0) <= 4


def test_a_log_is_read_once_with_its_progress_and_its_events() -> None:
    told: list[ViewModel] = []
    log = Log([LOG], log_lines.load(rule.shipped() / log_lines.FOLDER))
    watcher = Source(SourceKind.LOG, "vllm.log", "vllm.log", lambda: log.examine("vllm.log"), lambda: log.bytes_read)
    made = Watch(lambda opened: [watcher], judge())

    def tell(view_model: ViewModel) -> None:
        told.append(view_model)
        if view_model.status is Status.READ:
            made.control.stop()

    made.run(tell)
    read = told[-1]
    assert told[0].status is Status.READING
    assert read.report is not None
    assert read.report.is_postmortem
    assert read.timeline is not None
    assert {len(row) for row in read.timeline.rows.values()} == {past.STEPS}
    assert any("starts" in event.text for event in read.events)
    assert [event.at for event in read.events] == sorted(event.at for event in read.events)
    assert read.spans == read.report.spans


def test_a_log_that_cannot_be_read_is_said() -> None:
    def broken() -> Observation:
        raise SourceError("unreadable", "no permission")

    made = Watch(lambda opened: [Source(SourceKind.LOG, "x", "x", broken)], judge())
    with pytest.raises(SourceError, match="no permission"):
        made.run(lambda view_model: None)


def test_a_real_server_is_watched_over_http() -> None:
    control, told = Control(), []
    with serving(vllm(pages("preemption"))) as served:
        look = Attachment(judge().catalogue.metrics, Access(), 3.0, 0.0)
        made = Watch(lambda opened: attach([served.url], look, opened), judge(), control)

        def tell(view_model: ViewModel) -> None:
            told.append(view_model)
            if view_model.report is not None:
                control.stop()

        made.run(tell)
        asked = served.asked("/metrics")
    assert told[-1].status is Status.LIVE
    assert len({request.client for request in asked}) == 1  # the connection is kept
    assert not any(thread.name.startswith("Thread") and not thread.daemon for thread in threading.enumerate()[1:])


def test_a_server_is_watched_through_its_prometheus() -> None:
    control, told = Control(), []
    with serving(FakePrometheus([(target, "preemption") for target in targets(2)]).routes()) as served:
        look = Attachment(frozenset(), Access(), 3.0, 0.0, signals=judge().catalogue, asked=600.0)
        source = f"prom+{served.url}/?instance=host-1:8000"
        made = Watch(lambda opened: attach([source], look, opened), judge(), control)

        def tell(view_model: ViewModel) -> None:
            told.append(view_model)
            if view_model.report is not None:
                control.stop()

        made.run(tell)
    assert told[-1].status is Status.LIVE
    assert verdict_of(told[-1]) is Verdict.CRITICAL
    assert told[-1].trend.values["requests_running"][-1] > 1


class Remembering(FakePrometheus):
    """It answers range queries: at each minute of the time that is asked for, so many of what runs."""

    def routes(self) -> dict[str, Route]:
        return {**super().routes(), "/api/v1/query_range": self.past}

    def past(self, request: Request) -> Answer:
        form = self._form(request)
        first, last, step = (float(form[name]) for name in ("start", "end", "step"))
        is_running = "num_requests_running" in form["query"]
        points = [(first + step * place, "7") for place in range(int((last - first) / step) + 1)]
        labels = [{"engine": engine, "model_name": "tiny"} for engine in "01"]
        result = [{"metric": one, "values": points} for one in labels if is_running]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return Answer(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})


def test_a_server_that_is_opened_through_its_prometheus_has_the_hour_before() -> None:
    clock, control = Clock(), Control()
    with serving(Remembering([(target, "idle") for target in targets(1)]).routes()) as served:
        look = Attachment(frozenset(), Access(), 3.0, 0.0, signals=judge().catalogue, asked=600.0)
        made = Watch(
            lambda opened: attach([f"prom+{served.url}"], look, opened),
            judge(), control, clock=clock.now, wall=time.time, inline=True,
        )  # fmt: skip
        made.open()
        view_model = steps(made, clock, 2)[-1]
        made.close()
    trend = view_model.trend
    assert 55 <= len(trend.times) <= 62
    assert trend.times[-1] - trend.times[0] > 3400
    running = trend.values["requests_running"]
    assert set(running[:-1]) == {14.0}  # both engines together
    assert math.isnan(trend.values["generation_tokens_per_second"][0])  # it had no answer to that
    columns = trend.columns("requests_running", trend.times[0], trend.times[-2], 600)
    assert None not in columns  # a value stands until the next minute


def test_a_prometheus_that_goes_away_is_lost() -> None:
    clock, control = Clock(), Control()
    with serving(FakePrometheus([(target, "idle") for target in targets(1)]).routes()) as served:
        look = Attachment(frozenset(), Access(), 3.0, 0.0, signals=judge().catalogue, asked=600.0)
        made = Watch(
            lambda opened: attach([f"prom+{served.url}"], look, opened),
            judge(), control, clock=clock.now, wall=clock.wall, inline=True,
        )  # fmt: skip
        made.open()
        assert steps(made, clock, 2)[-1].status is Status.LIVE
    lost = steps(made, clock, 20)[-1]
    made.close()
    assert lost.status is Status.LOST
    assert lost.problem is not None
    assert "refuses connections" in lost.problem


def test_several_servers_are_asked_about_and_one_is_not() -> None:
    def session(count: int, seen: list[Sequence[str]]) -> Session:
        found = [Choice((str(number),), "m", "d") for number in range(count)]
        return Session(lambda sources, tell: seen.append(sources), lambda id: "", (), lambda: found)

    seen: list[Sequence[str]] = []
    for count in (0, 1):
        session(count, seen).run(lambda view_model: None)
    assert seen == [(), ()]
    several = session(3, seen)

    def choose(view_model: ViewModel) -> None:
        assert view_model.status is Status.CHOOSING
        assert len(view_model.choices) == 3
        several.control.choose(["1"])

    several.run(choose)
    assert seen[-1] == ("1",)


def test_the_window_goes_up_and_down_in_steps() -> None:
    assert [wider(30, steps) for steps in (-1, 1, 99, -99)] == [10, 60, WINDOWS[-1], WINDOWS[0]]
    assert wider(25, 1) == 60


def test_a_course_is_means_in_equal_steps_and_gaps_where_nothing_was_known() -> None:
    trend = Trend((10.0, 11.0, 12.0, 20.0, 21.0), {"x": (1.0, 3.0, 5.0, math.nan, 7.0)})
    assert trend.columns("x", 10.0, 13.0, 3) == (1.0, 3.0, 5.0)
    assert trend.columns("x", 10.0, 12.0, 1) == (2.0,)
    assert trend.columns("x", 12.0, 22.0, 5) == (5.0, None, None, None, 7.0)
    assert trend.columns("nobody", 0.0, 1.0, 2) == (None, None)
    assert trend.last("x") == 7.0
    assert Trend().columns("x", 0, 1, 3) == (None, None, None)


def test_no_verdict_is_unknown() -> None:
    assert verdict_of(None) is Verdict.UNKNOWN
    assert verdict_of(replace(watched(Pages("idle"), seconds=2), report=None)) is Verdict.UNKNOWN


def test_a_server_at_which_the_doctor_fails_is_lost_and_says_why() -> None:
    class Broken:
        every = 1.0

        def look(self, seconds: float) -> Observation:
            raise IndexError("string index out of range")

    clock = Clock()
    ill = Source(SourceKind.SERVER, TARGET, TARGET, lambda: Observation(SourceKind.SERVER, TARGET), follow=Broken)
    host = Source(SourceKind.HOST, "pid 1", TARGET, lambda: Observation(SourceKind.HOST, "pid 1"))
    made = Watch(lambda opened: [ill, host], judge(), clock=clock.now, wall=clock.wall, inline=True)
    made.open()
    found = steps(made, clock, 6)[-1]
    assert found.status is Status.LOST
    assert found.problem is not None
    assert "IndexError: string index out of range" in found.problem
