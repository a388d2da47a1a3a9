"""The files of one process, by the paths that the process itself would use: a container's /models is not the host's.

The only way to what a process names. Everything is looked up below /proc/PID/root, part by part, from one open folder
to the next, with the rights of the process's user (`credentials`): links are followed here, not by the kernel, which
would follow an absolute one into the host's own files; and what is moved or linked meanwhile changes nothing.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import credentials
from vllm_doctor.sources.host.credentials import Credentials, acting_as
from vllm_doctor.sources.host.kernel import MAX_FILE, Kernel, reason_of, started_at, table

_MAX_LINKS = 40  # as the kernel
_MAX_STEPS = 1000
_MAX_PATH = 4096
_NOT_FILES = frozenset({"proc", "sys"})  # "self" there would be the doctor

# A place, where nothing is opened yet: no device and no FIFO is woken. macOS has neither O_PATH nor a /proc.
_PLACE = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK

Found = TypeVar("Found")


class ProcessFiles:
    """What the process `pid` sees as its files. A relative path begins at its working directory.

    `who`: whose rights hold. `started`: when the process was, in clock ticks: another one may get its pid.
    """

    def __init__(self, kernel: Kernel, pid: int, who: Credentials | Reason, started: int) -> None:
        self._kernel = kernel
        self.pid = pid
        self._who = who
        self._started = started

    @property
    def is_of_another_user(self) -> bool:
        """Whether that user's rights hold, and not the doctor's own."""
        return credentials.is_other(self._who)

    def absolute(self, path: str) -> str | Reason:
        """The path from the root, as the process would say it."""
        if path.startswith("/"):
            return path
        folder = self._kernel.link(f"proc/{self.pid}/cwd")
        return folder if isinstance(folder, Reason) else posixpath.normpath(posixpath.join(folder, path))

    def text(self, path: str, limit: int = MAX_FILE) -> str | Reason:
        """A regular file as text; `invalid` where it has more than `limit` bytes."""
        descriptor = self._at(path, _opened)
        if isinstance(descriptor, Reason):
            return descriptor
        most = min(limit, MAX_FILE)
        try:
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(most + 1)
        except OSError as error:
            return reason_of(error)
        return data.decode("utf-8", "replace") if len(data) <= most else Reason.INVALID

    def size(self, path: str) -> int | Reason:
        """Bytes of a regular file."""
        found = self._at(path, os.fstat)
        if isinstance(found, Reason):
            return found
        return found.st_size if stat.S_ISREG(found.st_mode) else Reason.NOT_SUPPORTED

    def changed(self, path: str) -> float:
        """When a file or folder was last changed, seconds since 1970; 0 where that cannot be seen."""
        found = self._at(path, os.fstat)
        return 0.0 if isinstance(found, Reason) else found.st_mtime

    def is_folder(self, path: str) -> bool | Reason:
        """Whether there is a folder; the reason where that cannot be seen."""
        found = self._at(path, os.fstat)
        if isinstance(found, Reason):
            return False if found is Reason.ABSENT else found
        return stat.S_ISDIR(found.st_mode)

    def names(self, folder: str) -> list[str] | Reason:
        """The names in a folder, sorted."""
        return self._at(folder, _names)

    def capacity(self, folder: str) -> int | Reason:
        """Bytes of the file system that a folder is on."""
        system = self._at(folder, os.fstatvfs)
        return system if isinstance(system, Reason) else system.f_blocks * system.f_frsize

    def output(self) -> int:
        """A descriptor to read the file that the process's standard output is now, whatever its name. Raises OSError.

        What the process holds open for writing it was given, so what stands there is what its server writes, or stood
        beside that: it is read, even if it is root's own (systemd's StandardOutput=append:, a shell of root's). Any
        other file its user must be allowed to read: a process can hold a place (O_PATH) of a file that it may not.
        """
        with self._process() as process, _closing(os.open("fd/1", _PLACE, dir_fd=process)) as place:
            if isinstance(self._who, Credentials) and _is_written(process, place):
                return _opened(place)
            with acting_as(self._who):
                return _opened(place)

    def network(self) -> int:
        """A descriptor of its network namespace; to be closed. Raises OSError."""
        with self._process() as process:
            return os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)

    @contextmanager
    def socket(self, path: str) -> Iterator[str]:
        """Within it, what to connect to for the Unix socket of that name, with its user's rights. Raises OSError."""
        place = self._at(path, os.dup)
        if isinstance(place, Reason):
            raise OSError(errno.ENOENT, f"{path}: {place.value}")
        with _closing(place):
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                raise OSError(errno.ENOTSOCK, f"{path} is no socket")
            with acting_as(self._who):
                yield f"/proc/self/fd/{place}"

    def _at(self, path: str, look: Callable[[int], Found]) -> Found | Reason:
        """What `look` gives of the place that the path names."""
        if "\0" in path:
            return Reason.ABSENT
        absolute = self.absolute(path)
        if isinstance(absolute, Reason):
            return absolute
        try:
            with (
                self._process() as process,
                _closing(os.open("root", _PLACE | os.O_DIRECTORY, dir_fd=process)) as root,
                acting_as(self._who),
                _closing(_place(root, absolute)) as place,
            ):
                return look(place)
        except OSError as error:
            return reason_of(error)

    @contextmanager
    def _process(self) -> Iterator[int]:
        """The folder of the process in /proc: of this one, and of no other that gets its pid."""
        with _closing(os.open(self._kernel.path(f"proc/{self.pid}"), _PLACE | os.O_DIRECTORY)) as process:
            if started_at(_page(process, "stat")) != self._started:
                raise ProcessLookupError(errno.ESRCH, "it has ended")
            yield process


def _place(root: int, path: str) -> int:
    """What the path names below `root`, as a descriptor of the place; to be closed. Raises OSError."""
    if len(path) > _MAX_PATH:
        raise FileNotFoundError(errno.ENOENT, "no path is so long")
    todo, done, here = _parts(path), list[str](), os.dup(root)
    links = steps = 0
    try:
        while todo:
            part, steps = todo.pop(0), steps + 1
            if links > _MAX_LINKS or steps > _MAX_STEPS:
                raise OSError(errno.ELOOP, "a circle of links")
            if not done and part in _NOT_FILES:
                raise OSError(errno.ENOTSUP, "no file")
            if part != "..":
                before, here = here, os.open(part, _PLACE | os.O_NOFOLLOW, dir_fd=here)
                os.close(before)
                done.append(part)
                if not stat.S_ISLNK(os.fstat(here).st_mode):
                    continue
                target, links = os.readlink("", dir_fd=here), links + 1
                todo = _parts(target) + todo
                if target.startswith("/"):
                    done = []
            # From the root again: the parent that a folder has by now may be one of the host's.
            todo, done = done[:-1] + todo, []
            before, here = here, os.dup(root)
            os.close(before)
    except BaseException:
        os.close(here)
        raise
    return here


def _opened(place: int) -> int:
    """The regular file at a place, to be read. Raises OSError."""
    if not stat.S_ISREG(os.fstat(place).st_mode):
        raise OSError(errno.ENOTSUP, "no regular file")
    return reopened(place)


def reopened(descriptor: int) -> int:
    """What is open, or placed, there: once more, to be read from its start. Raises OSError."""
    return os.open(f"/proc/self/fd/{descriptor}", _READ)


def _names(place: int) -> list[str]:
    with _closing(os.open(".", _READ | os.O_DIRECTORY, dir_fd=place)) as folder:
        return sorted(os.listdir(folder))


def _is_written(process: int, place: int) -> bool:
    """Whether the place is that of the process's standard output, and the process has that open for writing.

    One look at the descriptor tells both, so that a process that changes it meanwhile gains nothing. Kernels before
    5.14 tell no inode: there nothing counts but what the user may read.
    """
    try:
        theirs = table(_page(process, "fdinfo/1"))
        with open(f"/proc/self/fdinfo/{place}", encoding="ascii") as page:
            ours = table(page.read())
        flags = int(theirs["flags"], 8)
        is_same = (theirs["mnt_id"], theirs["ino"]) == (ours["mnt_id"], ours["ino"])
    except (OSError, KeyError, ValueError):
        return False
    return is_same and flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)


def _page(process: int, name: str) -> str:
    """A small file of a process's folder in /proc."""
    with _closing(os.open(name, _READ, dir_fd=process)) as file:
        return os.read(file, 1 << 16).decode("utf-8", "replace")


def own(kernel: Kernel) -> ProcessFiles:
    """The doctor's own, with its own rights: for what its user names."""
    stat = kernel.text(f"proc/{os.getpid()}/stat")
    started = None if isinstance(stat, Reason) else started_at(stat)
    return ProcessFiles(kernel, os.getpid(), Credentials(os.geteuid(), os.getegid()), started or 0)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
