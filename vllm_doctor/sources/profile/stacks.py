"""Collapsed stacks, as py-spy writes them ("thread (17): MainThread;main (app.py);work (app.py) 42"): a stack a line,
outermost first, and how often it was seen. Bounded in bytes, lines and depth; a line that is none is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_doctor.model.profile import Frame
from vllm_doctor.text import redact

MAX_BYTES = 32 * 1024 * 1024
MAX_LINES = 100_000
MAX_FRAMES = 400
"""Of one stack, the innermost ones: a recursion is as good as its end."""
_MAX_TEXT = 200
MAX_DIFFERENT = 50_000
"""Frames that are told apart; a server has some thousands."""
_ONE_OF_MANY = Frame("(one of too many functions)", "?")
_MOST = 1_000_000_000

_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]{1,16}|[0-9]{1,10})\)(?:: (.{0,400}))?")
_FRAME = re.compile(r"(.{1,1000}) \(([^()]{1,1000}?)(?::[0-9]{1,9})?\)")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/|.*/lib(?:64)?/python3\.[0-9]{1,3}/(?:lib-dynload/)?")
_CHECKOUT = re.compile(r"/.*/(?=vllm/)")


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack, its outermost frame first. `number`: the thread's id, None where Python does not tell it."""

    thread: str
    number: int | None
    frames: tuple[Frame, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Stacks:
    """What a file holds. `is_cut`: not all of it was read; `strange`: lines that are no stacks; `is_crowded`: it has
    more different frames than are told apart."""

    found: tuple[Stack, ...]
    is_cut: bool = False
    strange: int = 0
    is_crowded: bool = False


NOTHING = Stacks(())


def parse(data: bytes) -> Stacks:
    """The stacks of a file; never raises."""
    is_cut = len(data) > MAX_BYTES
    lines = data[:MAX_BYTES].decode("utf-8", "replace").split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        is_cut = is_cut or bool(lines.pop().strip())
    elif is_cut:
        lines.pop()  # the end of it is missing
    known: dict[str, Frame] = {}
    found: list[Stack] = []
    strange = 0
    for line in lines:
        if line.strip():
            stack = _stack(line, known)
            if stack is None:
                strange += 1
            else:
                found.append(stack)
    return Stacks(tuple(found), is_cut, strange, len(known) >= MAX_DIFFERENT)


def collapsed(stacks: Stacks) -> str:
    """The same, cleaned, as any tool for flame graphs reads it."""
    return "".join(f"{line}\n" for line in _lines(stacks))


def _lines(stacks: Stacks) -> Iterator[str]:
    for stack in stacks.found:
        root = f"thread ({stack.number if stack.number is not None else '?'}): {stack.thread}".replace(";", ",")
        yield ";".join([root, *(frame.shown for frame in stack.frames)]) + f" {stack.count}"


def _stack(line: str, known: dict[str, Frame]) -> Stack | None:
    told, _, number = line.rstrip("\r").rpartition(" ")
    if not (number.isascii() and number.isdigit() and len(number) < 11):
        return None
    if not int(number):  # it was never seen
        return None
    root, *frames = told.split(";")
    thread = _THREAD.fullmatch(root)
    if thread is None:
        return None
    name = _clean(thread[2] or "")
    number_of_thread = int(thread[1]) if not thread[1].startswith("0x") else None
    kept = tuple(_frame(text, known) for text in frames[-MAX_FRAMES:])
    return Stack(name, number_of_thread, kept, min(int(number), _MOST))


def _frame(text: str, known: dict[str, Frame]) -> Frame:
    frame = known.get(text)
    if frame is None:
        if len(known) >= MAX_DIFFERENT:
            return _ONE_OF_MANY
        match = _FRAME.fullmatch(text[: 2 * _MAX_TEXT * 5])
        function, path = (match[1], match[2]) if match is not None else (text[:_MAX_TEXT], "?")
        frame = known[text] = Frame(_clean(function), _clean(_relative(path)))
    return frame


def _relative(path: str) -> str:
    """A module's path from the folder that it is imported from: vllm/v1/request.py, threading.py."""
    if "/" not in path:
        return path
    installed = _INSTALLED.match(path)
    if installed is not None:
        return path[installed.end() :]
    if path.startswith("/"):
        checkout = _CHECKOUT.match(path)
        return path[checkout.end() :] if checkout is not None else path.rpartition("/")[2]
    return path


def _clean(text: str) -> str:
    """What may be shown: no secrets, nothing that a terminal obeys, and no separator of stacks."""
    return redact.text(text[:_MAX_TEXT], Counter()).replace(";", ",")


def shown(text: str) -> str:
    """Any text of the sampler's, as it may be shown."""
    return _clean(text)
