"""What the shipped YAML files hold, as JSON: a start then does not parse 140 of them.

An entry counts only while the SHA-256 of the text (and of the program that parses it) is that of its making. A wheel
brings the file along; else it is written beside Python's .pyc, where Python may. JSON runs nothing when it is loaded.
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
NAME = "compiled.json"
_HERE = Path(__file__).parent
_SHIPPED = (_HERE / "shipped", _HERE.parents[1] / "rules", _HERE.parent)
"""Where shipped files lie: when installed, in a checkout, and those of the package itself."""
_BROUGHT = _HERE / NAME
_OWN = Path(__spec__.cached or __file__).with_name(NAME)
"""Beside this module's own .pyc."""
_MAX_BYTES = 16 << 20
_fresh: dict[str, tuple[str, Tree]] = {}


def find(path: Path, until: str | None, text: str) -> Tree | None:
    """What this text holds, where it is of a shipped file (up to a key) and was parsed before."""
    name = _name(path, until)
    kept = _kept().get(name) if name is not None else None
    return kept[1] if kept is not None and kept[0] == _digest(text) else None


def add(path: Path, until: str | None, text: str, tree: Tree) -> None:
    """What was parsed now: written at the end of the program where the file is a shipped one."""
    name = _name(path, until)
    if name is not None:
        if not _fresh:
            atexit.register(_write_own)
        _fresh[name] = (_digest(text), tree)


def write(path: Path) -> None:
    """Write what is kept, and what was parsed now. Raises OSError."""
    import tempfile  # late: most programs write nothing

    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=NAME)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({**_kept(), **_fresh}, file, separators=(",", ":"), ensure_ascii=False)
    os.chmod(name, 0o644)
    os.replace(name, path)


def _write_own() -> None:
    """As Python writes .pyc files; but not root in another's checkout, who could not remove it."""
    if sys.dont_write_bytecode:
        return
    try:
        if _OWN.parent.stat().st_uid == os.geteuid():
            write(_OWN)
    except OSError:  # no such folder, a full disk: the next start parses again
        return


def _name(path: Path, until: str | None) -> str | None:
    for folder in _SHIPPED:
        if path.is_relative_to(folder):
            return f"{path.relative_to(folder)}#{until or ''}"
    return None


@cache
def _kept() -> dict[str, tuple[str, Tree]]:
    found: dict[str, tuple[str, Tree]] = {}
    for path in (_BROUGHT, _OWN):
        try:
            if path.stat().st_size <= _MAX_BYTES:
                found |= json.loads(path.read_bytes())
        except (OSError, ValueError, TypeError, RecursionError):
            continue
    return found


def _digest(text: str) -> str:
    digest = _programs().copy()
    digest.update(text.encode())
    return str(digest.hexdigest())


@cache
def _programs() -> Any:
    """What makes a tree of a text: another program may make another."""
    return hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in ("document.py", "strict_yaml.py")))
