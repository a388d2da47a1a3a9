"""What was handed over as a file, or on standard input, as text with its name. Pure but for the reading."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from vllm_doctor.intake import exports
from vllm_doctor.text import files
from vllm_doctor.text.encoding import decoded

MOST_BYTES = 12 << 20
"""Of an export, or of a notebook with its pictures."""
MOST_TEXT = 1 << 20
"""What is longer is a log, and read as one."""
_HEAD = 256
_MAY_BE_NOTEBOOK = re.compile(r"\s{0,1000}\{")
_OF_JSON = (b"{", b"[")
_OF_EXPORTS = (*_OF_JSON, b"<")


@dataclass(frozen=True)
class Input:
    """`text`: what people wrote, or a program printed. `path`: of the file that holds just that; None: it was taken out
    of an export, or came by standard input."""

    name: str
    text: str = field(repr=False)
    path: str | None = None
    is_export: bool = False
    program: str | None = field(default=None, repr=False)
    """The whole notebook of which `text` is what its cells printed."""

    left_out: int = 0
    """Issues of an export that are not in the text."""

    @cached_property
    def raw(self) -> bytes:
        """The text in UTF-8, for readers of bytes."""
        return self.text.encode("utf-8", "replace")


def of_file(path: Path) -> Input | None:
    """The file as text; None where it is too long, packed, no text, or cannot be read: then it is read as a log, which
    says what is wrong with it."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > MOST_TEXT and not _begins(path, _OF_EXPORTS):
            return None
        raw = files.read(path, MOST_BYTES)
    except OSError:
        return None
    return of_bytes(str(path), raw, str(path))


def is_document(path: Path) -> bool:
    """Whether the file is JSON, by how it begins."""
    try:
        return _begins(path, _OF_JSON)
    except OSError:
        return False


def _begins(path: Path, signs: tuple[bytes, ...]) -> bool:
    return files.read(path, _HEAD)[:_HEAD].lstrip().startswith(signs)


def of_bytes(name: str, raw: bytes, path: str | None = None) -> Input | None:
    """The same of what was read already."""
    if len(raw) > MOST_BYTES:
        return None
    try:
        text = decoded(raw)
    except ValueError:
        return None
    if "\0" in text[:4096] or raw[:4] in (b"PK\x03\x04", b"\x28\xb5\x2f\xfd") or raw[:2] == b"\x1f\x8b":
        return None
    if _MAY_BE_NOTEBOOK.match(text):
        from vllm_doctor.launch import notebook  # late: a log is not one

        if notebook.is_notebook(text):
            return Input(name, notebook.outputs(text)[:MOST_TEXT], is_export=True, program=text)
    export = exports.read(text)
    if export is not None:
        return Input(name, export.text[:MOST_TEXT], is_export=True, left_out=export.left_out)
    return Input(name, text, path) if len(raw) <= MOST_TEXT else None


def within(folder: Path, most: int = 64) -> list[str]:
    """The files of a folder that is neither a recording nor holds benchmark results, by name; no hidden ones."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.path for entry in entries if entry.is_file() and not entry.name.startswith("."))
    except OSError:
        return []
    return names[:most]
