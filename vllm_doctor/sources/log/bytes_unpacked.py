"""The bytes of a log as UTF-8 text, block by block, however they are packed; memory is bounded whatever comes.

What packs them is told by the first bytes, not by the name: gzip, xz, bzip2 or zstd of any number of members, UTF-16.
What is no log is refused with what it is and what to do; what ends early is read as far as it goes, with a note.
"""

from __future__ import annotations

import codecs
import errno
import itertools
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.host.process_log import ProcessLog
from vllm_doctor.text import files
from vllm_doctor.text.encoding import utf16

BLOCK = 256 * 1024  # read at once; larger ones are slower, as they do not stay in a core's cache
BOMB_BYTES = 1 << 30
BOMB_RATIO = 400  # of a log of equal lines gzip makes no more than 1 of 250
MAX_WINDOW_LOG = 26  # of zstd, as a power of two: 64 MiB of memory, enough for all but --ultra and --long
MAX_XZ_MEMORY = 80 << 20  # bytes: xz -9 needs 65 MiB
_HEAD = 8 * 1024


MOST_KEPT = 4 << 20
from_stdin = bytearray()
"""The beginning of what was last read of standard input, which gives it once: it may hold more than a log."""


_pending = bytearray()
"""What was read of standard input before the log in it."""


def begin_stdin(most: int) -> bytes | None:
    """All of standard input, which a log is still read from; None: it is longer, or cannot be read. Waits for its
    end."""
    if sys.__stdin__ is None:
        return None
    try:
        while len(_pending) <= most and (got := os.read(sys.__stdin__.fileno(), BLOCK)):
            _pending.extend(got)
    except (OSError, ValueError):
        return None
    return bytes(_pending) if len(_pending) <= most else None


def begun_stdin() -> bytes:
    """What `begin_stdin` read, and nothing has taken yet."""
    return bytes(_pending)


def beginning(raw: bytes, most: int) -> bytes:
    """The first bytes of what these begin with, unpacked; b"" where they cannot be."""
    packing = _packing(raw)
    if packing is None:
        return raw[:most]
    try:
        return _decompressor(packing)().decompress(raw, most)
    except Exception:  # each library has its own
        return b""


def _begun(memory: memoryview) -> int:
    """The next of what was read before."""
    size = min(len(memory), len(_pending))
    memory[:size] = _pending[:size]
    del _pending[:size]
    return size


@dataclass(frozen=True, slots=True)
class Rest:
    """What follows: `readinto` puts the next bytes where they are needed, and tells how many; 0 at the end."""

    readinto: Callable[[memoryview], int]


Block = bytes | memoryview | Rest
_Block = bytes | memoryview

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes([low]) + b"\x2a\x4d\x18": "zstd" for low in range(0x50, 0x60)},  # a frame to skip, as pzstd begins with
}
_COMMANDS = {"gzip": "gzip -dc", "xz": "xz -dc", "bzip2": "bzip2 -dc", "zstd": "zstd -dc --long=31"}
_NEEDS_MEMORY = ("Memory usage limit exceeded", "too much memory")
"""How liblzma and libzstd say that unpacking takes more than is allowed; neither has a kind of error for it."""
_MAGIC = max(map(len, _PACKED))
_EXTRACT = "extract it, and give the log in it"
_OTHERS = {
    b"\x7fELF": ("a program", "give the log"),
    b"PK\x03\x04": ("a zip archive", _EXTRACT),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", _EXTRACT),
    b"Rar!": ("a rar archive", _EXTRACT),
    b"\x04\x22\x4d\x18": ("packed by lz4", "lz4 -dc FILE | vllm-doctor -"),
    b"\x1f\x9d": ("packed by compress", "zcat FILE | vllm-doctor -"),
    b"LPKSHHRH": ("a systemd journal", "journalctl --file FILE -o cat | vllm-doctor -"),
    b"PAR1": ("a parquet table", "give the log as text"),
    b"SQLite format 3\0": ("a SQLite database", "give the log as text"),
    b"%PDF-": ("a PDF", "give the log as text"),
    b"\x89PNG": ("a picture", "give the log as text"),
    b"\xff\xd8\xff": ("a picture", "give the log as text"),
    b"GGUF": ("a model", "give the server's log"),
}
_TEXT = bytes({*range(0x20, 0x100), *b"\t\n\v\f\r\b\a\x1b"} - {0x7F})


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


class Blocks:
    """The blocks of a log; `path` None is standard input. A block is only valid until the next one is asked for.

    `notes` says, once it has been read, what the user must know of it, such as that it was torn. Raises SourceError
    while it is read: not-found, denied, not-a-log, empty, unreadable. To be iterated over once. `reached`: is told how
    many bytes of the file itself were read.
    """

    def __init__(
        self, path: Path | ProcessLog | None, size: int = BLOCK, reached: Callable[[int], object] = lambda at: None
    ) -> None:
        self.path = path
        self.name = "standard input" if path is None else str(path)
        self.notes: list[str] = []
        self._size, self._reached = size, reached
        self._expected = 0
        self.position = 0
        """Bytes read of the file itself."""

    def __iter__(self) -> Iterator[_Block]:
        return read(self.with_rest(), self._size)

    def with_rest(self) -> Iterator[Block]:
        """The same, except that of what is neither packed nor transcoded the last one is a Rest, not read yet."""
        descriptor = self._opened()
        try:
            head, stream = self._with_head(self._raw(descriptor))
            packing = _packing(head)
            if packing:
                head, stream = self._with_head(self._unpacked(stream, packing))
            head, stream = self._without_hole(head, stream)
            if not head:
                raise self._nothing(packing)
            encoding = utf16(head)
            if encoding:
                head, stream = self._with_head(_transcoded(stream, encoding))
            self._check(head, packing)
            if head.startswith(codecs.BOM_UTF8):
                stream = itertools.chain([head[3:]], itertools.islice(stream, 1, None))
            if packing or encoding:
                yield from stream
            else:
                yield next(stream)  # the head: what follows it was not read yet
                yield Rest(partial(self._read, descriptor))
        finally:
            if self.path is not None:
                os.close(descriptor)

    def _opened(self) -> int:
        if self.path is None:
            if sys.__stdin__ is None:
                raise SourceError("not-found", "there is no standard input: give the log's name")
            from_stdin.clear()
            return sys.__stdin__.fileno()
        try:
            if isinstance(self.path, ProcessLog):
                return self.path.descriptor()
            descriptor = files.descriptor(self.path)
            os.set_blocking(descriptor, True)  # a pipe of the shell's: `<(…)`
            return descriptor
        except IsADirectoryError:
            raise SourceError("not-a-log", f"{self.name} is a folder: give the log in it") from None
        except files.NoFileError as error:
            raise SourceError("not-a-log", f"{self.name} is {error.strerror}") from None
        except OSError as error:
            raise unreadable(self.name, error) from None

    def _raw(self, descriptor: int) -> Iterator[memoryview]:
        block = memoryview(bytearray(self._size))
        try:
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode):
                self._expected = about.st_size - (os.lseek(descriptor, 0, os.SEEK_CUR) if self.path is None else 0)
        except OSError as error:
            raise unreadable(self.name, error) from None
        while got := self._read(descriptor, block):
            yield block[:got]

    def _read(self, descriptor: int, memory: memoryview) -> int:
        try:
            got = _begun(memory) if self.path is None and _pending else os.readv(descriptor, [memory])
        except OSError as error:
            raise unreadable(self.name, error) from None
        self.position += got
        self._reached(self.position)
        if self.path is None and len(from_stdin) < MOST_KEPT:
            from_stdin.extend(memory[:got])
        if not got and memory and self.position < self._expected:
            self.notes.append(
                f"{self.name} shrank while it was read: {self.position:,} of {self._expected:,} bytes; was it rotated?"
            )
        return got

    def _with_head(self, stream: Iterator[_Block]) -> tuple[bytes, Iterator[_Block]]:
        """The first bytes, _HEAD or more where there are as many, and the stream that still begins with them."""
        head = bytearray()
        for block in stream:
            head += block
            if len(head) >= _HEAD:
                break
        return bytes(head), itertools.chain([bytes(head)] if head else [], stream)

    def _without_hole(self, head: bytes, stream: Iterator[_Block]) -> tuple[bytes, Iterator[_Block]]:
        """A log cut in place while its writer went on (logrotate's copytruncate) begins with NULs, perhaps many."""
        if not head.startswith(bytes(4)):
            return head, stream
        hole = 0
        for block in stream:
            text = bytes(block).lstrip(b"\0")
            hole += len(block) - len(text)
            if text:
                self.notes.append(f"{self.name} begins with {hole:,} NULs: it was cut while the server wrote to it")
                return self._with_head(itertools.chain([text], stream))
        raise SourceError("not-a-log", f"{self.name} holds nothing but NULs: give the log")

    def _unpacked(self, stream: Iterator[_Block], packing: str) -> Iterator[bytes]:
        """The content of all members. Where one is torn or damaged, the end, with a note."""
        new = _decompressor(packing)
        given = 0
        rest = b""
        while True:
            # A member begins here, behind padding perhaps, which tar and tapes write.
            while len(rest) < _MAGIC and (block := next(stream, None)) is not None:
                rest = (rest + block).lstrip(b"\0")
            if not rest:
                return
            if _packing(rest) != packing:
                self.notes.append(f"{self.name}: what follows the {packing} data is none, and left out")
                return
            member = new()
            data, rest = rest, b""
            while not member.eof:
                if member.needs_input and not data:
                    block = next(stream, None)
                    if block is None:
                        self.notes.append(f"{self.name} ends early: truncated {packing}, read as far as it goes")
                        return
                    data = bytes(block)
                try:
                    out = member.decompress(data, self._size)
                except Exception as error:  # each library has its own
                    if any(text in str(error) for text in _NEEDS_MEMORY):
                        raise SourceError(
                            "unreadable",
                            f"{self.name} needs much memory to unpack: {_COMMANDS[packing]} FILE | vllm-doctor -",
                        ) from None
                    if not given:
                        raise SourceError(
                            "unreadable", f"{self.name} is damaged {packing} ({error}): copy it again"
                        ) from None
                    self.notes.append(f"{self.name} is damaged after {given:,} bytes of text: read as far as it goes")
                    return
                data = b""
                given += len(out)
                if given > BOMB_BYTES and given > BOMB_RATIO * self.position:
                    self.notes.append(
                        f"{self.name}: stopped after {BOMB_BYTES >> 30} GiB: {self.position:,} bytes of file became"
                        f" {given:,} bytes; a decompression bomb?"
                    )
                    return
                if out:
                    yield out
            rest = bytes(member.unused_data).lstrip(b"\0")

    def _check(self, head: bytes, packing: str | None) -> None:
        """Raises SourceError where that is no text."""
        if head[257:262] == b"ustar":
            what = f"a tar archive packed by {packing}" if packing else "a tar archive"
            raise SourceError("not-a-log", f"{self.name} is {what}{self._size_of()}, a recording perhaps: {_EXTRACT}")
        for magic, (what, cure) in _OTHERS.items():
            if head.startswith(magic):
                raise SourceError("not-a-log", f"{self.name} is {what}{self._size_of()}: {cure}")
        if head.startswith((b"# HELP ", b"# TYPE ")) and (packing or self.path is None):  # a file is taken for a page
            raise SourceError("not-a-log", f"{self.name} is a page of metrics: save it as a file and give that")
        sample = head[:_HEAD]
        if sample.count(0) * 100 > len(sample) or len(sample.translate(None, _TEXT)) * 20 > len(sample):
            raise SourceError("not-a-log", f"{self.name} is binary{self._size_of()}, no text: give the server's log")

    def _size_of(self) -> str:
        """Of a file, for a sentence on what it is."""
        return f" ({self._expected:,} bytes)" if self._expected else ""

    def _nothing(self, packing: str | None) -> SourceError:
        if self.notes:
            return SourceError("unreadable", f"{self.notes[-1]}, which is nothing: copy it again")
        if self.path is None:
            return SourceError("empty", "standard input gave nothing: did the command before the pipe fail?")
        inside = f" ({packing} of nothing)" if packing else ""
        return SourceError("empty", f"{self.name} is empty{inside}: give the log that the server writes to")


def read(blocks: Iterable[Block], size: int = BLOCK) -> Iterator[_Block]:
    """The blocks, with a Rest read."""
    for block in blocks:
        if not isinstance(block, Rest):
            yield block
            continue
        memory = memoryview(bytearray(size))
        while got := block.readinto(memory):
            yield memory[:got]


def unreadable(name: str, error: OSError) -> SourceError:
    """What to say of a log that the system does not let be read."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SourceError("not-found", f"{name} does not exist: is the name right?")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SourceError(
            "denied", f"{name} may not be read: run vllm-doctor as its owner, or: sudo cat FILE | vllm-doctor -"
        )
    return SourceError("unreadable", f"{name} cannot be read ({error.strerror}): copy it elsewhere")


def _packing(head: bytes) -> str | None:
    return next((packing for magic, packing in _PACKED.items() if head.startswith(magic)), None)


class _Gunzip:
    """One member of a gzip, with the methods that the other decompressors of the standard library have."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)  # 31: a gzip's header, and its checksum at the end
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, /, max_length: int) -> bytes:
        out = self._stream.decompress(self._stream.unconsumed_tail + data, max_length)
        self.needs_input = len(out) < max_length  # else more may stand in it
        return out


def _decompressor(packing: str) -> Callable[[], _Decompressor]:
    """Imported when needed: most logs are plain."""
    if packing == "gzip":
        return _Gunzip
    if packing == "xz":
        import lzma

        return lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    if packing == "bzip2":
        import bz2

        return bz2.BZ2Decompressor
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return lambda: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})


def _transcoded(stream: Iterator[_Block], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in stream:
        if text := decoder.decode(bytes(block)):  # not of half a character
            yield text.encode()
    if text := decoder.decode(b"", final=True):
        yield text.encode()
