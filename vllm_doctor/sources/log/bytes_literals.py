"""Where literals stand in bytes: Hyperscan looks for all of them at once. A finder is for one thread at a time."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_doctor.rules import log_lines
from vllm_doctor.sources.log import bytes_find
from vllm_doctor.sources.log.bytes_find import Find

try:
    import hyperscan
except ImportError:  # no build for this machine: then a log takes longer
    hyperscan = None  # type: ignore[assignment]

LONGEST = 1024
_NOTICED = 16 * 1024 * 1024
"""Bytes: without Hyperscan a shorter log is read within two seconds all the same (measured: 9 MB/s, 110 with it)."""


def remark(bytes_read: int) -> str | None:
    """What to say of a log of this length that took its time; None: nothing."""
    if hyperscan is not None or bytes_read < _NOTICED:
        return None
    return "read without hyperscan, which takes several times as long: pip install hyperscan, where it has a build"


def check(literals: Sequence[bytes]) -> None:
    """Raises ValueError where one cannot be looked for: empty, with NUL or newline, or of more than LONGEST bytes."""
    for literal in literals:
        # The binding ends a literal at its first NUL.
        if not 0 < len(literal) <= LONGEST or b"\0" in literal or b"\n" in literal:
            raise ValueError(f"{literal[:80]!r} is nothing to look for in a line")


def finder(literals: Sequence[bytes], without: frozenset[int] = frozenset()) -> Find:
    """Looks for all but those with these numbers."""
    numbers = [number for number in range(len(literals)) if number not in without]
    if not numbers or hyperscan is None:
        return bytes_find.finder(literals, numbers)
    return _finder(literals, _compiled(literals, numbers))


def kept_finder(literals: Sequence[bytes]) -> Find:
    """Looks for all; compiled by an earlier start, where these are the texts of the shipped log lines.

    What Hyperscan loads it believes: it must come from where programs come from (`log_lines.kept`).
    """
    literals = tuple(literals)
    if hyperscan is None:
        return finder(literals)
    name = f"literals-{getattr(hyperscan, '__version__', '')}"
    texts, dumped = log_lines.kept(name, lambda: (literals, hyperscan.dumpb(_compiled(literals, range(len(literals))))))
    if texts != literals:
        return finder(literals)
    try:
        database = hyperscan.loadb(dumped, hyperscan.HS_MODE_BLOCK)
    except hyperscan.error:  # made by another kind of processor
        return finder(literals)
    database.scratch = hyperscan.Scratch(database)
    return _finder(literals, database)


def _compiled(literals: Sequence[bytes], numbers: Sequence[int]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[literals[number] for number in numbers],
        ids=list(numbers),
        elements=len(numbers),
        flags=[0] * len(numbers),
        literal=True,
    )
    return database


def _finder(literals: Sequence[bytes], database: hyperscan.Database) -> Find:
    overlap = max(map(len, literals)) - 1

    def find(buffer: bytes | bytearray, start: int, stop: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        append = found.append
        begin = max(0, start - overlap)
        known = start - begin

        # Hyperscan comes here for each hit: nothing else in Python is run so often.
        def on_match(literal: int, _from: int, end: int, _flags: int, _context: object) -> None:
            if end > known:  # else it ends in what was looked through before
                append((begin + end, literal))

        if stop > start:
            database.scan(memoryview(buffer)[begin:stop], on_match)  # type: ignore[type-var] # takes any buffer
        return found

    return find
