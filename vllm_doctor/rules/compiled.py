"""What the shipped YAML files hold, as JSON: a start then does not parse 140 of them.

Found by the SHA-256 of the text (and of the program that parses), so that it cannot be out of date. A wheel brings it
along; else it is written where Python writes its .pyc, under the same conditions. JSON runs nothing when it is loaded.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

Tree = Any
"""What JSON holds (document.py)."""
_HERE = Path(__file__).parent
_SHIPPED = (_HERE.parent, _HERE.parents[1] / "rules")
"""The package, and beside it in a checkout."""
_BROUGHT = _HERE / "compiled.json"
_OWN = Path(__spec__.cached or __file__).with_name("compiled.json")
"""Beside this module's own .pyc."""
_MAX_BYTES = 16 << 20
_MAX_KEPT = 1000
"""Of texts: in a checkout where rules are written, old ones are forgotten then."""
_fresh: dict[str, Tree] = {}


def key(text: bytes) -> str:
    """By what the tree of a text is found."""
    digest = _reader().copy()
    digest.update(text)
    return digest.hexdigest()


def find(key: str) -> Tree | None:
    """What the text of this key holds, where it is known."""
    return _kept().get(key)


def add(key: str, path: Path, tree: Tree) -> None:
    """What was parsed now: written at the end where it is of a shipped file."""
    if any(path.is_relative_to(folder) for folder in _SHIPPED):
        if not _fresh:
            atexit.register(write)
        _fresh[key] = tree


def write(path: Path = _OWN) -> None:
    """Keep what was parsed now for the next start, where that is possible."""
    import tempfile  # late: what is kept already is not written

    if not _fresh or (path == _OWN and not _may_write(path.parent)):
        return
    old = _kept() if len(_kept()) < _MAX_KEPT else {}
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix="compiled.")
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({**old, **_fresh}, file, separators=(",", ":"), ensure_ascii=False)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError:  # a full disk: the next start parses again
        return
    _fresh.clear()


def _may_write(folder: Path) -> bool:
    """As Python writes .pyc files; but not root in another's checkout, who could not remove it."""
    if sys.dont_write_bytecode:
        return False
    try:
        return folder.stat().st_uid == os.geteuid() and os.access(folder, os.W_OK)
    except OSError:
        return False


@cache
def _kept() -> dict[str, Tree]:
    found: dict[str, Tree] = {}
    for path in (_BROUGHT, _OWN):
        try:
            if path.stat().st_size <= _MAX_BYTES:
                told = json.loads(path.read_bytes())
                found |= told if isinstance(told, dict) else {}
        except (OSError, ValueError, RecursionError):
            continue
    return found


@cache
def _reader() -> Any:
    """The program that makes a tree of a text: another may make another."""
    programs = ("document.py", "strict_yaml.py")
    return hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in programs))
