"""A signal ends each command with a line, 3, and nothing half-written; a closed standard error costs no output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.paths import FIXTURES
from tests.serving import Answer, CutError, Request, Route, Served, pages, serving, vllm

COMMANDS = {
    "examine": ["{url}", "--timeout", "60", "--json", "-o", "{folder}/report.json"],
    "record": ["record", "{url}", "--duration", "60", "-o", "{folder}/r.tar.gz"],
    "fleet": ["fleet", "{url}", "--json"],
    "compare": ["compare", "{url}", str(FIXTURES / "preemption")],
    "alerts": ["alerts", "--prometheus", "{url}", "-o", "{folder}/alerts"],
}


class Everywhere(dict[str, Route]):
    """One route for each path."""

    def get(self, path: str, default: object = None) -> Route:
        return self["*"]


def started(*arguments: str) -> subprocess.Popen[str]:
    # A shell's background has SIGINT ignored, and the tests may run there.
    code = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", code, sys.executable, "-m", "vllm_doctor", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_it_well(command: str, name: str, tmp_path: Path) -> None:
    doctors: list[subprocess.Popen[str]] = []
    is_started = threading.Event()

    def hangs(request: Request) -> Answer:
        """Once it is asked, the doctor waits for the answer."""
        is_started.wait()
        doctors[0].send_signal(getattr(signal, name))
        served[0].ended.wait()
        raise CutError

    served: list[Served] = []
    with serving(Everywhere({"*": hangs})) as server:
        served.append(server)
        doctors.append(started(*(word.format(url=server.url, folder=tmp_path) for word in COMMANDS[command])))
        is_started.set()
        _, said = doctors[0].communicate(timeout=120)
    told = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert (doctors[0].returncode, said) == (3, f"vllm-doctor: {told}\n")
    assert list(tmp_path.iterdir()) == []


def test_while_it_is_recorded(tmp_path: Path) -> None:
    """What was seen so far is not kept: a recording is whole, or it is not."""
    with serving(vllm(pages("idle", 60))) as server:
        doctor = started("record", server.url, "-o", str(tmp_path / "r.tar.gz"), "--duration", "60")
        while len(server.asked("/metrics")) < 2:
            time.sleep(0.05)
        doctor.send_signal(signal.SIGTERM)
        _, said = doctor.communicate(timeout=120)
    assert (doctor.returncode, said) == (3, "vllm-doctor: ended by SIGTERM\n")
    assert list(tmp_path.iterdir()) == []


def test_what_the_caller_ignores_ends_nothing() -> None:
    """As nohup has it."""
    with serving(vllm(pages("idle", 60))) as server:
        ignoring = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
        code = f"import os, signal, sys; {ignoring}; os.execv(sys.executable, sys.argv[1:])"
        doctor = [sys.executable, "-m", "vllm_doctor", server.url, "--window", "2", "--json"]
        ran = subprocess.Popen([sys.executable, "-c", code, *doctor], stdout=subprocess.PIPE, text=True)
        while not server.asked("/metrics"):
            time.sleep(0.05)
        ran.send_signal(signal.SIGHUP)
        out, _ = ran.communicate(timeout=120)
    assert (ran.returncode, json.loads(out)["verdict"]) == (0, "ok")


@pytest.mark.parametrize(("closed", "code"), [([2], 2), ([0, 2], 2), ([1], 3), ([0, 1, 2], 3)])
def test_closed_by_the_caller(closed: list[int], code: int) -> None:
    """2>&- and <&- cost no output; >&- leaves nothing to do."""
    doctor = [sys.executable, "-m", "vllm_doctor", str(FIXTURES / "preemption"), "--text"]
    script = f"import os, sys; [os.close(n) for n in {closed}]; os.execv(sys.executable, sys.argv[1:])"
    ran = subprocess.run([sys.executable, "-c", script, *doctor], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout.startswith("CRITICAL  The KV cache" if code == 2 else "")


def test_what_is_opened_next_does_not_take_the_place_of_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    doctor = [sys.executable, "-m", "vllm_doctor", "-", "--json", "-o", str(path)]
    script = "import os, sys; os.close(2); os.execv(sys.executable, sys.argv[1:])"
    ran = subprocess.run([sys.executable, "-c", script, *doctor], input=b"no log\n", capture_output=True, check=False)
    assert ran.returncode == 3
    assert json.loads(path.read_text())["verdict"] == "unknown"


def test_a_standard_error_that_takes_nothing() -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([sys.executable, "-m", "vllm_doctor", "nonsense"], stderr=full, check=False)
    assert ran.returncode == 3
