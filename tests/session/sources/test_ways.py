"""Servers that their URL alone does not reach: real processes that listen with TLS, on a Unix socket, in a network of
their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from tests.serving import page
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.observe import observe
from vllm_doctor.sources.server.access import Access

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.xdist_group("host"),
]

SERVER = """
import http.server, pathlib, socket, socketserver, ssl, sys

def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sent = pathlib.Path(__file__).with_name("sent")
        sent.write_text(sent.read_text() + str(self.headers.get("authorization")) + "\\n")
        page = pathlib.Path(__file__).with_name("page").read_bytes()
        known = {"/metrics": page, "/version": b'{"version": "0.32.0"}'}
        body = known.get(self.path, b"{}")
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self):
        return ""
    def log_message(self, *args):
        pass

class OfASocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass

if option("--uds"):
    server, port = OfASocket(option("--uds"), Handler), 0
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(option("--port"))), Handler)
    port = server.server_address[1]
if option("--ssl-certfile"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(option("--ssl-certfile"), option("--ssl-keyfile"))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vllm").write_text(SERVER)
    (tmp_path / "page").write_text(page("healthy-busy", 0))
    (tmp_path / "sent").write_text("")
    return tmp_path


@contextlib.contextmanager
def started(folder: Path, *options: str, within: Sequence[str] = ()) -> Iterator[int]:
    """`vllm serve`, as far as the kernel and HTTP can tell; gives its pid."""
    command = [*within, sys.executable, str(folder / "vllm"), "serve", "org/m", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip().isdigit()
            yield process.pid
        finally:
            process.send_signal(signal.SIGKILL)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def look(*words: str, access: Access | None = None) -> list[Observation]:
    """What the servers that these words name have to say."""
    metrics = frozenset({"vllm:num_requests_running"})
    how = Attachment(metrics, access or Access(), 0.0, time.monotonic() + 60)
    with ExitStack() as opened:
        sources = [source for source in attach(words, how, opened) if source.kind is SourceKind.SERVER]
        return observe(sources, 60)


def answered(seen: Observation) -> Observation:
    assert seen.error is None, seen.error
    assert len(seen.window.times) == 1
    return seen


# ---- TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def certified(folder: Path, authority: trustme.CA) -> tuple[str, ...]:
    """The options of a server with a certificate for another name, of an authority that this host does not know."""
    made = authority.issue_cert("vllm.example")
    made.private_key_and_cert_chain_pem.write_to_path(str(folder / "own.pem"))  # the key, too, as some keep it
    return "--ssl-certfile", "own.pem", "--ssl-keyfile", "own.pem"


def test_a_server_with_tls_is_asked_with_it(folder: Path, authority: trustme.CA) -> None:
    port = free_port()
    with started(folder, "--port", str(port), *certified(folder, authority)) as pid:
        for word in (str(pid), f"http://127.0.0.1:{port}", f"127.0.0.1:{port}", f"https://127.0.0.1:{port}"):
            [seen] = look(word)
            assert answered(seen).target == f"https://127.0.0.1:{port}", word


def test_another_certificate_than_its_own_is_not_trusted(folder: Path, authority: trustme.CA) -> None:
    port = free_port()
    with started(folder, "--port", str(port), *certified(folder, authority)) as pid:
        certified(folder, authority)  # replaced since it was started
        [seen] = look(str(pid))
    assert seen.error is not None
    assert seen.error.kind == "tls"


def test_a_certificate_that_cannot_be_read_is_said(folder: Path, authority: trustme.CA) -> None:
    port = free_port()
    with started(folder, "--port", str(port), *certified(folder, authority)) as pid:
        (folder / "own.pem").unlink()
        [seen] = look(str(pid))
        [insecure] = look(str(pid), access=Access(insecure=True))
    assert seen.error is not None
    assert seen.error.kind == "tls"
    assert "--ssl-certfile own.pem) cannot be read (absent)" in " ".join(seen.notes)
    answered(insecure)


def test_no_secret_goes_to_who_alone_vouches_for_himself(folder: Path, authority: trustme.CA) -> None:
    port = free_port()
    with started(folder, "--port", str(port), *certified(folder, authority)):
        [seen] = look(f"https://127.0.0.1:{port}", access=Access({"authorization": "Bearer s3cr3t"}))
    assert seen.error is not None
    assert seen.error.kind == "tls"
    assert "s3cr3t" not in (folder / "sent").read_text()


# ---- one that fails, beside others ---------------------------------------------------------------------------------


def test_a_server_that_cannot_be_asked_is_an_error_of_its_own(folder: Path, authority: trustme.CA) -> None:
    with started(folder, "--port", str(port := free_port())), started(folder, "--port", str(other := free_port())):
        secure = free_port()
        with started(folder, "--port", str(secure), *certified(folder, authority)):
            (folder / "own.pem").unlink()
            urls = [f"http://127.0.0.1:{port}", f"https://127.0.0.1:{secure}", f"http://127.0.0.1:{other}"]
            access = Access(ca_file=folder / "no-such-file")
            for seen in (look(*urls, "http://[bad"), look(*urls, "http://[bad", access=access)):
                kinds = {one.target: one.error.kind if one.error else None for one in seen}
                assert [kinds[url] for url in (urls[0], urls[2])] == [None, None]
                assert kinds[urls[1]] in ("tls", "usage")
                assert kinds["http://[bad"] == "usage"


def test_a_process_that_is_gone_is_an_error_of_its_own(folder: Path) -> None:
    with started(folder, "--port", str(free_port())) as pid:
        fine, gone = look(str(pid), "999999999")
    answered(fine)
    assert gone.error is not None
    assert (gone.target, gone.error.kind) == ("pid 999999999", "not-found")


# ---- a Unix socket -------------------------------------------------------------------------------------------------


def test_a_unix_socket(folder: Path) -> None:
    with started(folder, "--uds", "own.sock") as pid:
        [by_pid] = look(str(pid))
        [by_name] = look(f"unix:{folder}/own.sock")
    assert answered(by_pid).target == f"unix:{folder}/own.sock"
    assert answered(by_name).target == f"unix:{folder}/own.sock"


def test_a_unix_socket_that_is_gone(folder: Path) -> None:
    with started(folder, "--uds", "own.sock") as pid:
        (folder / "own.sock").unlink()
        [seen] = look(str(pid))
        (folder / "own.sock").write_text("no socket")
        [other] = look(str(pid))
    for one in (seen, other):
        assert one.error is not None
        assert one.error.kind == "unreachable"
        assert "own.sock" in one.error.message


# ---- a network of its own ------------------------------------------------------------------------------------------

UNSHARED = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def _can_unshare() -> bool:
    tools = all(map(shutil.which, ("unshare", "ip")))
    return tools and subprocess.run([*UNSHARED, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0 or not _can_unshare(), reason="only root can enter another network")
def test_a_network_of_its_own(folder: Path) -> None:
    with started(folder, "--port", "8000", "--host", "127.0.0.1", within=UNSHARED) as pid:
        before = os.readlink("/proc/self/ns/net")
        [seen] = look(str(pid))
        assert os.readlink("/proc/self/ns/net") == before
    assert answered(seen).target == f"http://127.0.0.1:8000 in the network of pid {pid}"
