"""SIGTERM and SIGHUP end the program as Ctrl-C does: nothing stays half-written, one line says why, the code is 3."""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # as in main.py
if TYPE_CHECKING:
    from types import FrameType


class EndedError(KeyboardInterrupt):
    """A signal ended the program; the text names it."""


def by(number: int) -> EndedError:
    return EndedError(f"ended by {signal.Signals(number).name}")


def listen() -> None:
    """From now on; but not to what the caller ignores (nohup). A second one ends it at once."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise by(number)
