"""At a terminal: how far a long look has come, for whom it takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vllm_doctor.session.source import Source

_PATIENCE, _STEP = 1.0, 0.2
_LONG = 5.0
"""Seconds of watching from which on it is said how far it has come."""


@contextmanager
def shown(sources: Sequence[Source], seconds: float = 0.0, is_quiet: bool = False) -> Iterator[None]:
    """Tell on stderr what the sources have read, and how many of the `seconds` that a server is watched are over, while
    the examination runs."""
    counts = [source.bytes_read for source in sources if source.bytes_read is not None]
    watched = [source for source in sources if not source.is_past] if seconds > _LONG else []
    if not (counts or watched) or is_quiet or not sys.stderr.isatty():
        yield
        return
    done, began = threading.Event(), time.monotonic()

    def now() -> str:
        told = [f"watched {min(time.monotonic() - began, seconds):.0f} of {seconds:.0f} s"] if watched else []
        read = sum(count() for count in counts) / 1e6
        return ", ".join([*told, *([f"read {read:,.0f} MB"] if counts and (read >= 1 or not told) else [])])

    def tell() -> None:
        if done.wait(_PATIENCE):
            return
        while not done.wait(_STEP):
            print(f"\r{now()}", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


@contextmanager
def counted(is_quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Tell on stderr how many queries of how many were answered: call what is given for each."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda done, of: None
        return
    begun, told = time.monotonic(), False

    def tell(done: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - begun > _PATIENCE:
            told = True
            print(f"\rasked {done} of {of}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def of_recording(seconds: float, is_most: bool = False, is_quiet: bool = False) -> Iterator[Callable[[float], None]]:
    """To be told how many of so many seconds are recorded; says so on stderr, at a terminal. `is_most`: it may end
    before.
    """
    if is_quiet or not sys.stderr.isatty() or not seconds:
        yield lambda now: None
        return
    said = -1

    def tell(now: float) -> None:
        nonlocal said
        if int(now) != said:
            said = int(now)
            of = "at most " if is_most else ""
            print(f"\rrecording: {said} of {of}{seconds:.0f} s", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
