"""The kernel's files: /proc and /sys below a root, each read whole and bounded, or unknown with the reason.

Linux only; elsewhere there is no /proc, and each reading is unknown. Tests give a folder of real files as the root.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason

MAX_FILE = 4 * 1024 * 1024
_PART = 1 << 14

_REASONS = {
    errno.ENOENT: Reason.ABSENT,
    errno.ENOTDIR: Reason.ABSENT,
    errno.ESRCH: Reason.STALE,  # the process has ended
    errno.ENODEV: Reason.STALE,  # the control group, or the device, was removed while its file was open
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.ELOOP: Reason.INVALID,
}


class Kernel:
    """The files of one machine. `root` is "/", or a folder that holds its `proc` and `sys`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        """The file's place: "proc/stat" below the root."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | Reason:
        """The file as text, or why it cannot be read. At most 4 MB; what is not UTF-8 is replaced."""
        try:  # by hand, and not as a Path's file: hundreds are read a second, beside a server that wants the CPU
            descriptor = os.open(f"{self.root}/{name.lstrip('/')}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return reason_of(error)
        try:
            data = part = os.read(descriptor, _PART)
            while part and len(data) < MAX_FILE:
                part = os.read(descriptor, _PART)
                data += part
        except OSError as error:
            return reason_of(error)
        finally:
            os.close(descriptor)
        return data[:MAX_FILE].decode("utf-8", "replace")

    def number(self, name: str, origin: str, scale: float = 1.0) -> Reading:
        """A file that holds one number, times `scale`. "max" and other words are unknown: not-supported."""
        text = self.text(name)
        if isinstance(text, Reason):
            return Unknown(text)
        try:
            return Known(float(text.split()[0]) * scale, origin=origin)
        except (ValueError, IndexError):
            return Unknown(Reason.NOT_SUPPORTED)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where it cannot be read."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def link(self, name: str) -> str | Reason:
        """Where a symbolic link points, or why it cannot be read."""
        try:
            return os.readlink(self.path(name))
        except OSError as error:
            return Reason.ABSENT if error.errno == errno.EINVAL else reason_of(error)


def reason_of(error: OSError) -> Reason:
    """Why a system call failed, out of the closed list."""
    return _REASONS.get(error.errno or 0, Reason.NOT_SUPPORTED)


def started_at(stat: str) -> int | None:
    """When a process was started, by its /proc/PID/stat: clock ticks after boot."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() else None


def table(text: str) -> dict[str, str]:
    """Lines "key value" or "key: value" as a mapping: cpu.stat, memory.events, /proc/PID/status."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.replace(":", " ", 1).strip().partition(" ")
        if key:
            rows[key] = value.strip()
    return rows


def cpu_list(text: str) -> frozenset[int]:
    """A list of CPUs as the kernel writes it: "0-3,8" is {0, 1, 2, 3, 8}. Raises ValueError."""
    return frozenset(number for part in text.split(",") if part.strip() for number in _span(part.strip()))


def _span(part: str) -> Iterator[int]:
    first, _, last = part.partition("-")
    low, high = int(first), int(last or first)
    if not 0 <= low <= high < 1 << 16:
        raise ValueError(part)
    yield from range(low, high + 1)
