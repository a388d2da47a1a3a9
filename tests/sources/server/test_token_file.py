from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.sources.server import token_file
from vllm_doctor.text import files

TOKEN = "s3cr3t-t0ken"


@contextlib.contextmanager
def pipe(*pieces: bytes, first: threading.Event | None = None) -> Iterator[str]:
    """What `<(…)` gives: a pipe among our descriptors, written by somebody else."""
    read, write = os.pipe()

    def fill() -> None:
        if first is not None:
            first.wait(30)
        with contextlib.suppress(BrokenPipeError):
            for piece in pieces:
                os.write(write, piece)
        os.close(write)

    writer = threading.Thread(target=fill)
    writer.start()
    try:
        yield f"/dev/fd/{read}"
    finally:
        os.close(read)
        writer.join(30)


@pytest.mark.parametrize("content", [TOKEN, f"{TOKEN}\n", f"  {TOKEN}\r\n\n"])
def test_a_token_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content)
    (tmp_path / "link").symlink_to("token")  # as Kubernetes mounts a secret
    assert token_file.read("--token-file", str(tmp_path / "link")) == TOKEN


def test_a_token_out_of_a_program() -> None:
    with pipe(TOKEN[:5].encode(), TOKEN[5:].encode(), b"\n") as path:
        assert token_file.read("--token-file", path) == TOKEN


def test_a_program_that_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    real = select.poll

    def waiting() -> select.poll:
        waits.set()
        return real()

    monkeypatch.setattr(select, "poll", waiting)
    with pipe(TOKEN.encode(), first=waits) as path:
        assert token_file.read("--token-file", path) == TOKEN


def test_a_program_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SECONDS", 0.01)
    said = threading.Event()
    with pipe(first=said) as path:
        with pytest.raises(UsageError, match=r"^--token-file /dev/fd/\d+: cannot be read \(it did not end in time"):
            token_file.read("--token-file", path)
        said.set()


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "/dev/urandom", "fifo", "linked-fifo", "folder", "a\0b"])
def test_what_is_no_plain_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    """Also a named pipe to which somebody writes: only ours is known to end."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "linked-fifo").symlink_to("fifo")
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read") as raised:
        token_file.read("--token-for http://h", path)
    assert str(raised.value).startswith(f"--token-for http://h {path}: ")


@pytest.mark.parametrize("content", [b"", b" \n", b"a\nb\n", b"\xff\xfe\x00", "tökén".encode(), b"a" * 65537])
def test_what_is_no_token(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=r"token: must hold one token, on one line$"):
        token_file.read("--token-file", str(tmp_path / "token"))


def test_a_file_without_an_end_is_not_read_to_it(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    os.truncate(tmp_path / "token", 1 << 40)
    with pytest.raises(UsageError, match="must hold one token"):
        token_file.read("--token-file", str(tmp_path / "token"))
    with pipe(*[b"a" * 4096] * 64) as path, pytest.raises(UsageError, match="must hold one token"):
        token_file.read("--token-file", path)
