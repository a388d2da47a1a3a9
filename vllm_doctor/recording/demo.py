"""The demo: a recorded sick server, served over real HTTP on a free loopback port."""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_doctor.model.errors import UsageError
from vllm_doctor.recording.bundle import Recording, read
from vllm_doctor.text import near

_METRICS = "text/plain; version=0.0.4"
_COUNTED = ("_total", "_bucket", "_count", "_sum")


def round_at(recording: Recording, seconds: float) -> bytes:
    """The page of a recording that is played again and again: each time its counters go on where they ended."""
    length = recording.times[-1]
    rounds = int(seconds // length) if length > 0 else 0
    page = recording.page_at(seconds - rounds * length)
    if not rounds:
        return page
    first, last = _counters(recording.pages[0]), _counters(recording.pages[-1])
    lines = []
    for line in page.decode().splitlines(keepends=True):
        head, _, value = line.rstrip("\n").rpartition(" ")
        if head in last:
            line = f"{head} {float(value) + rounds * (last[head] - first.get(head, 0.0))}\n"
        lines.append(line)
    return "".join(lines).encode()


@functools.lru_cache(4)
def _counters(page: bytes) -> dict[str, float]:
    """What stands before the value -> the value, of all counters: one that fell would be a restart."""
    pairs = (line.rpartition(" ") for line in page.decode().splitlines() if not line.startswith("#"))
    return {head: float(value) for head, _, value in pairs if head.partition("{")[0].endswith(_COUNTED)}


def folder() -> Path:
    """The shipped recordings: in the package when installed, beside it in a checkout."""
    here = Path(__file__).parent
    inside, beside = here / "shipped", here.parents[1] / "fixtures"
    return inside if inside.is_dir() else beside


def names() -> list[str]:
    return sorted(path.parent.name for path in folder().glob("*/recording.json"))


def find(name: str) -> Recording:
    """A shipped recording by name. Raises UsageError with the list of names."""
    if name not in names():
        there = f"; there are: {', '.join(names())}"
        raise UsageError(f"no demo {name!r}{near.asked(name, names(), there)}")
    return replace(read(folder() / name), name=name)


class QuietServer(http.server.ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(recording: Recording, again: bool = False) -> Iterator[str]:
    """Serve a recording as the server it was taken from; gives its URL. Time starts with the first scrape.

    After its end it stands still; with `again` it begins anew, and what it counts goes on.
    """
    started: list[float] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            match self.path.split("?")[0].rstrip("/"):
                case "/metrics":
                    started.append(time.monotonic())
                    at = started[-1] - started[0]
                    body, kind = round_at(recording, at) if again else recording.page_at(at), _METRICS
                case "/version":
                    body, kind = json.dumps(recording.version).encode(), "application/json"
                case "/v1/models":
                    body, kind = json.dumps(recording.models).encode(), "application/json"
                case _:
                    self.send_error(404)
                    return
            self.send_response(200)
            if "gzip" in self.headers.get("accept-encoding", ""):
                body = gzip.compress(body, 1)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with QuietServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
