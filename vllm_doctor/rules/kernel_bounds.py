"""How long kernels of a trace take beside the least that they need, by the GPU's data sheet and the model. Pure.

What bounds a family are signals; which, and what they are computed from, is in rules/profile/kernels.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.trace import Bound, TraceSeen
from vllm_doctor.rules import kernel_table
from vllm_doctor.rules.kernel_table import KernelTable
from vllm_doctor.text import words


def beside(seen: TraceSeen, read: words.Read, table: KernelTable | None = None) -> TraceSeen:
    """The trace with its bounds. `read`: a signal's reading and its unit, by name, of the server that was traced."""
    if seen.told.bounded is None:
        return seen
    table = table or kernel_table.load()
    bounds = tuple(_bounds(table, read))
    if any(bound.least is not None for bound in bounds):
        return replace(seen, bounds=bounds)
    return replace(seen, bounds_lack=bounds[0].because if bounds else "")


def _bounds(table: KernelTable, read: words.Read) -> Iterator[Bound]:
    """Of the families that ran, in the table's order."""
    for row in table.bounds:
        seconds = _number(read, row.seconds)
        if not seconds:
            continue
        known = [(least, says) for signal, says in row.least if (least := _number(read, signal)) is not None]
        if known:
            least, says = max(known)
            yield Bound(row.family, table.says(row.family), seconds, least, words.fill(says, read) or "")
        else:
            lacks = next((says for signal, says in row.needs if isinstance(read(signal)[0], Unknown)), "")
            yield Bound(row.family, table.says(row.family), seconds, None, lacks)


def _number(read: words.Read, signal: str) -> float | None:
    reading = read(signal)[0]
    return outside.number(reading.value) if isinstance(reading, Known) else None
