"""What kernels and operators of a trace belong to: rules/profile/kernels.yaml.

steps        what marks a step: `match`, with groups `context` and `generation` (requests) or `kind`, where told
families     `family`: its name in JSON; `kernels`, `ops`: patterns of names on the device and on the CPU;
             `is: communication`, where ranks wait for each other in it
precisions   what a matrix multiplication multiplies
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.rules import document, folders
from vllm_doctor.rules.table import Table

FILE = Path(folders.PROFILE) / "kernels.yaml"
OTHER = "other"
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


@dataclass(frozen=True)
class KernelTable:
    steps: tuple[Mark, ...]
    families: tuple[Family, ...]
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
    table.allow("steps", "families", "precisions")
    return KernelTable(
        tuple(_mark(one) for one in table.tables("steps")),
        tuple(_family(one) for one in table.tables("families")),
        tuple((one.text("says"), _pattern(one, "match")) for one in _allowed(table, "precisions", "says", "match")),
    )


def _mark(table: Table) -> Mark:
    table.allow("says", "match")
    return Mark(table.text("says"), _pattern(table, "match"))


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
