"""The stacks of a process as a flame graph: its threads, and below each call what it calls, the largest first.

Bounded: only the largest calls are drawn, those beside them are summed, and the deepest are cut. Time at rest is one
box of its thread, and what an event loop in C did is one, too: neither has frames that say anything. Pure, and the
same stacks in any order give the same boxes.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_doctor.model.profile import IDLE, NO_NAME, Box, Flame, Frame, ProcessProfile
from vllm_doctor.rules.parts import Parts
from vllm_doctor.sources.profile.stacks import Stack

MOST_BOXES = 500
MOST_CALLS = 64
"""Calls, one within the other, of a stack that are drawn."""
_LEAST = 0.002
"""Of the process's time: less would be no two points wide."""
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class _Assigned:
    """A stack, and its part."""

    frames: tuple[Frame, ...]
    count: int
    part: str


@dataclass(frozen=True, slots=True)
class _Call:
    """One call with all that it calls: `depth` frames of each of `stacks` lead to it. Its caller begins at `within`."""

    depth: int
    within: int
    start: int
    count: int
    stacks: Sequence[_Assigned]


class _Drawing:
    """What is drawn so far of a process, of so many samples."""

    def __init__(self, parts: Parts, total: int) -> None:
        self.parts, self.least = parts, max(1.0, _LEAST * total)
        self.boxes: list[Box] = []
        self.summed = self.cut = 0
        self._waiting: list[tuple[int, int, _Call]] = []
        self._numbers = itertools.count()

    def box(self, depth: int, start: int, count: int, name: str, part: str) -> None:
        if count > 0:
            self.boxes.append(Box(depth, start, count, name, part))

    def wait(self, calls: Sequence[_Call]) -> None:
        """Calls of one caller, the largest first, to be drawn in their turn; those that are too small become one."""
        large = [call for call in calls if call.count >= self.least]
        for call in large:
            heapq.heappush(self._waiting, (-call.count, next(self._numbers), call))
        self._sum(calls[len(large) :])

    def draw(self) -> None:
        """What waits, the largest first, as long as there is room; of each caller the rest as one."""
        while self._waiting and len(self.boxes) < MOST_BOXES:
            self._draw(heapq.heappop(self._waiting)[2])
        left: dict[tuple[int, int], list[_Call]] = defaultdict(list)
        for _, _, call in sorted(self._waiting):
            left[call.depth, call.within].append(call)
        for calls in left.values():
            self._sum(calls)

    def _draw(self, call: _Call) -> None:
        name = call.stacks[0].frames[call.depth - 1].shown
        self.box(call.depth, call.start, call.count, name, _part(call))
        if call.depth < MOST_CALLS:
            self.wait(_called(call))
        else:
            self.cut += sum(stack.count for stack in call.stacks if len(stack.frames) > call.depth)

    def _sum(self, calls: Sequence[_Call]) -> None:
        """Neighbours as one box."""
        if calls:
            self.summed += len(calls)
            count = sum(call.count for call in calls)
            if count >= self.least:
                name = "1 more call" if len(calls) == 1 else f"{len(calls):,} more calls"
                self.box(calls[0].depth, calls[0].start, count, name, "")


def _part(call: _Call) -> str:
    """What nearly all of its time is; "" of one that leads to several parts."""
    counts: Counter[str] = Counter()
    for stack in call.stacks:
        counts[stack.part] += stack.count
    part, most = counts.most_common(1)[0]
    return part if most >= _NEARLY_ALL * call.count else ""


def of_process(process: ProcessProfile, found: Sequence[Stack], parts: Parts) -> Flame:
    """Of the threads that are told of. Widths are samples."""
    by_thread: dict[tuple[str, int | None], list[Stack]] = defaultdict(list)
    for stack in found:
        by_thread[stack.thread or NO_NAME, stack.number].append(stack)
    drawn = [(one, by_thread.get((one.name, one.number), [])) for one in process.told]
    total = sum(stack.count for _, stacks in drawn for stack in stacks)
    drawing = _Drawing(parts, total)
    start = 0
    for thread, stacks in drawn:
        name = "main thread" if thread is process.main else f"thread {thread.name}"
        start += _thread(drawing, start, name, thread.shares.get(IDLE, 0.0) * process.samples, stacks)
    drawing.draw()
    boxes = sorted(drawing.boxes, key=lambda box: (box.depth, box.start))
    return Flame(total, tuple(boxes), drawing.summed, drawing.cut)


def _thread(drawing: _Drawing, start: int, name: str, at_rest: float, stacks: Sequence[Stack]) -> int:
    """One thread from `start` on: what it called, what its event loop did in C, and its rest; how wide it is.
    `at_rest`: samples in which it waited, as its CPU time tells, too."""
    worked: list[_Assigned] = []
    loops: Counter[str] = Counter()
    waited = 0
    for stack in stacks:
        assigned = drawing.parts.of(stack.frames)
        if assigned.part != IDLE:
            worked.append(_Assigned(stack.frames, stack.count, assigned.part))
            continue
        waited += stack.count
        if assigned.loop:
            loops[assigned.loop] += stack.count
    count = waited + sum(stack.count for stack in worked)
    looped = min(loops.total(), max(0, waited - round(at_rest)))
    rested = waited - looped
    drawing.box(0, start, count, name, "")
    drawing.wait(_called(_Call(0, start, start, count - waited, worked)))
    for part, _ in loops.most_common(1):
        drawing.box(1, start + count - waited, looped, "an event loop in C: no frames of Python", part)
    drawing.box(1, start + count - rested, rested, drawing.parts[IDLE].says, IDLE)
    return count


def _called(call: _Call) -> list[_Call]:
    """What a call calls, the largest first."""
    by_frame: dict[Frame, list[_Assigned]] = defaultdict(list)
    for stack in call.stacks:
        if len(stack.frames) > call.depth:
            by_frame[stack.frames[call.depth]].append(stack)
    sized = [(sum(stack.count for stack in stacks), frame, stacks) for frame, stacks in by_frame.items()]
    found, start = [], call.start
    for count, _, stacks in sorted(sized, key=lambda one: (-one[0], one[1])):
        found.append(_Call(call.depth + 1, call.start, start, count, stacks))
        start += count
    return found
