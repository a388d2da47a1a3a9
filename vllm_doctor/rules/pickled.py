"""The shipped rules, signals, log lines and measures as objects, as an earlier start made them: most make none.

Made anew where any text of the rules has changed, or any program that they are made by. A wheel brings them along; else
they are written beside Python's .pyc, where Python may. A pickle can run what it names, so one is loaded only as a .pyc
should be: from a folder that nobody else may write; and it can name nothing but the classes of the objects.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import io
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator
from copyreg import __newobj__  # type: ignore[attr-defined]  # how pickle names: made without __init__
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from vllm_doctor.rules import folders
from vllm_doctor.rules.table import Table

Made = TypeVar("Made")

RULES, LOG_LINES, MEASURES = "rules", "log-lines", "measures"
"""What is kept."""
FOLDER = "kept"
_PACKAGE = Path(__file__).parents[1]
_PROGRAMS = ("model", "expr", "rules", "text", "vllm", "compare")
"""Folders of the package: what they hold makes the objects. Which Python runs it makes no difference to them, and the
tables of flags only check them."""
_CLASSES = ("vllm_doctor.model.", "vllm_doctor.expr.", "vllm_doctor.rules.", "vllm_doctor.compare.")
_BROUGHT = Path(__file__).with_name(FOLDER)
_OWN = Path(__spec__.cached or __file__).with_name(FOLDER)
"""Beside this module's own .pyc."""
_MAX_BYTES = 16 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size


def load(name: str, make: Callable[[], Made]) -> Made:
    """What `make` makes of the shipped folder: as it was made before, where that was kept and is still the same.

    A Table in it knows where it stands, but no longer what it held.
    """
    inputs = _inputs()
    for folder in (_BROUGHT, _OWN):
        try:
            made: Made = _unpickled(_read(folder / f"{name}.pickle", inputs))
            return made
        except Exception:  # whatever is wrong with it: it can be made anew
            continue
    made = make()
    if not sys.dont_write_bytecode:
        atexit.register(_write_own, name, made, inputs)  # at the end: nobody waits for it
    return made


def write(folder: Path, name: str, made: object, inputs: bytes | None = None) -> None:
    """Keep it in a folder. Raises OSError."""
    import tempfile  # late: most programs write nothing

    body = _pickle(made)
    descriptor, unready = tempfile.mkstemp(dir=folder, prefix=name)
    with open(descriptor, "wb") as file:
        file.write((inputs or _inputs()) + hashlib.sha256(body).digest() + body)
    os.chmod(unready, 0o644)
    os.replace(unready, folder / f"{name}.pickle")


def _write_own(name: str, made: object, inputs: bytes) -> None:
    """As Python writes .pyc files; but not root in another's checkout, who could not remove it."""
    try:
        if _OWN.parent.stat().st_uid == os.geteuid():
            _OWN.mkdir(mode=0o755, exist_ok=True)
            write(_OWN, name, made, inputs)
    except OSError:  # no such folder, a full disk: the next start makes them again
        return


def _read(path: Path, inputs: bytes) -> bytes:
    """The pickle in this file, if it is whole, of these inputs, and nobody else's. Raises OSError, ValueError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
        for found in (os.lstat(path.parent), os.fstat(file.fileno())):
            if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ValueError("others may write there")
        content = file.read(_MAX_BYTES)
    made_of, digest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES : 2 * _DIGEST_BYTES]
    body = content[2 * _DIGEST_BYTES :]
    if made_of != inputs or digest != hashlib.sha256(body).digest():
        raise ValueError("made of something else, or torn")
    return body


@cache
def _inputs() -> bytes:
    """The digest of all that the objects are made of."""
    digest = hashlib.sha256()
    texts = ((folders.shipped(), ".yaml"), (_PACKAGE / "compare", ".yaml"))
    for folder, ending in (*texts, *((_PACKAGE / name, ".py") for name in _PROGRAMS)):
        for path in sorted(_files(str(folder), ending)):
            with open(path, "rb") as file:
                digest.update(path.removeprefix(str(folder)).encode() + b"\0" + file.read() + b"\0")
    return digest.digest()


def _files(folder: str, ending: str) -> Iterator[str]:
    """All below it, in any order; os.scandir takes a third of the time of Path.rglob, and this is every start's."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path, ending)
            elif entry.name.endswith(ending):
                yield entry.path


# ---- the pickle ------------------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    def persistent_id(self, item: Any) -> str | None:
        """A path below the shipped folder, which may lie elsewhere where it is loaded."""
        return item.relative_to(folders.shipped()).as_posix() if isinstance(item, Path) else None

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, Table):  # what it holds has become the objects: where it stands is left
            return __newobj__, (Table,), {"path": item.path, "line": item.line, "lines": item.lines}
        if dataclasses.is_dataclass(item) and not isinstance(item, type):  # its own way is slower to load
            return type(item), tuple(getattr(item, field.name) for field in dataclasses.fields(item))
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: bytes) -> None:
        super().__init__(io.BytesIO(body))
        self._shipped = folders.shipped()

    def persistent_load(self, pid: str) -> Path:
        return self._shipped / pid

    def find_class(self, module: str, name: str) -> Any:
        """A class that stands in one of our modules: nothing that it imports, and no function."""
        if module.startswith(_CLASSES):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is nothing that is kept")


def _pickle(made: object) -> bytes:
    import pickletools  # late, as above

    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(made)
    return pickletools.optimize(file.getvalue())  # half of what is read would be notes of objects that stand there once


def _unpickled(body: bytes) -> Any:
    return _Unpickler(body).load()
