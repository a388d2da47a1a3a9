"""A server's own output: threads that stand in a write to it, the pipe that it is, and who does not read that.

Read-only: of a pipe only the number of its bytes is asked, and nothing is taken out of it.
"""

from __future__ import annotations

import array
import fcntl
import os
import re
import stat
import termios
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, table
from vllm_doctor.sources.host.process_files import reopened

_OUTPUTS = (1, 2)
_PIPE = re.compile(r"pipe:\[\d+\]")
_BLOCKING = re.compile(r"pipe:\[\d+\]|socket:\[\d+\]|/dev/(?:pts/\d+|tty\w*|console)")
"""What a write can wait for. A file on a disk that hangs is seen by its state (D)."""
_WRITES = {"x86_64": (1, 20), "aarch64": (64, 66)}.get(os.uname().machine, ())
"""write and writev, as /proc/PID/task/TID/syscall numbers them."""
_PIPE_WAITS = frozenset({"pipe_write", "anon_pipe_write", "fifo_pipe_write", "pipe_wait_writable", "pipe_wait"})
_GETPIPE_SZ = 1032
_MAX_PROCESSES, _MAX_FILES = 32768, 4096
_STATES = {"T": "stopped", "t": "stopped by a debugger", "D": "waiting for a disk or a device", "Z": "dead"}
_PLACE = getattr(os, "O_PATH", 0) | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stuck:
    """A thread in the middle of a write; `target`: what the output is, as the kernel names it."""

    pid: int
    thread: int
    target: str


def is_seen(kernel: Kernel, pid: int) -> bool:
    """Whether the doctor may see what the output of a process is."""
    return not isinstance(kernel.link(f"proc/{pid}/fd/1"), Reason)


def stuck(kernel: Kernel, pid: int, threads: Iterable[int]) -> list[Stuck]:
    """The threads of a process that stand in a write to its standard output or error."""
    targets = _targets(kernel, pid)
    if not targets:
        return []
    found = []
    for thread in threads:
        folder = f"proc/{pid}/task/{thread}"
        call = kernel.text(f"{folder}/syscall")
        if not isinstance(call, Reason):
            number, _, rest = call.partition(" ")
            if number.isdigit() and int(number) in _WRITES:
                with suppress(ValueError):
                    target = kernel.link(f"proc/{pid}/fd/{int(rest.split(' ', 1)[0], 16)}")
                    found += [Stuck(pid, thread, target)] if target in targets.values() else []
        elif kernel.text(f"{folder}/wchan") in _PIPE_WAITS:  # the kernel shows no calls: which pipe is a guess
            pipe = next((target for target in targets.values() if _PIPE.fullmatch(target)), None)
            found += [Stuck(pid, thread, pipe)] if pipe is not None else []
    return found


def pipes(kernel: Kernel, pids: Iterable[int]) -> dict[str, tuple[int, int]]:
    """Each pipe that the output of these processes goes to: (bytes in it, bytes that it holds)."""
    found: dict[str, tuple[int, int]] = {}
    for pid in pids:
        for number, target in _targets(kernel, pid).items():
            if target not in found and _PIPE.fullmatch(target):
                filled = _filled(kernel, pid, number, target)
                if filled is not None:
                    found[target] = filled
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """A process at the other end of a pipe. `state`: why it does not read, "" where that is not seen."""

    pid: int
    name: str
    state: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', {self.state}' if self.state else ''})"

    @property
    def is_stopped(self) -> bool:
        return self.state == _STATES["T"]


def reader(kernel: Kernel, target: str, but: Collection[int]) -> Reader | None:
    """Who reads that pipe; None where nobody is seen.

    `but`: the server's own processes, which inherit both ends.
    """
    if not _PIPE.fullmatch(target):
        return None
    pids = [int(name) for name in kernel.names("proc") if name.isdecimal()]
    for pid in pids[:_MAX_PROCESSES]:
        if pid in but or not _reads(kernel, pid, target):
            continue
        stat_text = kernel.text(f"proc/{pid}/stat")
        if isinstance(stat_text, Reason):
            continue
        head, _, rest = stat_text.rpartition(")")
        return Reader(pid, head.partition("(")[2], _STATES.get(rest.strip()[:1], ""))
    return None


def described(target: str, filled: tuple[int, int] | None) -> str:
    """ "a pipe with 65,536 of 65,536 bytes in it", "a terminal"."""
    if _PIPE.fullmatch(target):
        return f"a pipe with {filled[0]:,} of {filled[1]:,} bytes in it" if filled is not None else "a pipe"
    return "a socket" if target.startswith("socket:") else f"the terminal {target} (Ctrl-S holds it, Ctrl-Q lets it go)"


def waits_in(kernel: Kernel, pid: int) -> Reading:
    """The kernel's function that the process's main thread waits in."""
    text = kernel.text(f"proc/{pid}/wchan")
    if isinstance(text, Reason):
        return Unknown(text)
    return Known(text, origin="proc") if re.fullmatch(r"[a-z_]\w{1,99}", text) else Unknown(Reason.NOT_SUPPORTED)


def _targets(kernel: Kernel, pid: int) -> dict[int, str]:
    """Its outputs that a write can wait for."""
    links = {number: kernel.link(f"proc/{pid}/fd/{number}") for number in _OUTPUTS}
    return {n: link for n, link in links.items() if not isinstance(link, Reason) and _BLOCKING.fullmatch(link)}


def _filled(kernel: Kernel, pid: int, number: int, target: str) -> tuple[int, int] | None:
    """Bytes in a pipe and its size. It is opened as a place first: nothing else than that pipe is opened to be read."""
    try:
        place = os.open(kernel.path(f"proc/{pid}/fd/{number}"), _PLACE)
    except OSError:
        return None
    try:
        if not stat.S_ISFIFO(os.fstat(place).st_mode) or os.readlink(f"/proc/self/fd/{place}") != target:
            return None
        with closing(os.fdopen(reopened(place), "rb", buffering=0)) as pipe:
            count = array.array("i", [0])
            fcntl.ioctl(pipe, termios.FIONREAD, count)
            return count[0], fcntl.fcntl(pipe, _GETPIPE_SZ)
    except OSError:
        return None
    finally:
        os.close(place)


def _reads(kernel: Kernel, pid: int, target: str) -> bool:
    folder = f"proc/{pid}/fd"
    for name in islice(kernel.names(folder), _MAX_FILES):
        if kernel.link(f"{folder}/{name}") == target:
            info = kernel.text(f"proc/{pid}/fdinfo/{name}")
            flags = "" if isinstance(info, Reason) else table(info).get("flags", "")
            with suppress(ValueError):
                if int(flags, 8) & os.O_ACCMODE == os.O_RDONLY:
                    return True
    return False
