from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.host.credentials import Credentials
from vllm_doctor.sources.host.process_files import ProcessFiles
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.sources.log.bytes_tail import Tail

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs O_PATH")


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    host = FakeProc(tmp_path)
    host.add(100, ["vllm", "serve", "m"])
    writes(host, "a.log")
    return host


def writes(host: FakeProc, name: str) -> Path:
    """Its standard output is that file from now on."""
    path = host.root / name
    path.touch()
    host.link("proc/100/fd/1", str(path))
    return path


@pytest.fixture
def log(host: FakeProc) -> Iterator[ProcessLog]:
    files = ProcessFiles(host.kernel(), 100, Credentials(os.geteuid(), os.getegid()), 10000)
    with closing(ProcessLog(files, "/var/log/a.log")) as log:
        yield log


def text(log: ProcessLog) -> str:
    with os.fdopen(log.descriptor()) as file:
        return file.read()


def test_it_is_read_from_its_start_each_time(host: FakeProc, log: ProcessLog) -> None:
    (host.root / "a.log").write_text("line\n")
    assert [text(log), text(log)] == ["line\n", "line\n"]
    assert log.stat().st_size == 5
    assert str(log) == "/var/log/a.log"


def test_one_that_has_ended_leaves_its_last_lines(host: FakeProc, log: ProcessLog) -> None:
    (host.root / "a.log").write_text("died\n")
    (host.root / "proc/100").rename(host.root / "proc/gone")
    (host.root / "a.log").rename(host.root / "a.log.1")
    assert text(log) == "died\n"
    assert log.stat().st_size == 5


def test_another_file_is_followed_where_the_server_opens_it(host: FakeProc, log: ProcessLog) -> None:
    with closing(Tail(log)) as tail:
        (host.root / "a.log").write_text("one\n")
        assert tail.read() == b"one\n"
        (writes(host, "b.log")).write_text("two\n")
        assert [tail.read(), tail.read()] == [b"two\n", b""]


def test_what_cannot_be_followed_is_told_not_left_out(host: FakeProc, log: ProcessLog) -> None:
    with closing(Tail(log)) as tail:
        tail.read()
        host.link("proc/100/fd/1", "/dev/null")
        with pytest.raises(SourceError, match="no regular file"):
            tail.read()


def test_nothing_stays_open(host: FakeProc, log: ProcessLog) -> None:
    before = len(os.listdir("/proc/self/fd"))
    text(log)
    log.stat()
    writes(host, "b.log")
    text(log)
    assert len(os.listdir("/proc/self/fd")) == before
    log.close()
    text(log)
    assert len(os.listdir("/proc/self/fd")) == before - 1


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user")
def test_what_its_user_may_not_read_is_denied_with_a_way(host: FakeProc) -> None:
    (host.root / "a.log").chmod(0o600)
    files = ProcessFiles(host.kernel(), 100, Credentials(65534, 65534), 10000)
    log = ProcessLog(files, "/a log")
    with pytest.raises(SourceError) as caught:
        log.descriptor()
    assert caught.value.kind == "denied"
    assert "name it: vllm-doctor 100 '/a log'" in str(caught.value)
    with pytest.raises(PermissionError):
        log.stat()
