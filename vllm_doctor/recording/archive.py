"""The files of a recording: a folder, or a tar packed by gzip.

All is read in memory and within bounds; nothing is ever extracted. What is no part of a recording is passed over, what
a recording never holds (links, devices, names that lead elsewhere) is refused.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from vllm_doctor.model.errors import SourceError
from vllm_doctor.text import files

KIND = "not-a-recording"
MAX_BYTES = 256 << 20
"""Of all files together, unpacked by gzip."""
MAX_MEMBERS = 2000
_ENDINGS = (".tar.gz", ".tgz")
_OF_SOURCE = r"\d{1,3}-[a-z-]{1,20}"
_PART = re.compile(
    rf"(?:(?!{_OF_SOURCE}/)[^/]{{1,200}}/)?((?:{_OF_SOURCE}/)?[a-z0-9]{{1,20}}\.(?:json|jsonl|txt|log|prom|prom\.zst))(\.gz)?"
)
"""The name of a part, in a folder of any name perhaps: somebody packed it anew. What zstd packed stays so: it is larger
than memory perhaps, and unpacked where it is read (recording/metrics.py)."""
_BLOCK = 512  # of a tar
_CHUNK = 1 << 20
_FILE, _FOLDER, _EXTENSION = (b"0", b"\0"), b"5", (b"x", b"g")
_FOLDERS_MOST = 1000
_TRAILING = 1 << 20


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def is_recording(path: Path) -> bool:
    """Whether the path is a folder, or a tar packed by gzip, by its name or its first bytes."""
    try:
        if path.is_dir():
            return True
        if not path.is_file():
            return False
        if path.name.endswith(_ENDINGS):
            return True
        with open(files.descriptor(path), "rb") as file:
            head = file.read(4096)
        if head[:2] != b"\x1f\x8b":
            return False
        return zlib.decompressobj(31).decompress(head, _BLOCK)[257:262] == b"ustar"
    except (OSError, zlib.error):
        return False


def read(path: Path) -> dict[str, bytes]:
    """The parts of a recording by their names, unpacked. Raises SourceError with what is wrong and what to do."""
    try:
        found = _of_folder(path) if path.is_dir() else _of_archive(path)
    except FileNotFoundError:
        raise SourceError("not-found", f"{path} does not exist: is the name right?") from None
    except PermissionError:
        raise SourceError("denied", f"{path} may not be read: run vllm-doctor as its owner") from None
    except OSError as error:
        raise SourceError(KIND, f"{path} cannot be read ({error}): copy it again") from None
    if "recording.json" not in found:
        what = "a folder" if path.is_dir() else "an archive"
        raise SourceError(KIND, f"{path} is {what} with no recording.json: give a recording, or the log in it")
    return found


def packed(parts: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of these parts: the same bytes for the same parts, whoever packs them and when."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(parts):
            member = tarfile.TarInfo(name)  # its time, owner and group are 0
            member.size = len(parts[name])
            archive.addfile(member, io.BytesIO(parts[name]))
    return gzip.compress(tar.getvalue(), 6, mtime=0)


def _of_folder(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = MAX_BYTES
    folders = [path, *sorted(entry for entry in _entries(path) if re.fullmatch(_OF_SOURCE, entry.name))]
    for folder in folders:
        prefix = "" if folder == path else f"{folder.name}/"
        for file in _entries(folder):
            named = _PART.fullmatch(prefix + file.name)
            if named is None or named[1] + (named[2] or "") != prefix + file.name:
                continue
            mode = file.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise SourceError(KIND, f"{file} is a link or a device, which a recording never holds: not read")
            with open(files.descriptor(file), "rb") as stream:
                body = _unpacked(file, stream, left) if named[2] else stream.read(left + 1)
            left -= len(body)
            _keep(found, named[1], body, path, left)
    return found


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; of a link, nothing."""
    if folder.is_symlink() and re.fullmatch(_OF_SOURCE, folder.name):
        raise SourceError(KIND, f"{folder} is a link, which a recording never holds: not read")
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = []
        for entry in entries:
            names.append(entry.name)
            if len(names) > MAX_MEMBERS:
                raise SourceError(KIND, f"{folder} holds more than {MAX_MEMBERS:,} files: this is no recording")
    return [folder / name for name in sorted(names)]


def _of_archive(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = MAX_BYTES
    try:
        with open(files.descriptor(path), "rb") as packed, gzip.open(packed) as stream:
            for name, body in _members(path, stream):
                named = _PART.fullmatch(name)
                if named is None:
                    continue
                if named[2]:
                    body = _unpacked(path, io.BytesIO(body), left)
                left -= len(body)
                _keep(found, named[1], body, path, left)
    except (EOFError, zlib.error) as error:
        what = "ends early" if isinstance(error, EOFError) else f"is damaged ({error})"
        raise SourceError(KIND, f"{path} {what}: copy it again") from None
    except gzip.BadGzipFile as error:
        raise SourceError(KIND, f"{path} is no .tar.gz ({error}): give a recording") from None
    return found


def _keep(found: dict[str, bytes], name: str, body: bytes, path: Path, left: int) -> None:
    if left < 0:
        raise SourceError(KIND, f"{path} unpacks to more than {MAX_BYTES >> 20} MiB: no recording is so large")
    if name in found:
        raise SourceError(KIND, f"{path} holds {name} twice: it was not made by vllm-doctor")
    found[name] = body


def _unpacked(path: Path, stream: io.BufferedIOBase, left: int) -> bytes:
    """The content of a gzip within; one byte more than `left` where it is larger."""
    try:
        with gzip.open(stream) as text:
            return text.read(left + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(KIND, f"{path} is damaged ({error}): copy it again") from None


def _members(path: Path, stream: _Stream) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the files of a tar, as they come. At most MAX_BYTES are read of it all."""
    total, count = 0, 0
    while True:
        header = _exactly(path, stream, _BLOCK)
        if not header.strip(b"\0"):
            while rest := stream.read(_CHUNK):  # to its end: what it must add up to stands there
                total += len(rest)
                if rest.strip(b"\0") or total > MAX_BYTES:
                    raise SourceError(KIND, f"{path} goes on behind its end: it was not made by vllm-doctor")
            return
        name, kind, size = _header(path, header)
        count += 1
        total += size
        if count > MAX_MEMBERS:
            raise SourceError(KIND, f"{path} holds more than {MAX_MEMBERS:,} files: this is no recording")
        if total > MAX_BYTES:
            raise SourceError(KIND, f"{path} unpacks to more than {MAX_BYTES >> 20} MiB: no recording is so large")
        shown = ascii(name)[1:-1][:100]
        if kind not in (*_FILE, _FOLDER, *_EXTENSION):
            raise SourceError(KIND, f"{path} holds {shown}, a link or a device, which a recording never does: not read")
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise SourceError(KIND, f"{path} holds {shown}, a name that leads out of it: not read")
        body = _exactly(path, stream, size)
        _exactly(path, stream, -size % _BLOCK)
        if kind in _FILE:
            yield name.removeprefix("./"), body


def _header(path: Path, header: bytes) -> tuple[str, bytes, int]:
    """Name, kind and size of a member."""
    try:
        told = int(header[148:156].strip(b" \0") or b"0", 8)
        size = int(header[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        told, size = -1, 0
    if told != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]) or size < 0:
        raise SourceError(KIND, f"{path} is no tar within, or damaged: copy it again")
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:262] == b"ustar" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace"), header[156:157], size


def _exactly(path: Path, stream: _Stream, size: int) -> bytes:
    body = stream.read(size) if size else b""
    if len(body) != size:
        raise SourceError(KIND, f"{path} ends early: copy it again")
    return body
