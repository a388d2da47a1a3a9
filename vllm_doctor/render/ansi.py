"""The few colours of text outputs, a terminal's own: a word as a block of its colour, which only repeats it."""

from __future__ import annotations

_BLOCK = {"red": "1;37;41", "yellow": "1;30;43", "cyan": "1;30;46", "green": "1;30;42", "": "1"}


def block(word: str, colour: str, is_coloured: bool = True) -> str:
    """The word on its colour, one of State.colour; as it is where there is to be no colour."""
    return f"\x1b[{_BLOCK[colour]}m{word}\x1b[0m" if is_coloured else word
