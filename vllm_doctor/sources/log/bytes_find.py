"""Where literals stand in bytes, without Hyperscan: one after the other, which takes far longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Find = Callable[[bytes | bytearray, int, int], list[tuple[int, int]]]
"""(buffer, start, stop) -> where literals end, behind start and up to stop, each with its number; ascending."""


def finder(literals: Sequence[bytes], numbers: Sequence[int]) -> Find:
    """Looks for the literals with these numbers."""

    def find(buffer: bytes | bytearray, start: int, stop: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for number in numbers:
            literal = literals[number]
            at = buffer.find(literal, max(0, start - len(literal) + 1), stop)
            while at >= 0:
                found.append((at + len(literal), number))
                at = buffer.find(literal, at + 1, stop)
        return sorted(found)

    return find
