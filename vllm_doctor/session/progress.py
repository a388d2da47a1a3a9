"""At a terminal: how far a long look has come, for whom it takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vllm_doctor.session.source import Source

_PATIENCE, _STEP = 1.0, 0.2
_TELLING = 0.02
"""The share that tells how long the rest takes."""
_LONG = 5.0
"""Seconds of watching from which on it is said how far it has come."""


@dataclass(frozen=True)
class ReadSoFar:
    """How far files are read. `share`: of the whole, `left`: seconds that it takes still; None where not known."""

    bytes_read: int = 0
    share: float | None = None
    left: float | None = None

    @property
    def says(self) -> str:
        """ "reading the log: 41 %, about 6 s left"."""
        megabytes = f"{self.bytes_read / 1e6:,.0f} MB"
        if self.share is None:
            return f"reading the log: {megabytes} so far"
        if self.share == 1.0:
            return f"judging the log: {megabytes} were read"
        left = "" if self.left is None else f", about {_duration(self.left)} left"
        return f"reading the log: {100 * self.share:.0f} %{left}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{max(1.0, seconds):.0f} s"


def how_far(sources: Sequence[Source], seconds: float) -> ReadSoFar:
    """How far those of the sources that are read have come after so many seconds: as far as the last of them."""
    files = [source for source in sources if source.bytes_read is not None]
    count = sum(source.bytes_read() for source in files if source.bytes_read is not None)
    shares = [source.share_read() for source in files]
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return ReadSoFar(count)
    share = min(known)
    return ReadSoFar(count, share, seconds / share - seconds if share >= _TELLING else None)


@contextmanager
def shown(sources: Sequence[Source], seconds: float = 0.0, is_quiet: bool = False) -> Iterator[None]:
    """Tell on stderr what the sources have read, and how many of the `seconds` that a server is watched are over, while
    the examination runs."""
    files = [source for source in sources if source.bytes_read is not None]
    watched = [source for source in sources if not source.is_past] if seconds > _LONG else []
    if not (files or watched) or is_quiet or not sys.stderr.isatty():
        yield
        return
    done, began = threading.Event(), time.monotonic()

    def now() -> str:
        told = [f"watched {min(time.monotonic() - began, seconds):.0f} of {seconds:.0f} s"] if watched else []
        far = how_far(files, time.monotonic() - began)
        return ", ".join([*told, *([far.says] if files and (far.bytes_read >= 1e6 or not told) else [])])

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
