from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log.bytes_tail import Tail


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"first\n")
    return path


def test_what_is_appended_comes_once(log: Path) -> None:
    tail = Tail(log)
    assert tail.read() == b"first\n"
    assert tail.read() == b""
    append(log, b"second\nhal")
    assert tail.read() == b"second\nhal"
    append(log, b"f\n")
    assert tail.read() == b"f\n"
    tail.close()


def test_it_begins_where_told(log: Path) -> None:
    tail = Tail(log, position=2)
    assert tail.read() == b"rst\n"
    tail.close()


def test_a_read_gives_no_more_than_asked_for(log: Path) -> None:
    tail = Tail(log)
    assert [tail.read(4), tail.read(4), tail.read(4)] == [b"firs", b"t\n", b""]
    tail.close()


def test_after_renaming_the_old_log_is_read_to_its_end_then_the_new_one(log: Path) -> None:
    tail = Tail(log)
    assert tail.read(3) == b"fir"
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), b"last\n")
    log.write_bytes(b"new\n")
    assert [tail.read(3) for _ in range(5)] == [b"st\n", b"las", b"t\n", b"new", b"\n"]
    append(log, b"more\n")
    assert tail.read() == b"more\n"
    tail.close()


def test_what_is_written_to_the_old_log_at_the_last_moment_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = Tail(log)
    tail.read()
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"new\n")

    def compared(*_: object) -> bool:
        append(log.with_suffix(".1"), b"last\n")
        return False

    with monkeypatch.context() as patched:
        patched.setattr(os.path, "samestat", compared)
        assert tail.read() == b"last\n"
    assert tail.read() == b"new\n"
    tail.close()


def test_while_no_new_log_is_there_the_old_one_is_still_read(log: Path) -> None:
    tail = Tail(log)
    tail.read()
    log.rename(log.with_suffix(".1"))
    assert tail.read() == b""
    append(log.with_suffix(".1"), b"late\n")
    assert tail.read() == b"late\n"
    tail.close()


def test_a_truncated_log_is_read_from_its_start(log: Path) -> None:
    tail = Tail(log)
    tail.read()
    log.write_bytes(b"new\n")
    assert tail.read() == b"new\n"
    os.truncate(log, 0)
    assert tail.read() == b""
    append(log, b"newer, and longer than before\n")
    assert tail.read() == b"newer, and longer than before\n"
    tail.close()


@pytest.mark.parametrize("rotate", ["rename", "truncate", "truncate, looked at before the next line"])
def test_a_line_without_end_is_not_joined_to_the_next_log(log: Path, rotate: str) -> None:
    tail = Tail(log)
    append(log, b"torn and never ended")
    tail.read()
    if rotate == "rename":
        log.rename(log.with_suffix(".1"))
    else:
        os.truncate(log, 0)
    if "looked" in rotate:
        assert tail.read() == b""
    log.write_bytes(b"new\n")
    assert tail.read() == b"\nnew\n"
    tail.close()


def test_a_log_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "server.log")
    assert tail.read() == b""
    (tmp_path / "server.log").write_bytes(b"first\n")
    assert tail.read() == b"first\n"
    tail.close()


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(SourceError) as caught:
            Tail(path).read()
        assert caught.value.kind == "not-a-log"


def test_a_log_that_may_not_be_read_is_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(SourceError) as caught:
        Tail(log).read()
    assert caught.value.kind == "denied"


def test_nothing_stays_open(log: Path) -> None:
    before = os.listdir("/proc/self/fd")
    tail = Tail(log)
    tail.read()
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"new\n")
    tail.read()
    tail.close()
    assert os.listdir("/proc/self/fd") == before
