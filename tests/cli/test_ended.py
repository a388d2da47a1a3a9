"""A signal ends each command with a line, 3, and nothing half-written; a closed standard error costs no output."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import FIXTURES
from tests.serving import Answer, Request, serving

COMMANDS = {
    "examine": ["{url}", "--timeout", "60", "--json", "-o", "{folder}/report.json"],
    "record": ["record", "{url}", "--duration", "60", "-o", "{folder}/r.tar.gz"],
    "fleet": ["fleet", "{url}", "--json"],
    "compare": ["compare", "{url}", str(FIXTURES / "preemption")],
    "alerts": ["alerts", "--prometheus", "{url}", "-o", "{folder}/alerts"],
}


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vllm_doctor", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_ends_it_well(command: str, name: str, tmp_path: Path) -> None:
    with serving({}) as server:

        def hangs(request: Request) -> Answer:
            doctor.send_signal(getattr(signal, name))  # once it is asked, the doctor waits
            server.ended.wait()
            return Answer()

        server.serve(hangs)
        doctor = started(*(word.format(url=server.url, folder=tmp_path) for word in COMMANDS[command]))
        _, said = doctor.communicate(timeout=60)
    told = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert (doctor.returncode, said) == (3, f"vllm-doctor: {told}\n")
    assert list(tmp_path.iterdir()) == []
