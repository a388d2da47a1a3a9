from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log import bytes_unpacked
from vllm_doctor.sources.log.bytes_unpacked import Blocks, Rest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"".join(
    b"INFO 11-20 10:15:%02d [loggers.py:236] Engine 000: Running: %d reqs\n" % (n % 60, n) for n in range(9999)
)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstd.compress,
}
each_packing = pytest.mark.parametrize("packing", PACK)


def made(path: Path, content: bytes) -> Path:
    (path / "server.log").write_bytes(content)
    return path / "server.log"


def text(path: Path, size: int = 5000) -> tuple[bytes, list[str]]:
    read = Blocks(path, size)
    parts = [bytes(block) for block in read]
    assert all(parts)
    return b"".join(parts), read.notes


def refused(path: Path) -> tuple[str, str]:
    with pytest.raises(SourceError) as caught:
        text(path)
    assert "\n" not in str(caught.value)
    return caught.value.kind, str(caught.value)


def rest_of(path: Path, size: int = 7000) -> tuple[bytes, bytes, Blocks]:
    """Of a plain log: its first block, the rest as it was read by so many bytes."""
    blocks = Blocks(path)
    parts = blocks.with_rest()
    head, rest = bytes(cast("bytes", next(parts))), next(parts)
    assert isinstance(rest, Rest)
    memory, text = memoryview(bytearray(size)), b""
    while got := rest.readinto(memory):
        text += memory[:got]
    assert list(parts) == []
    return head, text, blocks


def test_the_rest_of_a_plain_log_can_be_read_where_it_is_needed(tmp_path: Path) -> None:
    for content in (TEXT, codecs.BOM_UTF8 + TEXT, bytes(3000) + TEXT):
        head, rest, blocks = rest_of(made(tmp_path, content))
        assert head + rest == TEXT
        assert len(rest) > 100_000
        assert blocks.position == len(content)


@each_packing
def test_of_a_packed_log_nothing_is_left_unread(packing: str, tmp_path: Path) -> None:
    blocks = list(Blocks(made(tmp_path, PACK[packing](TEXT))).with_rest())
    assert b"".join(bytes(cast("bytes", block)) for block in blocks) == TEXT


def test_a_log_that_is_cut_while_its_rest_is_read_ends_there_and_says_so(tmp_path: Path) -> None:
    """copytruncate: one that was mapped would kill its reader."""
    path = made(tmp_path, TEXT)
    blocks = Blocks(path)
    parts = blocks.with_rest()
    next(parts)
    rest = next(parts)
    assert isinstance(rest, Rest)
    memory = memoryview(bytearray(1000))
    assert rest.readinto(memory) == 1000
    os.truncate(path, 500)
    assert rest.readinto(memory) == 0
    list(parts)
    assert "shrank while it was read" in blocks.notes[0]


def test_a_plain_log_comes_as_it_is(tmp_path: Path) -> None:
    assert text(made(tmp_path, TEXT)) == (TEXT, [])
    assert text(made(tmp_path, b"one line, no end")) == (b"one line, no end", [])


@each_packing
def test_what_is_packed_is_unpacked_whatever_its_name(tmp_path: Path, packing: str) -> None:
    assert text(made(tmp_path, PACK[packing](TEXT))) == (TEXT, [])


@each_packing
def test_all_members_are_read(tmp_path: Path, packing: str) -> None:
    pack = PACK[packing]
    assert text(made(tmp_path, pack(b"one\n") + pack(b"") + pack(TEXT) + pack(b"three\n"))) == (
        b"one\n" + TEXT + b"three\n",
        [],
    )


@each_packing
def test_members_and_padding_are_found_across_the_borders_of_blocks(tmp_path: Path, packing: str) -> None:
    pack = PACK[packing]
    noise = os.urandom(10_000).hex().encode()  # more than is read at first
    path = made(tmp_path, pack(noise) + bytes(8) + pack(b"two\n") + bytes(8))
    for size in range(1, 12):
        assert text(path, size) == (noise + b"two\n", [])


def test_a_frame_that_zstd_skips_may_come_first(tmp_path: Path) -> None:
    assert text(made(tmp_path, b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd.compress(TEXT))) == (TEXT, [])


@each_packing
def test_a_torn_file_gives_what_it_has(tmp_path: Path, packing: str) -> None:
    noise = os.urandom(300_000).hex().encode()  # hardly packed, so that every format has given some before the end
    pack = PACK[packing]
    packed = pack(noise)
    got, notes = text(made(tmp_path, pack(TEXT) + packed[: -len(packed) // 10]))
    assert got.startswith(TEXT)
    assert (TEXT + noise).startswith(got)
    assert len(notes) == 1
    assert f"truncated {packing}, read as far as it goes" in notes[0]


@each_packing
def test_a_damaged_file_gives_what_it_has(tmp_path: Path, packing: str) -> None:
    pack = PACK[packing]
    broken = bytearray(pack(TEXT))
    broken[len(broken) // 2 :] = b"\xff" * (len(broken) - len(broken) // 2)
    got, notes = text(made(tmp_path, pack(b"whole\n" * 2000) + broken))
    assert got.startswith(b"whole\n" * 2000)
    if packing != "gzip":  # which may unpack to something else before it is found out
        assert (b"whole\n" * 2000 + TEXT).startswith(got)
    assert "read as far as it goes" in notes[0]


@pytest.mark.parametrize("packing", ["xz", "bzip2", "zstd"])  # a gzip may give some text before its damage
def test_a_file_damaged_from_its_start_is_refused(tmp_path: Path, packing: str) -> None:
    assert refused(made(tmp_path, PACK[packing](TEXT)[:12] + b"\xff" * 3000))[0] == "unreadable"


def test_a_file_torn_in_its_head_is_refused(tmp_path: Path) -> None:
    assert refused(made(tmp_path, gzip.compress(TEXT)[:11])) == (
        "unreadable",
        f"{tmp_path}/server.log ends early: truncated gzip, read as far as it goes, which is nothing: copy it again",
    )


def test_what_follows_packed_data_is_left_out_with_a_note(tmp_path: Path) -> None:
    got, notes = text(made(tmp_path, gzip.compress(TEXT) + b"garbage"))
    assert got == TEXT
    assert "what follows the gzip data is none" in notes[0]


@each_packing
def test_a_bomb_is_stopped(tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytes_unpacked, "BOMB_BYTES", 1_000_000)
    monkeypatch.setattr(bytes_unpacked, "BOMB_RATIO", 20)
    path = made(tmp_path, PACK[packing](b"a\n" * 1_000_000))
    got, notes = text(path)
    assert 900_000 < len(got) <= 1_000_000
    assert "a decompression bomb?" in notes[0]
    # As large, but no more than a log may be packed.
    monkeypatch.setattr(bytes_unpacked, "BOMB_RATIO", 10_000_000)
    assert len(text(path)[0]) == 2_000_000


@each_packing
def test_no_block_is_larger_than_asked_for(tmp_path: Path, packing: str) -> None:
    path = made(tmp_path, PACK[packing](b"a\n" * 500_000))
    sizes = [len(block) for block in Blocks(path, 50_000)]
    assert sum(sizes) == 1_000_000
    assert max(sizes[1:]) <= 50_000


def test_what_would_need_much_memory_is_refused_with_the_command_that_unpacks_it(tmp_path: Path) -> None:
    long = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    kind, message = refused(made(tmp_path, long.compress(TEXT) + long.flush()))
    assert (kind, "zstd -dc --long=31 FILE | vllm-doctor -" in message) == ("unreadable", True)
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}]
    kind, message = refused(made(tmp_path, lzma.compress(TEXT, filters=filters)))
    assert (kind, "xz -dc FILE | vllm-doctor -" in message) == ("unreadable", True)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_becomes_utf_8(tmp_path: Path, encoding: str) -> None:
    log = TEXT.decode() + "größer: 漢 𝄞\n"
    for size in (4999, 5000):
        assert text(made(tmp_path, log.encode(encoding)), size) == (log.encode(), [])
    assert text(made(tmp_path, gzip.compress(log.encode(encoding)))) == (log.encode(), [])


def test_utf_16_of_the_other_byte_order_is_told_by_its_mark(tmp_path: Path) -> None:
    assert text(made(tmp_path, b"\xfe\xff" + "größer\n".encode("utf-16-be")))[0] == "größer\n".encode()


def test_of_torn_utf_16_the_last_character_is_marked_as_missing(tmp_path: Path) -> None:
    assert text(made(tmp_path, TEXT.decode().encode("utf-16")[:-1]))[0] == TEXT[:-1] + "\ufffd".encode()


def test_the_mark_of_utf_8_is_dropped(tmp_path: Path) -> None:
    assert text(made(tmp_path, b"\xef\xbb\xbf" + TEXT)) == (TEXT, [])
    assert text(made(tmp_path, gzip.compress(b"\xef\xbb\xbfshort\n"))) == (b"short\n", [])


@pytest.mark.parametrize(
    "content", [b"", gzip.compress(b"", mtime=0), gzip.compress(b"", mtime=0) * 3, zstd.compress(b"")]
)
def test_an_empty_log_is_told(tmp_path: Path, content: bytes) -> None:
    kind, message = refused(made(tmp_path, content))
    assert kind == "empty"
    assert ("of nothing" in message) == bool(content)


def test_a_log_that_is_missing_or_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path / "none.log")[0] == "not-found"
    path = made(tmp_path, TEXT)
    assert refused(path / "below")[0] == "not-found"

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")  # root, who may run the tests, is denied nothing

    monkeypatch.setattr(os, "open", denied)
    assert refused(path)[0] == "denied"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path) == ("not-a-log", f"{tmp_path} is a folder: give the log in it")
    assert "device" in refused(Path("/dev/zero"))[1]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert refused(tmp_path / "socket")[0] == "not-a-log"


def _zip() -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("server.log", TEXT)
    return archive.getvalue()


def _tar(mode: str) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as file:  # type: ignore[call-overload]
        member = tarfile.TarInfo("recording/server.log")
        member.size = len(TEXT)
        file.addfile(member, io.BytesIO(TEXT))
    return archive.getvalue()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (Path(sys.executable).resolve().read_bytes()[:9000], "a program"),
        (_zip(), ": extract it, and"),
        (_tar("w"), "a tar archive ("),
        (_tar("w:gz"), "a tar archive packed by gzip ("),
        (b"PAR1" + bytes(50), "a parquet table"),
        (b"LPKSHHRH" + bytes(50), "bytes): journalctl --file"),
        (gzip.compress(b"PAR1" + bytes(50), mtime=0), "a parquet table"),
        (bytes(range(256)) * 8, "binary"),
        (TEXT.decode().encode("utf-32"), "binary"),
        (b"text\0\0" * 300, "binary"),
        (bytes(300_000), "nothing but NULs"),
        (gzip.compress(b"# HELP vllm:x y\nvllm:x 1\n", mtime=0), "a page of metrics: save it as a file"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    kind, message = refused(made(tmp_path, content))
    assert kind == "not-a-log"
    assert told in message


@pytest.mark.parametrize("odd", [b"a NUL \0 after a crash\n", b"\x1b[31mred\x1b[0m \xff\xfe torn UTF-8\r\n"])
def test_a_log_with_some_odd_bytes_is_read(tmp_path: Path, odd: bytes) -> None:
    assert text(made(tmp_path, TEXT + odd + TEXT)) == (TEXT + odd + TEXT, [])
    assert text(made(tmp_path, odd + TEXT)) == (odd + TEXT, [])


def test_the_hole_of_a_log_cut_in_place_is_passed_over(tmp_path: Path) -> None:
    for hole in (100, 9000, 10_000, 123_456):
        got, notes = text(made(tmp_path, bytes(hole) + TEXT))
        assert got == TEXT
        assert f"begins with {hole:,} NULs" in notes[0]


def test_a_log_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = made(tmp_path, TEXT)
    read = Blocks(path, 9000)
    stream = iter(read)
    assert bytes(next(stream)) == TEXT[:9000]
    os.truncate(path, 10)
    assert list(stream) == []
    assert read.notes == [f"{path} shrank while it was read: 9,000 of {len(TEXT):,} bytes; was it rotated?"]


def test_a_pipe_of_the_shell_is_read_to_its_end() -> None:
    """As `vllm-doctor <(kubectl logs x)` names it."""
    code = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(b'a line\\n' * 9000)[:-4])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        got, notes = text(Path(f"/dev/fd/{process.stdout.fileno()}"))
    assert got == b"a line\n" * 9000
    assert len(notes) == 1


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="is a named pipe, which may have no writer: let the shell open it"):
        text(tmp_path / "pipe")


READ_STDIN = """
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log.bytes_unpacked import Blocks, Rest
import sys
try:
    for block in Blocks(None):
        sys.stdout.buffer.write(block)
except SourceError as error:
    print(error.kind, error)
"""


def test_standard_input_is_read_packed_or_not() -> None:
    def given(content: bytes) -> bytes:
        return subprocess.run([sys.executable, "-c", READ_STDIN], input=content, capture_output=True, check=True).stdout

    assert given(TEXT) == TEXT
    assert given(lzma.compress(TEXT)) == TEXT
    assert given(b"").startswith(b"empty standard input gave nothing")


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    text(made(tmp_path, TEXT))
    refused(made(tmp_path, b"\x7fELF"))
    stream = iter(Blocks(made(tmp_path, TEXT), 9000))
    next(stream)
    del stream
    assert os.listdir("/proc/self/fd") == before
