from __future__ import annotations

import gzip
import http.client
import http.server
import json
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tests.serving import Clock, recorded
from vllm_doctor.model.errors import UsageError
from vllm_doctor.recording import demo
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.sources.server.server import Server


def get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_there_is_one_for_each_recording() -> None:
    assert demo.names() == sorted(path.name for path in demo.folder().iterdir() if (path / "1-server").is_dir())
    assert "preemption" in demo.names()


@pytest.mark.parametrize("name", ["nope", "", "../fixtures/preemption", "Preemption"])
def test_one_that_does_not_exist(name: str) -> None:
    with pytest.raises(UsageError, match=r"no demo .*; (there are: .*preemption|did you mean 'preemption')"):
        demo.find(name)


def test_it_answers_as_the_recorded_server() -> None:
    recording = demo.find("preemption")
    with demo.serving(recording) as url:
        status, headers, body = get(url, "/metrics")
        assert (status, body) == (200, recording.pages[0])
        assert headers["content-type"].startswith("text/plain")
        assert json.loads(get(url, "/version")[2]) == {"version": "0.32.0"}
        assert json.loads(get(url, "/v1/models")[2])["data"][0]["id"] == "tiny"
        for path in ("/", "/v1/completions", "/../../etc/passwd", "/metricsx"):
            assert get(url, path)[0] == 404


def test_it_packs_only_for_whoever_unpacks() -> None:
    recording = demo.find("idle")
    with demo.serving(recording) as url:
        _, plain_headers, plain = get(url, "/metrics")
        _, headers, packed = get(url, "/metrics", accept_encoding="gzip")
    assert "content-encoding" not in plain_headers
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == plain


def test_time_passes_from_the_first_scrape_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=clock.now))
    real = demo.find("preemption")
    recording = recorded((0.0, 100.0, 200.0), real.pages[:3], real.version, real.models)
    with demo.serving(recording) as url:
        clock.sleep(1000)  # nobody has asked yet
        assert get(url, "/metrics")[2] == real.pages[0]
        assert get(url, "/metrics")[2] == real.pages[0]
        clock.sleep(150)
        assert get(url, "/metrics")[2] == real.pages[1]
        clock.sleep(1e6)  # after its end it stands still
        assert get(url, "/metrics")[2] == real.pages[2]


def test_its_port_is_closed_afterwards() -> None:
    with demo.serving(demo.find("idle")) as url:
        get(url, "/metrics")
    with pytest.raises(ConnectionRefusedError):
        get(url, "/metrics")


def test_it_listens_on_loopback_only() -> None:
    with demo.serving(demo.find("idle")) as url:
        assert urlsplit(url).hostname == "127.0.0.1"


def test_two_at_a_time(signals: Catalogue) -> None:
    with demo.serving(demo.find("idle")) as one, demo.serving(demo.find("preemption")) as other:
        assert one != other
        seen = []
        for url in (one, other):
            server = Server(url, signals.metrics)
            try:
                seen.append(server.examine(0, time.monotonic() + 60).window.latest("vllm:num_requests_running"))
            finally:
                server.close()
    assert [list(running.values()) for running in seen] == [[0.0], [20.0]]


@pytest.mark.parametrize("name", ["vllm:generation_tokens_total", "process_cpu_seconds_total"])
def test_played_again_its_counters_go_on(name: str) -> None:
    """Also those of the process: one that fell would look like a restart, and all that it shows like growth."""
    recording = demo.find("preemption")
    length = recording.times[-1]

    def counter(page: bytes) -> float:
        lines = page.decode().splitlines()
        return float(next(line for line in lines if line.startswith(name)).split()[-1])

    def running(page: bytes) -> str:
        return next(line for line in page.decode().splitlines() if line.startswith("vllm:num_requests_running"))

    assert demo.round_at(recording, 0.0) == recording.pages[0]
    counts = [counter(demo.round_at(recording, float(second))) for second in range(int(3 * length))]
    assert counts == sorted(counts)
    assert counts[-1] > 2 * (counts[int(length) - 1] - counts[0])
    assert running(demo.round_at(recording, length + 0.5)) == running(recording.pages[0])


@pytest.mark.parametrize(
    ("error", "is_told"), [(ConnectionResetError, False), (BrokenPipeError, False), (ValueError, True)]
)
def test_a_client_that_hangs_up_is_not_told_of(
    error: type[Exception], is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo.QuietServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        try:
            raise error
        except error:
            server.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) == is_told
