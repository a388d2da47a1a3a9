"""Files that the user names, opened and read so that nothing is waited for without end and no device is touched.

A plain file, or what the shell opened for this process: `<(kubectl get pod x -o yaml)` is a pipe, named /dev/fd/63.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from pathlib import Path

SECONDS = 60.0
"""How long a pipe is read, where no --timeout is known: a program may ask for a password first."""


class NoFileError(OSError):
    """What is named is no plain file; its strerror says what it is, and what to do."""


_OWN = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:thread-)?self/fd/\d+")
_CHUNK = 1 << 20
_kept: dict[tuple[int, int], bytes] = {}
"""What was read of pipes, which give it once: a file of --nvidia-smi is checked first, and read again."""


def descriptor(path: str | Path) -> int:
    """A descriptor to read from, which does not block. Raises OSError, whose strerror says what it is instead.

    What was opened is what is checked: nobody can put another file in its place.
    """
    name = os.fspath(path)
    is_own = _OWN.fullmatch(name) is not None
    if not is_own:
        _check(os.stat(name))  # to open a device may already do something
    handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not is_own:
            _check(os.fstat(handle))
        _check_kernel(handle)
    except OSError:
        os.close(handle)
        raise
    return handle


def read(path: str | Path, most: int, until: float | None = None) -> bytes:
    """The content; one byte more than `most` of a file that is larger. Raises OSError, of a pipe also TimeoutError.

    `until`, on time.monotonic: when to give up on a pipe.
    """
    handle = descriptor(path)
    try:
        about = os.fstat(handle)
        if stat.S_ISREG(about.st_mode):
            return of_descriptor(handle, most, until)
        pipe = about.st_dev, about.st_ino
        if pipe not in _kept:
            _kept[pipe] = of_descriptor(handle, most, until)
        return _kept[pipe]
    finally:
        os.close(handle)


def of_descriptor(handle: int, most: int, until: float | None = None) -> bytes:
    """The same, of what is open already: standard input."""
    until = time.monotonic() + SECONDS if until is None else until
    is_waited_for = not stat.S_ISREG(os.fstat(handle).st_mode)
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    content = bytearray()
    while len(content) <= most:
        left = until - time.monotonic()
        if is_waited_for and (left <= 0 or not ready.poll(left * 1000)):
            raise TimeoutError(errno.ETIMEDOUT, "it did not end in time: raise --timeout")
        piece = os.read(handle, min(_CHUNK, most + 1 - len(content)))
        if not piece:
            break
        content += piece
    return bytes(content)


def _check(about: os.stat_result) -> None:
    mode = about.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISFIFO(mode):
        raise NoFileError(errno.EINVAL, "a named pipe, which may have no writer: let the shell open it, as <(cat PIPE)")
    if not stat.S_ISREG(mode):
        raise NoFileError(errno.EINVAL, "a device or a socket, no file")


def _check_kernel(handle: int) -> None:
    """Refuse what looks like a plain file, but is made while it is read, without an end perhaps: /proc/kmsg."""
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode) and about.st_size == 0 and os.fstatvfs(handle).f_blocks == 0:
        raise NoFileError(errno.EINVAL, "a file of the kernel, as in /proc: of a running server give the pid")
