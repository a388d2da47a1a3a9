"""fleet: every engine of a Prometheus judged by the same rules, worst first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tests.fake_prometheus import AT, FakePrometheus, samples, targets
from tests.making import shipped_catalogue, shipped_rules
from tests.serving import serving
from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.fleet import FleetReport
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Bounded, Column, Known, Subject, Unknown, Value, Values
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.model.window import Window
from vllm_doctor.prometheus.survey import Prometheus, Survey
from vllm_doctor.session.judge import judge

CATALOGUE, RULES = shipped_catalogue(), shipped_rules()
WHEN = datetime.fromtimestamp(AT, UTC)
RECORDED = ("preemption", "max-num-seqs-cap", "prefix-cache-off", "healthy-busy", "client-limited", "idle", "aborts")


def asked(prometheus: FakePrometheus) -> FleetReport:
    with serving(prometheus.routes()) as server:
        source = Prometheus(server.url)
        survey = source.survey(CATALOGUE, (), 600.0, AT, time.monotonic() + 60)
        source.close()
    return judged(survey)


def judged(survey: Survey, **wishes: Value) -> FleetReport:
    return fleet.judge(survey, RULES, CATALOGUE, {"goal": "throughput", **wishes}, WHEN, "http://prometheus:9090")


def alone(name: str) -> Report:
    """What the single doctor says of the same scrapes, at the same times, knowing as little."""
    window = Window()
    taken = samples(name)
    for place, (_, page) in enumerate(taken, 25 - len(taken)):
        window.add(float(place), page)
    seen = Observation(SourceKind.SERVER, "x", window, {"stats_published": Known(True)})
    return judge([seen], RULES, CATALOGUE, {"goal": "throughput"}, WHEN)


@pytest.fixture(scope="module")
def recorded() -> FleetReport:
    return asked(FakePrometheus(zip(targets(len(RECORDED)), RECORDED, strict=True)))


@pytest.mark.parametrize("name", RECORDED)
def test_a_fleet_finds_what_the_single_doctor_finds(name: str, recorded: FleetReport) -> None:
    engine = next(e for e in recorded.engines if e.name == f"host-{RECORDED.index(name)}:8000")
    report, expected = recorded.report(engine), alone(name)
    assert report.states == expected.states
    assert (report.verdict, report.headline) == (expected.verdict, expected.headline)
    assert [f.rule for f in report.findings] == [f.rule for f in expected.findings]
    assert [[r.set for r in f.remedies] for f in report.findings] == [
        [r.set for r in f.remedies] for f in expected.findings
    ]
    assert engine.verdict is report.verdict
    if engine.verdict is not Verdict.OK:
        assert engine.headline == report.headline
    because = {u.rule: dict(u.because) for u in expected.unknown}
    assert {u.rule: dict(u.because) for u in report.unknown} == because


def test_data_parallel_engines_are_judged_within_their_server() -> None:
    report = asked(FakePrometheus([(target, "data-parallel") for target in targets(2)]))
    assert [engine.name for engine in report.engines] == [
        f"host-{host}:8000 engine {engine}" for host in (0, 1) for engine in (0, 1)
    ]
    states = [report.report(engine).states for engine in report.engines]
    assert {s["cpu-underprovisioned"] for s in states} == {"unknown"}  # of the host nothing is known from here
    assert all(state == alone("data-parallel").states["dp-imbalance"] for s in states for state in [s["dp-imbalance"]])


def test_three_sick_ones_of_fifty() -> None:
    sick = {"host-7:8000": "preemption", "host-23:8000": "max-num-seqs-cap", "host-41:8000": "prefix-cache-off"}
    engines = [(target, sick.get(target["instance"], "healthy-busy")) for target in targets(50)]
    report = asked(FakePrometheus(engines))
    assert {e.name: e.rules[0][0] for e in report.engines if e.verdict is not Verdict.OK} == sick
    assert report.verdict is Verdict.CRITICAL
    assert report.engines[0].name == "host-7:8000"
    assert [e.verdict for e in report.engines[3:]] == [Verdict.OK] * 47
    (model,) = report.models
    assert (model.engines, model.verdicts) == (50, {"critical": 1, "warning": 2, "ok": 47})
    assert dict(model.rules) == {"preemption": 1, "max-num-seqs-cap": 1, "prefix-cache-off": 1}


def test_a_throttled_pod_is_found_by_cadvisor() -> None:
    pods = [
        {**target, "namespace": "prod", "pod": f"p-{n}", "container": "vllm"} for n, target in enumerate(targets(3))
    ]
    fake = FakePrometheus([(pod, "healthy-busy") for pod in pods])
    of = {"namespace": "prod", "container": "vllm"}
    fake.others["container_cpu_cfs_throttled_periods_total"] = [({**of, "pod": f"p-{n}"}, n * 0.4) for n in range(2)]
    fake.others["container_cpu_cfs_throttled_seconds_total"] = [({**of, "pod": "p-1"}, 1.5)]
    fake.others["container_spec_cpu_quota"] = [({**of, "pod": "p-1"}, 2.0)]
    report = asked(fake)
    assert [(e.name, e.rules) for e in report.engines if e.verdict is not Verdict.OK] == [
        ("p-1", (("cpu-throttled", "critical"),))
    ]
    finding = report.report(report.engines[0]).findings[0]
    assert "quota of 2 cores ran out in 40 %" in finding.here
    assert finding.evidence[0].origin == "cadvisor"
    states = {e.name: report.report(e).states["cpu-throttled"] for e in report.engines}
    assert states == {"p-0": "ok", "p-1": "critical", "p-2": "unknown"}


# ---- without a Prometheus: surveys made by hand ----------------------------------------------------------------------


def survey(columns: dict[str, Column], engines: Sequence[Subject], **more: object) -> Survey:
    """Engines of which only these signals are known, besides the vital ones that a judgement needs."""
    size = len(engines)
    vital: dict[str, Column] = {
        name: Values([1.0] * size)
        for name in ("requests_running", "requests_waiting", "kv_cache_usage", "generation_tokens_per_second")
    }
    told = {**vital, **columns}
    labels = dict.fromkeys(told, ("engine", "instance", "job", "model_name"))
    base: dict[str, object] = {
        "engines": tuple(engines),
        "columns": told,
        "labels": labels,
        "reasons": {},
        "idle": {},
        "scrapes": [10] * size,
        "window_s": 600.0,
        "rates": frozenset(),
        "identity": ("job", "instance"),
    }
    return Survey(**{**base, **more})  # type: ignore[arg-type]


def engines(count: int, model: str = "m", first: int = 0) -> list[Subject]:
    return [
        (("engine", "0"), ("instance", f"h{n}"), ("job", "vllm"), ("model_name", model))
        for n in range(first, first + count)
    ]


def test_an_engine_that_stands_out_of_its_model() -> None:
    running = Values([10.0, 11.0, 9.0, 10.0, 60.0])
    report = judged(survey({"requests_running": running}, engines(5)))
    outlying = {e.name: [(o.signal, o.value, o.median) for o in e.outlying] for e in report.engines if e.outlying}
    assert outlying == {"h4": [("requests_running", 60.0, 10.0)]}
    assert [e.name for e in report.models[0].outlying] == ["h4"]


def test_what_differs_little_does_not_stand_out() -> None:
    few = judged(survey({"requests_running": Values([1.0, 1.0, 1.0, 3.0])}, engines(4)))  # three times, by two requests
    near = judged(survey({"requests_running": Values([100.0, 100.0, 100.0, 150.0])}, engines(4)))
    assert not any(engine.outlying for report in (few, near) for engine in report.engines)


def test_a_model_is_compared_with_itself_only() -> None:
    subjects = [*engines(4, "small"), *engines(4, "large", 4)]
    running = Values([10.0] * 4 + [100.0] * 4)
    assert not any(engine.outlying for engine in judged(survey({"requests_running": running}, subjects)).engines)


def test_of_two_engines_none_stands_out() -> None:
    assert not any(e.outlying for e in judged(survey({"requests_running": Values([1.0, 90.0])}, engines(2))).engines)


def test_a_quantile_stands_out_by_its_value() -> None:
    times = Bounded([Known(t, t / 2, t * 2) for t in (0.1, 0.1, 0.1, 8.0)])
    report = judged(survey({"ttft_p50": times}, engines(4)))
    assert [e.name for e in report.engines if e.outlying] == ["h3"]


def test_an_engine_without_vital_signs_is_not_ok() -> None:
    report = judged(survey({"kv_cache_usage": Values([0.5, None])}, engines(2)))
    assert {e.name: e.verdict for e in report.engines} == {"h0": Verdict.OK, "h1": Verdict.UNKNOWN}
    assert "Key metrics" in report.engines[0].headline
    assert report.verdict is Verdict.UNKNOWN


def test_a_server_that_does_not_answer_is_an_engine_that_is_unknown() -> None:
    lost = {"engine": "0", "instance": "h9", "job": "vllm", "model_name": "m"}
    report = judged(survey({}, engines(2), gone=(lost,), down=(lost,)))
    assert [(e.name, e.verdict) for e in report.engines] == [
        ("h9", Verdict.UNKNOWN), ("h0", Verdict.OK), ("h1", Verdict.OK),
    ]  # fmt: skip
    assert report.verdict is Verdict.UNKNOWN
    told = report.report(report.engines[0])
    assert told.error is not None
    assert told.verdict is Verdict.UNKNOWN


def test_a_part_of_the_engines_is_not_ok() -> None:
    assert judged(survey({}, engines(2))).verdict is Verdict.OK
    assert judged(survey({}, engines(2), is_partial=True)).verdict is Verdict.UNKNOWN


def test_a_target_that_is_missed_is_a_symptom() -> None:
    slow = Bounded([Known(0.2, 0.1, 0.3), Known(8.0, 5.0, 10.0)])
    report = judged(survey({"ttft_p99": slow}, engines(2)), slo_ttft=2.0)
    assert {e.name: e.verdict for e in report.engines} == {"h0": Verdict.OK, "h1": Verdict.WARNING}
    assert "misses the target" in report.engines[0].headline


@pytest.mark.parametrize(
    ("subjects", "names"),
    [
        ([{"pod": "a", "instance": "x:1"}, {"pod": "b", "instance": "y:1"}], ["a", "b"]),
        ([{"pod": "a", "instance": "x:1"}, {"pod": "a", "instance": "x:2"}], ["x:1", "x:2"]),
        ([{"pod": "a", "namespace": "n"}, {"pod": "a", "namespace": "m"}], ["n a", "m a"]),
        ([{"zone": "a"}, {"zone": "b"}], ["a", "b"]),
        (
            [{"pod": "a", "engine": "0"}, {"pod": "a", "engine": "1"}, {"pod": "b", "engine": "0"}],
            ["a engine 0", "a engine 1", "b"],
        ),
        ([{"pod": "evil\x1b[2J"}], ["evil\\u001b[2J"]),
    ],
)
def test_engines_are_named_by_the_fewest_labels(subjects: list[dict[str, str]], names: list[str]) -> None:
    told = tuple(tuple(sorted({"model_name": "m", **subject}.items())) for subject in subjects)
    identity = tuple(sorted({label for subject in subjects for label in subject} - {"engine"}))
    report = judged(survey({}, told, identity=identity))
    assert sorted(e.name for e in report.engines) == sorted(names)


def test_the_source_that_opens_an_engine() -> None:
    told = ((("instance", "h:1"), ("model_name", "m"), ("pod", "a b&c")),)
    report = judged(survey({}, told, identity=("pod", "instance")))
    assert report.source(report.engines[0]) == "prom+http://prometheus:9090/?pod=a+b%26c"


def test_hostile_labels_leave_in_no_report() -> None:
    told = ((("instance", "x\x1b]0;evil\x07"), ("model_name", "m\u202e")),)
    report = judged(survey({"kv_cache_dtype__info": Values(["\x1b[2J"], True)}, told, identity=("instance",)))
    text = repr(report.report(report.engines[0])) + report.engines[0].name + report.models[0].name
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_is_not_told_is_unknown_with_its_reason() -> None:
    columns: dict[str, Column] = {"preemptions_per_second": Unknown(Reason.INVALID)}
    report = judged(survey(columns, engines(1), reasons={"preemptions_per_second": Reason.INVALID}))
    told = report.report(report.engines[0])
    assert told.states["cpu-throttled"] == "unknown"
    because = {u.rule: u.because for u in told.unknown}
    assert Reason.NOT_LOCAL in because["cpu-throttled"].values()
    assert told.states["engine-died"] in ("unknown", "not-applicable")
