"""The files of one process, by the paths that the process itself would use: a container's /models is not the host's.

Everything is read below /proc/PID/root, and symbolic links are followed here, not by the kernel: the kernel would
follow an absolute link into the host's own files.
"""

from __future__ import annotations

import os
import posixpath
import stat

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import MAX_FILE, Kernel, reason_of

_MAX_LINKS = 40  # as the kernel
_NOT_FILES = frozenset({"proc", "sys"})  # "self" there would be the doctor


class ProcessFiles:
    """What the process `pid` sees as its files. A relative path begins at its working directory."""

    def __init__(self, kernel: Kernel, pid: int) -> None:
        self._kernel = kernel
        self._process = f"proc/{pid}"

    def absolute(self, path: str) -> str | Reason:
        """The path from the root, as the process would say it."""
        if path.startswith("/"):
            return path
        folder = self._kernel.link(f"{self._process}/cwd")
        return folder if isinstance(folder, Reason) else posixpath.normpath(posixpath.join(folder, path))

    def place(self, path: str) -> str | Reason:
        """The path with its links followed, as the kernel's files have it: "proc/7/root/models/m"."""
        if "\0" in path:
            return Reason.ABSENT
        absolute = self.absolute(path)
        if isinstance(absolute, Reason):
            return absolute
        todo, done, links = _parts(absolute), list[str](), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            done.append(part)
            target = self._kernel.link(self._below(done))
            if target is Reason.ABSENT:  # no link; whether there is a file shows when it is opened
                continue
            if isinstance(target, Reason):
                return target
            links += 1
            if links > _MAX_LINKS:
                return Reason.INVALID
            done = [] if target.startswith("/") else done[:-1]
            todo = _parts(target) + todo
        return Reason.NOT_SUPPORTED if _NOT_FILES & set(done[:1]) else self._below(done)

    def text(self, path: str, limit: int = MAX_FILE) -> str | Reason:
        """A regular file as text; `invalid` where it has more than `limit` bytes."""
        size = self.size(path)
        if isinstance(size, Reason):
            return size
        place = self.place(path)
        if isinstance(place, Reason):
            return place
        return self._kernel.text(place) if size <= min(limit, MAX_FILE) else Reason.INVALID

    def size(self, path: str) -> int | Reason:
        """Bytes of a regular file."""
        found = self._stat(path)
        if isinstance(found, Reason):
            return found
        return found.st_size if stat.S_ISREG(found.st_mode) else Reason.NOT_SUPPORTED

    def changed(self, path: str) -> float:
        """When a file or folder was last changed, seconds since 1970; 0 where that cannot be seen."""
        found = self._stat(path)
        return 0.0 if isinstance(found, Reason) else found.st_mtime

    def is_folder(self, path: str) -> bool | Reason:
        """Whether there is a folder; the reason where that cannot be seen."""
        found = self._stat(path)
        if isinstance(found, Reason):
            return False if found is Reason.ABSENT else found
        return stat.S_ISDIR(found.st_mode)

    def names(self, folder: str) -> list[str] | Reason:
        """The names in a folder, sorted."""
        place = self.place(folder)
        if isinstance(place, Reason):
            return place
        try:
            return sorted(os.listdir(self._kernel.path(place)))
        except OSError as error:
            return reason_of(error)

    def _stat(self, path: str) -> os.stat_result | Reason:
        place = self.place(path)
        if isinstance(place, Reason):
            return place
        try:
            return self._kernel.path(place).stat(follow_symlinks=False)
        except OSError as error:
            return reason_of(error)

    def _below(self, parts: list[str]) -> str:
        return "/".join([f"{self._process}/root", *parts])


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
