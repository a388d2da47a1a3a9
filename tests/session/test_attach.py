"""What the words of the command line point at, on a host that is a folder of real files."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.fake_nvml import installed
from tests.paths import NVIDIA_SMI
from tests.serving import dead_url, pages, raw, serving, vllm
from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.recording import demo
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session import attach as attaching
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.local import Local, PrintedGpus
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources.pid import NOBODY
from vllm_doctor.sources.gpu import printed as printed_gpus
from vllm_doctor.sources.host.process import ServerProcess
from vllm_doctor.sources.server.access import Access

VLLM = ["/opt/v/bin/python", "/opt/v/bin/vllm", "serve", "m"]
API, CORE = 100, 101
SMI = NVIDIA_SMI / "h100-driver-550.xml"

Kinds = list[tuple[str, str, str]]


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.add(1, ["/sbin/init"], parent=0)
    return made


Attach = Callable[..., list[Source]]


@pytest.fixture
def attach(proc: FakeProc, signals: Catalogue) -> Iterator[Attach]:
    with contextlib.ExitStack() as opened:

        def watchers(*sources: str, smi: Path | None = None) -> list[Source]:
            look = Attachment(signals.metrics, Access(), 0.0, time.monotonic() + 1000, smi, proc.kernel())
            return attaching.attach(sources, look, opened)

        yield watchers


def serve(proc: FakeProc, pid: int = API, port: int = 8000, address: str = "0.0.0.0") -> str:
    """A vLLM of two processes; its URL as it is found."""
    proc.add(pid, [*VLLM, "--port", str(port)], sockets=[pid])
    proc.add(pid + 1, "VLLM::EngineCore", pid)
    proc.listen(port, pid, address)
    return f"http://127.0.0.1:{port}"


def kinds(watchers: Sequence[Source]) -> Kinds:
    return [(watcher.kind, watcher.target, watcher.patient) for watcher in watchers]


def whole(url: str, pid: int = API) -> Kinds:
    """The watchers of a server and its host."""
    return [("server", url, url), ("host", f"pid {pid}", url), ("gpu", "NVIDIA driver", url)]


# By pid


@pytest.mark.parametrize("pid", [API, CORE])
def test_any_pid_of_a_server(pid: int, proc: FakeProc, attach: Attach) -> None:
    url = serve(proc)
    assert kinds(attach(str(pid))) == whole(url)


@pytest.mark.parametrize(
    ("pid", "kind", "said"),
    [
        (7, "not-found", "there is no process 7"),
        (200, "not-vllm", "process 200 (nginx) is no vLLM server"),
        (201, "not-found", "process 201 (vllm) has ended"),
    ],
)
def test_a_pid_that_is_none(pid: int, kind: str, said: str, proc: FakeProc, attach: Attach) -> None:
    proc.add(1, ["/sbin/init"], 0)
    proc.add(200, ["nginx"])
    proc.add(201, VLLM, state="Z", comm="vllm")
    with pytest.raises(SourceError, match="process") as caught:
        attach(str(pid))
    assert caught.value.kind == kind
    assert said in str(caught.value)


@pytest.mark.parametrize("word", ["²", "٣", "9" * 5000, "12a", "-5", "+5", "1.5", ""])
def test_what_only_looks_like_a_pid(word: str, attach: Attach) -> None:
    with pytest.raises(UsageError, match="neither a file"):
        attach(word)


def test_a_server_whose_port_cannot_be_seen(proc: FakeProc, attach: Attach) -> None:
    proc.add(API, VLLM, net="pod", sockets=[1])
    proc.listen(8000, 1, "127.0.0.1", net="pod")
    proc.add(CORE, "VLLM::EngineCore", API)
    watchers = attach(str(API))
    patient = f"pid {API}"
    assert kinds(watchers) == [
        ("server", patient, patient),
        ("host", patient, patient),
        ("gpu", "NVIDIA driver", patient),
    ]
    seen = watchers[0].look()
    assert seen.error is not None
    assert seen.error.kind == "no-url"
    assert seen.error.message.startswith(f"{patient} is a vLLM, but no port of it is reachable")
    assert "127.0.0.1 in a network of its own: run vllm-doctor as root" in seen.error.message
    assert seen.patient == patient


# By nothing


def test_every_server_of_the_host(proc: FakeProc, attach: Attach) -> None:
    one, other = serve(proc), serve(proc, 300, 8001)
    proc.add(400, ["nginx"])
    assert kinds(attach()) == [*whole(one), *whole(other, 300)]


def test_no_server_on_the_host(proc: FakeProc, attach: Attach) -> None:
    proc.add(400, ["bash", "-c", "vllm serve m"])
    with pytest.raises(UsageError) as caught:
        attach()
    assert str(caught.value) == NOBODY
    assert "vllm-doctor PID" in NOBODY


# By URL


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", socket.gethostname()])
def test_a_url_of_this_host(host: str, proc: FakeProc, attach: Attach) -> None:
    serve(proc)
    url = f"http://{host}:8000"
    assert kinds(attach(url)) == whole(url)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/"])
def test_a_url_may_be_written_shortly(url: str, proc: FakeProc, attach: Attach) -> None:
    found = serve(proc)
    assert kinds(attach(url)) == whole(found)


@pytest.mark.parametrize(("url", "port"), [("http://127.0.0.1", 80), ("https://127.0.0.1", 443)])
def test_the_port_of_a_url_that_names_none(url: str, port: int, proc: FakeProc, attach: Attach) -> None:
    serve(proc, port=port)
    assert kinds(attach(url)) == whole(url)


def test_a_proxy_in_front_of_the_server(proc: FakeProc, attach: Attach) -> None:
    serve(proc)
    proc.add(200, ["nginx"], sockets=[9])
    proc.listen(80, 9)
    watchers = attach("http://127.0.0.1/vllm")
    url = "http://127.0.0.1/vllm"
    assert kinds(watchers) == [("server", url, url), ("host", "port 80", url)]
    seen = watchers[1].look()
    assert seen.notes == ("port 80 is nginx (pid 200), not vLLM itself: for its host, name the vLLM behind it",)
    assert (seen.error, seen.patient, dict(seen.facts)) == (None, url, {})


@pytest.mark.parametrize("url", ["http://10.255.255.1:8000", "http://gpu-7.invalid:8000", "https://[2001:db8::1]"])
def test_a_url_of_another_host(url: str, proc: FakeProc, attach: Attach) -> None:
    """Though a server here has the same port."""
    serve(proc)
    assert kinds(attach(url)) == [("server", url, url)]


def test_a_url_of_this_host_on_which_nobody_listens(proc: FakeProc, attach: Attach) -> None:
    serve(proc)
    url = "http://127.0.0.1:8001"
    assert kinds(attach(url)) == [("server", url, url)]


def test_a_password_is_not_in_the_names(proc: FakeProc, attach: Attach) -> None:
    serve(proc)
    assert "s3cr3t" not in repr(kinds(attach("http://me:s3cr3t@127.0.0.1:8000")))


# Several


def test_the_same_server_named_twice_is_watched_once(proc: FakeProc, attach: Attach) -> None:
    url = serve(proc)
    assert kinds(attach(url, str(API), str(CORE), url)) == whole(url)


def test_two_servers(proc: FakeProc, attach: Attach) -> None:
    one, other = serve(proc), serve(proc, 300, 8001)
    elsewhere = "http://10.255.255.1:8000"
    assert kinds(attach(one, "301", elsewhere)) == [
        *whole(one),
        *whole(other, 300),
        ("server", elsewhere, elsewhere),
    ]


# What is no source


@pytest.mark.parametrize("word", ["vllm.log", "no-such-host", "./recording", "a.tar.gz"])
def test_a_word_that_names_nothing(word: str, attach: Attach) -> None:
    with pytest.raises(UsageError, match="neither a file") as caught:
        attach(word)
    assert "\n" not in str(caught.value)


def test_a_file_though_its_name_could_be_a_host_and_a_port(tmp_path: Path, attach: Attach) -> None:
    path = tmp_path / "vllm:1"
    path.write_text("INFO\n", "utf-8")
    assert kinds(attach(str(path))) == [("log", str(path), str(path))]


def test_a_number_is_a_pid_though_a_folder_has_that_name(
    tmp_path: Path, proc: FakeProc, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(proc)
    (tmp_path / str(API)).mkdir()
    monkeypatch.chdir(tmp_path)
    assert kinds(attach(str(API))) == whole(url)


def test_a_folder_is_a_recording(tmp_path: Path, attach: Attach) -> None:
    with pytest.raises(SourceError, match="a folder with no recording"):
        attach(str(tmp_path))
    found = attach(str(demo.folder() / "cpu-hog"))
    assert [watcher.kind for watcher in found] == ["server", "host"]
    assert len({watcher.patient for watcher in found}) == 1


def test_logs_are_read_together_and_are_those_of_the_one_server_beside_them(
    tmp_path: Path, proc: FakeProc, attach: Attach
) -> None:
    old, new = tmp_path / "vllm.log.1", tmp_path / "vllm.log"
    for path in (old, new):
        path.write_text("INFO\n", "utf-8")
    assert kinds(attach(str(old), str(new), "-")) == [("log", f"{old}, {new}, -", f"{old}, {new}, -")]
    url = serve(proc)
    assert kinds(attach(url, str(new)))[-1] == ("log", str(new), url)


def test_a_name_that_is_too_long_for_a_file(attach: Attach) -> None:
    url = f"{'a' * 300}:8000"
    assert kinds(attach(url)) == [("server", f"http://{url}", f"http://{url}")]


# --nvidia-smi


def test_gpus_from_a_file(proc: FakeProc, attach: Attach) -> None:
    url = serve(proc)
    watchers = attach(str(API), smi=SMI)
    assert kinds(watchers) == [*whole(url)[:2], ("gpu", str(SMI), url)]
    assert watchers[2].look().facts["driver_version"].value == "550.90.07"  # type: ignore[union-attr]


@pytest.mark.parametrize("url", ["http://10.255.255.1:8000", "http://127.0.0.1:8001"])
def test_gpus_of_a_server_elsewhere_from_a_file(url: str, attach: Attach) -> None:
    watchers = attach(url, smi=SMI)
    assert kinds(watchers) == [("server", url, url), ("gpu", str(SMI), url)]
    assert "gpu_name" in watchers[1].look().facts


def test_gpus_from_a_file_behind_a_proxy(proc: FakeProc, attach: Attach) -> None:
    proc.add(200, ["nginx"], sockets=[9])
    proc.listen(80, 9)
    assert [watcher.kind for watcher in attach("http://127.0.0.1", smi=SMI)] == ["server", "host", "gpu"]


def test_the_gpus_of_a_log_alone_are_those_of_the_file(tmp_path: Path, attach: Attach) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO 11-20 10:00:00 [x.py:1] started\n", "utf-8")
    assert kinds(attach(str(log), smi=SMI)) == [("log", str(log), str(log)), ("gpu", str(SMI), str(log))]
    assert [watcher.kind for watcher in attach(str(log))] == ["log"]


def test_a_server_with_a_log_has_its_gpus_once(proc: FakeProc, tmp_path: Path, attach: Attach) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO 11-20 10:00:00 [x.py:1] started\n", "utf-8")
    url = serve(proc)
    assert sorted(kind for kind, _, _ in kinds(attach(url, str(log), smi=SMI))) == ["gpu", "host", "log", "server"]


@pytest.mark.parametrize("content", [None, "", "Mon Nov 20\n+---+\n| NVIDIA-SMI 550 |\n", "<nvidia_smi_log><gpu>"])
def test_a_bad_file_is_told_before_anybody_is_asked(
    content: str | None, tmp_path: Path, proc: FakeProc, attach: Attach
) -> None:
    serve(proc)
    path = tmp_path / "smi.xml"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(UsageError) as caught:
        attach(smi=path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    (beside,) = [one for one in attach(str(API), smi=path) if one.target == str(path)]
    problem = beside.look().error
    assert problem is not None
    assert problem.message == str(caught.value)


# What the watchers see


def test_the_watchers_look(proc: FakeProc, attach: Attach, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(vllm(pages("preemption"))) as server:
        serve(proc, port=server.port, address="127.0.0.1")
        installed(monkeypatch, "no-gpu")
        seen = [watcher.look() for watcher in attach(str(CORE))]
        assert [one.patient or one.target for one in seen] == [server.url] * 3
        assert [one.error for one in seen] == [None] * 3
        assert [one.kind for one in seen] == ["server", "host", "gpu"]
        assert seen[0].facts["vllm_version"].value == "0.32.0"  # type: ignore[union-attr]
        assert seen[1].command == (*VLLM, "--port", str(server.port))
        assert seen[2].facts["gpus"].value == 0  # type: ignore[union-attr]


def test_connections_are_closed_at_the_end(proc: FakeProc, signals: Catalogue) -> None:
    ended = threading.Event()

    def conversation(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
        ended.set()

    with raw(conversation) as url:
        with contextlib.ExitStack() as opened:
            look = Attachment(signals.metrics, Access(), 0.0, time.monotonic() + 1000, None, proc.kernel())
            [watcher] = attaching.attach([url], look, opened)
            assert watcher.look().error is not None
        assert ended.wait(60)


@pytest.mark.parametrize("is_ours", [False, True])
def test_real_processes(is_ours: bool, signals: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this very host: the port is this test's, which is no vLLM; nor a proxy, where the doctor has it (demo)."""
    if not is_ours:
        monkeypatch.setattr(os, "getpid", lambda: 0)
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs /proc")
    with serving({}) as server, contextlib.ExitStack() as opened:
        look = Attachment(signals.metrics, Access(), 0.0, time.monotonic() + 1000)
        watchers = attaching.attach([server.url, dead_url()], look, opened)
        assert kinds(watchers) == [
            ("server", server.url, server.url),
            *([] if is_ours else [("host", f"port {server.port}", server.url)]),
            ("server", dead_url(), dead_url()),
        ]


def test_a_file_of_several_gpus_does_not_tell_which_a_remote_server_uses() -> None:
    """The first is not the server's merely because nothing is known: none is judged."""
    path = NVIDIA_SMI / "h100-driver-550.xml"
    printed = PrintedGpus(str(path), printed_gpus.read(path))
    facts = Local(ServerProcess.unseen(), "http://far:8000", printed=printed).examine_gpus(0, 0.0).facts
    assert facts["gpus_on_host"] == Known(2.0)
    assert facts["gpus"] == Unknown(Reason.ABSENT)
