"""Whether a server's processes are alive: the state of each process and thread at each look, and what holds it.

A look reads small files of /proc and nothing else: nothing is signalled, traced or written. Only what the last looks
agree on is true now; what an earlier look saw is told as past.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host import output, process
from vllm_doctor.sources.host.kernel import Kernel, started_at
from vllm_doctor.sources.host.output import Stuck
from vllm_doctor.sources.host.process import API_SERVER, ENGINE_CORE, OTHER, WORKER, Member, ServerProcess

CONFIRM_SECONDS = 0.2
"""From a look at something that stands still to the next: a debugger's snapshot (py-spy dump) is over by then."""
RECENT_SECONDS = 5.0
"""What is of the last looks, as the last scrapes are (rules/evaluation.py)."""

_MAX_THREADS = 1024  # of one process: torch starts hundreds
_MAX_LOOKS = 64
_LEAST_SECONDS = 2.0  # of looks, before anything is said to stand still
_STOPPED, _TRACED, _WAITS = "T", "t", "D"
_DEAD = frozenset("ZXx")
_FREEZERS = frozenset({"__refrigerator", "do_freezer_trap"})
"""What a thread of a paused container waits in; the older control groups' freezer, and that of version 2."""
_NAMES = {API_SERVER: "API server", ENGINE_CORE: "engine core", WORKER: "worker"}
_HOLDS = {
    _STOPPED: "stopped by a signal",
    _TRACED: "stopped by a debugger",
    "frozen": "frozen with its container",
}


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """One thread. `state`: the kernel's letter; seconds it ran, and times it got a core (0 where it does not count)."""

    state: str
    ran: float
    turns: int

    def moved_since(self, before: ThreadLook | None) -> bool:
        """Whether it had a core in between."""
        return before is None or (self.ran, self.turns) != (before.ran, before.turns)


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """One process. `held`: T stopped, t traced, frozen with its control group; "" where nothing holds it."""

    held: str
    threads: Mapping[int, ThreadLook]

    @property
    def ran(self) -> float:
        return sum(thread.ran for thread in self.threads.values())


@dataclass(frozen=True)
class Look:
    """The server's processes at one moment, `at` seconds on a clock that does not step; who has ended is missing."""

    at: float
    processes: Mapping[int, ProcessLook]
    stuck: tuple[Stuck, ...] = ()
    """Threads in the middle of a write to the process's own output."""
    pipes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Pipes that the output goes to: bytes in it, and how many it holds."""

    @property
    def is_suspect(self) -> bool:
        """Whether something stands still that a second look must confirm."""
        return bool(self.stuck) or any(seen.held for seen in self.processes.values())


class Liveness:
    """The looks at one server of this host. `clock` must not step."""

    def __init__(
        self,
        server: ServerProcess,
        kernel: Kernel,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server, self._kernel, self._clock, self._sleep = server, kernel, clock, sleep
        titled = any(member.role == ENGINE_CORE for member in server.members)
        # Where no process has a title one of the others is the engine; beside titled ones the others are tools.
        self._members = tuple(member for member in server.members if member.role != OTHER or not titled)
        self.looks: list[Look] = []

    def look(self) -> None:
        """Once more."""
        seen = {m.pid: found for m in self._members if (found := _process(self._kernel, m)) is not None}
        self.looks.append(
            Look(
                self._clock(),
                seen,
                tuple(stuck for pid in seen for stuck in output.stuck(self._kernel, pid, seen[pid].threads)),
                output.pipes(self._kernel, seen),
            )
        )
        del self.looks[:-_MAX_LOOKS]

    def look_last(self) -> None:
        """The last look of a window, and once more after a moment where something stands still."""
        self.look()
        if self.looks[-1].is_suspect:
            self._sleep(CONFIRM_SECONDS)
            self.look()

    def forget(self, before: float) -> None:
        """Looks before that moment; two are kept."""
        while len(self.looks) > 2 and self.looks[0].at < before:
            del self.looks[0]

    def facts(self) -> dict[str, Reading]:
        """What the looks tell. Nothing without one."""
        if not self.looks or not self._members:
            return {}
        return {**self._held(), **self._waiting(), **self._gone(), **self._output(), **self._cpu()}

    # ---- stopped, traced, frozen -----------------------------------------------------------------------------------

    def _held(self) -> dict[str, Reading]:
        now = [member for member in self._members if self._is_held_now(member.pid)]
        past = [m for m in self._members if m not in now and len(self._held_looks(m.pid)) > 1]
        kinds = {kind: [m for m in now if self.looks[-1].processes[m.pid].held == kind] for kind in _HOLDS}
        found: dict[str, Reading] = {
            "processes_held": _told(len(now)),
            "processes_stopped": _told(len(kinds[_STOPPED])),
            "processes_frozen": _told(len(kinds["frozen"])),
            "processes_held_before": _told(len(past)),
        }
        if now:
            seconds = max(self.looks[-1].at - self._held_since(member.pid) for member in now)
            says = "; ".join(f"{self._named(members)} {_HOLDS[kind]}" for kind, members in kinds.items() if members)
            found["processes_held_says"] = _told(says)
            found["processes_held_seconds"] = _told(seconds)
        if kinds[_STOPPED]:
            found["processes_stopped_pids"] = _told(" ".join(str(member.pid) for member in kinds[_STOPPED]))
        if past:
            found["processes_held_before_says"] = _told(self._named(past))
        return found

    def _held_looks(self, pid: int) -> list[Look]:
        return [look for look in self.looks if pid in look.processes and look.processes[pid].held]

    def _is_held_now(self, pid: int) -> bool:
        """Whether the last two looks agree, and it did not run in between."""
        last = self.looks[-2:]
        if any(pid not in look.processes or not look.processes[pid].held for look in last):
            return False
        first, after = last[0].processes[pid], last[-1].processes[pid]
        return first.held == after.held and not _moved(first, after)

    def _held_since(self, pid: int) -> float:
        since = self.looks[-1].at
        for look in reversed(self.looks):
            if pid not in look.processes or not look.processes[pid].held:
                break
            since = look.at
        return since

    def _named(self, members: Sequence[Member]) -> str:
        """ "engine core (pid 7) and 2 workers (pids 8, 9)", or that it is all of them."""
        if len(members) > 1 and len(members) == len(self._members):
            return f"all {len(members)} processes (pids {', '.join(str(m.pid) for m in members)})"
        names: dict[str, list[int]] = {}
        for member in members:
            names.setdefault(_NAMES.get(member.role, member.name), []).append(member.pid)
        told = [
            f"{name} (pid {pids[0]})" if len(pids) == 1 else f"{len(pids)} {name}s (pids {', '.join(map(str, pids))})"
            for name, pids in names.items()
        ]
        return " and ".join([", ".join(told[:-1]), told[-1]]) if len(told) > 1 else told[0]

    # ---- uninterruptible sleep -------------------------------------------------------------------------------------

    def _waiting(self) -> dict[str, Reading]:
        """Threads that the kernel waits for all the time (D), without a turn: a disk or a device that hangs."""
        first, last = self.looks[0], self.looks[-1]
        if len(self.looks) < 3 or last.at - first.at < _LEAST_SECONDS:
            return {"processes_in_disk_wait": Unknown(Reason.FIRST_SCRAPE)}
        waiting: list[Member] = []
        for member in self._members:
            looks = [look.processes.get(member.pid) for look in self.looks]
            if any(seen is None or seen.held for seen in looks):
                continue
            threads = [seen.threads for seen in looks if seen is not None]
            if any(
                all(thread in seen and seen[thread].state == _WAITS for seen in threads)
                and not threads[-1][thread].moved_since(threads[0][thread])
                for thread in threads[0]
            ):
                waiting.append(member)
        found: dict[str, Reading] = {"processes_in_disk_wait": _told(len(waiting))}
        if waiting:
            found["processes_in_disk_wait_says"] = _told(self._named(waiting))
            found["processes_in_disk_wait_seconds"] = _told(last.at - first.at)
            found["processes_in_disk_wait_where"] = output.waits_in(self._kernel, waiting[0].pid)
        return found

    # ---- gone ------------------------------------------------------------------------------------------------------

    def _gone(self) -> dict[str, Reading]:
        last = self.looks[-1]
        gone = [m for m in self._members if m.pid not in last.processes and m.role != OTHER]
        dead, lacks = self.server.dead, self.server.lacks
        found: dict[str, Reading] = {
            "processes_gone": _told(len(gone) + len(dead) + len(lacks)),
            "server_gone": _told(len(gone) == len(self._members)),
        }
        told = []
        if gone:
            whole = len(gone) == len(self._members)
            told.append(f"{'all of its processes' if whole else self._named(gone)} ended while watched")
        if dead:
            told.append(f"{self._named(dead)} had exited before, and the server did not notice")
        if lacks:
            told.append(f"it serves its port without {lacks}")
        if told:
            found["processes_gone_says"] = _told("; ".join(told))
            successor = process.successor(self._kernel, self.server) if gone else None
            if successor is not None:
                found["server_started_again"] = _told(f"pid {successor}")
        return found

    # ---- its own output --------------------------------------------------------------------------------------------

    def _output(self) -> dict[str, Reading]:
        """Threads that stand in a write to stdout or stderr, since when, and who does not read it."""
        if not any(output.is_seen(self._kernel, member.pid) for member in self._members):
            return dict.fromkeys(("output_blocked", "output_full"), Unknown(Reason.DENIED))
        last = self.looks[-1]
        standing = [stuck for stuck in last.stuck if len(self.looks) > 1 and stuck in self.looks[-2].stuck]
        since = {stuck: self._standing_since(stuck) for stuck in standing}
        # A write that goes on in between, a turn at a time, is slow and not blocked.
        blocked = [stuck for stuck in standing if since[stuck] < last.at]
        full = [name for name, (used, size) in last.pipes.items() if self._is_full(name, used, size)]
        found: dict[str, Reading] = {
            "output_blocked": _told(len({stuck.pid for stuck in blocked})),
            "output_full": _told(len(full)),
        }
        if blocked:
            pids = {stuck.pid for stuck in blocked}
            found["output_blocked_seconds"] = _told(max(last.at - since[stuck] for stuck in blocked))
            found["output_blocked_says"] = _told(self._named([m for m in self._members if m.pid in pids]))
        targets = [stuck.target for stuck in blocked] or full
        if targets:
            own = frozenset(member.pid for member in self.server.members)
            found["output_target"] = _told(output.described(targets[0], last.pipes.get(targets[0])))
            reader = output.reader(self._kernel, targets[0], own)
            found["output_reader"] = _told(str(reader)) if reader is not None else Unknown(Reason.DENIED)
            if reader is not None and reader.is_stopped:
                found["output_reader_stopped"] = _told(reader.pid)
        return found

    def _standing_since(self, stuck: Stuck) -> float:
        """Since which look the thread had no turn."""
        since = now = self.looks[-1]
        for look in reversed(self.looks[:-1]):
            before = look.processes.get(stuck.pid)
            thread = before.threads.get(stuck.thread) if before is not None else None
            if thread is None or now.processes[stuck.pid].threads[stuck.thread].moved_since(thread):
                break
            since = look
        return since.at

    def _is_full(self, name: str, used: int, size: int) -> bool:
        """Whether the pipe takes no further line, and nothing left it while it was watched."""
        first, last = self.looks[0], self.looks[-1]
        seconds = last.at - first.at
        return (
            used > 0.9 * size
            and seconds >= _LEAST_SECONDS
            and all(look.pipes.get(name) == (used, size) for look in self.looks)
        )

    # ---- what it computes now ----------------------------------------------------------------------------------------

    def _cpu(self) -> dict[str, Reading]:
        """Cores that engine cores and workers used over the last looks."""
        last = self.looks[-1]
        start = next((look for look in self.looks if look.at >= last.at - RECENT_SECONDS - 0.5), last)
        seconds = last.at - start.at
        pids = [m.pid for m in self._members if m.role in (ENGINE_CORE, WORKER)]
        if seconds < _LEAST_SECONDS:
            return {"engine_cpu_now": Unknown(Reason.FIRST_SCRAPE)}
        if not pids or any(pid not in look.processes for pid in pids for look in (start, last)):
            return {"engine_cpu_now": Unknown(Reason.STALE if pids else Reason.ABSENT)}
        ran = [(start.processes[pid].ran, last.processes[pid].ran) for pid in pids]
        if not any(after for _, after in ran):
            return {"engine_cpu_now": Unknown(Reason.NOT_SUPPORTED)}
        return {"engine_cpu_now": _told(sum(max(0.0, after - before) for before, after in ran) / seconds)}


def _told(value: Value | int) -> Known:
    return Known(float(value) if type(value) is int else value, origin="proc")


def _moved(before: ProcessLook, after: ProcessLook) -> bool:
    return any(thread.moved_since(before.threads.get(id)) for id, thread in after.threads.items())


def _process(kernel: Kernel, member: Member) -> ProcessLook | None:
    """The process as it is now; None where it has ended, or another one has its pid."""
    stat = kernel.text(f"proc/{member.pid}/stat")
    if isinstance(stat, Reason) or started_at(stat) != member.started or (state := _state(stat)) in _DEAD:
        return None
    threads = dict(_threads(kernel, member.pid))
    held = state if state in (_STOPPED, _TRACED) else ""
    # A thread at a time may be traced; of a process that a signal stopped all are.
    held = held or next((_TRACED for thread in threads.values() if thread.state == _TRACED), "")
    wchan = kernel.text(f"proc/{member.pid}/wchan") if not held else ""
    return ProcessLook("frozen" if wchan in _FREEZERS else held, threads)


def _threads(kernel: Kernel, pid: int) -> Iterator[tuple[int, ThreadLook]]:
    for name in islice(kernel.names(f"proc/{pid}/task"), _MAX_THREADS):
        folder = f"proc/{pid}/task/{name}"
        stat, times = kernel.text(f"{folder}/stat"), kernel.text(f"{folder}/schedstat")
        if isinstance(stat, Reason) or not name.isdigit():
            continue
        try:
            ran, _, turns = map(int, times.split()[:3]) if not isinstance(times, Reason) else (0, 0, 0)
        except ValueError:
            continue
        yield int(name), ThreadLook(_state(stat), ran / 1e9, turns)


def _state(stat: str) -> str:
    return stat.rpartition(")")[2].strip()[:1]
