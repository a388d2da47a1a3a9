"""Of which public configurations do the tables of known faults and improvements speak with certainty, and is it so?

usage: python -m tests.regressions.survey [--write]

public.tsv holds configurations of others, none of them about a regression: where each stands, its release, its GPUs,
and how it is started (an image, its environment and flags; facts alone, as their authors wrote them). `affected` names
the entries that hold there, each looked at by a person: all that it depends on stands in the row. `--write` writes that
column anew, to be looked at. Ends with 1 where an entry speaks that is not named there, or is silent where it is.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_doctor.regressions import upgrade
from vllm_doctor.rules import rule_set
from vllm_doctor.session import written

PATH = Path(__file__).with_name("public.tsv")
COLUMNS = ("source", "vllm", "gpu", "command", "affected")


@dataclass(frozen=True)
class Row:
    """One configuration, and the entries that hold for it."""

    source: str
    vllm: str
    gpu: str
    command: str
    affected: str


def rows() -> list[Row]:
    with PATH.open(newline="") as file:
        return [Row(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def spoken(of: list[Row]) -> Iterator[tuple[Row, str, int]]:
    """Each, with the entries that speak with certainty, and how many possibly hold."""
    rules = rule_set.load([])
    for row in of:
        read = written.look(row.command, row.gpu or None, row.vllm, rules.catalogue).read
        listed = upgrade.listing([*rules.faults, *rules.improvements], row.vllm, read)
        sure = sorted(one.fault.id for one in listed if one.held == "certain")
        yield row, " ".join(sure), len(listed) - len(sure)


def main() -> None:
    found = list(spoken(rows()))
    wrong = [(row, sure) for row, sure, _ in found if sure != row.affected]
    for row, sure in wrong:
        print(f"{row.source}: {sure or 'silent'}, where it should be {row.affected or 'silent'}")
    affected = sum(1 for _, sure, _ in found if sure)
    possible = sum(count for _, _, count in found)
    print(
        f"{len(found)} configurations: {affected} are affected with certainty, {len(wrong)} are answered wrongly;"
        f" {possible} notes of what is possible"
    )
    if "--write" in sys.argv[1:]:
        lines = ["\t".join(COLUMNS)]
        lines += ["\t".join((row.source, row.vllm, row.gpu, row.command, sure)) for row, sure, _ in found]
        PATH.write_text("\n".join(lines) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
