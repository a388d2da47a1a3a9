"""How much work the reading of one text may take. A text of 1 MB can unfold to any size: `A="$A$A"`, an alias in YAML,
`$(NAME)` in Kubernetes, a script in a script. What reads it counts its steps here, and ends when they are used up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from vllm_doctor.model.errors import SourceError

STEPS = 150_000
"""A step is a word or a blank between two, or a variable that a command gets, and takes a few microseconds. A launch
script of 200 lines takes 3,000."""

_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


class ExhaustedError(SourceError):
    """The steps are used up."""

    def __init__(self) -> None:
        super().__init__("too-large", "more than a command line or a manifest holds: give the part that starts vLLM")


@contextmanager
def limited(steps: int = STEPS) -> Iterator[None]:
    """All that is read within takes so many steps together, or raises ExhaustedError."""
    token = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(token)


def spend(steps: int = 1) -> None:
    """Count work before it is done; without `limited` around it, it is not counted. Raises ExhaustedError."""
    left = _left.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0:
            raise ExhaustedError


def spend_on(text: str) -> None:
    """Count work on a text, which is fast: a step for each 64 characters."""
    spend(len(text) >> 6)
