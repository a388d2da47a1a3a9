"""The written alerts beside a real vLLM: silent while it is well, firing while it preempts.

usage: python -m tests.lab.alerts > FILE

Prints what promtool says of the files, then the alerts that a real Prometheus had of each server.
Needs tests/lab/install.sh, and Debian's package prometheus.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.lab.screens import HEAVY, LIMITS, WELL
from tests.lab.server import loaded, must_be_installed, vllm
from tests.promtool import Prometheus, prometheus, promtool, until
from vllm_doctor.cli.main import main as doctor

HOLD_SECONDS, WINDOW_SECONDS = 10, 30
EXPECTED = "VllmPreemption"


def written(url: str, folder: Path) -> list[Path]:
    """The rules for this server, as the command writes them; promtool's word on them is printed."""
    times = ["--for", f"{HOLD_SECONDS}s", "--window", f"{WINDOW_SECONDS}s"]
    with redirect_stdout(io.StringIO()) as said:
        code = doctor(["alerts", "--url", url, "-o", str(folder), *times])
    if code:
        sys.exit("vllm-doctor alerts failed")
    print(said.getvalue().splitlines()[0])
    rules = sorted(folder.glob("*.rules.yaml"))
    for words in (["check", "rules", *(path.name for path in rules)], ["test", "rules", "promtool-tests.yaml"]):
        done = promtool(*words, cwd=folder)
        print(f"$ promtool {' '.join(words)}\n{done.stdout}", flush=True)
        if done.returncode:
            sys.exit("promtool refuses what was written")
    return rules


def show(alerts: list[dict[str, Any]]) -> None:
    for alert in alerts:
        labels, told = alert["labels"], alert["annotations"]
        print(f"{alert['state']}: {labels['alertname']} ({labels['severity']}), active at {alert['activeAt']}")
        for name in ("summary", "description", "remedy", "runbook_url"):
            print(f"  {name}: {told.get(name, '')}")


def watched(running: Prometheus, seconds: float) -> list[dict[str, Any]]:
    """The alerts that are firing after so long a time."""
    time.sleep(seconds)
    return running.alerts()


def named(name: str, running: Prometheus) -> list[dict[str, Any]]:
    return [alert for alert in running.alerts() if alert["labels"]["alertname"] == name]


def main() -> None:
    must_be_installed()
    long_enough = WINDOW_SECONDS + 3 * HOLD_SECONDS
    with tempfile.TemporaryDirectory() as name, vllm(LIMITS, "alerts-well") as url, loaded(url, WELL):
        print("── a vLLM that is well")
        rules = written(url, Path(name) / "rules")
        with prometheus(Path(name), [url.partition("//")[2]], rules) as running:
            fired = watched(running, long_enough)
            show(fired)
            if fired:
                sys.exit("an alert fires on a server that is well")
            print(f"no alert after {long_enough} s\n", flush=True)
    sick = (*LIMITS, "--num-gpu-blocks-override", "80")
    with tempfile.TemporaryDirectory() as name, vllm(sick, "alerts-sick") as url, loaded(url, HEAVY):
        print("── a vLLM that preempts")
        rules = written(url, Path(name) / "rules")
        with prometheus(Path(name), [url.partition("//")[2]], rules) as running:
            until(lambda: named(EXPECTED, running), f"{EXPECTED} fires", 3 * long_enough)
            show(running.alerts())


if __name__ == "__main__":
    main()
