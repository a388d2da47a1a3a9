"""What a Prometheus keeps of a day: the same load, early and late."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from tests.day import Day
from tests.fake_prometheus import AT, FakePrometheus, Target, error, targets, vector
from tests.making import shipped_catalogue, shipped_rules
from tests.serving import Answer, Request, Route, serving
from vllm_doctor.model import drift
from vllm_doctor.model.kinds import Severity
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report
from vllm_doctor.model.window import Window
from vllm_doctor.prometheus import past
from vllm_doctor.prometheus import survey as prometheus
from vllm_doctor.prometheus.query import matchers
from vllm_doctor.session.judge import judge

CATALOGUE, RULES = shipped_catalogue(), shipped_rules()
RULE = "drift-with-uptime"


def drifted(day: Day) -> Reading:
    """decode_drift of that day, unknown where no load is seen early and late."""
    facts = drift.UNTOLD | drift.facts(past.moments(day.told()), "prometheus")
    return CATALOGUE.snapshot(Window(), facts).read("decode_drift", ())[1]


def grows(most: float) -> Callable[[float], float]:
    """A step gets longer, evenly over the day."""
    return lambda hour: 1 + (most - 1) * hour / 24


def test_a_load_that_gets_slower_over_the_day_drifts() -> None:
    found = drifted(Day(AT, slow=grows(2.2)))
    assert isinstance(found, Known)
    assert found.value == pytest.approx(1.6, abs=0.1)  # the middles of the last and of the first third


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(Day(AT), id="nothing grows"),
        pytest.param(Day(AT, slow=grows(1.05)), id="hardly anything grows"),
        pytest.param(Day(AT, slow=grows(0.5)), id="it gets faster"),
        pytest.param(Day(AT, slow=lambda hour: 1 + (int(hour) % 2)), id="up and down"),
        pytest.param(Day(AT, slow=lambda hour: 1 + (8 < hour < 16)), id="slow at noon"),
        pytest.param(Day(AT, slow=lambda hour: 2 if hour < 12 else 1, starts=(12,)), id="a restart cures it"),
        pytest.param(Day(AT, slow=lambda hour: 1 if hour < 12 else 2, starts=(12,)), id="slow since a restart"),
        pytest.param(
            Day(AT, slow=lambda hour: 1 if hour < 12 else 2, starts=(12,), is_one=False),
            id="slow since a restart of several API servers",
        ),
        pytest.param(Day(AT, leak=1e5), id="memory that costs no time"),
    ],
)
def test_what_is_no_drift(day: Day) -> None:
    found = drifted(day)
    assert isinstance(found, Known)
    assert isinstance(found.value, float)
    assert found.value < 1.1


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(Day(AT, slow=lambda hour: 1 + (hour > 8)), id="a step after a third"),
        pytest.param(Day(AT, slow=lambda hour: 1 + (hour > 12)), id="a step in the middle"),
        pytest.param(Day(AT, slow=lambda hour: 1 + (hour > 15.9)), id="a step before the last third"),
    ],
)
def test_after_a_step_it_is_unknown(day: Day) -> None:
    """It is slower, and nothing grew or tired."""
    assert drifted(day) == Unknown(Reason.BETWEEN)


@pytest.mark.parametrize(
    "day",
    [
        pytest.param(Day(AT, batch=lambda hour: 4 * 1.15**hour), id="the load rises"),
        pytest.param(Day(AT, prompts=20, slow=grows(2)), id="most of the work is reading prompts"),
        pytest.param(Day(AT, swing=0.6, slow=grows(2)), id="the batch swings"),
        pytest.param(Day(AT, batch=lambda hour: 99, swing=0.01, slow=grows(2)), id="the KV cache is full"),
        pytest.param(Day(AT, batch=lambda hour: 0), id="idle"),
        pytest.param(Day(AT, starts=(0.5, 23.9), slow=grows(2)), id="started a moment ago"),
    ],
)  # fmt: skip
def test_a_day_in_which_nothing_can_be_compared_is_unknown(day: Day) -> None:
    assert drifted(day) == Unknown(Reason.NO_EQUAL_LOAD)


@pytest.mark.parametrize("is_one", [True, False])
def test_since_the_last_start_it_drifts(is_one: bool) -> None:
    """The day before the restart was as slow as the end of it."""
    slow = lambda hour: 2.5 if hour < 10 else 1 + (hour - 10) / 10  # noqa: E731
    found = drifted(Day(AT, lambda hour: 12, slow, starts=(10,), is_one=is_one))
    assert isinstance(found, Known)
    assert found.value == pytest.approx(1.75, abs=0.15)


def test_a_hole_in_the_series_may_hide_a_restart() -> None:
    told = Day(AT, slow=grows(2.5), is_one=False).told()
    hole = [at for at in told["running"] if AT - 6 * 3600 < at < AT - 5 * 3600]
    for points in told.values():
        for at in hole:
            points.pop(at, None)
    assert min(moment.at for moment in past.moments(told)) > hole[-1] + past.STEP
    whole = Day(AT, slow=grows(2.5)).told()
    for points in whole.values():
        for at in hole:
            points.pop(at, None)
    assert min(moment.at for moment in past.moments(whole)) < hole[0]  # its page tells that it was the same process


# ---- asked of a Prometheus


class Kept(FakePrometheus):
    """A Prometheus that also keeps a day of its engines."""

    def __init__(self, days: list[tuple[Target, Day]]) -> None:
        super().__init__([(target, "healthy-busy") for target, _ in days])
        self.days = [(target, day.told()) for target, day in days]
        self.ranges: list[dict[str, str]] = []

    def routes(self) -> dict[str, Route]:
        return {**super().routes(), "/api/v1/query_range": self.past}

    def past(self, request: Request) -> Answer:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        self.ranges.append(form)
        first, last, step = (float(form[name]) for name in ("start", "end", "step"))
        name = next(name for text, name in _TEXTS.items() if text in form["query"])
        result: list[dict[str, object]] = []
        for target, told in self.days:
            own: Target = {} if name in ("started", "memory") else {"engine": "0", "model_name": "tiny"}
            points: list[tuple[float, str]] = [(at, repr(v)) for at, v in told[name].items() if first <= at <= last]
            assert all((at - first) % step == 0 for at, _ in points)
            result.append({"metric": {**own, **target}, "values": points})
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return Answer(json.dumps(answer).encode())


_TEXTS = {
    "stddev_over_time": "swing",
    "avg_over_time(vllm:num_requests_running": "running",
    "rate(vllm:generation_tokens": "tokens",
    "rate(vllm:prompt_tokens": "prompts",
    "cache_usage": "used",
    "resets(": "resets",
    "request_success": "served",
    "process_start": "started",
    "process_resident": "memory",
}


def observed(routes: dict[str, Route], select: str = "") -> Observation:
    with serving(routes) as server:
        asked = prometheus.Prometheus(server.url)
        wanted = matchers(select) if select else ()
        one = prometheus.OneServer(asked, CATALOGUE, wanted, "prom+http://h", wall=lambda: AT)
        seen = one.examine(600, time.monotonic() + 60)
        asked.close()
    return seen


def judged(seen: Observation) -> Report:
    return judge([seen], RULES, CATALOGUE, {"goal": "throughput"}, datetime.fromtimestamp(AT, UTC))


def test_a_server_that_drifts_is_told_with_its_memory() -> None:
    kept = Kept([(targets(1)[0], Day(AT, slow=grows(2.2), leak=2e3))])
    report = judged(observed(kept.routes()))
    finding = next(found for found in report.findings if found.rule == RULE)
    assert finding.severity is Severity.WARNING
    assert "API server's process held" in finding.here
    assert "1.95 KiB more for each request" in finding.here
    assert {evidence.origin for evidence in finding.evidence if evidence.signal == "decode_drift_seconds"} == {
        "prometheus"
    }


def test_memory_that_does_not_grow_is_no_leak() -> None:
    report = judged(observed(Kept([(targets(1)[0], Day(AT, slow=grows(2.2)))]).routes()))
    here = next(found.here for found in report.findings if found.rule == RULE)
    assert "API server's process held" in here
    assert "more for each request" not in here


def test_a_healthy_day_is_ok() -> None:
    assert judged(observed(Kept([(targets(1)[0], Day(AT))]).routes())).states[RULE] == "ok"


def test_of_two_servers_each_has_its_own_day() -> None:
    two = targets(2)
    kept = Kept([(two[0], Day(AT, slow=grows(2.2))), (two[1], Day(AT))])
    states = [judged(observed(kept.routes(), f'instance="{target["instance"]}"')).states[RULE].value for target in two]
    assert states == ["warning", "ok"]


def test_what_is_asked_is_bounded() -> None:
    kept = Kept([(targets(1)[0], Day(AT))])
    observed(kept.routes())
    assert len(kept.ranges) == 9
    assert len(kept.queries) + len(kept.ranges) < 140
    for form in kept.ranges:
        assert float(form["end"]) == AT
        assert (float(form["end"]) - float(form["start"])) / float(form["step"]) < 288
        assert "[300s]" in form["query"] or "_over_time" not in form["query"]


def test_one_that_is_followed_is_not_asked_for_the_day_each_time() -> None:
    kept = Kept([(targets(1)[0], Day(AT))])
    with serving(kept.routes()) as server:
        asked = prometheus.Prometheus(server.url)
        prometheus.Followed(prometheus.OneServer(asked, CATALOGUE, (), "x", wall=lambda: AT), 600).look(30)
        asked.close()
    assert kept.ranges == []


def test_rules_without_the_day_do_not_ask_for_it() -> None:
    kept = Kept([(targets(1)[0], Day(AT))])
    few = CATALOGUE.narrowed(["requests_running"])
    with serving(kept.routes()) as server:
        asked = prometheus.Prometheus(server.url)
        prometheus.OneServer(asked, few, (), "x", wall=lambda: AT).examine(600, time.monotonic() + 60)
        asked.close()
    assert kept.ranges == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error(503, "timeout", "query timed out"), Reason.TIMEOUT),
        (error(422, "execution", "query processing would load too many samples"), Reason.UNREACHABLE),
        (lambda request: Answer(b"denied", 403), Reason.DENIED),
        (lambda request: vector([]), Reason.UNREACHABLE),
    ],
)  # fmt: skip
def test_a_day_that_is_refused_leaves_the_rest(answer: Route, reason: Reason) -> None:
    kept = Kept([(targets(1)[0], Day(AT))])
    seen = observed({**kept.routes(), "/api/v1/query_range": answer})
    assert seen.error is None
    assert any("of the day before nothing" in note for note in seen.notes)
    report = judged(seen)
    assert report.states[RULE] == "unknown"
    assert report.states["preemption"] == "ok"
    assert reason in next(rule.because for rule in report.unknown if rule.rule == RULE).values()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e308", "-1", "1e-300", "x", None])
def test_numbers_that_are_none_are_no_moments(value: str | None) -> None:
    kept = Kept([(targets(1)[0], Day(AT, slow=grows(2)))])

    def past_of(request: Request) -> Answer:
        told = json.loads(bytes(kept.past(request).body))  # type: ignore[arg-type]
        for row in told["data"]["result"]:
            row["values"] = [[at, value] for at, _ in row["values"]]
        return Answer(json.dumps(told).encode())

    seen = observed({**kept.routes(), "/api/v1/query_range": past_of})
    assert judged(seen).states[RULE] == "unknown"
