"""What a harness is: a function of hostile bytes that raises what is promised, and nothing else."""

from __future__ import annotations

import atexit
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.model.errors import DoctorError
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading


@dataclass(frozen=True)
class Harness:
    """`weight`: its part of the time. `most`: bytes of an input. `tokens`: words of the language it reads."""

    name: str
    run: Callable[[bytes], Hashable]
    corpus: Callable[[], list[bytes]]
    tokens: tuple[bytes, ...] = ()
    weight: float = 1.0
    most: int = 6000


HARNESSES: dict[str, Harness] = {}


def harness(
    corpus: Callable[[], list[bytes]],
    *tokens: str,
    raises: tuple[type[Exception], ...] = (),
    weight: float = 1.0,
    most: int = 6000,
) -> Callable[[Callable[[bytes], Hashable]], Callable[[bytes], Hashable]]:
    """Registers a function by its name. `raises`: what its parser may raise, beside the doctor's own errors."""

    def registered(function: Callable[[bytes], Hashable]) -> Callable[[bytes], Hashable]:
        promised: tuple[type[Exception], ...] = (DoctorError, *raises)

        def run(data: bytes) -> Hashable:
            try:
                return function(data)
            except promised as error:
                return sign_of(error)

        name = function.__name__.strip("_").replace("_", "-")
        words = tuple(token.encode() for token in tokens)
        HARNESSES[name] = Harness(name, run, corpus, words, weight, most)
        return function

    return registered


def sign_of(error: BaseException) -> Hashable:
    """What kind of failure it was: where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (trace.tb_frame.f_code.co_name, trace.tb_lineno) if trace is not None else ()
    return type(error).__name__, getattr(error, "kind", ""), where


def seen(found: Observation) -> Hashable:
    error = found.error.kind if found.error is not None else ""
    return (
        error,
        finite(found.facts),
        len(found.runs),
        tuple(sorted(re.sub(r"\d+", "", note)[:20] for note in found.notes)),
    )


def finite(facts: Mapping[str, Reading]) -> int:
    for name, reading in facts.items():
        if isinstance(reading, Known) and isinstance(reading.value, float):
            endless = name == "cpu_quota" and reading.value == math.inf  # no quota
            assert endless or math.isfinite(reading.value), f"{name} is {reading.value}"
    return hash(frozenset((name, isinstance(reading, Known)) for name, reading in facts.items()))


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def folder() -> Path:
    """A folder of this process, in memory where there is such a file system."""
    return all_folders() / str(os.getpid())


@cache
def all_folders() -> Path:
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="vllm-doctor-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)  # by the first process; its children end without this
    return made


def file_of(data: bytes, name: str) -> Path:
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


CANARY = "hf_CanaryThatMustNeverLeave0123456789"
"""A secret by its shape alone, where it is a word of its own."""


def holds_canary(text: str) -> bool:
    """As a word of its own."""
    return re.search(rf"(?<!\w){CANARY}", text) is not None


def clean(text: str) -> None:
    """No character that a terminal obeys, beside the end of a line and the tab of a patch."""
    for c in text:
        assert c.isprintable() or c in "\n\t", f"an output holds {c!r}"


def no_constant(name: str) -> None:
    raise AssertionError(f"JSON holds {name}")
