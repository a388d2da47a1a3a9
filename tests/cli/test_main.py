from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from tests.making import shipped_rules
from tests.paths import PACKAGE, ROOT
from tests.serving import (
    HTML,
    NODE_EXPORTER,
    Answer,
    CutError,
    Request,
    Route,
    Served,
    as_json,
    dead_url,
    edited,
    in_turn,
    pages,
    raw,
    serving,
    vllm,
)
from vllm_doctor import __version__
from vllm_doctor.cli import one_shot
from vllm_doctor.cli.main import main
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.sources.host import process
from vllm_doctor.sources.server import fetch
from vllm_doctor.sources.server import server as server_module

REMARK = "vllm-doctor: no command was found, so there is none to change\n"
SECRET = "s3cr3t-t0ken-0123456789"
SCHEMA: dict[str, Any] = json.loads((PACKAGE / "render" / "report.v1.schema.json").read_text("utf-8"))


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """stdout as JSON; it must be nothing else, and as the schema says."""

        def refuse(constant: str) -> float:
            raise AssertionError(f"{constant} is no JSON")

        report: dict[str, Any] = json.loads(self.out, parse_constant=refuse)
        jsonschema.validate(report, SCHEMA)
        return report


Doctor = Callable[..., Ran]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The command, in this process."""

    def run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    return run


def one_line(ran: Ran) -> str:
    """The run could not tell, and said why in one line."""
    assert ran.code == 3
    assert ran.err.startswith("vllm-doctor: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    assert ran.err[:-1].isprintable()
    return ran.err


@contextlib.contextmanager
def recorded(name: str) -> Iterator[Served]:
    with serving(vllm(pages(name))) as server:
        yield server


# ---- what the server may do to us ---------------------------------------------------------------------------------

Situation = Callable[[], contextlib.AbstractContextManager[list[str]]]


def answering(*arguments: str, **routes: Route) -> Situation:
    """A server whose /metrics (and, as `version`, /version) answers so."""

    @contextlib.contextmanager
    def situation() -> Iterator[list[str]]:
        with serving({f"/{name}": route for name, route in routes.items()}) as server:
            yield [server.url, *arguments]

    return situation


def status(code: int) -> Situation:
    return answering(metrics=lambda request: Answer(b"no", code))


@contextlib.contextmanager
def refusing() -> Iterator[list[str]]:
    yield [dead_url()]


@contextlib.contextmanager
def without_a_name() -> Iterator[list[str]]:
    yield ["http://gpu-server.invalid:8000", "--timeout", "60"]  # a resolver may take its time


@contextlib.contextmanager
def self_signed() -> Iterator[list[str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with serving(vllm(pages("healthy-busy")), tls=context) as server:
        yield [server.url]


@contextlib.contextmanager
def hanging() -> Iterator[list[str]]:
    def conversation(connection: socket.socket) -> None:
        while connection.recv(65536):  # until the doctor gives up
            pass

    with raw(conversation) as url:
        yield [url, "--timeout", "0.3"]


@contextlib.contextmanager
def dripping() -> Iterator[list[str]]:
    drips: list[Served] = []

    def metrics(request: Request) -> Answer:
        def pieces() -> Iterator[bytes]:
            while not drips[0].ended.wait(0.05):
                yield b"vllm:num_requests_running 1\n"

        return Answer(pieces())

    with serving(vllm(metrics)) as server:
        drips.append(server)
        yield [server.url, "--timeout", "0.4"]


@contextlib.contextmanager
def speaking_ssh() -> Iterator[list[str]]:
    with raw(lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as url:
        yield [url]


@contextlib.contextmanager
def in_turns() -> Iterator[list[str]]:
    one, other = pages("preemption", 4), pages("healthy-busy", 4)
    with serving(vllm(lambda request: (other, one)[request.number % 2][request.number])) as server:
        yield [server.url]


def _gone(request: Request) -> Answer:
    raise CutError


def _endless(request: Request) -> Answer:
    def pieces() -> Iterator[bytes]:
        while True:
            yield b"vllm:num_requests_running 1\n" * 10_000

    return Answer(pieces())


def _engines(count: int) -> str:
    return "".join(f'vllm:num_requests_running{{engine="{i}"}} 1\n' for i in range(count))


SITUATIONS: dict[str, tuple[Situation, str]] = {
    "connection refused": (refusing, "unreachable"),
    "no such host": (without_a_name, "unreachable"),
    "connection cut": (answering(metrics=_gone), "unreachable"),
    "no http": (speaking_ssh, "unreachable"),
    "self-signed": (self_signed, "tls"),
    "401": (status(401), "denied"),
    "403": (status(403), "denied"),
    "404": (status(404), "not-found"),
    "500": (status(500), "server-error"),
    "hangs": (hanging, "timeout"),
    "drips": (dripping, "timeout"),
    "never ends": (answering(metrics=_endless), "too-large"),
    "3,000 engines": (answering(metrics=in_turn([_engines(3000)])), "too-large"),
    "broken gzip": (
        answering(metrics=lambda request: Answer(b"no gzip", headers={"Content-Encoding": "gzip"})),
        "not-metrics",
    ),
    "redirect elsewhere": (
        answering(metrics=lambda request: Answer(status=302, headers={"Location": "http://elsewhere.invalid/"})),
        "redirect",
    ),
    "two servers in turns": (in_turns, "changed-server"),
    "node_exporter": (answering(metrics=in_turn([NODE_EXPORTER])), "not-vllm"),
    "html": (answering(metrics=in_turn([HTML])), "not-vllm"),
    "empty": (answering(metrics=in_turn([""])), "not-vllm"),
    "json": (answering(metrics=as_json({"status": "ok"})), "not-vllm"),
    "another app": (
        answering(metrics=in_turn([NODE_EXPORTER]), version=as_json({"version": "2.1.0"})),
        "not-vllm",
    ),
}


@pytest.fixture
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BODY", 3_000_000)


@pytest.mark.usefixtures("hurried", "small_bodies")
@pytest.mark.parametrize("name", SITUATIONS)
def test_what_cannot_be_examined_is_one_line_and_exit_code_3(name: str, doctor: Doctor) -> None:
    situation, kind = SITUATIONS[name]
    with situation() as arguments:
        ran = doctor(*arguments)
        one_line(ran)
        assert ran.out == ""
    with situation() as arguments:
        ran = doctor(*arguments, "--json")
        report = ran.report
        assert report["verdict"] == "unknown"
        assert report["error"]["kind"] == kind
        assert one_line(ran) == f"vllm-doctor: {report['error']['message']}\n"
        assert report["sources"][0]["error"] == report["error"]
        assert report["findings"] == []


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", ["connection refused", "404", "node_exporter", "two servers in turns"])
def test_monitoring_is_told_as_well(name: str, doctor: Doctor) -> None:
    with SITUATIONS[name][0]() as arguments:
        nagios = doctor(*arguments, "--format", "nagios")
        assert re.fullmatch(r"VLLM UNKNOWN - [^\n|]+\n", nagios.out)
        one_line(nagios)
    with SITUATIONS[name][0]() as arguments:
        checkmk = doctor(*arguments, "--format", "checkmk")
        assert checkmk.out.startswith('3 "vLLM" - ')
        one_line(checkmk)
    with SITUATIONS[name][0]() as arguments:
        openmetrics = doctor(*arguments, "--format", "openmetrics")
        assert samples(openmetrics.out)["vllm_doctor_verdict", (("verdict", "unknown"),)] == 1
        one_line(openmetrics)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} stands twice"
            found[key] = float(sample.value)
    return found


@pytest.mark.usefixtures("hurried")
def test_where_the_statistics_are_off(doctor: Doctor) -> None:
    with recorded("no-log-stats") as server:
        ran = doctor(server.url)
        assert (ran.code, ran.err) == (3, "")
        assert "[stats-disabled]" in ran.out
        assert "-  --disable-log-stats" in ran.out
    with recorded("no-log-stats") as server:
        report = doctor(server.url, "--json").report
    assert report["verdict"] == "unknown"
    assert report["error"] is None
    assert [finding["rule"] for finding in report["findings"]] == ["stats-disabled"]
    assert report["findings"][0]["role"] == "blind"


# ---- exit codes ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("healthy-busy", [], 0),
        ("client-limited", [], 0),
        ("max-num-seqs-cap", [], 1),
        ("preemption", [], 2),
        ("no-log-stats", [], 3),
        ("max-num-seqs-cap", ["--fail-on", "warning"], 1),
        ("max-num-seqs-cap", ["--fail-on", "critical"], 0),
        ("max-num-seqs-cap", ["--fail-on", "never"], 0),
        ("preemption", ["--fail-on", "critical"], 2),
        ("preemption", ["--fail-on", "never"], 0),
        ("no-log-stats", ["--fail-on", "critical"], 3),
        ("healthy-busy", ["--fail-on", "never"], 0),
        ("healthy-busy", ["--goal", "latency"], 0),
    ],
)
def test_exit_codes(name: str, options: list[str], code: int, doctor: Doctor) -> None:
    with recorded(name) as server:
        ran = doctor(server.url, *options, "--json")
    assert (ran.code, ran.err) == (code, "")
    if not options:
        assert ran.report["verdict"] == ("ok", "warning", "critical", "unknown")[code]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("fail_on", ["critical", "never"])
def test_fail_on_still_fails_where_nothing_could_be_seen(fail_on: str, doctor: Doctor) -> None:
    one_line(doctor(dead_url(), "--fail-on", fail_on))


@pytest.mark.usefixtures("hurried")
def test_strict(doctor: Doctor) -> None:
    def run(*options: str) -> Ran:
        with recorded("idle") as server:
            return doctor(server.url, "--json", *options)

    lax, strict = run(), run("--strict")
    assert lax.report["unknown"] == strict.report["unknown"] != []
    assert (lax.code, lax.report["verdict"]) == (0, "ok")
    assert (strict.code, strict.report["verdict"]) == (3, "unknown")


@pytest.mark.usefixtures("hurried")
def test_strict_hides_no_harm(doctor: Doctor) -> None:
    with recorded("preemption") as server:
        assert doctor(server.url, "--strict").code == 2


def test_one_scrape_is_not_enough_to_say_ok(doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        ran = doctor(server.url, "--window", "0", "--json")
        assert len(server.asked("/metrics")) == 1
        text = doctor(server.url, "--window", "0")
    assert (ran.code, ran.report["verdict"]) == (3, "unknown")
    assert ran.report["vitals"]["generation_tokens_per_second"] is None
    assert ran.report["vitals_unknown"]["generation_tokens_per_second"] == "first-scrape"
    assert ran.report["vitals"]["requests_running"] is not None
    assert text.out.startswith("UNKNOWN  ")
    assert "a second sample gives" in text.out


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("window", "scrapes"), [("1", 2), ("3s", 4), ("2000ms", 3), ("0.1m", 7)])
def test_the_window(window: str, scrapes: int, doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        [source] = doctor(server.url, "--window", window, "--json").report["sources"]
    assert source["scrapes"] == scrapes
    assert scrapes - 1 <= source["window_s"] < scrapes + 10


# ---- what the report says -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
def test_the_report_on_a_sick_server(doctor: Doctor) -> None:
    with recorded("preemption") as server:
        ran = doctor(server.url, "--json=v1")
    report = ran.report
    assert report["patient"] == {
        "vllm": "0.32.0",
        "vllm_window": None,
        "model": "tiny",
        "engines": 1,
        "gpus": None,
        "gpu": None,
        "processes": [],
        "cores": None,
    }
    assert report["command"] is None
    assert report["sources"][0] | {"window_s": 3} == {
        "kind": "server",
        "target": server.url,
        "window_s": 3,
        "scrapes": 4,
        "error": None,
        "notes": [],
        "taken_as": None,
        "role": None,
    }
    first = report["findings"][0]
    assert (first["rule"], first["severity"], first["role"]) == ("preemption", "critical", "root")
    assert {"--max-num-seqs": 10} in [remedy["set"] for remedy in first["remedies"]]
    assert [(f["rule"], f["explained_by"]) for f in report["findings"][1:]] == [("kv-cache-saturated", "preemption")]


@pytest.mark.parametrize("option", ["--json", "--json=v1"])
def test_json_may_stand_before_the_address(option: str, doctor: Doctor) -> None:
    ran = doctor(option, url := dead_url())
    one_line(ran)
    assert (ran.report["error"]["kind"], ran.report["sources"][0]["target"]) == ("unreachable", url)


def test_another_version_of_json_is_wrong_usage_told_in_json(doctor: Doctor) -> None:
    for ran in (doctor("--json=v2", dead_url()), doctor(dead_url(), "--json=v2")):
        one_line(ran)
        assert ran.report["error"]["kind"] == "usage"


@pytest.mark.usefixtures("hurried")
def test_only_some_rules(doctor: Doctor) -> None:
    with recorded("preemption") as server:
        report = doctor(server.url, "--rule", "preemption", "--rule", "prefix-cache-off", "--json").report
    assert set(report["rules"]) == {"preemption", "prefix-cache-off"}
    assert [finding["rule"] for finding in report["findings"]] == ["preemption"]


@pytest.mark.usefixtures("hurried")
def test_not_some_rules(doctor: Doctor) -> None:
    with recorded("preemption") as server:
        report = doctor(server.url, "--skip", "preemption", "--skip", "prefix-cache-off", "--json").report
    assert set(report["rules"]) == {r.id for r in shipped_rules()} - {"preemption", "prefix-cache-off"}
    assert "preemption" not in [finding["rule"] for finding in report["findings"]]


@pytest.mark.usefixtures("hurried")
def test_targets(doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        ran = doctor(server.url, "--slo", "ttft=2s", "--slo", "itl=50ms", "--json")
    assert ran.code == 0
    assert [(slo["target"], slo["seconds"], slo["met"]) for slo in ran.report["slo"]] == [
        ("slo_ttft", 2.0, True),
        ("slo_itl", 0.05, True),
    ]
    with recorded("healthy-busy") as server:
        text = doctor(server.url, "--slo", "ttft=2s").out
    assert "TTFT target 2 s: met" in text


@pytest.mark.usefixtures("hurried")
def test_a_target_that_is_missed(doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        ran = doctor(server.url, "--slo", "ttft=1ms")
    assert ran.code == 1
    assert "TTFT target 1 ms: MISSED" in ran.out


@pytest.mark.parametrize(
    "slo",
    [
        "ttft",
        "ttft=",
        "ttft=fast",
        "ttft=-1s",
        "ttft=nan",
        "ttft=inf",
        "ttft=1e9",
        "e2e=2s",
        "=2s",
        "2s",
        "ttft=1s=2",
        "",
    ],
)
def test_a_target_that_is_none(slo: str, doctor: Doctor) -> None:
    assert "write ttft=2s or itl=50ms" in one_line(doctor("http://127.0.0.1:1", "--slo", slo))


@pytest.mark.usefixtures("hurried")
def test_a_server_that_dies_while_watched(doctor: Doctor) -> None:
    @contextlib.contextmanager
    def dying(name: str) -> Iterator[Served]:
        texts, servers = pages(name), []  # type: list[str], list[Served]

        def metrics(request: Request) -> str:
            if request.number == 3:
                servers[0].die()
                raise CutError
            return texts[request.number]

        with serving(vllm(metrics)) as server:
            servers.append(server)
            yield server

    with dying("healthy-busy") as server:
        ran = doctor(server.url, "--json")
        one_line(ran)
    assert ran.report["verdict"] == "unknown"
    assert ran.report["error"]["kind"] == "unreachable"
    assert ran.report["sources"][0]["scrapes"] == 3
    assert ran.report["vitals"]["generation_tokens_per_second"] > 0  # what was seen is kept
    with dying("preemption") as server:
        ran = doctor(server.url)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "[preemption]" in ran.out
    assert "it answered 3 times before" in " ".join(ran.out.split())


@pytest.mark.usefixtures("hurried")
def test_several_servers(doctor: Doctor) -> None:
    with recorded("healthy-busy") as one, recorded("preemption") as other:
        ran = doctor(one.url, other.url, "--json")
    report = ran.report
    assert ran.code == 2
    assert [source["target"] for source in report["sources"]] == [one.url, other.url]
    assert [engine["subject"]["server"] for engine in report["engines"]] == [one.url, other.url]
    assert [f["subject"]["server"] for f in report["findings"] if f["rule"] == "preemption"] == [other.url]
    assert report["patient"]["engines"] == 2


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("name", "code", "verdict"), [("healthy-busy", 3, "unknown"), ("preemption", 2, "critical")])
def test_several_servers_of_which_one_is_dead(name: str, code: int, verdict: str, doctor: Doctor) -> None:
    dead = dead_url()
    with recorded(name) as server:
        ran = doctor(dead, server.url, "--json")
    report = ran.report
    assert (ran.code, report["verdict"]) == (code, verdict)
    assert ran.err.count("\n") == 1
    assert dead in ran.err
    assert [(source["target"], source["error"] is None) for source in report["sources"]] == [
        (dead, False),
        (server.url, True),
    ]
    assert report["error"] == report["sources"][0]["error"]
    assert report["vitals"]["generation_tokens_per_second"] > 0
    with recorded(name) as server:
        text = doctor(server.url, dead).out
    assert f"{dead} refuses connections" in " ".join(text.split())


@pytest.mark.usefixtures("hurried")
def test_several_servers_all_dead(doctor: Doctor) -> None:
    ran = doctor(dead_url(), dead_url(1), "--json")
    one_line(ran)
    assert [source["error"]["kind"] for source in ran.report["sources"]] == ["unreachable", "unreachable"]


@pytest.mark.usefixtures("hurried")
def test_a_whole_fleet_that_hangs_takes_one_timeout(doctor: Doctor) -> None:
    with hanging() as (one, *_), hanging() as (other, *_):
        ran = doctor(one, other, one, "--timeout", "0.3", "--json")
    assert [source["error"]["kind"] for source in ran.report["sources"]] == [
        "timeout"
    ] * 2  # the same one is asked once


# ---- nothing raw reaches the output -------------------------------------------------------------------------------

HOSTILE = "evil\x1b]0;owned\x07\x1b[31m\x9b5m\x7f\u202e\u2028\r|;'\"\\\n<script>alert(1)</script>[bold]`$(id)`"


def hostile_routes() -> dict[str, Route]:
    label = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    texts = edited(pages("preemption", 4), ('"tiny"', f'"{label}"'))
    cards = [{"id": HOSTILE, "owned_by": "vllm", "max_model_len": 2048}]
    return vllm(texts, version={"version": f"0.32.0{HOSTILE}"}, models={"data": cards})


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("form", FORMATS)
def test_labels_with_control_characters_and_markup(form: str, doctor: Doctor) -> None:
    with serving(hostile_routes()) as server:
        ran = doctor(server.url, "--format", form)
    assert (ran.code, ran.err) == (2, REMARK if form == "patch" else "")
    assert ran.out.replace("\n", "").isprintable()
    match form:
        case "text":
            assert ran.out.startswith("CRITICAL  ")
            assert "evil\\u001b]0;owned\\u0007" in "".join(ran.out.split())
            assert "[bold]" in "".join(ran.out.split())  # as it is: nothing interprets it
        case "json":
            assert ran.report["engines"][0]["subject"]["model_name"].startswith("evil\\u001b]0;owned\\u0007")
        case "nagios":
            assert re.fullmatch(r"VLLM CRITICAL - [^|\n]*( \| ('\w+'=[\d.]+s?;[\d.]*;;0 ?)+)?\n", ran.out)
            assert ran.out.isascii()
            assert "<script>" not in ran.out
        case "checkmk":
            assert re.fullmatch(r'([0-3] "vLLM[ a-z0-9-]*" (-|[\w.=|]+) [^\n]+\n)+', ran.out)
            assert "<script>" not in ran.out
        case "openmetrics":
            names = {dict(labels).get("model_name", "") for _, labels in samples(ran.out)}
            assert any(name.startswith("evil\\u001b") and "'\"\\\\u000a<script>" in name for name in names)


@pytest.mark.usefixtures("hurried")
def test_two_engines_whose_labels_are_hostile(doctor: Doctor) -> None:
    other = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    texts = []
    for text in pages("preemption", 4):
        lines = [line for line in text.splitlines(keepends=True) if line.startswith("vllm:")]
        texts.append(text + "".join(line.replace('engine="0"', f'engine="{other}"') for line in lines))
    for form in FORMATS:
        with serving(vllm(texts)) as server:
            ran = doctor(server.url, "--format", form)
        assert (ran.code, ran.err) == (2, REMARK if form == "patch" else "")
        assert ran.out.replace("\n", "").isprintable()


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_redirect(form: str, doctor: Doctor) -> None:
    location = "http://evil.invalid/\x1b[31m<b>|x"
    routes = vllm(lambda request: Answer(status=302, headers={"Location": location}))
    with serving(routes) as server:
        ran = doctor(server.url, "--format", form)
    one_line(ran)
    assert ran.out.replace("\n", "").isprintable()
    if form == "nagios":
        assert "|" not in ran.out


# ---- secrets ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def healthy() -> Iterator[list[str]]:
    with recorded("healthy-busy") as server:
        yield [server.url]


@pytest.mark.usefixtures("hurried", "small_bodies")
@pytest.mark.parametrize("name", ["healthy", "connection refused", "self-signed", "401", "500", "hangs", "html"])
@pytest.mark.parametrize("way", ["--header", "--token-file", "url"])
def test_a_secret_is_never_printed(name: str, way: str, doctor: Doctor, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{SECRET}\n", "utf-8")
    for form in FORMATS if name in ("healthy", "401") else ("text", "json"):
        with (SITUATIONS[name][0] if name in SITUATIONS else healthy)() as (url, *options):
            if way == "--header":
                options += ["--header", f"X-Api-Key: {SECRET}", "--header", f"Authorization: Bearer {SECRET}"]
            elif way == "--token-file":
                options += ["--token-file", str(token_file)]
            else:
                url = url.replace("://", f"://admin:{SECRET}@")
            ran = doctor(url, *options, "--format", form)
        assert SECRET not in ran.out + ran.err
        assert "admin" not in ran.out + ran.err


@pytest.mark.usefixtures("hurried")
def test_headers_and_tokens_are_sent(doctor: Doctor, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"  {SECRET}\n", "utf-8")

    def locked(request: Request) -> Answer:
        let_in = (
            request.headers.get("authorization") == f"Bearer {SECRET}" and request.headers.get("x-tenant") == "a: b"
        )
        return Answer(pages("healthy-busy")[request.number].encode(), 200 if let_in else 401)

    with serving(vllm(locked)) as server:
        assert doctor(server.url, "--token-file", token_file, "--header", "X-Tenant: a: b").code == 0
    with serving(vllm(locked)) as server:
        assert "give --token-file or --header" in one_line(doctor(server.url, "--header", "X-Tenant: a: b"))


@pytest.mark.parametrize("header", ["X-Api-Key", f"{SECRET}", f": {SECRET}", f"X: {SECRET}\r\nY: z", "X-Ü: a", "X: ü"])
def test_a_header_that_is_none(header: str, doctor: Doctor) -> None:
    line = one_line(doctor("http://127.0.0.1:1", "--header", header))
    assert "--header: write it as 'Name: value'" in line
    assert SECRET not in line


@pytest.mark.parametrize(
    "content", [None, b"", b" \n", f"{SECRET}\nmore\n".encode(), b"\xff\xfe\x00", "tökén".encode()]
)
def test_a_token_file_that_cannot_be_used(content: bytes | None, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    line = one_line(doctor("http://127.0.0.1:1", "--token-file", path))
    assert f"--token-file {path}" in line
    assert SECRET not in line


# ---- TLS ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
def test_tls(doctor: Doctor, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for options, code in (([], 3), (["--ca-file", tmp_path / "ca.pem"], 0), (["--insecure"], 0)):
        with serving(vllm(pages("healthy-busy")), tls=context) as server:
            assert doctor(server.url, *options).code == code


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used(content: str | None, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content, "utf-8")
    assert f"--ca-file {path}" in one_line(doctor("https://127.0.0.1:1", "--ca-file", path))


# ---- wrong usage --------------------------------------------------------------------------------------------------

URL = "http://127.0.0.1:1"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vLLM runs on this host."""
    monkeypatch.setattr(process, "find", lambda kernel: [])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--json"],
        ["--bogus"],
        [URL, "--bogus"],
        [URL, "--jso"],
        [URL, "--window"],
        [URL, "--window", "abc"],
        [URL, "--window=-1"],
        [URL, "--window", "inf"],
        [URL, "--window", "nan"],
        [URL, "--window", "1e99"],
        [URL, "--window", ""],
        [URL, "--timeout", "soon"],
        [URL, "--format", "yaml"],
        [URL, "--fail-on", "sometimes"],
        [URL, "--goal", "speed"],
        [URL, "--json=v2"],
        [URL, "--rule", "nope"],
        [URL, "--skip", "nope"],
        [URL, "--rules", "no-such-folder"],
        [URL, "--ca-file"],
        ["no-such-host-or-file"],
        ["vllm.log"],
        ["-"],
        ["4194305000"],
        ["²"],
        ["ftp://host/"],
        ["http://"],
        ["http://host:port"],
        ["rules", "nope"],
        ["rules", "--bogus"],
        ["rules", "preemption", "more"],
        ["rules", "--check", "no-such-folder"],
        ["demo", "nope"],
        ["demo", "--bogus"],
        ["demo", "idle", "preemption"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments: list[str], doctor: Doctor) -> None:
    ran = doctor(*arguments)
    one_line(ran)
    if "--json" not in arguments and "--json=v2" not in arguments:
        assert ran.out == ""


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "json_option", [["--json"], ["--json=v1"], ["--format=json"], ["--format", "json"]], ids=" ".join
)
@pytest.mark.parametrize(
    "arguments", [[], [URL, "--bogus"], [URL, "--rule", "nope"], [URL, "--window", "x"], ["vllm.log"]]
)
def test_wrong_usage_with_json(arguments: list[str], json_option: list[str], doctor: Doctor) -> None:
    ran = doctor(*arguments, *json_option)
    one_line(ran)
    assert ran.report["verdict"] == "unknown"
    assert ran.report["error"]["kind"] == "usage"
    assert ran.err == f"vllm-doctor: {ran.report['error']['message']}\n"


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_that_is_no_log(is_folder: bool, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "vllm:1.log"  # even where its name could be a host and a port
    if is_folder:
        path.mkdir()
    else:
        path.write_text("INFO 11-20\n", "utf-8")
    assert ("is a folder" if is_folder else "0 of 1 lines recognised") in one_line(doctor(path))


@pytest.mark.usefixtures("alone")
def test_no_source_and_no_server_says_how_to_point_at_one(doctor: Doctor) -> None:
    ran = doctor()
    assert "no vLLM server was found on this host; name one" in one_line(ran)
    assert ran.out == ""


@pytest.mark.parametrize(
    "url",
    [f"http://me:{SECRET}@host:99999", f"ftp://me:{SECRET}@host/", f"http://me:{SECRET}@host:port"],
)
def test_a_bad_address_is_told_without_its_password(url: str, doctor: Doctor) -> None:
    ran = doctor(url, "--json")
    one_line(ran)
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("user:s3cret@host:notaport", "not a URL: host:notaport;"),
        ("http://user:pa/s3cret@h:8000", "not a URL: http://h:8000;"),
        ("http://user:s3cret://x@h:notaport", "not a URL: http://h:notaport;"),
        ("u:s3cret@[::1", "not a URL: [::1;"),
        ("http://user:s3#cret@h:80", "not a URL: http://h:80;"),
    ],
)
def test_an_address_that_is_none_is_told_without_any_part_of_its_password(url: str, shown: str, doctor: Doctor) -> None:
    ran = doctor(url, "--json")
    assert shown in one_line(ran)
    assert ran.report["error"]["kind"] == "usage"
    assert not re.search("s3|cret|'pa'|pa/|user", ran.out + ran.err)


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "--json"], [URL, "--version"], ["rules", "--help"]])
def test_version_and_help(arguments: list[str], doctor: Doctor) -> None:
    ran = doctor(*arguments)
    assert (ran.code, ran.err) == (0, "")
    if "--version" in arguments:
        assert ran.out == f"vllm-doctor {__version__}\n"


def test_help_tells_the_exit_codes(doctor: Doctor) -> None:
    ran = doctor("--help")
    assert (ran.code, ran.err) == (0, "")
    assert "exit codes: 0 ok, 1 warning, 2 critical, 3 no verdict" in ran.out
    for option in ("--window", "--fail-on", "--slo", "--token-file", "--insecure", "-o FILE"):
        assert option in ran.out


# ---- our own failures ---------------------------------------------------------------------------------------------


def crashing(error: BaseException) -> Callable[..., Any]:
    def crash(*_: object, **__: object) -> None:
        raise error

    return crash


@pytest.mark.parametrize("place", ["judge", "observe"])
def test_a_crash_of_our_own(place: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_shot, place, crashing(RuntimeError("boom\nand more\x1b[31m")))
    ran = doctor(URL, "--timeout", "5", "--json")
    assert "internal error: RuntimeError: boom" in one_line(ran)
    assert ran.report["error"]["kind"] == "internal"
    assert one_line(doctor(URL, "--timeout", "5")).startswith("vllm-doctor: internal error")


def test_a_crash_in_a_watcher(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module.Server, "examine", crashing(ZeroDivisionError("boom")))
    assert "ZeroDivisionError: boom" in one_line(doctor(URL))


def test_a_crash_in_a_renderer_leaves_the_file(doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vllm_doctor.render.openmetrics.render", crashing(RuntimeError("boom")))
    (tmp_path / "doctor.prom").write_text("old\n", "utf-8")
    one_line(doctor(dead_url(), "--format", "openmetrics", "-o", tmp_path / "doctor.prom"))
    assert (tmp_path / "doctor.prom").read_text("utf-8") == "old\n"


def test_a_crash_can_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_DOCTOR_DEBUG", "1")
    monkeypatch.setattr(one_shot, "judge", crashing(RuntimeError("boom")))
    with pytest.raises(RuntimeError, match="boom"):
        main([URL, "--timeout", "5"])


def test_interrupted(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_shot, "observe", crashing(KeyboardInterrupt()))
    ran = doctor(URL, "--json")
    assert one_line(ran) == "vllm-doctor: interrupted\n"
    assert ran.report["error"]["kind"] == "interrupted"


# ---- -o FILE ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("form", FORMATS)
def test_output_to_a_file(form: str, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old and longer than nothing\n" * 1000, "utf-8")
    with recorded("preemption") as server:
        ran = doctor(server.url, "--format", form, "-o", path)
    assert (ran.code, ran.out, ran.err) == (2, "", REMARK if form == "patch" else "")
    written = path.read_text("utf-8")
    assert "old" not in written.split("\n")[0]
    assert written.endswith("\n") or (form == "patch" and not written)  # without a command nothing is changed
    assert "\x1b" not in written
    if form == "json":
        assert Ran(2, written, "").report["verdict"] == "critical"
    if form == "openmetrics":
        assert samples(written)["vllm_doctor_verdict", (("verdict", "critical"),)] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("more", "is_told"), [(("--window", "1"), True), ((), False), (("--window", "1", "--quiet"), False)]
)
def test_what_is_kept_to_be_compared_is_told_to_be_short(
    more: tuple[str, ...], is_told: bool, doctor: Doctor, tmp_path: Path
) -> None:
    with recorded("preemption") as server:
        ran = doctor(server.url, "--json", "-o", tmp_path / "before.json", *more)
    short = re.fullmatch(
        r"vllm-doctor: \S+before\.json: too short to verify a fix by it: a request takes [\d.]+ s, and it was watched"
        r" for \S+ m?s: --window \d+0\n",
        ran.err,
    )
    assert bool(short) is is_told
    assert bool(ran.err) is is_told


def test_a_failure_is_written_to_the_file_too(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "doctor.prom"
    one_line(doctor(dead_url(), "--format", "openmetrics", "-o", path))
    assert samples(path.read_text("utf-8"))["vllm_doctor_verdict", (("verdict", "unknown"),)] == 1


@pytest.mark.parametrize("where", ["missing/out.json", "folder", "file/out.json"])
def test_a_file_that_cannot_be_written(where: str, doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    ran = doctor(dead_url(), "-o", tmp_path / where, "--json")
    assert f"-o {tmp_path / where}: cannot be written" in one_line(ran)
    assert ran.report["error"]["kind"] == "usage"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("place", ["os.replace", "os.fdopen"])
def test_a_disk_that_fails_in_the_middle(
    place: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old\n", "utf-8")
    monkeypatch.setattr(place, crashing(OSError(28, "No space left on device")))
    assert "No space left on device" in one_line(doctor(dead_url(), "--json", "-o", path))
    monkeypatch.undo()
    assert path.read_text("utf-8") == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_wrong_usage_leaves_the_file(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old\n", "utf-8")
    one_line(doctor(URL, "--rule", "nope", "-o", path))
    assert path.read_text("utf-8") == "old\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_written_to_and_stays_one(doctor: Doctor, tmp_path: Path) -> None:
    """As /dev/null must stay a device: a doctor run as root would replace it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        doctor(dead_url(), "--json", "-o", pipe)
        assert json.loads(read.result(30))["verdict"] == "unknown"
    assert pipe.is_fifo()


# ---- colour -------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("env", "options", "coloured"),
    [
        ({}, [], True),
        ({}, ["--text"], True),
        ({"NO_COLOR": ""}, [], True),  # as no-color.org has it: not where it is empty
        ({"NO_COLOR": "1"}, [], False),
        ({"TERM": "dumb"}, [], False),
        ({}, ["--json"], False),
        ({}, ["--format", "nagios"], False),
    ],
)
def test_colour_on_a_terminal(
    env: dict[str, str], options: list[str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    terminal = Terminal()
    with recorded("preemption") as server, contextlib.redirect_stdout(terminal):
        assert main([server.url, *options]) == 2
    assert ("\x1b[" in terminal.getvalue()) == coloured


@pytest.mark.usefixtures("hurried")
def test_no_colour_elsewhere(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    with recorded("preemption") as server:
        assert "\x1b" not in doctor(server.url).out


def python(*arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Another interpreter; its output is buffered, as a user's is."""
    inherited = {name: text for name, text in os.environ.items() if name not in ("PYTHONUNBUFFERED", "NO_COLOR")}
    inherited["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, *arguments],
        env=inherited | dict(env or {}),
        stderr=subprocess.PIPE,
        timeout=120,
        text=True,
        check=False,
        **({"stdout": subprocess.PIPE} | options),
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo terminal")
def test_a_real_terminal() -> None:
    import pty

    master, slave = pty.openpty()
    try:
        with recorded("healthy-busy") as server:
            short = ("--window", "0", "--rule", "preemption")  # nobody reads the terminal until the end
            ran = python("-m", "vllm_doctor", server.url, "--text", *short, stdout=slave, env={"TERM": "xterm"})
        shown = os.read(master, 65536).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert shown.startswith("\x1b[1;30;46mUNKNOWN\x1b[0m  ")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("env", "encoding", "why"),
    [
        ({"TERM": "dumb"}, "utf-8", "TERM is dumb"),
        ({"TERM": ""}, "utf-8", "TERM is not set"),
        ({"TERM": "xterm"}, "latin-1", "it shows latin-1, not UTF-8"),
        ({"TERM": "xterm"}, "utf-8", "the input is no terminal"),
    ],
)
def test_a_terminal_that_cannot_be_drawn_on_gets_text_and_a_line_why(
    env: dict[str, str],
    encoding: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Encoded(Terminal):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    monkeypatch.setenv("TERM", env["TERM"])
    monkeypatch.setattr(sys, "stdin", io.StringIO() if "input" in why else Terminal())
    terminal = Encoded()
    with recorded("preemption") as server, contextlib.redirect_stdout(terminal):
        assert main([server.url]) == 2
    assert "CRITICAL" in terminal.getvalue()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vllm-doctor: text, as this terminal cannot be drawn on: ")
    assert why in line


def test_as_a_module_through_a_pipe() -> None:
    with recorded("healthy-busy") as server:
        ran = python("-m", "vllm_doctor", server.url, "--window", "0", env={"TERM": "xterm"})
    assert (ran.returncode, ran.stderr) == (3, "")
    assert ran.stdout.startswith("UNKNOWN  ")


# ---- where the output goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["rules"], ["rules", "--signals"], ["--version"], ["--bogus", "--json"]], ids=" ".join
)
def test_a_reader_that_has_gone(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `| head -c1` leaves it
    try:
        ran = python("-m", "vllm_doctor", *arguments, stdout=writer)
    finally:
        os.close(writer)
    assert ran.returncode == 3
    assert "Exception ignored" not in ran.stderr
    assert ran.stderr.count("\n") == (1 if "--json" in arguments else 0)  # wrong usage is told all the same


@pytest.mark.skipif(sys.platform == "win32", reason="needs exec")
def test_an_output_that_is_closed() -> None:
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'vllm_doctor', 'rules'])"
    ran = python("-c", code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["rules"], ["rules", "--signals"], ["--version"]], ids=" ".join)
def test_a_full_disk(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ran = python("-m", "vllm_doctor", *arguments, stdout=full)
    said = "vllm-doctor: the output cannot be written (No space left on device)\n"
    assert (ran.returncode, ran.stderr) == (3, said)


def test_an_output_without_unicode() -> None:
    env = {"PYTHONIOENCODING": "ascii"}
    page = python("-m", "vllm_doctor", "rules", "preemption", env=env)
    with recorded("preemption") as server:
        report = python("-m", "vllm_doctor", server.url, "--window", "0", env=env)
    for ran, code in ((page, 0), (report, 1)):
        assert (ran.returncode, ran.stderr) == (code, "")
        assert "?" in ran.stdout
        assert ran.stdout.isascii()


# ---- the one-shot path is light -----------------------------------------------------------------------------------


def test_a_real_examination_imports_no_user_interface() -> None:
    code = """
import sys
from vllm_doctor.cli.main import main
code = main([sys.argv[1], "--window", "0", "--json"])
print(code, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    with recorded("preemption") as server:
        ran = python("-c", code, server.url)
    code_text, *modules = ran.stderr.split()
    assert json.loads(ran.stdout)["schema"] == "vllm-doctor/report/v1"
    assert code_text == str(["ok", "warning", "critical", "unknown"].index(json.loads(ran.stdout)["verdict"]))
    assert "httpx" in modules
    assert not {"textual", "rich"} & set(modules)


def test_httpx_imports_no_user_interface_where_there_is_one(tmp_path: Path) -> None:
    for module in ("click/__init__", "pygments/__init__", "pygments/lexers", "pygments/util", "rich/__init__"):
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / f"{module}.py").touch()
    package = ROOT
    code = "import sys, vllm_doctor.sources.server.server; print(*sys.modules); import rich; print(rich.__file__)"
    modules, _, file = python("-c", code, env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{package}"}).stdout.partition("\n")
    assert "httpx" in modules.split()
    assert not {"rich", "click", "pygments"} & set(modules.split())
    assert Path(file.strip()).is_relative_to(tmp_path)


def test_version_imports_next_to_nothing() -> None:
    code = (
        "import sys; from vllm_doctor.cli.main import main; main(['--version']); print(*sys.modules, file=sys.stderr)"
    )
    modules = set(python("-c", code).stderr.split())
    assert not {"httpx", "yaml", "argparse", "prometheus_client", "promql_parser"} & modules


def test_help_imports_its_own_command_only() -> None:
    code = "import sys; from vllm_doctor.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    modules = set(python("-c", code).stderr.split())
    assert not {"httpx", "yaml", "typing", "prometheus_client", "promql_parser", "vllm_doctor.model.report"} & modules
    commands = {name.rpartition(".")[2] for name in modules if name.startswith("vllm_doctor.cli.")}
    assert commands == {"main", "commands", "examine", "options", "output"}
