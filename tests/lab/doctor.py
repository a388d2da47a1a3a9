"""The doctor, started as its users start it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.machine import before_all_others, busy

NO_ANSWER = """{"verdict": "unknown", "headline": "no answer", "findings": [], "vitals": {}, "command": null,
                "patient": {"processes": [], "cores": null}}"""
DOCTOR_SECONDS = 60
THREAD_FILES = ("stat", "schedstat", "wchan")


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The doctor's answer. One that hangs is asked where (SIGABRT, faulthandler), and once more, before all others.

    The wait is counted in seconds waited, not by the clock: a virtual machine that is paused for minutes finds all
    deadlines passed when it wakes, and nobody has hung.
    """
    command = [sys.executable, "-X", "faulthandler", "-m", "vllm_doctor", "--timeout", "40", *arguments]
    for ask in range(2):
        started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if ask:
            before_all_others(started.pid, with_children=True)  # its watchers are threads
        for _ in range(DOCTOR_SECONDS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                stdout, stderr = started.communicate(timeout=1)
                return subprocess.CompletedProcess(command, started.returncode, stdout, stderr)
        threads = [
            path.read_text() for path in Path(f"/proc/{started.pid}/task").glob("*/*") if path.name in THREAD_FILES
        ]
        started.send_signal(signal.SIGABRT)
        stdout, stderr = started.communicate()
        print(f"the doctor hung for {DOCTOR_SECONDS} s; {busy()}\n{''.join(threads)}{stderr}", flush=True)
    return subprocess.CompletedProcess(command, started.returncode, stdout, stderr)
