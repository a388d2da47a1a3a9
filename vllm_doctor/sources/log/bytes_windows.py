"""A stream of blocks as windows in which the hits are known; a second thread may prepare them ahead.

The blocks are put together to windows of one size, so that how the bytes were divided cannot change the result, and
memory is bounded whatever comes:

    | behind | new: looked through now    | ahead |
             ^ start                      ^ stop    what lies ahead is looked through with the next window

Behind stands where the first line of a window begins, ahead where its last one ends, and what follows it. The bytes are
read, not mapped: a log that is cut while it is mapped kills its reader (SIGBUS), and reading is as fast.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from queue import SimpleQueue

from vllm_doctor.sources.log.bytes_find import Find
from vllm_doctor.sources.log.bytes_unpacked import Block, Rest

BUFFERS = 3
"""With a second thread: one is filled and looked through, one is ready, one is being read."""
_SWITCH = 1e-4
"""Seconds until a thread gives Python's lock to the other: with the usual 5 ms each waits for the other."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a stream: `buffer` stands at `offset` in it, and buffer[start:stop] is new.

    `hits`: where each ends in the buffer, and its literal; ascending by where. `without`: literals not looked for.
    """

    buffer: bytearray
    offset: int
    start: int
    stop: int
    is_last: bool
    hits: list[tuple[int, int]]
    without: frozenset[int]


class Windows:
    """The windows of a stream, each with `margin` bytes around what is new, where the stream has them.

    New are `steps` times `step` bytes; `margin` more in the first window, any number in the last one. A window holds
    until the next one is asked for; with BUFFERS until BUFFERS - 1 more were. What is set here counts from the next
    window on.
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        finder: Callable[[frozenset[int]], Find],
        margin: int,
        step: int,
    ) -> None:
        self._blocks, self._finder, self._margin, self._step = blocks, finder, margin, step
        self.steps = self.buffers = 1
        self.without: frozenset[int] = frozenset()
        """Literals that need not be looked for."""
        self._finds = self.without, finder(self.without)

    def each(self) -> Generator[Window]:
        margin = self._margin
        ring = self._ring()
        buffer, view = ring[0], memoryview(ring[0])
        filled = offset = start = 0
        for block in self._blocks:
            readinto = block.readinto if isinstance(block, Rest) else _copying(block)
            while got := readinto(view[filled:]):
                filled += got
                if filled == len(buffer):
                    yield self._window(buffer, offset, start, filled - margin, is_last=False)
                    ring = [*ring[1:], ring[0]] if len(ring) == self.buffers else self._ring()
                    around = view[filled - 2 * margin :]
                    buffer, view = ring[0], memoryview(ring[0])
                    view[: 2 * margin] = around
                    offset, start, filled = offset + filled - 2 * margin, margin, 2 * margin
        # What stands behind the end is no part of the stream.
        yield self._window(buffer[:filled], offset, start, filled, is_last=True)

    def _ring(self) -> list[bytearray]:
        size = 2 * self._margin + self.steps * self._step
        return [bytearray(size) for _ in range(self.buffers)]

    def _window(self, buffer: bytearray, offset: int, start: int, stop: int, is_last: bool) -> Window:
        if self._finds[0] != self.without:
            self._finds = (without := self.without), self._finder(without)
        without, find = self._finds
        return Window(buffer, offset, start, stop, is_last, find(buffer, start, stop), without)


def _copying(block: bytes | memoryview) -> Callable[[memoryview], int]:
    """A block as a Rest would read it."""
    rest = memoryview(block)

    def readinto(memory: memoryview) -> int:
        nonlocal rest
        got = min(len(rest), len(memory))
        memory[:got] = rest[:got]
        rest = rest[got:]
        return got

    return readinto


def ahead(windows: Generator[Window]) -> Generator[Window]:
    """The same, prepared by a second thread, as far ahead as BUFFERS allows.

    Hyperscan and the kernel work without Python's lock, so that the threads run at the same time.
    """
    ready: SimpleQueue[Window | BaseException | None] = SimpleQueue()
    room = threading.Semaphore(BUFFERS - 1)
    is_wanted = True

    def prepare() -> None:
        try:
            while room.acquire() and is_wanted:
                ready.put(window := next(windows, None))
                if window is None:
                    return
            windows.close()  # so that its file is closed
        except BaseException as error:  # raised again in the thread that asks
            ready.put(error)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    threading.Thread(target=prepare, daemon=True).start()
    try:
        while True:
            room.release()  # the one before is done with
            window = ready.get()
            if window is None:
                return
            if isinstance(window, BaseException):
                raise window
            yield window
    finally:
        sys.setswitchinterval(usual)
        is_wanted = False
        room.release()
