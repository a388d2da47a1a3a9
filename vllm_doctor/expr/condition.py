"""A rule's condition: comparisons of signals, joined by and, or, not. The language: parser.py, nodes.py."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.expr import nodes, parser, scalar
from vllm_doctor.expr.nodes import TruthNode
from vllm_doctor.expr.scalar import Comparison, Judge, Read


class Condition:
    """One condition, from its text or from nodes. Raises parser.ConditionError."""

    def __init__(self, written: str | TruthNode) -> None:
        self.text = written if isinstance(written, str) else nodes.text(written)
        self.root = parser.condition(written) if isinstance(written, str) else written
        self.names = nodes.names(self.root)
        self._judge: Judge | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_judge": None}  # a function cannot be kept

    def judge(self, read: Read) -> tuple[bool | None, list[Comparison]]:
        """Whether it holds, given how to read a signal, and every comparison with what it saw."""
        if self._judge is None:  # many are never asked
            self._judge = scalar.truth(self.root)
        seen: list[Comparison] = []
        return self._judge(read, seen), seen

    def above(self) -> Iterator[tuple[str, float]]:
        """What must lie above which number: ("kv_cache_usage", 0.9). Not what is negated."""
        yield from _above(self.root)


def _above(node: TruthNode) -> Iterator[tuple[str, float]]:
    match node:
        case nodes.And(parts) | nodes.Or(parts):
            for part in parts:
                yield from _above(part)
        case nodes.Compare(nodes.Name(name), ">" | ">=", nodes.Number(number)):
            yield name, number
        case _:
            pass
