from __future__ import annotations

import base64
import datetime
import email.utils
import gzip
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.making import shipped_rules
from tests.serving import (
    HTML,
    NODE_EXPORTER,
    Answer,
    Clock,
    CutError,
    Request,
    Route,
    Served,
    as_json,
    dead_url,
    edited,
    in_turn,
    page,
    pages,
    raw,
    serving,
    vllm,
)
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import State
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Report, Verdict
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.judge import judge
from vllm_doctor.sources.server import fetch, scrapes
from vllm_doctor.sources.server import server as server_module
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.server import Server

START = "process_start_time_seconds"
SECRET = "s3cr3t-passw0rd"


def examine(
    url: str,
    signals: Catalogue,
    seconds: float = 3.0,
    access: Access | None = None,
    clock: Clock | None = None,
    timeout: float = 60.0,
    waited: Callable[[], float] = lambda: 0.0,
) -> Observation:
    """One examination that does not wait between scrapes."""
    clock = clock or Clock()
    server = Server(url, signals.metrics, access, clock.now, clock.sleep, waited=waited)
    try:
        return server.examine(seconds, clock.now() + seconds + timeout)
    finally:
        server.close()


def examined(routes: Mapping[str, Route], signals: Catalogue, seconds: float = 3.0, **options: Any) -> Observation:
    with serving(routes) as server:
        return examine(server.url, signals, seconds, **options)


def judged(observation: Observation, signals: Catalogue) -> Report:
    at = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    return judge([observation], shipped_rules(), signals, {"goal": "throughput"}, at)


def readings(observation: Observation, signals: Catalogue, name: str) -> dict[str, Reading]:
    """A signal by engine."""
    snapshot = signals.snapshot(observation.window, observation.facts)
    return {dict(subject).get("engine", ""): snapshot.read(name, subject)[1] for subject in snapshot.subjects}


def value(observation: Observation, signals: Catalogue, name: str, engine: str = "0") -> float:
    reading = readings(observation, signals, name)[engine]
    assert isinstance(reading, Known), f"{name} is unknown: {reading}"
    assert isinstance(reading.value, float)
    return reading.value


def kind_of(observation: Observation) -> str:
    assert observation.error is not None, "an error was expected"
    assert "\n" not in observation.error.message
    return observation.error.kind


def worked(observation: Observation) -> Observation:
    assert observation.error is None, observation.error
    return observation


def started_at(seconds: float, text: str) -> str:
    """The page of a server that was started then."""
    changed, count = re.subn(rf"^{START} .*$", f"{START} {seconds!r}", text, flags=re.MULTILINE)
    assert count == 1
    return changed


# ---- addresses ----------------------------------------------------------------------------------------------------


def test_host_and_port_without_a_scheme(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        seen = worked(examine(server.url.removeprefix("http://"), signals, 0))
    assert seen.target == server.url


def test_a_metrics_suffix(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        worked(examine(f"{server.url}/metrics", signals, 0))
        assert [request.path for request in server.requests] == ["/metrics", "/version", "/v1/models"]


@pytest.mark.parametrize("suffix", ["", "/", "/metrics"])
def test_a_path_prefix_is_kept(suffix: str, signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"), prefix="/serve/tiny")) as server:
        seen = worked(examine(f"{server.url}/serve/tiny{suffix}", signals, 0))
        assert {request.path for request in server.requests} == {
            "/serve/tiny/metrics",
            "/serve/tiny/version",
            "/serve/tiny/v1/models",
        }
    assert seen.target == f"{server.url}/serve/tiny"


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_ipv6(scheme: str, signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy")), host="::1") as server:
        seen = worked(examine(f"{scheme}[::1]:{server.port}", signals, 0))
    assert seen.target == f"http://[::1]:{server.port}"


# ---- manners ------------------------------------------------------------------------------------------------------


def test_one_get_a_sample_on_one_connection(signals: Catalogue) -> None:
    with serving(vllm(pages("preemption"))) as server:
        seen = worked(examine(server.url, signals, 3))
        assert len(seen.window.times) == 4
        assert len(server.asked("/metrics")) == 4
        assert len(server.asked("/version")) == len(server.asked("/v1/models")) == 1
        assert len(server.requests) == 6
        assert {request.method for request in server.requests} == {"GET"}
        assert len({request.client for request in server.requests}) == 1


@pytest.mark.parametrize(("cuts", "kind", "scrapes", "asked"), [({2}, None, 4, 5), ({2, 3}, "unreachable", 2, 4)])
def test_a_kept_connection_that_was_closed_is_opened_once_more(
    cuts: set[int], kind: str | None, scrapes: int, asked: int, signals: Catalogue
) -> None:
    def metrics(request: Request) -> str:
        if request.number in cuts:
            raise CutError
        return page("preemption", request.number)

    with serving(vllm(metrics)) as server:
        seen = examine(server.url, signals, 3)
        assert len(server.asked("/metrics")) == asked
    assert (seen.error.kind if seen.error else None) == kind
    assert len(seen.window.times) == scrapes


def test_a_server_that_answers_late_is_not_asked_faster_to_catch_up(signals: Catalogue) -> None:
    clock, text = Clock(), page("preemption", 0)

    def late(request: Request) -> str:
        clock.ahead += 3.05
        return text

    with serving(vllm(late)) as server:
        seen = worked(examine(server.url, signals, 10, clock=clock))
        assert len(server.asked("/metrics")) == 5  # the first, after 1, 4 and 7 seconds, and the last
    assert seen.window.seconds > 10
    assert answer_seconds(seen) == pytest.approx(3.05, abs=0.5)


def test_a_server_that_keeps_no_connection(signals: Catalogue) -> None:
    def metrics(request: Request) -> Answer:
        return Answer(page("preemption", request.number).encode(), headers={"Connection": "close"})

    with serving(vllm(metrics)) as server:
        worked(examine(server.url, signals))
        assert len({request.client for request in server.asked("/metrics")}) == 4


@pytest.mark.parametrize(
    ("seconds", "scrapes"), [(0, 1), (0.2, 2), (1, 2), (3, 4), (10, 11), (30, 31), (120, 31), (3600, 31)]
)
def test_how_often_it_asks(seconds: float, scrapes: int, signals: Catalogue) -> None:
    clock = Clock()
    with serving(vllm([page("healthy-busy", 0)])) as server:
        seen = worked(examine(server.url, signals, seconds, clock=clock))
        assert len(server.asked("/metrics")) == scrapes
    assert seen.window.seconds == pytest.approx(seconds, abs=2)
    assert len(clock.slept) == scrapes - 1


def test_a_real_window_is_as_long_as_asked(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as served:
        server = Server(served.url, signals.metrics)
        try:
            seen = worked(server.examine(0.5, time.monotonic() + 30))
        finally:
            server.close()
    assert 0.45 < seen.window.seconds < 10


def test_it_says_who_asks(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        worked(examine(server.url, signals, 0))
        assert all(request.headers["user-agent"].startswith("vllm-doctor/") for request in server.requests)


def test_gzip_is_accepted(signals: Catalogue) -> None:
    with serving(vllm(pages("preemption")), gzip=True) as server:
        seen = worked(examine(server.url, signals))
        assert "gzip" in server.asked("/metrics")[0].headers["accept-encoding"]
    assert value(seen, signals, "preemptions_per_second") > 0
    assert seen.models == ("tiny",)


def test_proxies_in_the_environment_are_ignored(signals: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, dead_url())
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    worked(examined(vllm(pages("healthy-busy")), signals, 0))


def test_a_netrc_is_ignored(signals: Catalogue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n", "utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(vllm(pages("healthy-busy"))) as server:
        worked(examine(server.url, signals, 0))
        assert all("authorization" not in request.headers for request in server.requests)


def test_headers_are_sent_with_every_request(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        worked(examine(server.url, signals, 0, Access({"X-Tenant": "blue", "Authorization": "Bearer t0ken"})))
        assert len(server.requests) == 3
        assert {request.headers["x-tenant"] for request in server.requests} == {"blue"}
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer t0ken"}


def test_a_name_and_password_in_the_address(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        seen = worked(examine(f"http://me:{SECRET}@{server.host}:{server.port}", signals, 0))
        sent = base64.b64encode(f"me:{SECRET}".encode()).decode()
        assert {request.headers["authorization"] for request in server.requests} == {f"Basic {sent}"}
    assert seen.target == server.url


# ---- redirects ----------------------------------------------------------------------------------------------------


def moved(location: str, status: int = 307) -> Route:
    return lambda request: Answer(status=status, headers={"Location": location})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_on_the_same_host_is_followed(status: int, signals: Catalogue) -> None:
    routes = vllm(pages("healthy-busy"))
    routes |= {"/metrics/": routes["/metrics"], "/metrics": moved("/metrics/", status)}
    worked(examined(routes, signals))


ACCESS = Access({"authorization": f"Bearer {SECRET}", "x-api-key": SECRET, "cookie": f"session={SECRET}"})


def sent(server: Served) -> list[bool]:
    """Of each request, whether any of ACCESS, or a password, came with it."""
    return [not {"authorization", "x-api-key", "cookie"}.isdisjoint(request.headers) for request in server.requests]


def test_a_redirect_to_another_port_is_followed_without_credentials(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as there:
        routes = vllm(moved(f"{there.url}/metrics"))
        with serving(routes) as server:
            worked(examine(server.url.replace("//", f"//me:{SECRET}@"), signals, access=ACCESS))
            assert sent(server) == [True] * 6
        assert sent(there) == [False] * 4
        assert SECRET not in str(there.requests)


def test_where_credentials_would_be_needed_it_says_so(signals: Catalogue) -> None:
    with serving(vllm(lambda request: Answer(status=401))) as there:
        seen = examined(vllm(moved(f"{there.url}/metrics")), signals, access=ACCESS)
        assert kind_of(seen) == "denied"
        assert seen.error is not None
        assert f"redirects to {there.url}/metrics, which answers 401" in seen.error.message
        assert "give that URL if you trust it" in seen.error.message


def test_a_redirect_there_and_back(signals: Catalogue) -> None:
    """As a login does; what comes back to the server is for the server."""
    here: list[Served] = []
    with serving({"/login": lambda request: moved(f"{here[0].url}/signed")(request)}) as there:
        routes = vllm(moved(f"{there.url}/login")) | {"/signed": in_turn(pages("healthy-busy"))}
        with serving(routes) as server:
            here.append(server)
            worked(examine(server.url, signals, 0, ACCESS))
            assert sent(server) == [True] * 4
        assert sent(there) == [False]


@pytest.mark.parametrize("location", ["/other", "{server}/other", "//{host}/other", "{server}//other"])
def test_on_the_same_port_credentials_are_kept(location: str, signals: Catalogue) -> None:
    def away(request: Request) -> Answer | bytes | str:
        return moved(location.format(server=server.url, host=server.url.removeprefix("http://")))(request)

    routes = vllm(away) | dict.fromkeys(("/other", "//other"), in_turn(pages("healthy-busy")))
    with serving(routes) as server:
        worked(examine(server.url, signals, 0, ACCESS))
        worked(examine(server.url.replace("//", f"//me:{SECRET}@"), signals, 0))
        assert sent(server) == [True] * 8


def test_cookies_are_not_kept(signals: Catalogue, capfd: pytest.CaptureFixture[str]) -> None:
    """One with such an age made http.cookiejar print a traceback."""

    def setting(request: Request) -> Answer:
        age = "9" * (10 if request.number else 400)
        return Answer(pages("healthy-busy")[request.number].encode(), headers={"Set-Cookie": f"a=b; Max-Age={age}"})

    with serving(vllm(setting)) as server:
        worked(examine(server.url, signals))
        assert len(server.requests) == 6
        assert sent(server) == [False] * 6
    assert capfd.readouterr() == ("", "")


def test_a_redirect_to_another_host_is_refused(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as there:
        elsewhere = f"http://localhost:{there.port}/metrics"
        seen = examined(vllm(moved(elsewhere)), signals, access=Access({"Authorization": f"Bearer {SECRET}"}))
        assert kind_of(seen) == "redirect"
        assert seen.error is not None
        assert elsewhere in seen.error.message
        assert there.requests == []


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://", "//example.invalid/metrics"])
def test_a_redirect_elsewhere_is_refused(location: str, signals: Catalogue) -> None:
    assert kind_of(examined(vllm(moved(location)), signals)) == "redirect"


@pytest.mark.parametrize("location", ["/metrics", ""])
def test_a_redirect_in_a_circle(location: str, signals: Catalogue) -> None:
    with serving(vllm(moved(location))) as server:
        assert kind_of(examine(server.url, signals)) == "redirect"
        assert len(server.requests) <= 5


def test_a_redirect_that_cannot_be_read(signals: Catalogue) -> None:
    assert kind_of(examined(vllm(moved("http://[bad")), signals)) in ("redirect", "not-metrics")


def test_a_password_in_a_redirect_is_not_shown(signals: Catalogue) -> None:
    seen = examined(vllm(moved(f"http://me:{SECRET}@example.invalid/metrics")), signals)
    assert kind_of(seen) == "redirect"
    assert SECRET not in str(seen)


# ---- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tmp_path / "ca.pem"


def tls_for(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[Served]:
    with serving(vllm(pages("healthy-busy")), tls=tls_for(authority, "127.0.0.1")) as server:
        yield server


def test_an_unknown_authority(secure: Served, signals: Catalogue) -> None:
    seen = examine(secure.url, signals)
    assert kind_of(seen) == "tls"
    assert seen.error is not None
    assert "--ca-file" in seen.error.message
    assert secure.requests == []


def test_the_authority_given(secure: Served, ca_file: Path, signals: Catalogue) -> None:
    worked(examine(secure.url, signals, access=Access(ca_file=ca_file)))
    assert len({request.client for request in secure.requests}) == 1


def test_insecure(secure: Served, signals: Catalogue) -> None:
    worked(examine(secure.url, signals, access=Access(insecure=True)))


def test_a_certificate_of_another_host(authority: trustme.CA, ca_file: Path, signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy")), tls=tls_for(authority, "elsewhere.example")) as server:
        assert kind_of(examine(server.url, signals, access=Access(ca_file=ca_file))) == "tls"


def test_https_to_a_plain_server(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        assert kind_of(examine(server.url.replace("http:", "https:"), signals)) == "tls"


def test_http_to_a_tls_server(secure: Served, signals: Catalogue) -> None:
    assert kind_of(examine(secure.url.replace("https:", "http:"), signals)) == "unreachable"


def test_a_redirect_from_https_to_http_is_refused(authority: trustme.CA, signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as plain:
        routes = vllm(moved(f"{plain.url}/metrics"))
        with serving(routes, tls=tls_for(authority, "127.0.0.1")) as server:
            assert kind_of(examine(server.url, signals, access=Access(insecure=True))) == "redirect"
        assert plain.requests == []


def test_a_redirect_from_http_to_https(secure: Served, ca_file: Path, signals: Catalogue) -> None:
    routes = vllm(moved(f"{secure.url}/metrics"))
    worked(examined(routes, signals, access=Access({"authorization": f"Bearer {SECRET}"}, ca_file)))
    assert sent(secure) == [False] * 4


@pytest.mark.parametrize("content", [None, "not a certificate\n", "a pipe", "a device"])
def test_a_ca_file_that_cannot_be_read(content: str | None, signals: Catalogue, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content == "a pipe":
        os.mkfifo(path)
    elif content == "a device":
        path.symlink_to("/dev/zero")
    elif content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(UsageError, match=r"--ca-file .*: not readable as PEM certificates"):
        Server("https://127.0.0.1:1", signals.metrics, Access(ca_file=path))


# ---- what does not answer -----------------------------------------------------------------------------------------


def test_connection_refused(signals: Catalogue) -> None:
    seen = examine(dead_url(), signals)
    assert kind_of(seen) == "unreachable"
    assert seen.error is not None
    assert "refuses connections" in seen.error.message
    assert seen.window.times == []


def test_a_host_that_does_not_exist(signals: Catalogue) -> None:
    seen = examine("http://vllm.invalid:8000", signals)
    assert kind_of(seen) == "unreachable"
    assert seen.error is not None
    assert "no such host" in seen.error.message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "denied"),
        (403, "denied"),
        (404, "not-found"),
        (204, "server-error"),
        (429, "server-error"),
        (500, "server-error"),
        (503, "server-error"),
    ],
)
def test_a_status_that_is_not_200(status: int, kind: str, signals: Catalogue) -> None:
    seen = examined(vllm(lambda request: Answer(b"no", status)), signals)
    assert kind_of(seen) == kind
    assert seen.error is not None
    assert str(status) in seen.error.message


def test_a_page_behind_a_status_is_not_used(signals: Catalogue) -> None:
    seen = examined(vllm(lambda request: Answer(page("preemption", 0).encode(), 500)), signals)
    assert kind_of(seen) == "server-error"
    assert seen.window.times == []


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nvllm"])
def test_a_server_that_hangs(after: bytes, signals: Catalogue) -> None:
    def conversation(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(after)
        connection.recv(65536)  # until the doctor gives up

    with raw(conversation) as url:
        started = time.monotonic()
        seen = examine(url, signals, 0, timeout=0.4)
        assert kind_of(seen) == "timeout"
        assert time.monotonic() - started < 20
    assert answer_seconds(seen) > 0.2, "it did not come by then"


def test_a_body_that_drips(signals: Catalogue) -> None:
    drips: list[Served] = []

    def drip(request: Request) -> Answer:
        def pieces() -> Iterator[bytes]:
            while not drips[0].ended.wait(0.02):
                yield b"vllm:num_requests_running 1\n" * 2500

        return Answer(pieces())

    with serving(vllm(drip)) as server:
        drips.append(server)
        seen = examine(server.url, signals, 0, timeout=0.5)
    assert kind_of(seen) == "timeout"


def test_a_body_that_drips_byte_by_byte_ends_by_the_deadline_and_what_was_seen_is_kept(signals: Catalogue) -> None:
    drips: list[Served] = []

    def drip(request: Request) -> Answer:
        def pieces() -> Iterator[bytes]:
            until = time.monotonic() + 4
            while time.monotonic() < until and not drips[0].ended.wait(0.02):
                yield b"#"

        return Answer(pieces()) if request.number == 2 else Answer(page("preemption", request.number).encode())

    with serving(vllm(drip)) as server:
        drips.append(server)
        started = time.monotonic()
        seen = examine(server.url, signals, 2, timeout=0.4)
        assert time.monotonic() - started < 3
    assert kind_of(seen) == "timeout"
    assert len(seen.window.times) == 2
    assert seen.notes == ("it answered 2 times before",)
    assert value(seen, signals, "preemptions_per_second") > 0


def endless(request: Request) -> Answer:
    def pieces() -> Iterator[bytes]:
        while True:
            yield b"# never ends\n" * 80_000

    return Answer(pieces())


@pytest.fixture
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch.MAX_BODY == 64 * 1024 * 1024
    monkeypatch.setattr(fetch, "MAX_BODY", 3_000_000)


@pytest.mark.usefixtures("small_bodies")
def test_a_body_that_never_ends(signals: Catalogue) -> None:
    seen = examined(vllm(endless), signals)
    assert kind_of(seen) == "too-large"
    assert seen.error is not None
    assert "64 MB" in seen.error.message


@pytest.mark.usefixtures("small_bodies")
def test_a_body_that_unpacks_without_end(signals: Catalogue) -> None:
    bomb = gzip.compress(b"#" * 20_000_000, 1)
    assert len(bomb) < 200_000
    routes = vllm(lambda request: Answer(bomb, headers={"Content-Encoding": "gzip"}))
    assert kind_of(examined(routes, signals)) == "too-large"


def test_only_metrics_must_answer(signals: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "IDENTITY_SECONDS", 1.0)
    hung: list[Served] = []

    def hang(request: Request) -> Answer:
        hung[0].ended.wait(60)
        raise CutError

    with serving(vllm(pages("preemption")) | {"/version": hang, "/v1/models": hang}) as server:
        hung.append(server)
        seen = worked(examine(server.url, signals, 10))
    assert said(seen) == {"stats_published": Known(True)}
    assert judged(seen, signals).findings[0].rule == "preemption"


@pytest.mark.usefixtures("small_bodies")
def test_what_version_and_models_answer_is_bounded_too(signals: Catalogue) -> None:
    seen = worked(examined(vllm(pages("preemption")) | {"/version": endless, "/v1/models": endless}, signals))
    assert "vllm_version" not in seen.facts
    assert seen.models == ()
    assert value(seen, signals, "preemptions_per_second") > 0


def test_a_body_that_is_not_the_gzip_it_says(signals: Catalogue) -> None:
    routes = vllm(lambda request: Answer(b"vllm:num_requests_running 1\n", headers={"Content-Encoding": "gzip"}))
    assert kind_of(examined(routes, signals)) == "not-metrics"


def test_a_connection_that_is_cut(signals: Catalogue) -> None:
    def cut(request: Request) -> Answer:
        raise CutError

    assert kind_of(examined(vllm(cut), signals)) == "unreachable"


@pytest.mark.parametrize(
    "words",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x01\x02\x03",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nvllm:num_requests_running 1\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["ssh", "binary", "cut", "negative length", "bad chunk"],
)
def test_what_speaks_no_http(words: bytes, signals: Catalogue) -> None:
    def conversation(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(words)

    with raw(conversation) as url:
        seen = examine(url, signals)
    assert kind_of(seen) == "unreachable"
    assert seen.window.times == []


# ---- what is no vLLM ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [NODE_EXPORTER, HTML, "", '{"status": "ok"}', "\x00\x01"],
    ids=["node_exporter", "html", "empty", "json", "binary"],
)
def test_not_a_vllm(text: str, signals: Catalogue) -> None:
    seen = examined({"/metrics": in_turn([text])}, signals)
    assert kind_of(seen) == "not-vllm"
    assert seen.window.times == []
    assert judged(seen, signals).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("answer", [{"version": "1.4.2"}, {"version": "0.32.0"}, {"vllm": True}, [1], "0.32.0", None])
@pytest.mark.parametrize(
    "models", [None, {"data": []}, {"object": "list", "data": [{"id": "m", "owned_by": "openai"}]}]
)
def test_an_app_with_a_version_that_is_no_vllm(answer: Any, models: Any, signals: Catalogue) -> None:
    routes = {"/metrics": in_turn([NODE_EXPORTER]), "/version": as_json(answer)}
    if models is not None:
        routes["/v1/models"] = as_json(models)
    assert kind_of(examined(routes, signals)) == "not-vllm"


def test_a_vllm_with_its_statistics_off(signals: Catalogue) -> None:
    seen = worked(examined(vllm(pages("no-log-stats")), signals))
    assert seen.facts["stats_published"] == Known(False)
    report = judged(seen, signals)
    assert report.verdict is Verdict.UNKNOWN
    assert [finding.rule for finding in report.findings] == ["stats-disabled"]


def test_a_vllm_with_its_statistics_off_and_its_models_locked(signals: Catalogue) -> None:
    def locked(request: Request) -> Answer:
        return Answer(b'{"error": "Unauthorized"}', 401)

    seen = worked(examined(vllm(pages("no-log-stats")) | {"/v1/models": locked}, signals))
    assert seen.facts["stats_published"] == Known(False)


def said(seen: Observation) -> dict[str, Reading]:
    """What it says of itself, without how long that took."""
    return {name: fact for name, fact in seen.facts.items() if name != "answer_seconds"}


def answer_seconds(seen: Observation) -> float:
    fact = seen.facts["answer_seconds"]
    assert isinstance(fact, Known)
    assert isinstance(fact.value, float)
    return fact.value


def test_metrics_alone_are_enough(signals: Catalogue) -> None:
    seen = worked(examined({"/metrics": in_turn(pages("preemption"))}, signals))
    assert said(seen) == {"stats_published": Known(True)}
    assert "preemption" in [finding.rule for finding in judged(seen, signals).findings]


# ---- /version and /v1/models --------------------------------------------------------------------------------------


def test_what_a_vllm_says_of_itself(signals: Catalogue) -> None:
    seen = worked(examined(vllm(pages("preemption")), signals, 0))
    assert said(seen) == {
        "stats_published": Known(True),
        "vllm_version": Known("0.32.0"),
        "max_model_len": Known(2048.0),
    }
    assert seen.models == ("tiny",)


def test_an_adapter_is_not_the_model(signals: Catalogue) -> None:
    cards = [
        {"id": "sql-lora", "owned_by": "vllm", "parent": "base"},
        {"id": "base", "owned_by": "vllm", "parent": None, "max_model_len": 4096},
    ]
    assert worked(examined(vllm(pages("preemption"), models={"data": cards}), signals, 0)).models == ("base",)


def test_the_root_is_what_was_loaded(signals: Catalogue) -> None:
    card = {"id": "prod", "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "parent": None}

    def root(*cards: object) -> object:
        seen = worked(examined(vllm(pages("preemption"), models={"data": [*cards]}), signals, 0))
        return getattr(seen.facts.get("model_root"), "value", None)

    assert root(card, card | {"id": "alias"}) == "Qwen/Qwen3-8B"
    assert root(card, card | {"root": "other"}) is None
    assert root(card | {"root": 7}) is None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        7,
        {"data": None},
        {"data": {}},
        {"data": [None, 1, "x", []]},
        {"data": [{}]},
        {"data": [{"id": None, "max_model_len": "2048"}]},
        {"version": 32, "data": [{"id": 5, "max_model_len": None}]},
        {"version": ["0.32.0"]},
        {"version": ""},
        {"data": [{"id": "m", "max_model_len": 10**400}]},
        {"data": [{"id": "m", "max_model_len": 2**40}]},
        {"data": [{"id": "m", "max_model_len": True}]},
        {"data": [{"id": "m", "max_model_len": -5}]},
        {"data": [{"id": "m", "max_model_len": 0}]},
        {"version": "0.32.0", "data": [{"id": "m", "owned_by": ["vllm"]}]},
        {"version": "0.32.0", "data": [{"id": "m", "owned_by": {"vllm": 1}}]},
    ],
)
def test_answers_of_another_shape_do_no_harm(answer: Any, signals: Catalogue) -> None:
    seen = worked(examined(vllm(pages("preemption"), version=answer, models=answer), signals))
    assert "max_model_len" not in seen.facts
    assert judged(seen, signals).verdict is Verdict.CRITICAL


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"<html>", b"NaN"])
def test_answers_that_are_not_json_do_no_harm(body: bytes, signals: Catalogue) -> None:
    routes = vllm(pages("preemption")) | {
        "/version": lambda request: body,
        "/v1/models": lambda request: body,
    }
    assert judged(worked(examined(routes, signals)), signals).verdict is Verdict.CRITICAL


# ---- pages of other versions and deployments ----------------------------------------------------------------------


def of_2025(text: str) -> str:
    """The page as vLLM 0.8 wrote it: before metrics were renamed, and without what came later."""
    kept = [
        re.sub(r'(kv_cache_size_tokens|kv_cache_max_concurrency)="[^"]*",', "", line)
        for line in text.splitlines(keepends=True)
        if "_by_reason" not in line and "_by_source" not in line
    ]
    renamed = (
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("vllm:prefix_cache_", "vllm:gpu_prefix_cache_"),
    )
    return edited(["".join(kept)], *renamed)[0]


def test_the_names_of_0_8(signals: Catalogue) -> None:
    old = [of_2025(text) for text in pages("preemption", 4)]
    assert not re.search("_by_reason|_by_source|kv_cache_(usage|size)|inter_token|vllm:prefix", old[0])
    seen = worked(examined(vllm(old, version={"version": "0.8.5"}), signals))
    report = judged(seen, signals)
    assert report.verdict is Verdict.CRITICAL
    assert report.findings[0].rule == "preemption"
    new = worked(examined(vllm(pages("preemption")), signals))
    for name in ("kv_cache_usage", "itl_p99", "waiting_for_capacity", "requests_running", "itl_mean"):
        assert value(seen, signals, name) == pytest.approx(value(new, signals, name), rel=0.2)


def test_the_hit_share_of_0_8_counters(signals: Catalogue) -> None:
    def counters(hits: float, queries: float) -> str:
        return (
            'vllm:num_requests_running{engine="0"} 1\n'
            f'vllm:gpu_prefix_cache_hits_total{{engine="0"}} {hits}\n'
            f'vllm:gpu_prefix_cache_queries_total{{engine="0"}} {queries}\n'
        )

    seen = worked(examined(vllm([counters(10, 100), counters(40, 140)]), signals, 1))
    assert value(seen, signals, "prefix_hit_share") == pytest.approx(0.75)


@pytest.mark.parametrize(("rate", "share"), [(-1, None), (0, 0.0), (0.25, 0.25)])
def test_a_hit_rate_of_minus_one_is_none(rate: float, share: float | None, signals: Catalogue) -> None:
    text = page("preemption", 0)
    text = "".join(line for line in text.splitlines(keepends=True) if "prefix_cache" not in line)
    text += f'vllm:gpu_prefix_cache_hit_rate{{model_name="tiny",engine="0"}} {rate}\n'
    seen = worked(examined(vllm([text]), signals))
    reading = readings(seen, signals, "prefix_hit_share")["0"]
    assert reading == (Unknown(Reason.IDLE) if share is None else Known(share))
    assert all(v.seen != Known(-1.0) for v in judged(seen, signals).vitals)


@pytest.mark.parametrize("prefix", ["ray_vllm_", "ray_vllm:"])
def test_the_names_of_ray(prefix: str, signals: Catalogue) -> None:
    labelled = [
        re.sub(r"(vllm:\w+)\{", r'\1{ReplicaId="r1",deployment="LLM:tiny",', text) for text in pages("preemption", 4)
    ]
    seen = worked(examined(vllm(edited(labelled, ("vllm:", prefix))), signals))
    report = judged(seen, signals)
    assert report.findings[0].rule == "preemption"
    assert report.findings[0].severity == "critical"
    assert report.findings[0].subject["ReplicaId"] == "r1"


def test_a_server_without_labels(signals: Catalogue) -> None:
    bare = [
        re.sub(r',?model_name="tiny"(?=})|model_name="tiny",', "", text.replace('engine="0",', "")).replace("{}", "")
        for text in pages("preemption", 4)
    ]
    assert "\nvllm:num_requests_running 20.0\n" in bare[0]
    assert not re.search(r"^vllm:.*(engine|model_name)=", bare[0], re.MULTILINE)
    seen = worked(examined(vllm(bare), signals))
    report = judged(seen, signals)
    assert [dict(engine.subject) for engine in report.engines] == [{}]
    assert report.findings[0].rule == "preemption"


def test_an_indented_server(signals: Catalogue) -> None:
    indented = ["".join(f"    {line}\n" for line in text.splitlines()) for text in pages("preemption", 4)]
    assert judged(worked(examined(vllm(indented), signals)), signals).findings[0].rule == "preemption"


def with_engine(text: str, other: str, engine: str) -> str:
    """The page with the series of another page's engine 0 beside its own, as engine `engine`."""
    more = [
        line.replace('engine="0"', f'engine="{engine}"')
        for line in other.splitlines(keepends=True)
        if line[0] != "#" and 'engine="0"' in line
    ]
    return text + "".join(more)


def test_several_engines(signals: Catalogue) -> None:
    both = [
        with_engine(healthy, sick, "1")
        for healthy, sick in zip(pages("healthy-busy", 4), pages("preemption", 4), strict=True)
    ]
    seen = worked(examined(vllm(both), signals))
    report = judged(seen, signals)
    assert [dict(engine.subject)["engine"] for engine in report.engines] == ["0", "1"]
    assert [f.subject["engine"] for f in report.findings if f.rule == "preemption"] == ["1"]
    alone = worked(examined(vllm(pages("preemption")), signals))
    one, other = (value(o, signals, "generation_tokens_per_second", e) for o, e in ((seen, "1"), (alone, "0")))
    assert one == pytest.approx(other, rel=0.2)
    assert value(seen, signals, "preemptions_per_second", "0") == 0
    assert report.patient.engines == 2


def test_several_models(signals: Catalogue) -> None:
    both = [
        text + "".join(line for line in other.splitlines(keepends=True) if line.startswith("vllm:"))
        for text, other in zip(
            pages("healthy-busy", 4), edited(pages("preemption", 4), ('"tiny"', '"large"')), strict=True
        )
    ]
    seen = worked(examined(vllm(both), signals))
    report = judged(seen, signals)
    assert {engine.subject["model_name"] for engine in report.engines} == {"tiny", "large"}
    assert [f.subject["model_name"] for f in report.findings if f.rule == "preemption"] == ["large"]


def test_too_many_engines(signals: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "MAX_ENGINES", 100)
    text = "".join(f'vllm:num_requests_running{{engine="{i}"}} 1\n' for i in range(101))
    seen = examined(vllm([text]), signals)
    assert kind_of(seen) == "too-large"
    assert seen.window.times == []


def test_lines_that_cannot_be_read_are_told(signals: Catalogue) -> None:
    torn = ('vllm:num_requests_running{engine="0"', 'vllm:num_requests_running{engine="0')
    broken = edited(pages("preemption", 4), torn)
    seen = worked(examined(vllm(broken), signals))
    assert seen.notes == ("1 lines of /metrics could not be read and were left out",)
    report = judged(seen, signals)
    assert report.verdict is not Verdict.OK


def test_a_page_of_a_hundred_thousand_series(signals: Catalogue) -> None:
    text = page("preemption", 0) + "".join(f'app_total{{path="/{i}",engine="0"}} {i}\n' for i in range(100_000))
    seen = worked(examined(vllm([text]), signals))
    assert value(seen, signals, "requests_running") == 20


# ---- what changes while it is watched -----------------------------------------------------------------------------


def test_a_restart_within_the_window(signals: Catalogue) -> None:
    now = time.time()
    before = [started_at(now - 5000, text) for text in pages("preemption", 2)]
    zero = re.sub(
        r"^(vllm:\S+_(?:total|count|sum|bucket)(?:\{[^\n]*\})?) \S+$", r"\1 3.0", before[0], flags=re.MULTILINE
    )
    after = [started_at(now + 60, zero)]
    seen = worked(examined(vllm([*before, *after]), signals))
    assert "the server was restarted within the window" in seen.notes
    for name, signal in signals.signals.items():
        if signal.unit == "1/s":
            for reading in readings(seen, signals, name).values():
                assert isinstance(reading, Unknown) or float(reading.value) >= 0, name
    assert 0 <= value(seen, signals, "preemptions_per_second") < 30


def test_a_server_that_restarts_at_every_scrape_is_critical(signals: Catalogue) -> None:
    now = time.time()
    texts = [started_at(now + place, text) for place, text in enumerate(pages("idle", 4))]
    report = judged(worked(examined(vllm(texts), signals)), signals)
    assert (report.verdict, report.findings[0].rule) == (Verdict.CRITICAL, "restart-loop")
    seen = {evidence.signal: evidence.seen.value for evidence in report.findings[0].evidence}
    assert seen == {"restarts": 3, "restart_interval": pytest.approx(1, rel=0.5)}


def test_one_restart_of_a_server_that_had_run_for_long_is_no_fault(signals: Catalogue) -> None:
    now = time.time()
    texts = [started_at(start, text) for start, text in zip((now - 9e4, now + 9), pages("idle", 2), strict=True)]
    report = judged(worked(examined(vllm([*texts, texts[-1], texts[-1]]), signals)), signals)
    assert report.states["restart-loop"] is State.OK


def alternating(dates: Mapping[str, str], ages: tuple[float, float] = (9000, 4000)) -> dict[str, Route]:
    now = time.time()
    one = [started_at(now - ages[0], text) for text in pages("preemption", 4)]
    other = [started_at(now - ages[1], text) for text in pages("healthy-busy", 4)]

    def turns(request: Request) -> Answer:
        texts = (one, other)[request.number % 2]
        return Answer(texts[request.number].encode(), headers=dates)

    return vllm(turns)


@pytest.mark.parametrize("ages", [(9000, 4000), (4000, 9000)])
@pytest.mark.parametrize("seconds", [1, 3])
def test_two_servers_behind_one_address(seconds: float, ages: tuple[float, float], signals: Catalogue) -> None:
    seen = examined(alternating({}, ages), signals, seconds)
    assert kind_of(seen) == "changed-server"
    assert seen.error is not None
    assert "load balancer" in seen.error.message
    report = judged(seen, signals)
    assert report.verdict is Verdict.UNKNOWN
    assert report.findings == ()


def test_two_servers_in_turns_that_do_not_say_when_they_were_started(signals: Catalogue) -> None:
    def without_start(texts: list[str]) -> list[str]:
        return [re.sub(rf"^{START} .*\n", "", text, flags=re.MULTILINE) for text in texts]

    turns = [without_start(pages(name, 4)) for name in ("preemption", "healthy-busy")]
    seen = examined(vllm(lambda request: turns[request.number % 2][request.number]), signals)
    assert kind_of(seen) == "changed-server"
    assert seen.window.times == []


@pytest.mark.parametrize(
    ("seconds", "scrapes", "kind", "notes"),
    [
        pytest.param(600, [(10, 9), (50, 60), (3, 2), (40, 50)], None, 1, id="one fall in 20 s: a restart"),
        pytest.param(600, [(10, 9), (50, 60), (3, 70), (5, 80)], None, 1, id="of one engine: a restart"),
        pytest.param(3, [(10, 9), (50, 60), (3, 2), (40, 50)], "changed-server", 0, id="one fall in 1 s: in turns"),
        pytest.param(600, [(10, 9), (50, 60), (3, 2), (1, 1)], "changed-server", 0, id="two falls: in turns"),
        pytest.param(
            600, [(10, 9), (50, 60), (3, 70), (5, 7)], "changed-server", 0, id="one after the other: in turns"
        ),
        pytest.param(3, [(10, 9), (10, 9), (50, 60), (51, 61)], None, 0, id="no fall"),
    ],
)
def test_counters_that_fall_tell_a_restart_from_servers_in_turns(
    seconds: float, scrapes: list[tuple[int, int]], kind: str | None, notes: int, signals: Catalogue
) -> None:
    texts = [
        "".join(
            f'vllm:num_requests_running{{engine="{engine}"}} 1\n'
            f'vllm:generation_tokens_total{{engine="{engine}"}} {count}\n'
            for engine, count in enumerate(counts)
        )
        for counts in scrapes
    ]
    seen = examined(vllm(texts), signals, seconds)
    assert (seen.error.kind if seen.error else None) == kind
    assert [*seen.notes].count("the server was restarted within the window") == notes


def test_two_servers_in_turns_with_clocks_of_their_own(signals: Catalogue) -> None:
    dates = {"Date": email.utils.formatdate(0, usegmt=True)}  # 1970: the order of the turns must tell
    assert kind_of(examined(alternating(dates), signals, 3)) == "changed-server"


def test_a_server_that_dies_while_watched(signals: Catalogue) -> None:
    dying: list[Served] = []
    texts = pages("preemption")

    def metrics(request: Request) -> str:
        if request.number == 3:
            dying[0].die()
            raise CutError
        return texts[request.number]

    with serving(vllm(metrics)) as server:
        dying.append(server)
        seen = examine(server.url, signals)
    assert kind_of(seen) == "unreachable"
    assert len(seen.window.times) == 3
    assert "it answered 3 times before" in seen.notes
    report = judged(seen, signals)
    assert report.verdict is Verdict.CRITICAL  # what was seen is kept
    assert report.error is not None
    assert report.sources[0].scrapes == 3


def test_a_healthy_server_that_dies_while_watched_is_not_ok(signals: Catalogue) -> None:
    def metrics(request: Request) -> str:
        if request.number:
            raise CutError
        return page("healthy-busy", 0)

    report = judged(examined(vllm(metrics), signals), signals)
    assert report.verdict is Verdict.UNKNOWN
    assert report.headline == report.error.message if report.error else False


@pytest.mark.parametrize("status", [500, 503, 401])
def test_a_server_that_falls_ill_while_watched(status: int, signals: Catalogue) -> None:
    def metrics(request: Request) -> Answer:
        return Answer(b"", status) if request.number == 2 else Answer(page("healthy-busy", request.number).encode())

    seen = examined(vllm(metrics), signals)
    assert kind_of(seen) in ("server-error", "denied")
    assert len(seen.window.times) == 2
    assert judged(seen, signals).verdict is Verdict.UNKNOWN


def test_an_engine_that_appears_while_watched(signals: Catalogue) -> None:
    texts = pages("healthy-busy", 4)
    texts[2:] = [with_engine(text, text, "1") for text in texts[2:]]
    seen = worked(examined(vllm(texts), signals))
    report = judged(seen, signals)
    assert [dict(engine.subject)["engine"] for engine in report.engines] == ["0", "1"]
    old, new = (value(seen, signals, "generation_tokens_per_second", engine) for engine in ("0", "1"))
    assert 0 < new < 3 * old  # what it had counted before it was first seen is not of this window
    assert report.verdict in (Verdict.OK, Verdict.WARNING)


def test_an_engine_that_appears_in_the_last_scrape_has_no_rates_yet(signals: Catalogue) -> None:
    texts = pages("healthy-busy", 4)
    texts[3] = with_engine(texts[3], texts[3], "1")
    seen = worked(examined(vllm(texts), signals))
    assert readings(seen, signals, "generation_tokens_per_second")["1"] == Unknown(Reason.FIRST_SCRAPE)
    assert judged(seen, signals).verdict is Verdict.UNKNOWN


def test_an_engine_that_vanishes_while_watched(signals: Catalogue) -> None:
    texts = [with_engine(text, text, "1") for text in pages("healthy-busy", 3)]
    seen = worked(examined(vllm([*texts, page("healthy-busy", 3)]), signals))
    assert "1 engine(s) vanished from /metrics while watched" in seen.notes
    assert [dict(engine.subject)["engine"] for engine in judged(seen, signals).engines] == ["0"]


@pytest.mark.parametrize("step", [-86400.0, 86400.0, 1e9])
def test_a_wall_clock_that_steps(step: float, signals: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real = Clock(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + step * len(clock.slept))

    def metrics(request: Request) -> Answer:  # the server's clock steps as well
        date = email.utils.formatdate(real() + step * request.number / 30, usegmt=True)
        return Answer(page("preemption", request.number).encode(), headers={"Date": date})

    seen = worked(examined(vllm(metrics), signals, clock=clock))
    assert seen.window.seconds == pytest.approx(3, abs=1.5)
    assert seen.window.times == sorted(seen.window.times)
    assert judged(seen, signals).findings[0].rule == "preemption"


@pytest.mark.parametrize(
    "date",
    [
        "",
        "yesterday",
        "Mon, 99 Foo 2026 25:61:61 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Mon, 01 Jan 99999 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    ],
)
def test_a_date_that_is_none(date: str, signals: Catalogue) -> None:
    routes = vllm(lambda request: Answer(page("preemption", request.number).encode(), headers={"Date": date}))
    worked(examined(routes, signals))


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_page_cut_in_the_middle_of_a_number(cut: int, signals: Catalogue) -> None:
    def cut_page(i: int) -> str:
        text = page("healthy-busy", i)
        return f'{text}vllm:num_preemptions_total{{engine="9",model_name="tiny"}} {12345 + i}'[:-cut]

    seen = worked(examined(vllm([cut_page(i) for i in range(4)]), signals))
    assert all(dict(labels)["engine"] != "9" for labels in seen.window.series("vllm:num_preemptions_total"))
    assert seen.notes == ("1 lines of /metrics could not be read and were left out",)


@pytest.mark.parametrize("value_text", ["NaN", "+Inf", "-Inf"])
def test_a_vital_sign_that_is_no_number_is_not_ok(value_text: str, signals: Catalogue) -> None:
    texts = [
        re.sub(r"^(vllm:kv_cache_usage_perc\{.*\}) .*$", rf"\1 {value_text}", text, flags=re.MULTILINE)
        for text in pages("healthy-busy", 4)
    ]
    seen = worked(examined(vllm(texts), signals))
    assert isinstance(readings(seen, signals, "kv_cache_usage")["0"], Unknown)
    assert judged(seen, signals).verdict is Verdict.UNKNOWN


# ---- a doctor that gets no CPU --------------------------------------------------------------------------------------


class Starving(Clock):
    """A clock of a doctor that waits for a CPU: so many seconds each time it asks how long it has waited."""

    def __init__(self, each: float) -> None:
        super().__init__()
        self.each, self.total = each, 0.0

    def waited(self) -> float:
        self.total += self.each
        self.sleep(self.each)
        return self.total


def test_a_starved_doctor_says_so_and_keeps_its_window(signals: Catalogue) -> None:
    clock = Starving(0.2)
    with serving(vllm(pages("preemption"))) as server:
        seen = worked(examine(server.url, signals, 3, clock=clock, waited=clock.waited))
    assert seen.window.seconds >= 2.5
    [note] = [note for note in seen.notes if "the doctor itself waited" in note]
    assert "for a window of 3 s" in note
    assert "preemption" in {found.rule for found in judged(seen, signals).findings}


def test_a_doctor_that_waits_a_little_says_nothing(signals: Catalogue) -> None:
    clock = Starving(0.01)
    with serving(vllm(pages("preemption"))) as server:
        assert worked(examine(server.url, signals, 3, clock=clock, waited=clock.waited)).notes == ()


def test_no_time_left_is_the_doctors_fault_not_the_servers(signals: Catalogue) -> None:
    clock = Starving(2.0)
    with serving(vllm(pages("preemption"))) as server:
        seen = examine(server.url, signals, 3, clock=clock, waited=clock.waited, timeout=0.0)
    assert kind_of(seen) == "starved"
    assert seen.error is not None
    assert "the doctor itself waited" in seen.error.message
    assert "did not answer" not in seen.error.message


def test_one_scrape_of_a_starved_doctor_names_no_cause(signals: Catalogue) -> None:
    """The KV cache is full in it; why cannot be told without rates."""
    clock = Starving(1.2)
    with serving(vllm(pages("preemption"))) as server:
        seen = examine(server.url, signals, 3, clock=clock, waited=clock.waited, timeout=4.0)
    assert (kind_of(seen), len(seen.window.times)) == ("starved", 1)
    report = judged(seen, signals)
    assert report.findings == ()
    assert report.verdict is Verdict.UNKNOWN
    assert "the doctor itself waited" in report.headline
    vitals = {vital.name: vital.seen for vital in report.vitals}
    assert isinstance(vitals["kv_cache_usage"], Known)


def test_a_server_that_had_its_time_is_late_itself(signals: Catalogue) -> None:
    ended = threading.Event()

    def hang(request: Request) -> str:
        ended.wait(60)
        return ""

    with serving(vllm(hang)) as server:
        seen = examine(server.url, signals, 0, timeout=0.5)
        ended.set()
    assert kind_of(seen) == "timeout"


def test_what_was_seen_so_far(signals: Catalogue) -> None:
    hangs, ended = threading.Event(), threading.Event()

    def metrics(request: Request) -> str:
        if request.number == 3:
            hangs.set()
            ended.wait(60)
        return page("preemption", request.number)

    clock = Clock()
    with serving(vllm(metrics)) as served:
        server = Server(served.url, signals.metrics, clock=clock.now, sleep=clock.sleep, waited=lambda: 0.0)
        assert server.so_far() is None
        looking = threading.Thread(target=server.examine, args=(3.0, clock.now() + 60))
        looking.start()
        assert hangs.wait(60)
        seen = server.so_far()
        ended.set()
        looking.join()
    assert seen is not None
    assert (kind_of(seen), len(seen.window.times)) == ("timeout", 3)


def test_the_last_scrape_is_begun_early_enough(signals: Catalogue) -> None:
    """A server that takes a second for each answer is asked for the last time while there is still time."""
    clock = Clock()

    def slow(request: Request) -> str:
        clock.sleep(1.0)
        return page("preemption", request.number)

    with serving(vllm(slow)) as served:
        server = Server(served.url, signals.metrics, clock=clock.now, sleep=clock.sleep, waited=lambda: 0.0)
        until = clock.now() + 8
        seen = worked(server.examine(15.0, until))
        assert clock.now() < until
    assert 3 < seen.window.seconds < 8


# ---- /health --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(b"", 503), Known(503.0)),
        (Answer(b"", 200), Known(200.0)),
        (Answer(b"<html>no backend</html>", 503), None),
        (Answer(b"", 404), None),
    ],
)
def test_an_engine_that_the_server_itself_says_is_dead(answer: Answer, found: Known | None, signals: Catalogue) -> None:
    routes = vllm(page("healthy-busy", 0)) | {"/health": lambda request: answer}
    with serving(routes) as server:
        seen = worked(examine(server.url, signals, 1))
        assert len(server.asked("/health")) == 1
    assert seen.facts.get("health_status") == found
    gone = [finding.rule for finding in judged(seen, signals).findings if finding.rule == "engine-process-gone"]
    assert gone == (["engine-process-gone"] if found == Known(503.0) else [])


def test_a_server_that_makes_tokens_is_not_asked_for_its_health(signals: Catalogue) -> None:
    with serving(vllm(pages("healthy-busy"))) as server:
        worked(examine(server.url, signals, 1))
        assert server.asked("/health") == []
