"""For the tests: a real HTTP server on loopback whose routes are functions, and pages of recorded servers.

with serving(vllm(pages("preemption"))) as server:
    main([server.url])
    assert len(server.asked("/metrics")) == 4
"""

from __future__ import annotations

import contextlib
import email.utils
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.recording import demo, metrics
from vllm_doctor.recording.bundle import Recorded, Recording
from vllm_doctor.recording.metrics import MetricsWriter


@dataclass(frozen=True)
class Request:
    """One request as it came. `number` counts the requests for this path, from 0."""

    method: str
    path: str
    headers: Mapping[str, str]
    client: tuple[str, int]
    number: int
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """`body` in pieces is sent in chunks, as they come."""

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class CutError(Exception):
    """Raised by a route: close the connection without an answer."""


Route = Callable[[Request], Answer | bytes | str]


class Served:
    """A server that is up. `requests` holds what came, in order."""

    def __init__(self, listener: _Listener, scheme: str) -> None:
        self._listener = listener
        host, self.port = listener.server_address[:2]
        self.host = f"[{host!s}]" if ":" in str(host) else str(host)
        self.scheme = scheme
        self.url = f"{scheme}://{self.host}:{self.port}"
        self.requests = listener.requests
        self.ended = listener.ended
        """Set when the server goes away: a route that hangs waits for it."""

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def die(self) -> None:
        """Stop listening, and cut every connection. Safe to call from a route."""
        self.ended.set()
        self._listener.shutdown()
        self._listener.socket.close()
        for connection in list(self._listener.connections):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS: its thread may be reading


class _Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, gzip: bool) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.tls, self.gzip = tls, gzip
        self.routes: Mapping[str, Route] = {}
        self.requests: list[Request] = []
        self.connections: set[socket.socket] = set()
        self.failures: list[BaseException] = []
        self.ended = threading.Event()
        self.lock = threading.Lock()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = self.socket.accept()
        if self.tls is not None:  # the handshake is left to the handler's thread
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no failure of the test; a route that raises is."""
        import sys

        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError | CutError):
            self.failures.append(error)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it would hold each body back for 40 ms
    server: _Listener

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names that http.server wants

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # who asked has hung up
            return
        with self.server.lock:
            number = sum(request.path == self.path for request in self.server.requests)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self.client_address[:2], number, body)
            self.server.requests.append(request)
        route = self.server.routes.get(self.path.partition("?")[0], self.server.routes.get(self.path, _not_found))
        given = route(request)
        if isinstance(given, str):
            given = given.encode("utf-8", "surrogateescape")
        answer = Answer(given) if isinstance(given, bytes) else given
        self.send_response_only(answer.status)
        headers = {"Date": email.utils.formatdate(usegmt=True), **answer.headers}
        if isinstance(answer.body, bytes):
            self._send_whole(answer.body, headers, "gzip" in request.headers.get("accept-encoding", ""))
        else:
            self._send_pieces(answer.body, headers)

    def _send_whole(self, body: bytes, headers: dict[str, str], accepts_gzip: bool) -> None:
        if self.server.gzip and accepts_gzip:
            import gzip

            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self._send_headers(headers | {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _send_pieces(self, pieces: Iterable[bytes], headers: dict[str, str]) -> None:
        self._send_headers(headers | {"Transfer-Encoding": "chunked"})
        for piece in pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _send_headers(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _not_found(request: Request) -> Answer:
    return Answer(b'{"detail":"Not Found"}', 404, {"Content-Type": "application/json"})


@contextlib.contextmanager
def serving(
    routes: Mapping[str, Route], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, gzip: bool = False
) -> Iterator[Served]:
    """A server on a free port; a path that `routes` lacks is 404. Raises at the end what a route raised."""
    with _Listener((host, 0), tls, gzip) as listener:
        listener.routes = routes
        served = Served(listener, "https" if tls else "http")
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.die()
            thread.join(30)
    if listener.failures:
        raise listener.failures[0]


@contextlib.contextmanager
def raw(conversation: Callable[[socket.socket], None]) -> Iterator[str]:
    """A TCP server that speaks no HTTP of its own: `conversation` has the connection. Gives its http URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    conversation(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(30)


@cache
def _deaf(number: int) -> socket.socket:
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))
    return deaf


def dead_url(number: int = 0) -> str:
    """A URL that refuses connections: its port is taken, so that no other server gets it, but nothing listens."""
    return f"http://127.0.0.1:{_deaf(number).getsockname()[1]}"


@cache
def recording(name: str) -> Recording:
    return demo.find(name)


def recorded(times: Sequence[float], pages: Sequence[bytes], version: Any = None, models: Any = None) -> Recording:
    """A recording of one server that answered these pages at these seconds."""
    writer = MetricsWriter()
    for at, body in zip(times, pages, strict=True):
        writer.add(at, body.decode())
    answers = metrics.of_file(writer.ended(), "r")
    server = Recorded(
        SourceKind.SERVER, "http://127.0.0.1:8000", metrics=answers, version=version, models_answer=models
    )
    return Recording("r", datetime(2026, 11, 20, tzinfo=UTC), times[-1], "0.1.0", "", False, {}, (server,))


def page(name: str, i: int) -> str:
    """The i-th scrape of a recording."""
    return recording(name).pages[i].decode()


def pages(name: str, count: int = 40) -> list[str]:
    """What the recorded server answers when it is asked once a second."""
    return [recording(name).page_at(float(second)).decode() for second in range(count)]


def edited(texts: Iterable[str], *changes: tuple[str, str]) -> list[str]:
    """The pages with each text replaced; one that is not there is a mistake in the test."""
    result = []
    for text in texts:
        for old, new in changes:
            assert old in text, f"{old!r} is not on the page"
            text = text.replace(old, new)
        result.append(text)
    return result


def in_turn(texts: Sequence[str]) -> Route:
    """The first request gets the first text, and so on; the last is repeated."""
    return lambda request: texts[min(request.number, len(texts) - 1)]


def as_json(value: Any) -> Route:
    return lambda request: Answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})


VERSION: Any = {"version": "0.32.0"}
MODELS: Any = {
    "object": "list",
    "data": [{"id": "tiny", "object": "model", "owned_by": "vllm", "parent": None, "max_model_len": 2048}],
}


def vllm(
    metrics: Route | Sequence[str], version: Any = VERSION, models: Any = MODELS, prefix: str = ""
) -> dict[str, Route]:
    """The routes of a vLLM server."""
    return {
        f"{prefix}/metrics": metrics if callable(metrics) else in_turn(metrics),
        f"{prefix}/version": as_json(version),
        f"{prefix}/v1/models": as_json(models),
    }


class Clock:
    """A clock that a sleep sets forward instead of waiting; it runs with the real one besides."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ahead += max(0.0, seconds)


# A node_exporter, as it looks to whoever mistakes its port for a vLLM's.
NODE_EXPORTER = """\
# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 8
# HELP go_info Information about the Go environment.
# TYPE go_info gauge
go_info{version="go1.22.3"} 1
# HELP node_boot_time_seconds Node boot time, in unixtime.
# TYPE node_boot_time_seconds gauge
node_boot_time_seconds 1.79510012e+09
# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 81234.56
node_cpu_seconds_total{cpu="0",mode="iowait"} 12.3
node_cpu_seconds_total{cpu="0",mode="irq"} 0
node_cpu_seconds_total{cpu="0",mode="nice"} 1.05
node_cpu_seconds_total{cpu="0",mode="softirq"} 33.91
node_cpu_seconds_total{cpu="0",mode="steal"} 0
node_cpu_seconds_total{cpu="0",mode="system"} 812.4
node_cpu_seconds_total{cpu="0",mode="user"} 3190.77
node_cpu_seconds_total{cpu="1",mode="idle"} 81190.12
node_cpu_seconds_total{cpu="1",mode="system"} 799.02
node_cpu_seconds_total{cpu="1",mode="user"} 3222.18
# HELP node_disk_io_time_seconds_total Total seconds spent doing I/Os.
# TYPE node_disk_io_time_seconds_total counter
node_disk_io_time_seconds_total{device="sda"} 211.3
# HELP node_filesystem_avail_bytes Filesystem space available to non-root users in bytes.
# TYPE node_filesystem_avail_bytes gauge
node_filesystem_avail_bytes{device="/dev/sda1",fstype="ext4",mountpoint="/"} 3.1415926e+10
node_filesystem_avail_bytes{device="tmpfs",fstype="tmpfs",mountpoint="/run"} 8.21e+08
# HELP node_load1 1m load average.
# TYPE node_load1 gauge
node_load1 0.21
# HELP node_load15 15m load average.
# TYPE node_load15 gauge
node_load15 0.35
# HELP node_load5 5m load average.
# TYPE node_load5 gauge
node_load5 0.3
# HELP node_memory_MemAvailable_bytes Memory information field MemAvailable_bytes.
# TYPE node_memory_MemAvailable_bytes gauge
node_memory_MemAvailable_bytes 6.442450944e+09
# HELP node_memory_MemTotal_bytes Memory information field MemTotal_bytes.
# TYPE node_memory_MemTotal_bytes gauge
node_memory_MemTotal_bytes 8.589934592e+09
# HELP node_network_receive_bytes_total Network device statistic receive_bytes.
# TYPE node_network_receive_bytes_total counter
node_network_receive_bytes_total{device="eth0"} 1.234567e+08
node_network_receive_bytes_total{device="lo"} 7.654321e+06
# HELP node_network_transmit_bytes_total Network device statistic transmit_bytes.
# TYPE node_network_transmit_bytes_total counter
node_network_transmit_bytes_total{device="eth0"} 9.876543e+07
node_network_transmit_bytes_total{device="lo"} 7.654321e+06
# HELP node_time_seconds System time in seconds since epoch (1970).
# TYPE node_time_seconds gauge
node_time_seconds 1.79518155e+09
# HELP node_uname_info Labeled system information as provided by the uname system call.
# TYPE node_uname_info gauge
node_uname_info{machine="x86_64",nodename="db1",release="6.1.0",sysname="Linux",version="#1 SMP"} 1
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79510013e+09
"""
HTML = "<!DOCTYPE html>\n<html><head><title>Welcome to nginx!</title></head>\n<body><h1>It works!</h1></body></html>\n"
