"""What a mistyped name was most likely meant to be."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own costs time, and --help needs no more than argparse
if TYPE_CHECKING:
    from collections.abc import Iterable

_LIKE = 0.7
"""The share of letters in common, in their order, from which on two names are taken for one (difflib's ratio)."""
_LONGEST = 100
_MOST_NAMES = 1000
"""Entries of a folder that are looked through."""


def name(word: str, names: Iterable[str]) -> str | None:
    """The one of these names that is written most like the word; None where none is."""
    if len(word) > _LONGEST:
        return None
    from difflib import get_close_matches  # imported here: only a mistake needs it

    return next(iter(get_close_matches(word, [*names], 1, _LIKE)), None)


def path(word: str) -> str | None:
    """The file or folder beside where the word points to that is written most like it; None where none is."""
    import itertools
    import os

    folder, last = os.path.split(word)
    try:
        with os.scandir(folder or ".") as entries:
            found = name(last, [entry.name for entry in itertools.islice(entries, _MOST_NAMES)])
    except OSError:
        return None
    return os.path.join(folder, found) if found is not None else None


def asked(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """The end of a sentence on a word that is none of these names: the one that may be meant, or what stands in for it.

    >>> asked("premption", ["preemption"])
    "; did you mean 'preemption'?"
    """
    found = name(word, names)
    return f"; did you mean {found!r}?" if found is not None else otherwise
