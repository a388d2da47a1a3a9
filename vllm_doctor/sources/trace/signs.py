"""By what a file is told to be a trace, before it is read: its first bytes, unpacked.

A log may be JSON, too, so a name or one key is not enough.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.log.bytes_unpacked import Blocks, begin_stdin, beginning, begun_stdin
from vllm_doctor.text import files

_HEAD = 256 * 1024
_SQLITE = b"SQLite format 3\0"
_MAY_BE = (b"{", b"[", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh", _SQLITE[:4], b"\xef\xbb\xbf")
_IS_DOCUMENT = re.compile(rb'\A\s*\{\s*"')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_HEADER = re.compile(rb'"schemaVersion"\s*:\s*\d+\s*,.{0,4000}"deviceProperties"\s*:\s*\[', re.DOTALL)
_IS_LIST = re.compile(rb'\A\s*\[\s*\{[^{}]{0,2000}"ph"\s*:\s*"[A-Za-z]"')
_CATEGORY = re.compile(rb'"cat"\s*:\s*"(?:kernel|cpu_op|cuda_runtime|gpu_memcpy|python_function|user_annotation)"')
_MOST_FILES = 1000
_TABLES = ".profiler_out.txt"
_NAMED = (".pt.trace.json", ".pt.trace.json.gz")


def is_trace(path: Path) -> bool:
    """Whether it is one of torch's profiler, or an export of nsys."""
    head = _begin(path)
    if not head.startswith(_MAY_BE):
        return False
    if head.startswith(_SQLITE):
        return is_export(path)
    return _is_of_torch(_unpacked(path), path.name.endswith(_NAMED))


def begins_trace(raw: bytes) -> bool:
    """Whether what begins like this, on standard input, is one."""
    if not raw.startswith(_MAY_BE):
        return False
    return raw.startswith(_SQLITE) or _is_of_torch(beginning(raw, _HEAD), is_named=False)


def _is_of_torch(text: bytes, is_named: bool) -> bool:
    """`is_named`: as the profiler names its files."""
    if _IS_DOCUMENT.match(text):
        is_known = _EVENTS.search(text) is not None and (is_named or _CATEGORY.search(text) is not None)
        return is_known or _HEADER.search(text) is not None or (is_named and b'"schemaVersion"' in text)
    return _IS_LIST.match(text) is not None and _CATEGORY.search(text) is not None


def of_folder(folder: Path) -> list[Path]:
    """The traces of a folder in which the profiler alone wrote: one a rank, with tables of operators beside them."""
    try:
        paths = sorted(islice(folder.iterdir(), _MOST_FILES + 1))
    except OSError:
        return []
    files = [path for path in paths if path.is_file() and not path.name.endswith(_TABLES)]
    is_alone = len(paths) <= _MOST_FILES and all(path.name.endswith(_NAMED) for path in files)
    return [path for path in files if is_trace(path)] if is_alone else []


def is_export(path: Path) -> bool:
    """Whether a file of SQLite is an export of nsys."""
    from vllm_doctor.sources.trace import nsys  # late: few are

    return nsys.is_export(path)


def is_on_stdin() -> bool:
    """Whether standard input begins like a trace. Waits for its first bytes, which are kept for its reader."""
    begin_stdin(_HEAD)
    return begins_trace(begun_stdin())


def is_sqlite(path: Path | None) -> bool:
    """Of standard input by what was read of it."""
    return begun_stdin().startswith(_SQLITE) if path is None else _begin(path) == _SQLITE


def _begin(path: Path) -> bytes:
    try:
        handle = files.descriptor(path)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        try:
            if not file.seekable():
                return b""
            return file.read(len(_SQLITE))
        except OSError:
            return b""


def _unpacked(path: Path) -> bytes:
    text = bytearray()
    try:
        for block in Blocks(path):
            text += block
            if len(text) >= _HEAD:
                break
    except SourceError:
        return b""
    return bytes(text[:_HEAD])
