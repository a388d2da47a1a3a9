"""The machine under the lab: what it did meanwhile, and whose turn comes first on it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROBBED = 0.1
"""Where a larger share of its CPU time went to other virtual machines, what was seen is also theirs."""


def before_all_others(pid: int, with_children: bool = False) -> None:
    """Real-time scheduling for this process, where that is allowed; for its later threads and children if so wished.

    Clients are other machines: the server cannot starve them.
    """
    policy = os.SCHED_RR if with_children else os.SCHED_RR | os.SCHED_RESET_ON_FORK
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(pid, policy, os.sched_param(1))


def cpu_times() -> list[int]:
    """Jiffies of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]


def share_stolen(before: list[int]) -> float:
    """The share of the CPU time wanted since then that went to other virtual machines."""
    user, nice, system, _, _, irq, softirq, steal = (b - a for a, b in zip(before, cpu_times(), strict=True))
    return steal / max(1, user + nice + system + irq + softirq + steal)


def busy() -> str:
    """How busy this machine is: a look that differed may be the machine's."""
    pressures = {path.name: path.read_text().split("\n")[0] for path in Path("/proc/pressure").glob("*")}
    times = [line for line in Path("/proc/stat").read_text().split("\n") if line.startswith("cpu")]
    return f"load {os.getloadavg()}, pressure {pressures}, {times}"
