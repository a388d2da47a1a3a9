"""Healthy servers under loads of many shapes: what the doctor finds in them, which must be nothing.

usage: python -m tests.lab.healthy [NAME...] [--windows 3 15]     these of healthy.yaml (all)

Prints a table: the verdict and what was found at warning or worse; 1 if that is anything, or a load did not work.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.lab.doctor import NO_ANSWER, doctor
from tests.lab.machine import ROBBED, before_all_others, cpu_times, share_stolen
from tests.lab.server import OUT, loaded, must_be_installed, vllm

HERE = Path(__file__).resolve().parent
LOOKS = 3
SMALL = "cpu-underprovisioned"
"""True of a machine of two cores: vLLM's processes want three."""


def looked(url: str, name: str, window: str) -> list[str]:
    """What was found at warning or worse, and is not the machine's; a look at a robbed machine is made again."""
    for _ in range(LOOKS):
        before = cpu_times()
        answer = doctor(url, "--json", "--window", window)
        stolen = share_stolen(before)
        (OUT / f"healthy-{name}-{window}.json").write_text(answer.stdout)
        report: dict[str, Any] = json.loads(answer.stdout or NO_ANSWER)
        if stolen <= ROBBED:
            break
    grave = [found["rule"] for found in report["findings"] if found["severity"] in ("critical", "warning")]
    wrong = [rule for rule in grave if rule != SMALL]
    running = report["vitals"].get("requests_running")
    print(f"{'FAIL' if wrong else 'ok  '} {name:<18}{window:>3} s  {report['verdict']:<9}{running!s:<9}", end="")
    print(f"{', '.join(grave) or '-':<30}{report['headline'][:70]}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--windows", nargs="+", default=["3", "15"])
    asked = parser.parse_args()
    must_be_installed()
    before_all_others(os.getpid())
    failed = total = 0
    for server in yaml.safe_load((HERE / "healthy.yaml").read_text()):
        shapes = [shape for shape in server["shapes"] if not asked.names or shape["name"] in asked.names]
        if not shapes:
            continue
        with vllm(server["args"], "healthy") as url:
            for shape in shapes:
                with loaded(url, shape["load"]) as served:
                    for window in asked.windows:
                        total += 1
                        failed += bool(looked(url, shape["name"], window))
                if served.get("errors") or not (served.get("requests") or served.get("stops")):
                    print(f"FAIL {shape['name']}: its clients were not served: {served}")
                    failed += 1
    print(f"{total - failed} of {total} looks found nothing")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
