"""Whose a process is, and what that user may read: what another user's process names, root reads as that user.

Root may read every file, and a process can name any. So the kernel is asked to check as for the process's own user:
the thread takes that user's ids for files, which lose root's rights over files (setfsuid(2), capabilities(7)).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, reason_of, table

_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
"""The system call, which is of one thread; the C library's function is of all."""
_GET_SECUREBITS = 27
_NO_SETUID_FIXUP = 1 << 2
"""With it root's rights would stay."""
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user, as the kernel checks who opens a file."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def of_process(kernel: Kernel, pid: int) -> Credentials | Reason:
    """Whose the process is; denied where what it says need not be its user's words.

    That is so of a program that runs as its owner (sudo, which waits for a password as root, with any words), and of
    one that changes its user.
    """
    status = kernel.text(f"proc/{pid}/status")
    if isinstance(status, Reason):
        return status
    try:
        program = os.stat(kernel.path(f"proc/{pid}/exe")).st_mode
    except OSError as error:
        return reason_of(error)
    rows = table(status)
    try:
        uids, gids, groups = ([int(word) for word in rows.get(name, "").split()] for name in ("Uid", "Gid", "Groups"))
    except ValueError:  # no kernel's, but a sandbox's own
        return Reason.NOT_SUPPORTED
    if program & (stat.S_ISUID | stat.S_ISGID) or len(set(uids)) != 1 or len(set(gids)) != 1:
        return Reason.DENIED
    return Credentials(uids[0], gids[0], tuple(groups))


def is_other(who: Credentials | Reason) -> bool:
    """Whether this is root, and the process another user's, or nobody knows whose. Any other doctor opens files with
    its own rights, which the kernel knows."""
    return os.geteuid() == _ROOT and not (isinstance(who, Credentials) and who.uid == _ROOT)


@contextmanager
def acting_as(who: Credentials | Reason) -> Iterator[None]:
    """Within it this thread opens files with that user's rights. Raises PermissionError where it cannot be so.

    Nothing is to be imported within it: that user may not read the doctor's own files.
    """
    if not is_other(who):
        yield
        return
    if isinstance(who, Reason):
        raise PermissionError(errno.EACCES, "not known whose it is")
    libc, setgroups = _libc()
    gid, groups = os.getegid(), os.getgroups()
    try:
        setgroups(who.groups)
        # Both give what was before, and tell of no failure: -1, which is nobody, asks.
        libc.setfsgid(who.gid)
        libc.setfsuid(who.uid)
        if (libc.setfsuid(-1), libc.setfsgid(-1)) != (who.uid, who.gid):
            raise PermissionError(errno.EPERM, "may not act as another user (CAP_SETUID, CAP_SETGID)")
        yield
    finally:
        libc.setfsuid(_ROOT)
        libc.setfsgid(gid)
        setgroups(groups)


@cache
def _libc() -> tuple[Any, Any]:
    """The C library, and setgroups of one thread. Raises PermissionError where that is not known."""
    import ctypes  # late: most who run the doctor are not root beside another user's server
    import platform
    import sys

    number = _SETGROUPS.get(platform.machine()) if sys.maxsize > 1 << 32 else None
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.prctl(_GET_SECUREBITS, 0, 0, 0, 0) & _NO_SETUID_FIXUP:
        raise PermissionError(errno.EPERM, "not known how to act as another user here")

    def setgroups(groups: tuple[int, ...]) -> None:
        if libc.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups)):
            raise PermissionError(ctypes.get_errno(), "setgroups")

    return libc, setgroups
