"""Several ranks of one server: for whom the others wait. Pure.

In a collective each rank waits until all have come, so the one that spends least time in it came last. Only lengths are
compared: the clocks of two hosts differ, lengths do not.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_doctor.model.trace import RankSeen
from vllm_doctor.sources.trace.events import COMMUNICATION, Events

_MOST = 200_000
_ALIKE = 0.99
_ALONE = 0.5
"""How much of the next one's wait the slow rank may wait itself."""
_LEAST = 0.01
"""Share of the time that a rank waits, below which none of them is the slow one."""


@dataclass(frozen=True)
class Collectives:
    """Of one rank, in their order: lengths in seconds, and names as numbers that are the same in each rank."""

    lengths: array[float]
    names: array[int]


def collectives(events: Events) -> Collectives:
    device, lengths, names = events.device, array("d"), array("q")
    for mine in device.by_start():
        name = device.name[mine]
        if events.kinds[name] == COMMUNICATION and len(lengths) < _MOST:
            lengths.append((device.end[mine] - device.start[mine]) * 1e-6)
            names.append(hash(events.names[name]))
    return Collectives(lengths, names)


def compared(ranks: Sequence[RankSeen], each: Sequence[Collectives]) -> tuple[list[RankSeen], int | None, str]:
    """The ranks with how long each waits, the place of the slowest, and why that is not known; "" where it is, or where
    there is nothing to compare."""
    if len(ranks) < 2 or not any(len(one.lengths) for one in each):
        return list(ranks), None, ""
    if (why := _differ(each)) is not None:
        return list(ranks), None, why
    waits = [0.0] * len(ranks)
    for lengths in zip(*(one.lengths for one in each), strict=True):
        least = min(lengths)
        for place, length in enumerate(lengths):
            waits[place] += length - least
    found = [replace(rank, waits=time) for rank, time in zip(ranks, waits, strict=True)]
    slowest, second = sorted(range(len(waits)), key=waits.__getitem__)[:2]
    # Ranks that come last in turns all wait: none of them is the slow one.
    is_alone = waits[slowest] <= _ALONE * waits[second]
    is_much = max(waits) - waits[slowest] >= _LEAST * max(rank.seconds for rank in ranks)
    return found, slowest if is_alone and is_much else None, ""


def _differ(each: Sequence[Collectives]) -> str | None:
    """Why the collectives of these ranks cannot be laid side by side."""
    counts = {len(one.lengths) for one in each}
    if len(counts) > 1:
        return f"the ranks have {min(counts):,} to {max(counts):,} collectives: which one waits for another is unknown"
    first, *others = each
    for other in others:
        alike = sum(one == two for one, two in zip(first.names, other.names, strict=True))
        if alike < _ALIKE * len(first.names):
            return "the ranks have different collectives: which one waits for another is unknown"
    return None
