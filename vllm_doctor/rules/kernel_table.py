"""What kernels and operators of a trace belong to: rules/profile/kernels.yaml.

steps        what marks a step: `match`, with groups of what it computes; `is: forward`, one pass through the model
families     `family`: its name in JSON; `kernels`, `ops`: patterns of names on the device and on the CPU;
             `is: communication`, where ranks wait for each other in it
bounds       of a `family` the signal of its time in a step (`seconds`), and those of the `least` time with what takes
             it (`says`); `needs`: what that is computed from
precisions   what a matrix multiplication multiplies
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.model.trace import OTHER
from vllm_doctor.rules import document, folders
from vllm_doctor.rules.table import Table

FILE = Path(folders.PROFILE) / "kernels.yaml"
_LOOKED_AT = 400
_WITH_PRECISION = frozenset({"gemm", "moe"})


@dataclass(frozen=True)
class Family:
    name: str
    says: str
    is_communication: bool
    kernels: re.Pattern[str]
    ops: re.Pattern[str]


@dataclass(frozen=True)
class Mark:
    """What marks a step."""

    says: str
    pattern: re.Pattern[str]
    is_forward: bool = False
    """Each is one pass through the model."""


@dataclass(frozen=True)
class Bound:
    """`seconds`: the signal of a family's time in a step; `least`, `needs`: signals, each with a sentence."""

    family: str
    seconds: str
    least: tuple[tuple[str, str], ...]
    needs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KernelTable:
    steps: tuple[Mark, ...]
    families: tuple[Family, ...]
    bounds: tuple[Bound, ...]
    precisions: tuple[tuple[str, re.Pattern[str]], ...]

    def of_kernel(self, name: str) -> tuple[str, str]:
        """Its family, and of a matrix multiplication what it multiplies; "" where the name does not tell."""
        text = name[:_LOOKED_AT]
        family = next((one.name for one in self.families if one.kernels.search(text)), OTHER)
        return family, self._precision(text) if family in _WITH_PRECISION else ""

    def of_op(self, name: str) -> str:
        text = name[:_LOOKED_AT]
        return next((one.name for one in self.families if one.ops.search(text)), OTHER)

    def says(self, family: str) -> str:
        return next((one.says for one in self.families if one.name == family), "other kernels")

    @property
    def communication(self) -> frozenset[str]:
        """The families in which ranks wait for each other."""
        return frozenset(one.name for one in self.families if one.is_communication)

    def _precision(self, text: str) -> str:
        return next((says for says, pattern in self.precisions if pattern.search(text)), "")


@cache
def load(folder: Path | None = None) -> KernelTable:
    """The shipped table. Raises DocumentError with the line."""
    table = document.read((folder or folders.shipped()) / FILE)
    table.allow("steps", "families", "bounds", "precisions")
    return KernelTable(
        tuple(_mark(one) for one in table.tables("steps")),
        tuple(_family(one) for one in table.tables("families")),
        tuple(_bound(one) for one in table.tables("bounds")),
        tuple((one.text("says"), _pattern(one, "match")) for one in _allowed(table, "precisions", "says", "match")),
    )


def _mark(table: Table) -> Mark:
    table.allow("says", "is", "match")
    is_forward = table.one_of("is", ("forward", ""), "") == "forward"
    return Mark(table.text("says"), _pattern(table, "match"), is_forward)


def _bound(table: Table) -> Bound:
    table.allow("family", "seconds", "least", "needs")
    least, needs = (
        tuple((one.text("signal"), one.text("says")) for one in _allowed(table, key, "signal", "says"))
        for key in ("least", "needs")
    )
    return Bound(table.text("family"), table.text("seconds"), least, needs)


def _family(table: Table) -> Family:
    table.allow("family", "says", "is", "kernels", "ops")
    is_communication = table.one_of("is", ("communication", ""), "") == "communication"
    return Family(
        table.text("family"), table.text("says"), is_communication, _pattern(table, "kernels"), _pattern(table, "ops")
    )


def _allowed(table: Table, key: str, *keys: str) -> list[Table]:
    found = list(table.tables(key))
    for one in found:
        one.allow(*keys)
    return found


def _pattern(table: Table, key: str) -> re.Pattern[str]:
    try:
        return re.compile(table.text(key), re.IGNORECASE)
    except re.error as error:
        table.fail(f"no regular expression: {error}", key)
