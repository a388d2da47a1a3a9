"""Which frames of a Python stack are which part of a server's work: rules/profile/parts.yaml, whose head tells its
keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from vllm_doctor.model.profile import DEVICE_WAIT, IDLE, OTHER, Frame
from vllm_doctor.rules import document
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.table import Table
from vllm_doctor.vllm import flags

PART_KEYS = ("id", "says", "does", "owns", "helper", "frames")
FRAME_KEYS = ("in", "of", "since", "until", "waiting")
WAIT_KEYS = ("in", "of", "loop", "within")
ANY = "*"
_REMEMBERED = 50_000


class Waiting(StrEnum):
    """Whether an entry describes a thread that waits."""

    NO = "no"
    ALSO = "also"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class Described:
    """The frames that an entry describes. `path` ending with / is a folder, "*" any; no `functions`: all of them."""

    path: str
    functions: frozenset[str] = frozenset()
    waiting: Waiting = Waiting.NO
    since: str = ""
    until: str = ""

    def fits(self, function: str, path: str) -> bool:
        """`function`: its own name, without its class."""
        if self.functions and function not in self.functions:
            return False
        return self.path == ANY or (path.startswith(self.path) if self.path.endswith("/") else path == self.path)

    def is_of(self, version: str | None) -> bool:
        """Whether that release has it, as far as is known."""
        number = flags.number(version) if version else None
        if number is None:
            return True
        first, end = flags.number(self.since), flags.number(self.until)
        return (first is None or number >= first) and (end is None or number < end)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a server's work."""

    id: str
    says: str
    does: str
    owns: bool
    helper: bool
    frames: tuple[Described, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """An innermost frame of a thread that waits; `within`: any frame, of one that looks again and again. `loop`: the
    part that has the time in which it used a CPU."""

    frames: Described
    loop: str
    within: bool


class Assigned(NamedTuple):
    """The part of a stack. `loop`: of one that is idle by its frames, the part that it may be instead."""

    part: str
    loop: str = ""


@dataclass
class Parts:
    """All parts, as one release of vLLM has them."""

    parts: tuple[Part, ...]
    waits: tuple[Wait, ...]
    _known: dict[tuple[Frame, bool], Part | None] = field(default_factory=dict, repr=False)
    _waits: dict[Frame, Wait | None] = field(default_factory=dict, repr=False)

    def __getitem__(self, part: str) -> Part:
        return next(one for one in self.parts if one.id == part)

    def of(self, stack: Sequence[Frame]) -> Assigned:
        """The part of a stack, whose outermost frame is the first."""
        wait = self._wait(stack)
        if wait is not None:
            for frame in reversed(stack):
                if (part := self._part(frame, True)) is not None:
                    return Assigned(part.id)
            return Assigned(IDLE, wait.loop)
        helper: Part | None = None
        for frame in reversed(stack):
            part = self._part(frame, False)
            if part is None:
                continue
            if helper is None and not part.helper:
                return Assigned(part.id)
            if helper is not None and part.owns:
                return Assigned(part.id)
            helper = helper or part
        return Assigned(helper.id if helper is not None else OTHER)

    def _wait(self, stack: Sequence[Frame]) -> Wait | None:
        """Whether the thread waits, by the innermost frame that Python has."""
        is_innermost = True
        for frame in reversed(stack):
            if _is_python(frame.path):
                wait = self._waiting(frame)
                if wait is not None and (is_innermost or wait.within):
                    return wait
                is_innermost = False
        return None

    def _waiting(self, frame: Frame) -> Wait | None:
        if frame not in self._waits:
            if len(self._waits) > _REMEMBERED:
                self._waits.clear()
            name = _name(frame.function)
            self._waits[frame] = next((one for one in self.waits if one.frames.fits(name, frame.path)), None)
        return self._waits[frame]

    def _part(self, frame: Frame, is_waiting: bool) -> Part | None:
        """The part that describes a frame: an entry that names functions goes before one of all of a module."""
        key = (frame, is_waiting)
        if key not in self._known:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            allowed = (Waiting.ALSO, Waiting.ONLY) if is_waiting else (Waiting.NO, Waiting.ALSO)
            name = _name(frame.function)
            found = [
                (bool(one.functions), len(one.path), -place, part)
                for place, part in enumerate(self.parts)
                for one in part.frames
                if one.waiting in allowed and one.fits(name, frame.path)
            ]
            self._known[key] = max(found, key=lambda one: one[:3])[3] if found else None
        return self._known[key]


def _is_python(path: str) -> bool:
    return path.endswith(".py") or path.startswith("<")


def _name(function: str) -> str:
    """A function's own name: "Queue.get" is get, and so is "Queue.get.<locals>.<genexpr>"."""
    return next((word for word in reversed(function.split(".")) if not word.startswith("<")), function)


def shipped() -> Path:
    """The file."""
    return places.shipped() / "profile" / "parts.yaml"


def load(path: Path | None = None, version: str | None = None) -> Parts:
    """The parts as this release of vLLM has them; None: of any. Raises DocumentError with file and line."""
    root = document.read(path or shipped())
    root.allow("parts", "waits")
    parts = tuple(_parts(root, version))
    ids = {part.id for part in parts}
    for needed in (IDLE, DEVICE_WAIT, OTHER):
        if needed not in ids:
            root.fail(f"there is no part {needed!r}", "parts")
    return Parts(parts, tuple(_waits(root, ids)))


def _parts(root: Table, version: str | None) -> Iterator[Part]:
    seen: set[str] = set()
    for table in root.tables("parts"):
        table.allow(*PART_KEYS)
        id = table.text("id")
        if id in seen:
            table.fail(f"part {id!r} stands twice", "id")
        seen.add(id)
        frames = tuple(one for entry in table.tables("frames") if (one := _described(entry)).is_of(version))
        yield Part(id, table.text("says"), table.text("does"), _flag(table, "owns"), _flag(table, "helper"), frames)


def _waits(root: Table, parts: Iterable[str]) -> Iterator[Wait]:
    for table in root.tables("waits"):
        table.allow(*WAIT_KEYS)
        loop = table.one_of("loop", parts) if "loop" in table else ""
        yield Wait(_place(table), loop, _flag(table, "within"))


def _described(table: Table) -> Described:
    table.allow(*FRAME_KEYS)
    place = _place(table)
    bounds = {key: table.text(key) for key in ("since", "until") if key in table}
    for key, version in bounds.items():
        if not flags.is_named_release(version):
            table.fail(f"{version!r} is no release of vLLM (write 0.26.0)", key)
    return Described(place.path, place.functions, table.one_of("waiting", Waiting, Waiting.NO), **bounds)


def _place(table: Table) -> Described:
    path, functions = table.text("in"), frozenset(table.texts("of"))
    if path == ANY and not functions:
        table.fail("'in: *' needs 'of': else it describes every frame", "in")
    return Described(path, functions)


def _flag(table: Table, key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        table.fail(f"{key!r} must be true or false", key)
    return value
