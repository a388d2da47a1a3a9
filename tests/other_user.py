"""A server of another user: a real process that is `python3 -m vllm.entrypoints.openai.api_server`, and answers.

Only root can start one. A test that cannot is skipped with the reason, and fails in CI (`tests/programs.py`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.programs import needed
from tests.serving import pages

UID = 12345
PATIENCE = 30.0

_SERVER = """\
import contextlib, http.server, os, pathlib, subprocess, sys

here = pathlib.Path(os.environ["PYTHONPATH"])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/v1/models" and "HOOK" in os.environ:
            subprocess.run(["sh", "-c", os.environ["HOOK"]])
        answers = {"/version": b'{"version": "0.32.0"}', "/v1/models": b'{"data": [{"id": "tiny"}]}'}
        body = answers.get(self.path) or (here / "metrics.page").read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


port = int(sys.argv[sys.argv.index("--port") + 1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
with contextlib.suppress(OSError):
    os.write(1, b"INFO 11-20 10:49:35 [api_server.py:1900] vLLM API server version 0.32.0\\n")
server.serve_forever()
"""


def as_user(command: Sequence[str], **more: object) -> subprocess.Popen[bytes]:
    """The command, run by that user, with no group but its own."""
    return subprocess.Popen(command, user=UID, group=UID, extra_groups=[], **more)  # type: ignore[call-overload,no-any-return]


@functools.cache
def python() -> str:
    """A Python that the other user may run. The tests' own need not be: it may lie in root's home."""
    found = [
        sys.executable,
        *(found for name in ("/usr/bin", "/usr/local/bin") if (found := shutil.which("python3", path=name))),
    ]
    for path in found:
        with contextlib.suppress(OSError), as_user([path, "-c", "import http.server"]) as tried:
            if tried.wait() == 0:
                return path
    return needed("python3", "no-python3-that-another-user-may-run")


def needs_namespaces() -> None:
    """Skip where a plain user can make no mount namespace of its own."""
    unshare = needed("util-linux", "unshare")
    with as_user([unshare, "-Urm", "true"], stderr=subprocess.DEVNULL) as tried:
        if tried.wait() != 0:
            pytest.skip("this kernel lets no user make a user namespace (kernel.unprivileged_userns_clone, AppArmor)")


@dataclass(frozen=True)
class Home:
    """The folder of the other user, and the server in it."""

    path: Path

    def script(self, name: str, text: str) -> Path:
        """A program of that user."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        os.chown(path, UID, UID)
        os.chown(path.parent, UID, UID)
        return path

    @contextlib.contextmanager
    def serving(
        self,
        *flags: str,
        stdout: IO[bytes] | int = subprocess.DEVNULL,
        argv0: str | None = None,
        hook: str | None = None,
        before: str | None = None,
    ) -> Iterator[int]:
        """The server with these flags, once it answers; gives its pid. `before`: shell text, run as root of a mount
        namespace of its own, which then becomes the server."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = [argv0 or python(), "-m", "vllm.entrypoints.openai.api_server", "--port", port, "--model", "tiny"]
        command += flags
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.path), **({"HOOK": hook} if hook else {})}
        program = python()
        if before is not None:
            text = f'{before}\nexec -a "$0" {python()} "$@"'
            command = ["unshare", "-Urm", needed("bash"), "-c", text, *command]
            program = needed("util-linux", "unshare")
        with as_user(command, executable=program, stdout=stdout, cwd=self.path, env=environ) as process:
            try:
                _answers(int(port), process)
                yield process.pid
            finally:
                process.kill()


def _answers(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.05)


@contextlib.contextmanager
def home() -> Iterator[Home]:
    """A home for the other user, where all may look."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can start another user's process")
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-test-") as folder:
        path = Path(folder)
        package = path / "vllm/entrypoints/openai"
        package.mkdir(parents=True)
        for part in (path / "vllm", path / "vllm/entrypoints", package):
            (part / "__init__.py").touch()
        (package / "api_server.py").write_text(_SERVER)
        (path / "metrics.page").write_text(pages("preemption")[0])
        for part in [path, *path.rglob("*")]:
            os.chown(part, UID, UID)
            part.chmod(0o755)
        yield Home(path)
