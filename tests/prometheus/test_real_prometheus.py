"""A real Prometheus, and a real VictoriaMetrics: what fleet finds there is what the doctor finds alone, on the same
recordings."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor
from tests.day import Day
from tests.fake_prometheus import samples, targets
from tests.making import shipped_catalogue, shipped_rules
from tests.real_prometheus import END, PROGRAMS, PROMETHEUS, VICTORIA, Program, backfilled, running, scraping
from tests.render.test_fleet import valid
from tests.serving import recording
from vllm_doctor.fleet import fleet
from vllm_doctor.fleet.fleet import FleetReport
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.prometheus import past, query
from vllm_doctor.prometheus.survey import OneServer, Prometheus, Survey
from vllm_doctor.rules.evaluation import RECENT
from vllm_doctor.session.judge import judge

__all__ = ["doctor"]

pytestmark = pytest.mark.xdist_group("prometheus")  # its recordings are given to one of them

CATALOGUE, RULES = shipped_catalogue(), shipped_rules()
NAMES = ("preemption", "max-num-seqs-cap", "prefix-cache-off", "healthy-busy", "client-limited", "idle", "aborts")
WINDOW = 60.0
WHEN = datetime.fromtimestamp(END, UTC)


def surveyed(url: str, window: float = WINDOW, select: str = "") -> Survey:
    source = Prometheus(url)
    survey = source.survey(CATALOGUE, query.matchers(select) if select else (), window, END, time.monotonic() + 120)
    source.close()
    return survey


def judged(survey: Survey) -> FleetReport:
    return fleet.judge(survey, RULES, CATALOGUE, {"goal": "throughput"}, WHEN, "http://prometheus:9090")


@pytest.fixture(scope="module", params=PROGRAMS, ids=str)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


@pytest.fixture(scope="module")
def backfill(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All recordings, each of a target of its own; and what exporters say of three pods."""
    engines = list(zip(targets(len(NAMES)), NAMES, strict=True))
    engines.append(({"job": "vllm", "instance": "double:8000"}, "data-parallel"))
    pod = {"job": "pods", "instance": "10.0.0.1:8000", "namespace": "prod", "pod": "llama-0", "container": "vllm"}
    engines.append((pod, "healthy-busy"))
    series = []
    for second in range(0, 61, 5):
        when = END - 60 + second
        of = 'namespace="prod",pod="llama-0",container="vllm",job="kubelet"'
        series += [
            f"container_cpu_cfs_periods_total{{{of}}} {second * 10} {when:.3f}",
            f"container_cpu_cfs_throttled_periods_total{{{of}}} {second * 4} {when:.3f}",
            f"container_cpu_cfs_throttled_seconds_total{{{of}}} {second * 1.5} {when:.3f}",
            f"container_cpu_usage_seconds_total{{{of}}} {second * 2} {when:.3f}",
            f"container_spec_cpu_quota{{{of}}} 200000 {when:.3f}",
            f"container_spec_cpu_period{{{of}}} 100000 {when:.3f}",
        ]
        for gpu in (0, 1):
            own = f'gpu="{gpu}",namespace="monitoring",pod="dcgm-x",exported_namespace="prod",exported_pod="llama-0"'
            series.append(f"DCGM_FI_DEV_GPU_UTIL{{{own}}} {40 + 20 * gpu} {when:.3f}")
            series.append(f"DCGM_FI_DEV_GPU_TEMP{{{own}}} {60 + second / 10 + gpu} {when:.3f}")
    with backfilled(tmp_path_factory.mktemp("prometheus"), engines, series, program=program) as url:
        yield url


def test_a_crash_loop_is_found_and_servers_in_turns_are_none(program: Program, tmp_path: Path) -> None:
    lines = []
    for second in range(0, 301, 10):
        when = END - 300 + second
        started = {
            "loop": END - 5000 if second < 60 else END - 240 + 60 * ((second - 60) // 60),
            "turns": END - (9000, 4000)[second // 10 % 2],
            "deployed": END - 90000 if second < 100 else END - 200,
        }
        for pod, at in started.items():
            lines.append(f'process_start_time_seconds{{job="vllm",instance="{pod}"}} {at} {when:.3f}')
            for metric in ("num_requests_running", "num_requests_waiting"):
                labels = f'engine="0",model_name="m",job="vllm",instance="{pod}"'
                lines.append(f"vllm:{metric}{{{labels}}} 1 {when:.3f}")
    with backfilled(tmp_path, [], sorted(lines, key=lambda line: line.split("{")[0]), program=program) as url:
        report = judged(surveyed(url, 300.0))
    states = {e.subject["instance"]: report.report(e).states["restart-loop"].value for e in report.engines}
    assert states == {"loop": "critical", "turns": "unknown", "deployed": "ok"}


def test_a_day_is_told_as_it_was(program: Program, tmp_path: Path) -> None:
    """Each of the queries gives what it is meant to give, and the rules say of each server what is true of it."""
    days = {
        "drifts": Day(END, slow=lambda hour: 1 + hour / 20, leak=2e3),
        "healthy": Day(END),
        "restarted": Day(END, slow=lambda hour: 1 + hour / 8 if hour < 12 else 1, starts=(12,)),
        "several": Day(END, slow=lambda hour: 1 + hour / 8 if hour < 12 else 1, starts=(12,), is_one=False),
        "rises": Day(END, batch=lambda hour: 4 * 1.15**hour),
    }
    lines = [line for name, day in days.items() for line in day.lines({"job": "vllm", "instance": name})]
    metrics = sorted(lines, key=lambda line: line.split("{")[0])
    states = {}
    with backfilled(tmp_path, [], metrics, program=program) as url, closing(Prometheus(url)) as source:
        asked = source.survey(CATALOGUE, (), 600, END, time.monotonic() + 120)
        names = [dict(engine)["instance"] for engine in asked.engines]
        told = {}
        for name, definition in past._ASKED.items():
            text = query.text(definition, dataclasses.replace(asked.scope, window=f"{past.STEP}s"))
            rows = source.api.tracks(text, END - past.SECONDS + past.STEP, END, past.STEP, time.monotonic() + 120)
            told[name] = past._by_engine(rows, asked.engines)
        for name, engine in zip(names, asked.engines, strict=True):
            expected = days[name].told()
            for what, of in told.items():
                assert_alike(what, of.get(engine, {}), expected[what], days[name])
        for name in names:
            one = OneServer(source, CATALOGUE, query.matchers(f'instance="{name}"'), name, wall=lambda: END)
            seen = one.examine(600, time.monotonic() + 120)
            assert seen.notes == ()
            states[name] = (
                judge([seen], RULES, CATALOGUE, {"goal": "throughput"}, WHEN).states["drift-with-uptime"].value
            )
    assert states == {"drifts": "warning", "healthy": "ok", "restarted": "ok", "several": "ok", "rises": "unknown"}


def assert_alike(what: str, told: Mapping[float, float], expected: Mapping[float, float], day: Day) -> None:
    """Step by step, but for those in which it was started again or the batch was another: whether the first sample of a
    step is of it differs from release to release."""
    begin, compared = day.end - past.SECONDS, 0
    for at, value in expected.items():
        first, last = (at - past.STEP - begin) / 3600, (at - begin) / 3600
        if day.batch(last) / day.batch(first) < 1.1 and not any(first <= hour <= last for hour in day.starts):
            compared += 1
            assert told[at] == pytest.approx(value, rel=0.1, abs=3 if what == "swing" else 1), (what, at)
    assert compared > 100 or not expected


@pytest.fixture(scope="module")
def survey(backfill: str) -> Survey:
    return surveyed(backfill)


@pytest.fixture(scope="module")
def filled(backfill: str) -> Callable[[str], Survey]:
    """The survey of a window that the scrapes of this recording fill."""

    @cache
    def of(name: str) -> Survey:
        times = recording(name).times
        return surveyed(backfill, times[-1] - times[0] + 0.9)

    return of


def window_of(name: str) -> Window:
    window = Window()
    for at, page in samples(name, 1000):
        window.add(at, page)
    return window


def snapshot(name: str) -> Snapshot:
    return CATALOGUE.snapshot(window_of(name), {"goal": Known("throughput")})


def alone(name: str) -> Report:
    """What the single doctor says of the same scrapes, knowing as little of the server."""
    seen = Observation(SourceKind.SERVER, "x", window_of(name), {"stats_published": Known(True)})
    return judge([seen], RULES, CATALOGUE, {"goal": "throughput"}, WHEN)


def place(survey: Survey, instance: str) -> int:
    return next(n for n, engine in enumerate(survey.engines) if dict(engine)["instance"] == instance)


def test_no_query_is_refused(survey: Survey) -> None:
    assert survey.notes == ()
    assert not survey.is_partial


@pytest.mark.parametrize("name", NAMES)
def test_a_fleet_finds_what_the_single_doctor_finds(name: str, filled: Callable[[str], Survey]) -> None:
    report = judged(filled(name))
    engine = next(e for e in report.engines if e.subject["instance"] == f"host-{NAMES.index(name)}:8000")
    told, expected = report.report(engine), alone(name)
    assert told.states == expected.states
    assert told.verdict is expected.verdict
    assert [(f.rule, f.severity, f.role) for f in told.findings] == [
        (f.rule, f.severity, f.role) for f in expected.findings
    ]


@pytest.mark.parametrize("name", NAMES)
def test_signals_differ_by_no_more_than_is_stated(name: str, filled: Callable[[str], Survey]) -> None:
    """prometheus/query.py and docs/fleet.md say by how much: rates not at all, increases by what is extrapolated."""
    survey = filled(name)
    engine = place(survey, f"host-{NAMES.index(name)}:8000")
    expected, times = snapshot(name), recording(name).times
    every = (times[-1] - times[0]) / (len(times) - 1)
    more = (times[-1] - times[0] + 2.2 * every) / (times[-1] - times[0])
    compared = 0
    for signal in CATALOGUE.signals.values():
        if signal.way not in ("promql", "info", "present"):
            continue
        if {signal.name, signal.way_of} & CATALOGUE.of_path_only:
            continue  # no engine's
        if RECENT in signal.definition or "delta" in signal.definition:
            continue  # there the window is what is recent; a gauge's change hangs on where the window begins
        told = survey.read(signal.name, engine)[1]
        of = expected.read(signal.name, expected.subjects[0])[1]
        assert isinstance(told, Known) == isinstance(of, Known), (signal.name, told, of)
        if not isinstance(told, Known) or not isinstance(of, Known):
            continue
        compared += 1
        assert is_near(told, of, 1.0 if "increase" not in signal.definition else more), (signal.name, told, of)
    assert compared > 40


def is_near(told: Known, of: Known, more: float) -> bool:
    if of.bounds is not None:
        # A counter that began near 0 is extrapolated less than others: the quantile of a few requests may lie one
        # bucket beside.
        return told.bounds == of.bounds or of.high == told.low or of.low == told.high
    if isinstance(of.value, str | bool) or isinstance(told.value, str | bool):
        return told.value == of.value
    low, high = sorted((of.value, of.value * more))
    near = max(0.02 * abs(of.value), 1e-9)
    return low - near <= told.value <= high + near and math.isfinite(told.value)


def test_two_engines_of_one_server(survey: Survey) -> None:
    expected = snapshot("data-parallel")
    engines = [n for n, engine in enumerate(survey.engines) if dict(engine)["instance"] == "double:8000"]
    assert len(engines) == 2
    for name in ("engines", "server_running", "peers_running", "running_over_peers"):
        if CATALOGUE.signals[name].way != "promql":
            continue
        for engine, subject in zip(engines, expected.subjects, strict=True):
            told: Reading = survey.read(name, engine)[1]
            of = expected.read(name, subject)[1]
            assert isinstance(told, Known)
            assert isinstance(of, Known)
            assert told.value == pytest.approx(of.value)


def test_exporters_tell_of_the_pod(survey: Survey) -> None:
    pod = place(survey, "10.0.0.1:8000")
    values = {
        name: reading.value
        for name in (
            "cpu_throttled_share",
            "cpu_throttled_cores",
            "cpu_quota",
            "cpu_used",
            "gpus_seen",
            "gpu_utilization",
            "gpu_temperature",
        )
        if isinstance(reading := survey.read(name, pod)[1], Known)
    }
    assert values == pytest.approx(
        {
            "cpu_throttled_share": 0.4, "cpu_throttled_cores": 1.5, "cpu_quota": 2.0, "cpu_used": 2.0, "gpus_seen": 2.0,
            "gpu_utilization": 0.5, "gpu_temperature": 67.0,
        }
    )  # fmt: skip
    assert not isinstance(survey.read("cpu_throttled_share", place(survey, "host-0:8000"))[1], Known)
    report = judged(survey)
    throttled = [e.name for e in report.engines if ("cpu-throttled", "critical") in e.rules]
    assert throttled == ["10.0.0.1:8000"]


def test_one_server_and_its_exit_code(backfill: str, doctor: Doctor) -> None:
    ran = doctor(
        "fleet", backfill, "--at", "2026-11-20T12:00:00Z", "--window", "60", "--select", 'instance=~"host-[35]:8000"'
    )
    assert ran.code == 0, ran.out + ran.err
    assert "2 engines of 1 model" in ran.out


def test_a_window_with_one_scrape_tells_no_rates(backfill: str) -> None:
    survey = surveyed(backfill, window=0.5)
    assert str(survey.read("generation_tokens_per_second", 0)[1]) == "one scrape only"
    verdicts = {e.verdict for e in judged(survey).engines}
    assert Verdict.UNKNOWN in verdicts
    assert Verdict.OK not in verdicts


def test_labels_that_victoria_metrics_drops_are_of_nobody(tmp_path: Path) -> None:
    """By itself it keeps thirty of a series. What is left of cache_config_info would be of every engine."""
    engines = list(zip(targets(2), ("preemption", "healthy-busy"), strict=True))
    options = ["-maxLabelsPerTimeseries=30"]
    with backfilled(tmp_path, engines, options=options, program=VICTORIA) as url:
        survey = surveyed(url)
    assert [type(survey.read("kv_blocks", engine)[1]) for engine in (0, 1)] == [Unknown, Unknown]
    assert [note for note in survey.notes if "-maxLabelsPerTimeseries" in note and "cache_config_info" in note]
    sick = judged(survey).engines[0]
    assert (sick.name, sick.rules[0][0]) == ("host-0:8000", "preemption")


def test_an_empty_one(tmp_path: Path, program: Program, doctor: Doctor) -> None:
    with running(tmp_path, {}, program=program) as url:
        ran = doctor("fleet", url, "--json")
    assert (ran.code, valid(ran.out)["error"]["kind"]) == (3, "no-vllm")
    assert "is empty" in ran.err


def test_one_without_vllm(backfill: str, doctor: Doctor) -> None:
    ran = doctor("fleet", backfill, "--select", 'instance="none"', "--at", "2026-11-20T12:00:00Z")
    assert ran.code == 3
    assert "10 vLLM engines, none of them with" in ran.err
    earlier = doctor("fleet", backfill, "--at", "2026-11-19T12:00:00Z")
    assert earlier.code == 3
    assert "empty" in earlier.err


@pytest.mark.parametrize(
    ("of", "limit"), [(PROMETHEUS, "--query.max-samples=20"), (VICTORIA, "-search.maxUniqueTimeseries=2")], ids=str
)
def test_a_result_beyond_its_limit(of: Program, limit: str, tmp_path: Path, doctor: Doctor) -> None:
    engines = [(target, "idle") for target in targets(3)]
    with backfilled(tmp_path, engines, options=[limit], program=of) as url:
        ran = doctor("fleet", url, "--at", "2026-11-20T12:00:00Z", "--json")
    assert (ran.code, valid(ran.out)["error"]["kind"]) == (3, "too-large")
    assert "--select" in ran.err


def test_a_password(tmp_path: Path, doctor: Doctor) -> None:
    hashed = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{me: {hashed!r}}}\n")
    with running(tmp_path, {}, f"--web.config.file={tmp_path / 'web.yml'}") as url:
        assert "--token-file" in doctor("fleet", url).err
        assert "is empty" in doctor("fleet", url.replace("http://", "http://me:secret@")).err


def test_fifty_engines_that_are_scraped_of_which_three_are_sick(
    tmp_path: Path, program: Program, doctor: Doctor
) -> None:
    sick = {"host-7:8000": "preemption", "host-23:8000": "max-num-seqs-cap", "host-41:8000": "prefix-cache-off"}
    engines = {f"host-{n}:8000": sick.get(f"host-{n}:8000", "healthy-busy") for n in range(50)}
    with scraping(tmp_path, engines, 15, program) as url:
        ran = doctor("fleet", url, "--window", "30", "--json")
        document = valid(ran.out)
        found = {e["name"]: e["rules"][0]["rule"] for e in document["engines"] if e["verdict"] != "ok"}
        assert (found, ran.code) == (sick, 2)
        assert document["counts"]["engines"] == 50
        text = doctor("fleet", url, "--window", "30").out
        opened = re.search(r"Open +vllm-doctor '(.*)'", text)
        assert opened is not None
        one = doctor(opened[1], "--window", "30", "--json").report
    assert one["findings"][0]["rule"] == "preemption"
    assert one["findings"][0]["subject"]["instance"] == "host-7:8000"
