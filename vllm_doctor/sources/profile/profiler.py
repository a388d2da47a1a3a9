"""All processes of one server sampled at the same time, and the parts of their threads' time."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.model.profile import (
    IDLE,
    NO_NAME,
    OTHER,
    WAITS,
    Flame,
    Frame,
    ProcessProfile,
    Profile,
    ThreadProfile,
)
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem
from vllm_doctor.rules.parts import Parts
from vllm_doctor.sources.host.kernel import Kernel, table
from vllm_doctor.sources.host.process import API_SERVER, ENGINE_CORE, WORKER, Member
from vllm_doctor.sources.profile import flame, py_spy, stacks, time_slice
from vllm_doctor.sources.profile.py_spy import Sampled
from vllm_doctor.sources.profile.stacks import Stack

SECONDS, RATE = 10.0, 20
"""200 samples: a share of 30 % is ± 3 points (one standard deviation). 100 a second cost a busy host much more."""
MOST_RATE, MOST_SECONDS = 500, 300.0
MOST_PROCESSES = 24
ROLES = (ENGINE_CORE, API_SERVER, WORKER)
"""The processes that are sampled, the first where there are too many."""
_TICK = 100.0  # USER_HZ, the same on every Linux
_MAX_THREADS = 4096
_AT_REST = 0.005
"""Cores: who used no more than this did nothing but wait."""
_LATE = 0.1
"""Cores by which a thread's CPU time is beyond the share in which it was seen to work: it was seen at chosen times."""
_SHOWN = 3
_TOP = 2
_MAIN = "MainThread"


@dataclass(frozen=True, slots=True)
class How:
    """How to look: for so many seconds, so many times each."""

    seconds: float = SECONDS
    rate: int = RATE
    native: bool = False


def profile(members: Sequence[Member], parts: Parts, how: How, deadline: float, kernel: Kernel) -> Profile:
    """The processes of a server that compute for it, each looked at by a sampler of its own. Ends by `deadline`."""
    chosen = [one for role in ROLES for one in members if one.role == role]
    looked_at, left_out = chosen[:MOST_PROCESSES], chosen[MOST_PROCESSES:]
    found: dict[int, ProcessProfile] = {}
    texts: dict[int, str] = {}
    flames: dict[int, Flame] = {}

    def look(member: Member) -> None:
        time_slice.shorten()
        before, began = _cpu(kernel, member.pid), time.monotonic()
        sampled = py_spy.sample(kernel, member.pid, how.seconds, how.rate, how.native, deadline)
        seconds = time.monotonic() - began
        cores = _cores(before, _cpu(kernel, member.pid), seconds)
        texts[member.pid] = stacks.collapsed(sampled.stacks)
        seen = of_process(member.role, member.pid, sampled, parts, cores, how.seconds)
        flames[member.pid] = flame.of_process(seen, sampled.stacks.found, parts)
        found[member.pid] = seen

    threads = [threading.Thread(target=look, args=(member,), daemon=True) for member in looked_at]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline + 2 - time.monotonic()))
    rows = [found.get(one.pid) or _late(one) for one in looked_at]
    rows += [
        ProcessProfile(one.role, one.pid, problem=Problem("too-large", f"only {MOST_PROCESSES} are sampled"))
        for one in left_out
    ]
    says = {part.id: part.says for part in parts.parts}
    return Profile(how.seconds, how.rate, tuple(rows), how.native, texts, flames, says)


def of_process(
    role: str, pid: int, sampled: Sampled, parts: Parts, cores: Mapping[int, float] | None, seconds: float
) -> ProcessProfile:
    """What the samples of one process say. `cores`: by thread, None where the kernel does not tell."""
    by_thread: dict[tuple[str, int | None], list[Stack]] = defaultdict(list)
    for stack in sampled.stacks.found:
        by_thread[stack.thread, stack.number].append(stack)
    moments = max((sum(stack.count for stack in each) for each in by_thread.values()), default=0)
    rows = []
    for (name, number), each in by_thread.items():
        key = pid if name == _MAIN else number
        cpu = cores.get(key) if cores is not None and key is not None else None
        rows.append(_thread(name, number, each, moments, parts, cpu))
    rows.sort(key=lambda row: (row.name != _MAIN, -row.busy, row.name))
    cpu = sampled.cpu / seconds if sampled.cpu is not None and seconds > 0 else None
    notes = list(sampled.notes)
    if any(row.cpu is not None and row.cpu > row.busy + _LATE for row in rows):
        notes.append("the kernel counts more CPU time than was seen: no CPU was free to look from, shares are too low")
    if sampled.stacks.strange:
        notes.append(f"{sampled.stacks.strange:,} lines of the sampler's were no stacks")
    return ProcessProfile(role, pid, tuple(rows), sampled.errors, moments, cpu, sampled.problem, tuple(notes))


def _thread(
    name: str, number: int | None, each: Sequence[Stack], moments: int, parts: Parts, cpu: float | None
) -> ThreadProfile:
    counts: Counter[str] = Counter()
    loops: Counter[str] = Counter()
    unassigned: Counter[str] = Counter()
    whole, torn = _by_root(each)
    for stack in whole:
        assigned = parts.of(stack.frames)
        counts[assigned.part] += stack.count
        if assigned.loop:
            loops[assigned.loop] += stack.count
        if assigned.part == OTHER:
            unassigned[" < ".join(frame.shown for frame in reversed(stack.frames[-_TOP:]))] += stack.count
    samples = sum(stack.count for stack in each)
    counts = _with_torn(counts, whole, torn, parts)
    shares = {part: count / moments for part, count in counts.items()}
    if cpu is not None:
        shares = _by_cpu(shares, {part: count / moments for part, count in loops.items()}, cpu)
    strange = unassigned.most_common(_SHOWN) if OTHER in shares else []
    return ThreadProfile(
        name or NO_NAME,
        number,
        samples,
        dict(sorted(shares.items(), key=lambda item: -item[1])),
        cpu,
        tuple((frames, count / moments) for frames, count in strange),
    )


def _by_root(each: Sequence[Stack]) -> tuple[list[Stack], list[Stack]]:
    """The stacks that begin where the thread does, and those that lost their beginning: the thread went on while its
    memory was read."""
    roots: Counter[Frame | None] = Counter()
    for stack in each:
        roots[stack.frames[0] if stack.frames else None] += stack.count
    root = next((frame for frame, _ in roots.most_common() if frame is not None), None)
    whole = [stack for stack in each if stack.frames and stack.frames[0] == root]
    return whole, [stack for stack in each if not stack.frames or stack.frames[0] != root]


def _with_torn(
    counts: Mapping[str, float], whole: Sequence[Stack], torn: Sequence[Stack], parts: Parts
) -> Counter[str]:
    """A stack without its beginning counts like those of the same thread that run in the same file; one of which
    nothing is left, like these: only a thread that runs is torn."""
    found = Counter(counts)
    spread: Counter[str] = Counter()
    by_path: dict[str, Counter[str]] = defaultdict(Counter)
    for stack in whole:
        part = parts.of(stack.frames).part
        for path in {frame.path for frame in stack.frames}:
            by_path[path][part] += stack.count
    for stack in torn:
        if stack.frames:
            alike = by_path.get(stack.frames[-1].path) or Counter({parts.of(stack.frames).part: 1})
            _spread(spread, alike, stack.count)
    empty = sum(stack.count for stack in torn if not stack.frames)
    lost: Counter[str] = Counter()
    _spread(lost, spread or Counter(counts) or Counter({OTHER: 1}), empty)
    return found + spread + lost


def _spread(into: Counter[str], alike: Mapping[str, float], count: float) -> None:
    whole = sum(alike.values())
    for part, share in alike.items():
        into[part] += count * share / whole  # type: ignore[assignment]


def _by_cpu(shares: Mapping[str, float], loops: Mapping[str, float], cpu: float) -> dict[str, float]:
    """What the frames cannot tell, the thread's CPU time does: whether an event loop waited or worked in C, and that
    who used no CPU waited, wherever."""
    found = dict(shares)
    if cpu <= _AT_REST and OTHER in found:
        found[IDLE] = found.get(IDLE, 0.0) + found.pop(OTHER)
    computed = sum(share for part, share in found.items() if part not in WAITS)
    for part, share in loops.items():
        moved = min(share, max(0.0, cpu - computed))
        if moved > _AT_REST:
            found[part] = found.get(part, 0.0) + moved
            found[IDLE] = max(0.0, found.get(IDLE, 0.0) - moved)
            computed += moved
    return found


def _late(member: Member) -> ProcessProfile:
    return ProcessProfile(
        member.role, member.pid, problem=Problem("timeout", f"pid {member.pid} was not sampled in time")
    )


def _cpu(kernel: Kernel, pid: int) -> dict[int, float]:
    """Seconds of CPU by thread, as the process itself numbers them."""
    found: dict[int, float] = {}
    for name in kernel.names(f"proc/{pid}/task")[:_MAX_THREADS]:
        text = kernel.text(f"proc/{pid}/task/{name}/stat")
        if isinstance(text, Reason) or not name.isdecimal():
            continue
        fields = text.rpartition(")")[2].split()
        if len(fields) > 12 and fields[11].isdecimal() and fields[12].isdecimal():
            found[_own_number(kernel, pid, name)] = (int(fields[11]) + int(fields[12])) / _TICK
    if str(pid) in kernel.names(f"proc/{pid}/task"):
        found[pid] = found.get(_own_number(kernel, pid, str(pid)), 0.0)
    return found


def _own_number(kernel: Kernel, pid: int, thread: str) -> int:
    """The thread's id in the process's own namespace."""
    text = kernel.text(f"proc/{pid}/task/{thread}/status")
    inner = [] if isinstance(text, Reason) else table(text).get("NSpid", "").split()
    return int(inner[-1]) if inner and inner[-1].isdecimal() else int(thread)


def _cores(before: Mapping[int, float], after: Mapping[int, float], seconds: float) -> dict[int, float] | None:
    """Cores by thread; None where the kernel tells nothing, or too little time passed."""
    if not before or not after or seconds < 10 / _TICK:
        return None
    return {thread: max(0.0, used - before.get(thread, 0.0)) / seconds for thread, used in after.items()}
