"""The last looks, kept in a file from one run of a hook to the next, so that each answers at once with rates.

The file is plain text: a line that names the format, then JSON: the scrapes of servers, and looks at their hosts and
GPUs. It is readable by its owner alone, replaced as a whole, and bounded. Two hooks may use it at the same time: each
adds its own under a lock on the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_doctor.model import outside
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.window import Sample
from vllm_doctor.sources.server.exposition import Page
from vllm_doctor.sources.server.scrapes import Scrape
from vllm_doctor.text.durations import duration

FORMAT = "vllm-doctor/state/v1"
STALE = 900.0
"""Seconds after which a scrape tells nothing of now any more."""
_FAMILY = b"vllm-doctor/state/"
_LEAST = 2.0
"""Seconds that rates need at least: two hooks that start together look back to the one before them."""
_ENOUGH = 10.0
_SCRAPES = 4
_LOOKS = 2
_SERVERS = 64
_MOST_BYTES = 32 * 2**20
_LOCK_SECONDS = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Recalled:
    """The scrapes before this one, oldest first; without any, `reason` and `note` say why."""

    scrapes: tuple[Scrape, ...] = ()
    reason: Reason = Reason.FIRST_SCRAPE
    note: str = ""
    kept: tuple[Scrape, ...] = ()
    """All that an earlier run kept, also of processes that have ended since."""


@dataclass(frozen=True)
class Look:
    """What was kept of another source. `at`: when it was seen, on the clock."""

    at: float
    told: Any


class State:
    """The looks in one file. `clock` must not step; `wall` is the time of day, for what another boot has written."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.path, self._clock, self._wall = path, clock, wall
        self._boot = _boot()

    def check(self) -> None:
        """Raises UsageError where the file cannot be kept, or is another's: it is not overwritten."""
        self._read()
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise UsageError(f"--state {self.path}: cannot be written there (no such folder, or not permitted)")

    def recall(self, target: str, now: Scrape) -> Recalled:
        """What an earlier run saw of the server that `now` was seen of."""
        kept_before, torn = self._read()
        servers = kept_before["servers"]
        if torn:
            return Recalled(note=f"--state {self.path}: it was torn, and is started over")
        kept = servers.get(target, [])
        if not kept:
            return Recalled(note=f"--state {self.path}: the first sample; the next one covers the time in between")
        try:
            scrapes = sorted((self._scrape(one, now) for one in kept), key=lambda scrape: scrape.at)
        except (KeyError, TypeError, ValueError):
            return Recalled(note=f"--state {self.path}: it was torn, and is started over")
        every = tuple(scrapes)
        ages = [now.at - scrape.at for scrape in scrapes]
        usable = [s for s, age in zip(scrapes, ages, strict=True) if _LEAST <= age <= STALE]
        if not usable:
            youngest = min((age for age in ages if age > 0), default=0.0)
            if youngest > STALE:
                note = f"--state {self.path}: the last sample is {duration(youngest)} old (stale)"
                return Recalled(reason=Reason.STALE, note=note)
            return Recalled(note=f"--state {self.path}: the last sample was a moment ago", kept=every)
        usable = [scrape for scrape in usable if _is_same_server(scrape, now)]
        if not usable:
            note = f"--state {self.path}: the server was restarted since then"
            return Recalled(reason=Reason.STALE, note=note, kept=every)
        begin = max((scrape.at for scrape in usable if now.at - scrape.at >= _ENOUGH), default=usable[0].at)
        return Recalled(tuple(scrape for scrape in usable if scrape.at >= begin), kept=every)

    def keep(self, target: str, scrape: Scrape) -> str:
        """Add this scrape, the last one of this run; what to tell where that was not possible, else ""."""
        age = self._clock() - scrape.at
        one = {
            "at": round(self._wall() - age, 3),
            "boot": self._boot,
            "clock": round(scrape.at, 3),
            "started": scrape.started,
            "samples": [[s.name, s.labels, s.value] for s in scrape.page.samples],
        }
        return self._add("servers", target, lambda old: [*filter(self._is_recent, old), one][-_SCRAPES:])

    def look(self, name: str) -> Look | None:
        """The last one of a source in this boot, long enough ago for rates and not too long; None: there is none."""
        try:
            kept = self._read()[0]["looks"].get(name, [])
            looks = [Look(_number(one["clock"]), one["told"]) for one in kept if one["boot"] == self._boot is not None]
        except (UsageError, KeyError, TypeError, ValueError, AttributeError):
            return None
        usable = [look for look in looks if _LEAST <= self._clock() - look.at <= STALE]
        return max(usable, key=lambda look: look.at, default=None)

    def keep_look(self, name: str, look: Look) -> str:
        """Keep what JSON can hold of a source's last look, as `keep`."""
        one = {"boot": self._boot, "clock": round(look.at, 3), "told": look.told}
        return self._add("looks", name, lambda old: [*old, one][-_LOOKS:])

    def _add(self, part: str, name: str, made: Callable[[list[Any]], list[Any]]) -> str:
        """Set one entry to what is made of the old one; what to tell where that was not possible, else ""."""
        try:
            with self._locked():
                document, _ = self._read()
                entries = dict(document[part])
                entries[name] = made(entries.pop(name, []))  # the last one written stands last
                for old in list(entries)[:-_SERVERS]:
                    del entries[old]
                try:
                    text = _as_text(document | {part: entries})
                except ValueError:  # it was torn: it holds a number that no file of ours does
                    text = _as_text({"servers": {}, "looks": {}, part: {name: made([])}})
                if len(text) > _MOST_BYTES:
                    return (
                        f"--state {self.path}: more than {_MOST_BYTES // 2**20} MiB would have to be kept; it was not"
                    )
                self._write(text)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return f"--state {self.path}: not kept ({why})"
        return ""

    def _read(self) -> tuple[dict[str, dict[str, list[Any]]], bool]:
        """What is kept, and whether it was torn. Raises UsageError where the file is not ours."""
        nothing: dict[str, dict[str, list[Any]]] = {"servers": {}, "looks": {}}
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return nothing, False
        except OSError as error:
            raise UsageError(f"--state {self.path}: cannot be read ({error.strerror})") from None
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            os.close(handle)
            raise UsageError(f"--state {self.path}: not a plain file")
        with os.fdopen(handle, "rb") as file:
            if about.st_uid != os.geteuid():
                raise UsageError(f"--state {self.path}: belongs to another user; give each user a file of its own")
            raw = file.read(_MOST_BYTES + 1)
        first, _, body = raw.partition(b"\n")
        if raw and first != FORMAT.encode():
            newer = first.startswith(_FAMILY)
            raise UsageError(
                f"--state {self.path}: "
                + ("written by a newer vllm-doctor" if newer else "no state of vllm-doctor, so it is not overwritten")
                + "; give another file"
            )
        try:
            document = nothing | (outside.json(body) if raw else {})
            lists = [kept for part in nothing for kept in document[part].values()]
            if len(raw) > _MOST_BYTES or not all(isinstance(kept, list) for kept in lists):
                return nothing, True
        except (ValueError, TypeError, AttributeError):
            return nothing, True
        return document, False

    def _scrape(self, one: Any, now: Scrape) -> Scrape:
        """A kept scrape on the clock of `now`. By the clock that does not step, where it is of this boot."""
        clock, wall = _number(one["clock"]), _number(one["at"])
        same_boot = self._boot is not None and one["boot"] == self._boot
        at = clock if same_boot else now.at - (self._wall() - (self._clock() - now.at) - wall)
        samples = tuple(
            Sample(str(name), tuple((str(key), str(text)) for key, text in labels), _number(value))
            for name, labels, value in one["samples"]
        )
        return Scrape(at, Page(samples, True, True, 0), _number(one["started"]), None)

    def _is_recent(self, one: Any) -> bool:
        try:
            return abs(self._wall() - _number(one["at"])) <= STALE
        except (KeyError, TypeError, ValueError):
            return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among the hooks that keep a state in this folder."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise OSError(0, "another program holds the lock on the folder") from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(folder)

    def _write(self, text: str) -> None:
        """Beside the file, then renamed: a reader sees the old one or the new one."""
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _as_text(document: Any) -> str:
    return f"{FORMAT}\n{json.dumps(document, separators=(',', ':'), allow_nan=False)}\n"


def _is_same_server(before: Scrape, now: Scrape) -> bool:
    """Not another process since: by when it was started, else by its counters, which only grow."""
    if before.started and now.started:
        return before.started == now.started
    counted = {(s.name, s.labels): s.value for s in now.page.samples if s.name.endswith(("_total", "_count"))}
    return all(
        counted.get((s.name, s.labels), -math.inf) >= s.value
        for s in before.page.samples
        if s.name.endswith(("_total", "_count"))
    )


def _number(value: Any) -> float:
    found = outside.number(value) if isinstance(value, int | float) else None
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return found


def _boot() -> str | None:
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
