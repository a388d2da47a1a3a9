"""Signals and rules of many engines at once: the same answers as one by one, in a hundredth of the time.

The language over columns is expr/columns.py. Why something is unknown is not carried: who shows an engine reads it
again, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

from vllm_doctor.expr import columns
from vllm_doctor.expr.columns import Truth
from vllm_doctor.expr.condition import Condition
from vllm_doctor.model.reading import Column
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.rules.rule import NOT_APPLICABLE, OK, SEVERITIES, UNKNOWN, Rule


class Columns:
    """The signals of `size` engines. `read`: the column of a signal that is no formula."""

    def __init__(self, size: int, catalogue: Catalogue, read: Callable[[str], Column]) -> None:
        self._size, self._catalogue, self._given = size, catalogue, read
        self._known: dict[str, Column] = {}
        self._engines = columns.Engines(size, self.read)

    def read(self, name: str) -> Column:
        """A signal's column; of a formula it is computed once."""
        if name not in self._known:
            of = self._catalogue.signals[name].formula
            column = self._given(name) if of is None else columns.finite(self._engines.value(of.root))
            self._known[name] = column
        return self._known[name]

    def holds(self, wanted: Condition) -> Truth:
        """Whether the condition holds, in three values."""
        return self._engines.truth(wanted.root)

    def states(self, rule: Rule) -> list[str]:
        """The rule's state for each engine: a severity, ok, unknown or not-applicable."""
        applies = self.holds(rule.applies) if rule.applies is not None else True
        named = [severity for severity in SEVERITIES if severity in rule.when]
        if applies is None or applies is False:
            return [UNKNOWN if applies is None else NOT_APPLICABLE] * self._size
        severities = [self.holds(rule.when[severity]) for severity in named]
        if not any(isinstance(truth, list) for truth in (applies, *severities)):
            return [_state(True, severities, named)] * self._size
        rows = zip(self._each(applies), *map(self._each, severities), strict=True)
        return [_state(concerned, row, named) for concerned, *row in rows]

    def _each(self, truth: Truth) -> Iterable[bool | None]:
        return truth if isinstance(truth, list) else repeat(truth, self._size)


def _state(concerned: bool | None, row: Sequence[Truth], named: Sequence[str]) -> str:
    """A rule's state, by whether it applies and which of its conditions hold, the severest first."""
    if concerned is None:
        return UNKNOWN
    if not concerned:
        return NOT_APPLICABLE
    if True in row:
        return named[row.index(True)]
    return UNKNOWN if None in row else OK
