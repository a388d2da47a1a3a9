"""Which comparisons decided a condition: the fewest by which it holds, does not hold, or is unknown.

A condition's evidence (scalar.py) is all that was compared; this is what a reader needs to check the result by hand.
"""

from __future__ import annotations

from vllm_doctor.expr import nodes, scalar
from vllm_doctor.expr.nodes import TruthNode
from vllm_doctor.expr.scalar import Comparison, Read

Decided = tuple[bool | None, tuple[Comparison, ...]]
"""Whether it holds, and the comparisons that made it so; of an unknown one those that leave it open."""


def decided(node: TruthNode, read: Read, negated: bool = False) -> Decided:
    """The node's truth and what decided it. `negated`: comparisons are shown as below a `not` (scalar.truth)."""
    match node:
        case nodes.Or(parts):
            return _joined([decided(part, read, negated) for part in parts], True)
        case nodes.And(parts):
            return _joined([decided(part, read, negated) for part in parts], False)
        case nodes.Not(part):
            holds, by = decided(part, read, not negated)
            return (None if holds is None else not holds), by
        case _:
            met: list[Comparison] = []
            holds = scalar.truth(node, negated)(read, met)
            return holds, tuple(met)


def _joined(parts: list[Decided], decisive: bool) -> Decided:
    """Of an `or` (decisive: True) one part that holds is enough, of an `and` one that does not; else all matter."""
    enough = [by for holds, by in parts if holds is decisive]
    if enough:
        return decisive, min(enough, key=lambda by: (not by, len(by)))
    unknown = [by for holds, by in parts if holds is None]
    if unknown:
        return None, _once(unknown)
    return not decisive, _once([by for _, by in parts])


def _once(parts: list[tuple[Comparison, ...]]) -> tuple[Comparison, ...]:
    return tuple(dict.fromkeys(comparison for by in parts for comparison in by))
