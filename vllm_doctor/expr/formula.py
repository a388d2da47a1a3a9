"""A signal's formula: how a value is computed from other signals. The language: parser.py, nodes.py, functions.py."""

from __future__ import annotations

from vllm_doctor.expr import nodes, parser, scalar
from vllm_doctor.expr.nodes import ValueNode
from vllm_doctor.expr.scalar import Compute, Read
from vllm_doctor.model.reading import Reading


class Formula:
    """One formula, from its text or from nodes. Raises parser.FormulaError."""

    def __init__(self, written: str | ValueNode) -> None:
        self.text = written if isinstance(written, str) else nodes.text(written)
        self.root = parser.formula(written) if isinstance(written, str) else written
        self.names = nodes.names(self.root)
        self._compute: Compute | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_compute": None}  # a function cannot be kept

    def evaluate(self, read: Read) -> Reading:
        """The value, given how to read a signal. 0/0 and x/0 are unknown: idle."""
        if self._compute is None:  # many are never asked for
            self._compute = scalar.value(self.root)
        return scalar.finite(self._compute(read))
