"""The demo: a recorded sick server, served over real HTTP on a free loopback port."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from vllm_doctor.errors import UsageError
from vllm_doctor.sources.recording import Recording, read


def folder() -> Path:
    """The shipped recordings: in the package when installed, beside it in a checkout."""
    package = Path(__file__).parent
    inside, beside = package / "recordings", package.parent / "fixtures"
    return inside if inside.is_dir() else beside


def names() -> list[str]:
    return sorted(path.parent.name for path in folder().glob("*/recording.json"))


def find(name: str) -> Recording:
    """A shipped recording by name. Raises UsageError with the list of names."""
    if name not in names():
        raise UsageError(f"no demo {name!r}; there are: {', '.join(names())}")
    return read(folder() / name)


@contextlib.contextmanager
def serving(recording: Recording) -> Iterator[str]:
    """Serve a recording as the server it was taken from; gives its URL. Time starts with the first scrape."""
    started: list[float] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            match self.path.split("?")[0].rstrip("/"):
                case "/metrics":
                    started.append(time.monotonic())
                    body, kind = recording.page_at(started[-1] - started[0]), "text/plain; version=0.0.4"
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

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
