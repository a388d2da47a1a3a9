"""What an archive may do to whoever opens it: nothing, and it is said in one line."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from vllm_doctor.model.errors import SourceError
from vllm_doctor.recording import archive
from vllm_doctor.recording.archive import is_recording, packed, read

PARTS = {"recording.json": b"{}", "1-server/metrics.prom.zst": b"(\xb5/\xfd", "report.json": b"{}"}


def tar(*members: tarfile.TarInfo | tuple[str, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A .tar.gz of these members, in their order; a name and its content is a file."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=form) as out:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                out.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                out.addfile(info, io.BytesIO(member[1]))
    return gzip.compress(body.getvalue(), mtime=0)


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def kept(folder: Path, body: bytes, name: str = "r.tar.gz") -> Path:
    (folder / name).write_bytes(body)
    return folder / name


GOOD = ("recording.json", b"{}")


def test_what_was_packed_comes_back(tmp_path: Path) -> None:
    assert read(kept(tmp_path, packed(PARTS))) == PARTS


def test_the_same_parts_are_the_same_bytes() -> None:
    assert packed(PARTS) == packed(dict(reversed(PARTS.items())))
    with tarfile.open(fileobj=io.BytesIO(packed(PARTS))) as found:
        members = found.getmembers()
    assert [member.name for member in members] == sorted(PARTS)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in members} == {(0, 0, 0, "", 0o644)}


def test_a_folder_is_read_as_well(tmp_path: Path) -> None:
    for name, body in PARTS.items():
        (tmp_path / "r" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "r" / name).write_bytes(body)
    (tmp_path / "r" / "notes.md").write_text("mine")
    (tmp_path / "r" / "other").mkdir()
    assert read(tmp_path / "r") == PARTS


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_one_that_was_packed_anew_by_another_program(form: int, tmp_path: Path) -> None:
    folder = special("my recording", tarfile.DIRTYPE)
    members = [(f"my recording/{name}", body) for name, body in PARTS.items()]
    assert read(kept(tmp_path, tar(folder, *members, form=form))) == PARTS
    assert read(kept(tmp_path, tar(*((f"./{name}", body) for name, body in PARTS.items()), form=form))) == PARTS


def test_what_is_no_part_is_passed_over(tmp_path: Path) -> None:
    found = read(kept(tmp_path, tar(("readme.md", b"x"), GOOD, ("1-server/run.sh", b"x"), ("a/b/c.json", b"x"))))
    assert found == {"recording.json": b"{}"}


# ---- hostile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("../../etc/cron.d/x", b"x")], "a name that leads out of it"),
        ([("/etc/passwd", b"x")], "a name that leads out of it"),
        ([("1-server/../../x", b"x")], "a name that leads out of it"),
        ([("..\\..\\x", b"x")], "a name that leads out of it"),
        ([special("recording.json", tarfile.SYMTYPE, "/etc/passwd")], "a link or a device"),
        ([special("recording.json", tarfile.LNKTYPE, "/etc/passwd")], "a link or a device"),
        ([special("1-server", tarfile.SYMTYPE, "/etc")], "a link or a device"),
        ([special("x", tarfile.CHRTYPE)], "a link or a device"),
        ([special("x", tarfile.BLKTYPE)], "a link or a device"),
        ([special("x", tarfile.FIFOTYPE)], "a link or a device"),
        ([GOOD, GOOD], "recording.json twice"),
        ([("a/recording.json", b"{}"), ("b/recording.json", b"{}")], "recording.json twice"),
        ([("notes.txt", b"x")], "no recording.json"),
        ([], "no recording.json"),
        ([GOOD, *((f"{n}-x/a.json", b"") for n in range(1000)), *((f"{n}-y/a.json", b"") for n in range(1001))],
         "more than 2,000 files"),
    ],
)  # fmt: skip
def test_members_that_a_recording_never_holds(
    members: list[tarfile.TarInfo | tuple[str, bytes]], says: str, tmp_path: Path
) -> None:
    before = set(tmp_path.parent.rglob("*"))
    with pytest.raises(SourceError, match=says) as raised:
        read(kept(tmp_path, tar(GOOD, *members) if GOOD not in members and "no rec" not in says else tar(*members)))
    assert "\n" not in str(raised.value)
    assert set(tmp_path.parent.rglob("*")) == {*before, tmp_path / "r.tar.gz"}


def test_a_name_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        read(kept(tmp_path, tar(special("\x1b[2J\u202ex", tarfile.FIFOTYPE))))
    assert str(raised.value).isprintable() or "\x1b" in str(
        raised.value
    )  # control characters are masked where it is said


WHOLE = tar(GOOD, ("1-server/metrics.txt", random.Random(0).randbytes(100_000)))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (WHOLE[:-1], "ends early"),
        (WHOLE[: len(WHOLE) // 2], "ends early"),
        (WHOLE[:30], "ends early"),
        (b"", "no recording.json|ends early|is no .tar.gz"),
        (WHOLE[:5000] + bytes(50) + WHOLE[5050:], "is damaged|no tar within|is no .tar.gz"),
        (WHOLE[:-8] + bytes(8), "is damaged|is no .tar.gz"),
        (b"hello", r"is no \.tar\.gz"),
        (gzip.compress(b"hello"), "ends early|no tar within"),
        (gzip.compress(b"hello" * 1000), "no tar within"),
        (gzip.compress(gzip.decompress(WHOLE)[:-10240].rstrip(b"\0")), "ends early"),
        (gzip.compress(gzip.decompress(WHOLE) + b"x"), "goes on behind its end"),
    ],
)
def test_one_that_is_cut_or_damaged(body: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=says) as raised:
        read(kept(tmp_path, body))
    assert "\n" not in str(raised.value)


def bomb_of_one() -> bytes:
    """300 MB of zeros, in 300 kB."""
    info = tarfile.TarInfo("1-server/metrics.txt")
    info.size = 300 << 20
    return gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(300 << 20), 1)


def bomb_within() -> bytes:
    return tar(GOOD, ("1-server/metrics.txt.gz", gzip.compress(bytes(300 << 20), 1)))


def bomb_of_many() -> bytes:
    inner = gzip.compress(bytes(100 << 20), 1)
    return tar(GOOD, *((f"{n}-server/metrics.txt.gz", inner) for n in range(1, 5)))


def bomb_behind_its_end() -> bytes:
    return gzip.compress(gzip.decompress(tar(GOOD)) + bytes(300 << 20), 1)


def bomb_of_an_extension() -> bytes:
    """What a header says of the member behind it, 300 MB long."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 300 << 20
    return gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(300 << 20), 1)


@pytest.mark.parametrize("bomb", [bomb_of_one, bomb_within, bomb_of_many, bomb_behind_its_end, bomb_of_an_extension])
def test_a_bomb(bomb: Callable[[], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 8 << 20)
    path = kept(tmp_path, bomb())
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=r"more than 8 MiB|goes on behind its end"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_folder_of_a_million_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 20)
    for number in range(30):
        (tmp_path / f"{number}.json").touch()
    with pytest.raises(SourceError, match="more than 20 files"):
        read(tmp_path)


def link(folder: Path) -> None:
    (folder / "recording.json").symlink_to("/etc/passwd")


def link_to_a_folder(folder: Path) -> None:
    (folder / "recording.json").write_text("{}")
    (folder / "1-server").symlink_to("/etc")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "recording.json")


@pytest.mark.parametrize("make", [link, link_to_a_folder, pipe])
def test_a_folder_with_what_a_recording_never_holds(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(SourceError, match="which a recording never holds"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "body", "is_one"),
    [
        ("r.tar.gz", b"", True),
        ("r.tgz", b"", True),
        ("r", packed(PARTS), True),
        ("vllm.log.gz", gzip.compress(b"INFO 11-20 10:00:00 [x.py:1] y\n" * 50), False),
        ("vllm.log", b"INFO\n", False),
        ("empty", b"", False),
    ],
)
def test_what_is_taken_for_a_recording(name: str, body: bytes, is_one: bool, tmp_path: Path) -> None:
    assert is_recording(kept(tmp_path, body, name)) == is_one
    assert is_recording(tmp_path)
    assert not is_recording(tmp_path / "nothing.tar.gz")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist") as raised:
        read(tmp_path / "no.tar.gz")
    assert raised.value.kind == "not-found"


def test_parts_and_their_names() -> None:
    names: Mapping[str, str | None] = {
        "recording.json": "recording.json",
        "x/recording.json": "recording.json",
        "1-server/metrics.txt": "1-server/metrics.txt",
        "1-server/metrics.prom": "1-server/metrics.prom",
        "1-server/metrics.prom.zst": "1-server/metrics.prom.zst",
        "1-server/metrics.zst": None,
        "x/1-server/metrics.txt": "1-server/metrics.txt",
        "12-log/000.log": "12-log/000.log",
        "1-server/x/metrics.txt": None,
        "x/y/recording.json": None,
        "recording.yaml": None,
    }
    for name, part in names.items():
        found = archive._PART.fullmatch(name)
        assert (found[1] if found else None) == part
