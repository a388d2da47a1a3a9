"""Where the processes of a server spend their time, by part (rules/profile/parts.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vllm_doctor.model.report import Problem

IDLE, DEVICE_WAIT, RANK_WAIT, OTHER = "idle", "device-wait", "rank-wait", "other"
"""The parts that the doctor itself knows: it waits for work, for the device, for other ranks, and nobody knows."""
WAITS = (IDLE, DEVICE_WAIT, RANK_WAIT)
"""In these a thread does not work."""


LEAST_SAMPLES = 50
"""Of a process: with fewer a share is too coarse to judge by (at 50 a share of a tenth is ± 8 points)."""
AT_REST = 0.95
"""Idle for more than this share of the time, in every main thread: nobody asked anything of the server."""
WORTH_TELLING = 0.02
"""The share of the time that a thread works, from which on it is told of: of a server most threads only wait."""
MOST_TOLD = 6
"""Threads of a process."""
NO_NAME = "(no name)"


class Frame(NamedTuple):
    """A frame of a stack: the function's name, qualified where Python tells it, and its file."""

    function: str
    path: str

    @property
    def shown(self) -> str:
        return f"{self.function} ({self.path})"


@dataclass(frozen=True, slots=True)
class ThreadProfile:
    """One thread. `shares` are of the time watched, by part, and add up to at most 1."""

    name: str
    number: int | None
    """Its id, as the process itself sees it; None: Python does not tell."""
    samples: int
    shares: Mapping[str, float]
    cpu: float | None
    """Cores that it used; None where the kernel does not tell."""
    unassigned: tuple[tuple[str, float], ...] = ()
    """Of what no entry describes: the innermost frames, and their shares, the largest first."""

    @property
    def busy(self) -> float:
        """The share of the time in which it worked: waiting for nothing."""
        return sum(share for part, share in self.shares.items() if part not in WAITS)


@dataclass(frozen=True, slots=True)
class Box:
    """A call in a flame graph, or a thread, whose `depth` is 0: `count` samples from `start` on."""

    depth: int
    start: int
    count: int
    name: str
    part: str
    """What nearly all of it is; "" of a thread, of calls that are summed, and of one that leads to several parts."""


@dataclass(frozen=True, slots=True)
class Flame:
    """The stacks of a process as boxes, each below that which called it. `total`: samples of all threads drawn."""

    total: int
    boxes: tuple[Box, ...]
    summed: int = 0
    """Calls that took too little of the time to be drawn one by one."""
    cut: int = 0
    """Samples of stacks that go deeper than is drawn."""


@dataclass(frozen=True, slots=True)
class ProcessProfile:
    """One process of a server. `problem`: why it could not be sampled; `threads`: the busiest first, the main one
    before all."""

    role: str
    pid: int
    threads: tuple[ThreadProfile, ...] = ()
    errors: int = 0
    """Samples that could not be read: the process was changing what was looked at."""
    samples: int = 0
    """Moments at which it was looked at."""
    sampler_cpu: float | None = None
    """Cores that the sampler itself used for it."""
    problem: Problem | None = None
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> ThreadProfile | None:
        return next((thread for thread in self.threads if thread.name == "MainThread"), None)

    @property
    def told(self) -> tuple[ThreadProfile, ...]:
        """The main thread, and the busiest of those that do more than wait."""
        main = self.main
        return tuple(one for one in self.threads if one is main or one.busy >= WORTH_TELLING)[:MOST_TOLD]


@dataclass(frozen=True)
class Profile:
    """A server's processes over so many seconds, each looked at so many times a second."""

    seconds: float
    rate: int
    processes: tuple[ProcessProfile, ...]
    native: bool = False
    """Whether native frames were looked at: only then garbage collection is seen."""
    stacks: Mapping[int, str] = field(default_factory=dict, repr=False)
    """By pid: the collapsed stacks, cleaned."""
    flames: Mapping[int, Flame] = field(default_factory=dict, repr=False)
    """By pid: the same, to be drawn."""
    says: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The words of each part, by its id."""

    @property
    def unsure(self) -> str:
        """Why nothing can be concluded from what was not seen; "" where all of it was seen at work."""
        blind = [one for one in self.processes if one.main is None or one.problem is not None]
        if blind:
            return f"{len(blind)} of {len(self.processes)} processes could not be sampled"
        if any(one.samples < LEAST_SAMPLES for one in self.processes):
            return "Too few samples to judge: sample longer, or more often"
        if all(one.main is not None and one.main.shares.get(IDLE, 0.0) > AT_REST for one in self.processes):
            return "The server was idle: sample under load"
        return ""

    def busiest(self, role: str) -> ProcessProfile | None:
        """Of this role the process whose main thread worked most; None: none was looked into."""
        seen = [one for one in self.processes if one.role == role and one.main is not None]
        return max(seen, key=lambda one: one.main.busy if one.main else 0.0, default=None)
