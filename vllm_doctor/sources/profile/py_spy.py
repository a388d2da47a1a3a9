"""py-spy, run once for one process: its command, its deadline, its file of stacks, and its errors in our words.

By default the process is never stopped (--nonblocking): a stack that changes while it is read is an error that py-spy
counts. Native frames need it stopped for each sample, and only then garbage collection is seen. Locals are never read.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.model.report import Problem
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.profile import rights, stacks
from vllm_doctor.sources.profile.stacks import NOTHING, Stacks
from vllm_doctor.text import extras

PROGRAM = "py-spy"
INSTALL = extras.missing("profile", "py-spy is not installed")
GRACE = 5.0
"""Seconds that it may need beyond its time, to begin and to write."""
_TO_WRITE = 1.0
_GLANCE = 0.05
_MAX_SAID = 64 * 1024
_SAMPLES = re.compile(r"Samples: (\d{1,12}) Errors: (\d{1,12})")
_LATE = re.compile(r"([\d.]{1,12})s behind in sampling")


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one run gave. `cpu`: seconds of CPU that the sampler itself used."""

    stacks: Stacks = NOTHING
    errors: int = 0
    cpu: float | None = None
    problem: Problem | None = None
    notes: tuple[str, ...] = ()


def program() -> str | None:
    """Where it is: beside this Python, or on the PATH."""
    beside = Path(sys.executable).with_name(PROGRAM)
    return str(beside) if beside.is_file() and os.access(beside, os.X_OK) else shutil.which(PROGRAM)


def command(program: str, pid: int, seconds: float, rate: int, native: bool, output: Path) -> list[str]:
    """The words: threads that wait as well, no line numbers, and nothing of what functions were called with."""
    how = ["--native"] if native else ["--nonblocking"]
    return [
        program, "record", "--pid", str(pid), "--format", "raw", "--idle", "--threads", "--nolineno", *how,
        "--rate", str(rate), "--duration", str(max(1, round(seconds))), "--output", str(output),
    ]  # fmt: skip


def sample(
    kernel: Kernel, pid: int, seconds: float, rate: int, native: bool, deadline: float, found: str | None = None
) -> Sampled:
    """Look at one process for so many seconds, until `deadline` (time.monotonic) at the latest; never raises."""
    found = found or program()
    if found is None:
        return Sampled(problem=Problem("unreadable", INSTALL))
    with tempfile.TemporaryDirectory(prefix="vllm-doctor-") as folder:
        output = Path(folder) / "stacks"
        ran = _run(command(found, pid, seconds, rate, native, output), seconds, deadline)
        read = _read(output)
    problem = None if read is not None and read.found else _problem(kernel, pid, ran)
    counted = _SAMPLES.search(ran.said)
    late = _LATE.search(ran.said)
    notes = []
    if late is not None:
        notes.append(f"the sampler fell {late[1]} s behind: fewer samples than asked for (a lower --rate helps)")
    if "process exited" in ran.said and problem is None:
        notes.append("it ended while it was sampled")
    if read is not None and read.is_cut:
        notes.append(f"only the first {len(read.found):,} of its stacks were read")
    if read is not None and read.is_crowded:
        notes.append(f"only {stacks.MAX_DIFFERENT:,} of its functions are kept apart")
    return Sampled(read or NOTHING, int(counted[2]) if counted else 0, ran.cpu, problem, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Ran:
    code: int | None
    """None: it did not end in time."""
    said: str
    cpu: float | None


def _run(words: Sequence[str], seconds: float, deadline: float) -> _Ran:
    environ = {**os.environ, "RUST_BACKTRACE": "0"}
    with tempfile.TemporaryFile() as said:
        try:
            started = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=environ, process_group=0
            )
        except OSError as error:
            return _Ran(127, f"cannot be started: {error.strerror}", None)
        code, cpu = _waited(started, min(deadline, time.monotonic() + seconds + GRACE))
        said.seek(0)
        return _Ran(code, said.read(_MAX_SAID).decode("utf-8", "replace"), cpu)


def _waited(started: subprocess.Popen[bytes], until: float) -> tuple[int | None, float | None]:
    """Its exit code and its CPU time; past its time it is asked to write what it has, then ended."""
    is_asked = False
    try:
        while True:
            pid, status, used = os.wait4(started.pid, os.WNOHANG)
            if pid:
                started.returncode = os.waitstatus_to_exitcode(status)
                return (None if is_asked else started.returncode), used.ru_utime + used.ru_stime
            if time.monotonic() > until + _TO_WRITE:
                started.kill()
            elif time.monotonic() > until and not is_asked:
                started.send_signal(signal.SIGINT)
                is_asked = True
            time.sleep(_GLANCE)
    except BaseException:
        started.kill()
        started.wait()
        raise


def _read(output: Path) -> Stacks | None:
    try:
        with output.open("rb") as file:
            return stacks.parse(file.read(stacks.MAX_BYTES + 1))
    except OSError:
        return None


def _problem(kernel: Kernel, pid: int, ran: _Ran) -> Problem:
    """Why there are no stacks, and what to do."""
    low = ran.said.lower()
    if not kernel.path(f"proc/{pid}").exists() or "no such process" in low:
        return Problem("not-found", f"pid {pid} has ended")
    if "permission denied" in low or "operation not permitted" in low or "os error 13" in low or "os error 1)" in low:
        return Problem("denied", rights.way(kernel, pid))
    if ran.code is None:
        return Problem("timeout", f"py-spy did not end in time with pid {pid}: fewer seconds, or a longer --timeout")
    if "failed to find python version" in low or "failed to find python interpreter" in low or "unsupported" in low:
        return Problem("unreadable", f"py-spy does not recognise the Python of pid {pid}: a newer py-spy may")
    if "can't get native stack traces" in low or ("unwind" in low and "native" in low):
        return Problem("unreadable", "py-spy cannot read native frames here: leave out --native")
    if ran.code == 0:
        return Problem("empty", f"pid {pid} was sampled, and no stack could be read")
    first = next((line.strip() for line in ran.said.splitlines() if line.strip()), "no word")
    return Problem("unreadable", f"py-spy failed with pid {pid}: {stacks.shown(first)}")
