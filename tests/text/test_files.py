"""What a user may name as a file, and what is refused at once."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from vllm_doctor.text import files


@pytest.fixture
def pipe() -> Iterator[tuple[str, int]]:
    """A pipe as `<(…)` gives it: its name, and the end to write to."""
    read, write = os.pipe()
    yield f"/dev/fd/{read}", write
    os.close(read)


def test_a_file_is_read_up_to_one_byte_more_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert [files.read(tmp_path / "a", most) for most in (9, 5, 4, 2)] == [b"12345", b"12345", b"12345", b"123"]


def test_an_empty_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert files.read(tmp_path / "a", 9) == b""


def test_no_named_pipe_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(files.NoFileError, match="a named pipe"):
            files.descriptor(tmp_path / name)


def test_no_socket_is_opened(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(files.NoFileError, match="a device or a socket"):
            files.descriptor(tmp_path / "s")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_no_device_is_opened(device: str) -> None:
    with pytest.raises(files.NoFileError, match="a device or a socket"):
        files.descriptor(device)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux's")
@pytest.mark.parametrize("name", ["kmsg", "self/cmdline", "self/environ", "uptime"])
def test_no_file_of_the_kernel_is_read(name: str, tmp_path: Path) -> None:
    """Some of them never end, and what is read of /proc/kmsg is gone."""
    (tmp_path / "link").symlink_to(f"/proc/{name}")
    if name == "kmsg" and not os.access("/proc/kmsg", os.R_OK):
        with pytest.raises(PermissionError):
            files.descriptor(tmp_path / "link")
        return
    with pytest.raises(files.NoFileError, match="a file of the kernel"):
        files.descriptor(tmp_path / "link")


@pytest.mark.skipif(not Path("/proc/self/root").exists(), reason="Linux's")
def test_a_plain_file_of_a_container_is_read_through_proc(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert files.read(f"/proc/self/root{tmp_path}/a", 9) == b"1"


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        files.read(tmp_path, 9)


def test_a_pipe_of_the_shell_is_read_to_its_end_and_may_be_read_again(pipe: tuple[str, int]) -> None:
    name, write = pipe

    def slowly() -> None:
        for piece in (b"a", b"b"):
            os.write(write, piece)
        os.close(write)

    writer = threading.Thread(target=slowly)
    writer.start()
    assert files.read(name, 9) == b"ab"
    writer.join()
    assert files.read(name, 9) == b"ab"


def test_a_pipe_in_which_nothing_comes_is_given_up(pipe: tuple[str, int]) -> None:
    name, write = pipe
    with closing(os.fdopen(write, "wb")), pytest.raises(TimeoutError, match="raise --timeout"):
        files.read(name, 9, until=time.monotonic() + 0.05)


def test_a_pipe_without_an_end_is_read_up_to_the_limit(pipe: tuple[str, int]) -> None:
    name, write = pipe
    with closing(os.fdopen(write, "wb")):
        os.write(write, b"1234")
        assert files.read(name, 2) == b"123"


def test_what_takes_the_place_of_a_file_is_checked_once_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    os.mkfifo(tmp_path / "pipe")
    was = os.stat

    def swapped(path: str) -> os.stat_result:
        about = was(path)
        os.replace(tmp_path / "pipe", tmp_path / "a")
        return about

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(files.NoFileError, match="a named pipe"):
        files.descriptor(str(tmp_path / "a"))
