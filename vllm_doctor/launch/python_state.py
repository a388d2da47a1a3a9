"""What a followed text in Python has made so far: engines, processes and lists, and what surely happens to them.

Each thing remembers in which branches it was made: what happens further in happens to it in some cases only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vllm_doctor.launch import budget
from vllm_doctor.launch.python_values import Joined, Listed, Mapped, Maybe, Open, Path, Value, same, text
from vllm_doctor.launch.start import Resources

_MOST_ENGINES = 256


@dataclass(eq=False)
class Engine:
    """A call that makes an engine, or its arguments. `is_part`: another was made of its arguments."""

    name: str
    arguments: Mapped
    node: ast.Call
    place: str
    resources: Resources
    is_part: bool = False
    of_command_line: bool = False
    """Its arguments are those of the script, which may hold any flag."""


@dataclass(eq=False)
class Process:
    """A text that a shell runs."""

    text: str
    line: int
    place: str
    environment: Mapped | None
    resources: Resources


class State:
    """`place`, `resources`: where the text is followed, and what is asked of the machine there."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []
        self.lists: list[tuple[Listed, Resources]] = []
        self.processes: list[Process] = []
        self.environment = Mapped(is_open=True)
        self.gpu_defaults: list[str] = []
        """What may be given in the place of the GPU that is asked for."""
        self.path: Path = ()
        self.place = ""
        self.resources = Resources()
        self._branches = 0

    @contextmanager
    def maybe(self) -> Iterator[None]:
        """Within, something happens in some cases only."""
        self._branches += 1
        before = self.path
        self.path = (*before, self._branches)
        try:
            yield
        finally:
            self.path = before

    def is_sure(self, made: Path) -> bool:
        """Whether what happens here always happens to what was made there."""
        return made[: len(self.path)] == self.path

    def put(self, mapped: Mapped, key: str, value: Value, node: ast.expr | None = None) -> None:
        if key in mapped.fields and not self.is_sure(mapped.path) and not same(mapped.fields[key], value):
            value = Open(key)
        elif key not in mapped.fields and not self.is_sure(mapped.path):
            value = Open("…")  # it may not be given at all
        mapped.fields[key] = value
        mapped.nodes.pop(key, None)

    def joined(self, left: Listed, right: Listed, line: int) -> Listed:
        left.is_part = right.is_part = True
        budget.spend(len(left.items) + len(right.items))
        made = Listed([*left.items, *right.items], line, self.path, place=self.place, environment=left.environment)
        self.lists.append((made, self.resources))
        return made

    def extend(self, listed: Listed, value: Value) -> None:
        items: list[Value] = [Open("…")]
        if isinstance(value, Listed):
            items = value.items
            value.is_part = value.is_part or value is not listed
        elif isinstance(value, Open):
            items = [value]
        budget.spend(len(items))
        for one in (listed, *listed.twins):
            one.items += [*items] if self.is_sure(one.path) else [Maybe(item, "…") for item in items]

    def update(self, mapped: Mapped, value: Value) -> None:
        if isinstance(value, Engine):
            value.is_part = True
            value = value.arguments
        if isinstance(value, Mapped):
            budget.spend(len(value.fields))
            for key, item in value.fields.items():
                self.put(mapped, key, item)
            mapped.is_open = mapped.is_open or value.is_open
        else:
            mapped.is_open = True

    def merged(self, *parts: Mapped) -> Mapped:
        made = Mapped(path=self.path)
        for part in parts:
            self.update(made, part)
        return made

    def merged_of(self, engine: Engine) -> Mapped:
        engine.is_part = True
        return Mapped(dict(engine.arguments.fields), engine.arguments.is_open, self.path)

    def copied(self, value: Value) -> Value:
        if isinstance(value, Listed):
            value.is_part = True
            return self.joined(value, Listed([]), value.line)
        if isinstance(value, Mapped):
            return Mapped(dict(value.fields), value.is_open and value is not self.environment, self.path)
        return value

    def as_line(self, listed: Listed) -> Joined:
        budget.spend(len(listed.items))
        joined = Joined(" ".join(text(item.item if isinstance(item, Maybe) else item) for item in listed.items))
        joined.parts = listed
        return joined

    def noted(self, engine: Engine) -> Engine:
        if len(self.engines) < _MOST_ENGINES:
            self.engines.append(engine)
        return engine


def either(first: Listed, *others: Listed) -> Listed:
    """One of several lists: what is added to it is added to each."""
    first.twins += [other for other in others if other is not first]
    return first
