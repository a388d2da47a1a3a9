"""`vllm-doctor fleet`, and a Prometheus as a source, by the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, Ran, doctor
from tests.fake_prometheus import FakePrometheus, error, targets
from tests.render.test_fleet import valid
from tests.serving import Served, dead_url, serving
from vllm_doctor.cli import asked_fleet
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.model.errors import UsageError

__all__ = ["doctor"]


def fake(*recordings: str) -> FakePrometheus:
    return FakePrometheus(zip(targets(len(recordings)), recordings, strict=True))


@pytest.mark.parametrize(
    ("recordings", "code"),
    [(("healthy-busy", "idle"), 0), (("prefix-cache-off", "idle"), 1), (("preemption", "prefix-cache-off"), 2)],
)
def test_the_exit_code_is_that_of_the_worst_engine(recordings: tuple[str, ...], code: int, doctor: Doctor) -> None:
    with serving(fake(*recordings).routes()) as server:
        assert doctor("fleet", server.url).code == code
        assert doctor("fleet", server.url, "--fail-on", "never").code == 0
        assert doctor("fleet", server.url, "--fail-on", "critical").code == (0 if code < 2 else 2)


def test_a_warning_of_the_prometheus_is_could_not_tell(doctor: Doctor) -> None:
    asked = fake("idle")
    asked.warnings = ["partial response"]
    with serving(asked.routes()) as server:
        ran = doctor("fleet", server.url)
    assert ran.code == 3
    assert "partial response" in ran.out


def test_json(doctor: Doctor, tmp_path: Path) -> None:
    with serving(fake("preemption", "idle").routes()) as server:
        for ran in (doctor("fleet", server.url, "--json"), doctor("fleet", server.url, "--format", "json")):
            document = valid(ran.out)
            assert (ran.code, document["verdict"], ran.err) == (2, "critical", "")
        written = tmp_path / "fleet.json"
        assert doctor("fleet", server.url, "--json", "-o", written).out == ""
    assert valid(written.read_text())["counts"]["engines"] == 2


def test_the_engine_that_it_names_can_be_opened(doctor: Doctor) -> None:
    with serving(fake("idle", "preemption").routes()) as server:
        told = doctor("fleet", server.url).out
        match = re.search(r"Open +vllm-doctor '(.*)'", told)
        assert match is not None
        ran = doctor(match[1], "--json")
    assert ran.code == 2
    assert ran.report["findings"][0]["rule"] == "preemption"
    assert ran.report["sources"][0] == {
        "kind": "prometheus", "target": f"prom+{server.url}/?instance=host-1%3A8000", "window_s": 600.0, "scrapes": 25,
        "error": None, "notes": [], "taken_as": None, "role": None,
    }  # fmt: skip
    assert ran.report["command"] is None


def test_one_server_in_every_format(doctor: Doctor) -> None:
    with serving(fake("preemption").routes()) as server:
        for form in FORMATS:
            ran = doctor(f"prom+{server.url}", "--format", form)
            assert ran.code == 2, (form, ran.err)
            assert ran.out or form == "patch"


def test_a_source_that_is_of_several_servers(doctor: Doctor) -> None:
    with serving(fake("idle", "idle").routes()) as server:
        ran = doctor(f"prom+{server.url}/", "--json")
    assert (ran.code, ran.report["error"]["kind"]) == (3, "several")


def test_a_user_and_a_password_are_not_shown(doctor: Doctor) -> None:
    with serving(fake("preemption").routes()) as server:
        url = server.url.replace("http://", "http://me:hunter2@")
        for ran in (doctor("fleet", url), doctor("fleet", url, "--json"), doctor(f"prom+{url}", "--text")):
            assert ran.code == 2
            assert "hunter2" not in ran.out + ran.err
        assert {request.headers["authorization"] for request in server.requests} == {"Basic bWU6aHVudGVyMg=="}


def test_a_selection(doctor: Doctor) -> None:
    with serving(
        FakePrometheus(
            [
                *zip(targets(1, pod="a"), ["idle"], strict=True),
                *zip(targets(1, 1, pod="b"), ["preemption"], strict=True),
            ]
        ).routes()
    ) as server:
        assert doctor("fleet", server.url, "--select", 'pod="a"').code == 0
        assert doctor("fleet", server.url, "--select", 'pod=~"a|b"', "--select", 'pod!="a"').code == 2
        nothing = doctor("fleet", server.url, "--select", 'pod="c"')
        assert nothing.code == 3
        assert 'none of them with pod="c"' in nothing.err


def asks(check: Callable[[Served, Doctor], Ran], doctor: Doctor, says: str, kind: str = "usage") -> None:
    with serving(fake("idle").routes()) as server:
        ran = check(server, doctor)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("vllm-doctor: ")
    assert ran.err.count("\n") == 1
    assert says in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--select", "namespace=prod"], "--select"),
        (["--select", 'a="b"} or up{c="d"'], "not matchers"),
        (["--at", "yesterday"], "--at yesterday"),
        (["--at", "99999999999999h"], "--at"),
        (["--window", "x"], "--window"),
        (["--rule", "nonsense"], "no rule"),
        (["--format", "nagios"], "--format"),
        (["--token-file", "/nonexistent"], "--token-file"),
        (["another"], "'another' is one word too many"),
    ],
)
def test_wrong_usage_is_a_line(arguments: list[str], says: str, doctor: Doctor) -> None:
    asks(lambda server, run: run("fleet", server.url, *arguments), doctor, says)


def test_no_url(doctor: Doctor) -> None:
    ran = doctor("fleet")
    assert ran.code == 3
    assert "PROMETHEUS_URL" in ran.err


def test_bad_servers_are_a_line_and_json(doctor: Doctor) -> None:
    with serving({"/api/v1/query": error(422, "execution", "too many samples")}) as server:
        ran = doctor("fleet", server.url, "--json")
    assert (ran.code, valid(ran.out)["error"]["kind"]) == (3, "too-large")
    assert ran.err.count("\n") == 1
    ran = doctor("fleet", dead_url(), "--json")
    assert (ran.code, valid(ran.out)["error"]["kind"]) == (3, "unreachable")


def test_a_prometheus_beside_no_fleet(doctor: Doctor) -> None:
    with serving({}) as server:
        ran = doctor(f"prom+{server.url}/?pod=x", "--text")
    assert ran.code == 3
    assert "not a Prometheus" in ran.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", "2026-11-20T08:00:00"),
        ("09:30", "2026-11-20T09:30:00"),
        ("13:30", "2026-11-19T13:30:00"),
        ("2026-11-18T01:02:03Z", "2026-11-18T01:02:03"),
        ("2026-11-18 01:02", "2026-11-18T01:02:00"),
        ("2026-11-18T01:02:03+02:00", "2026-11-17T23:02:03"),
    ],
)
def test_a_time_to_look_back_to(text: str, expected: str) -> None:
    now = datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert asked_fleet.moment_of(text, now).strftime("%Y-%m-%dT%H:%M:%S") == expected


@pytest.mark.parametrize("text", ["", "x", "99999999999999h", "12345"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="--at"):
        asked_fleet.moment_of(text, datetime(2026, 11, 20, 10, tzinfo=UTC))


def test_the_moment_is_asked_for(doctor: Doctor) -> None:
    asked = fake("idle")
    with serving(asked.routes()) as server:
        ran = doctor("fleet", server.url, "--at", "2026-11-20T10:00:00Z", "--window", "30m", "--json")
    assert {form["time"] for form in asked.queries} == {"1795168800.000"}
    assert json.loads(ran.out)["at"] == "2026-11-20T10:00:00Z"
    assert any("[1800000ms]" in form["query"] for form in asked.queries)
