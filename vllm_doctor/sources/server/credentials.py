"""The files that hold what a server asks for: named by the user, and bounded in size and time."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from typing import BinaryIO

from vllm_doctor.model.errors import UsageError

_MOST = 64 << 10
_SECONDS = 60.0
"""For a pipe: a program may ask for a password first."""
_OWN = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+")


def opened(path: str) -> BinaryIO:
    """A plain file, or a pipe that the doctor was started with: `<(…)`. Raises OSError.

    No other pipe and no device: one without an end, or a writer, would be waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and _OWN.fullmatch(path)):
        return open(handle, "rb", buffering=0)
    os.close(handle)
    raise OSError(errno.EINVAL, "not a plain file")


def token(option: str, path: str) -> str:
    """The token in a file, for an Authorization header. Raises UsageError, which does not quote it."""
    try:
        with opened(path) as file:
            content = _content(file)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{option} {path}: cannot be read ({why})") from None
    found = content.decode("latin-1").strip()
    if len(content) > _MOST or not found or not found.isascii() or not found.isprintable():
        raise UsageError(f"{option} {path}: must hold one token, on one line")
    return found


def _content(file: BinaryIO) -> bytes:
    """All of it; of more than a token can be, only the beginning."""
    content, until = b"", time.monotonic() + _SECONDS
    while len(content) <= _MOST:
        if not select.select([file], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(errno.ETIMEDOUT, f"nothing came for {_SECONDS:.0f} s")
        piece = os.read(file.fileno(), _MOST)
        if not piece:
            break
        content += piece
    return content
