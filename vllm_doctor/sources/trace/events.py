"""What is kept of a trace: for each event on the device a few numbers, whatever their number up to a limit.

Times are microseconds, as the profiler writes them. Both readers fill it; nothing here knows a file.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from vllm_doctor.model.trace import DECODE
from vllm_doctor.rules.kernel_table import KernelTable

MOST = 1_000_000
"""Events on the device, launches and operators that are kept, each: together a few hundred megabytes."""
_MOST_NAMES = 20_000
_MOST_STEPS = 100_000
_MOST_DEVICES = 16
_LONGEST = 86_400e6
"""Microseconds: what lasts longer than a day was not measured."""
_LAST = 2.0**62

COMPUTE, COMMUNICATION, COPY = range(3)
"""What an event on the device is."""


@dataclass
class Table:
    """Events as columns: 32 bytes each."""

    start: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("l"))
    key: array[int] = field(default_factory=lambda: array("q"))
    """Of the device and of launches what joins them; of operators their thread."""
    left_out: int = 0
    """Events beyond the limit."""

    def __len__(self) -> int:
        return len(self.start)

    def add(self, start: float, end: float, name: int, key: int) -> None:
        if len(self.start) >= MOST:
            self.left_out += 1
            return
        self.start.append(start)
        self.end.append(end)
        self.name.append(name)
        self.key.append(key)

    def by_start(self) -> list[int]:
        return sorted(range(len(self.start)), key=self.start.__getitem__)

    def by_end(self) -> list[int]:
        return sorted(range(len(self.end)), key=self.end.__getitem__)


@dataclass(frozen=True)
class Step:
    """A step, where it began on the CPU. `context`, `generation`: its requests, None where the mark does not tell;
    `kv_tokens`: those that its requests hold."""

    start: float
    end: float
    context: int | None = None
    generation: int | None = None
    kind: str = ""
    tokens: int | None = None
    requests: int | None = None
    kv_tokens: int | None = None


@dataclass
class Events:
    """What a reader found. `names` are of kernels and operators, with their families beside."""

    table: KernelTable
    device: Table = field(default_factory=Table)
    launches: Table = field(default_factory=Table)
    """Calls that put work on the device; its name is 1 where it launches a graph."""
    operators: Table = field(default_factory=Table)
    """On the CPU."""
    names: list[str] = field(default_factory=list)
    families: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    """When kernels were loaded, which happens before their first run."""
    impossible: int = 0
    """Events without a time that can be."""
    python_frames: int = 0
    devices: set[object] = field(default_factory=set)
    """On which the events ran; a worker has one."""
    _steps: list[list[Step]] = field(default_factory=list)
    _numbers: dict[tuple[str, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps = [[] for _ in self.table.steps]

    @property
    def steps(self) -> tuple[str, list[Step]]:
        """What marks them, and the steps in their order: those of the best mark that the trace has."""
        for mark, steps in zip(self.table.steps, self._steps, strict=True):
            if steps:
                return mark.says, sorted(steps, key=lambda step: step.start)
        return "", []

    @property
    def is_forward(self) -> bool:
        """Whether each step is one pass through the model."""
        return next((m.is_forward for m, steps in zip(self.table.steps, self._steps, strict=True) if steps), False)

    def span(self, start: object, duration: object) -> tuple[float, float] | None:
        """The times, if they can be."""
        if type(start) not in (int, float) or type(duration) not in (int, float):
            self.impossible += 1
            return None
        try:
            begin, lasted = float(start), float(duration)  # type: ignore[arg-type]
        except OverflowError:
            begin = lasted = math.nan
        if not (0 <= lasted <= _LONGEST and 0 <= begin < _LAST):
            self.impossible += 1
            return None
        return begin, begin + lasted

    def number(self, name: str, is_op: bool = False, is_copy: bool = False) -> int:
        """The name as a number; of too many the last."""
        found = self._numbers.get((name, is_op))
        if found is None:
            if len(self.names) >= _MOST_NAMES:
                name = "(other names)"
                if (found := self._numbers.get((name, is_op))) is not None:
                    return found
            found = self._numbers[name, is_op] = len(self.names)
            self.names.append(name[:300])
            family, precision = (self.table.of_op(name), "") if is_op else self.table.of_kernel(name)
            if is_copy:
                family, precision = "copy", ""
            self.families.append((family, precision))
            is_communication = family in self.table.communication
            self.kinds.append(COPY if is_copy else COMMUNICATION if is_communication else COMPUTE)
        return found

    def loaded(self, times: tuple[float, float] | None) -> None:
        """Kernels were loaded at this time."""
        if times is not None and len(self.loads) < _MOST_STEPS:
            self.loads.append(times[0])

    def ran_on(self, device: object) -> None:
        """An event of this device was seen."""
        if type(device) in (int, str) and len(self.devices) < _MOST_DEVICES:
            self.devices.add(device)

    def mark(self, name: str, start: float, end: float) -> None:
        """A step, if this name marks one."""
        for place, mark in enumerate(self.table.steps):
            found = mark.pattern.search(name[:400])
            if found is None:
                continue
            if len(self._steps[place]) < _MOST_STEPS:
                self._steps[place].append(_step(start, end, found.groupdict()))
            return

    def joined(self) -> tuple[array[float], bytearray]:
        """For each event on the device when its launch began (NaN: not known), and whether it launched a graph."""
        device, launches = self.device, self.launches
        began, is_graph = array("d", [math.nan]) * len(device), bytearray(len(device))
        order = sorted(range(len(launches)), key=launches.key.__getitem__)
        place = 0
        for mine in sorted(range(len(device)), key=device.key.__getitem__):
            key = device.key[mine]
            if key <= 0:
                continue
            while place < len(order) and launches.key[order[place]] < key:
                place += 1
            if place < len(order) and launches.key[order[place]] == key:
                began[mine] = launches.start[order[place]]
                is_graph[mine] = launches.name[order[place]]
        return began, is_graph

    def without_events(self) -> tuple[int, int, int, int]:
        """(plain launches, those of which the device's events lack, graph launches, those of which they lack)."""
        seen = sorted(set(self.device.key))
        counts = [0, 0, 0, 0]
        place = 0
        order: Iterator[int] = iter(sorted(range(len(self.launches)), key=self.launches.key.__getitem__))
        for mine in order:
            key, of_graph = self.launches.key[mine], 2 if self.launches.name[mine] else 0
            while place < len(seen) and seen[place] < key:
                place += 1
            counts[of_graph] += 1
            counts[of_graph + 1] += place >= len(seen) or seen[place] != key
        return counts[0], counts[1], counts[2], counts[3]


def _step(start: float, end: float, told: dict[str, str | None]) -> Step:
    def count(of: str) -> int | None:
        text = told.get(of)
        return int(text) if text is not None and len(text) < 13 else None

    def both(of: str) -> int | None:
        first, second = count(f"context{of}"), count(f"generation{of}")
        return None if first is None or second is None else first + second

    kind, requests, tokens = told.get("kind") or "", count("requests"), count("tokens")
    if tokens is None and kind.lower() == DECODE:  # one of each request, or more where some are drafted
        tokens = requests
    if "context" in told:
        requests, tokens = both(""), both("_tokens")
    return Step(start, end, count("context"), count("generation"), kind, tokens, requests, both("_kv"))
