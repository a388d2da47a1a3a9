"""What the doctor makes of files that people published: the table of docs/inputs.md, and whether it still holds.

    python -m tests.inputs.survey                 the table, from fixtures/inputs/public.tsv
    python -m tests.inputs.survey --check FOLDER  examines the files that were downloaded to FOLDER, under the names of
                                                  the column `file`, and tells which are refused now; 1: one is

The files are others' and are not in this repository: the column `source` names where each stands.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

TABLE = ROOT / "fixtures" / "inputs" / "public.tsv"
_SECONDS = 60


@dataclass(frozen=True)
class Example:
    """`before` and `after` its format was read: right, partly or refused, by a person who knew what stands in it."""

    format: str
    source: str
    file: str
    before: str
    after: str
    remark: str


def examples() -> list[Example]:
    """All rows of the table, by their order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [Example(**row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def table(rows: Sequence[Example]) -> Iterator[str]:
    """A line of markdown each."""
    yield "| format | example | before | now | what was read, or not |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield f"| {row.format} | {row.source} | {row.before} | {row.after} | {row.remark} |"


def counted(rows: Sequence[Example]) -> str:
    """ "140 examples: 120 right, 20 partly, 0 refused; before: …"."""
    counts = (Counter(row.after for row in rows), Counter(row.before for row in rows))
    now, before = (", ".join(f"{count[name]} {name}" for name in ("right", "partly", "refused")) for count in counts)
    return f"{len(rows)} examples: {now}; before their formats were read: {before}."


def refused(row: Example, folder: Path) -> str | None:
    """Why nothing of the file could be read; None: something was."""
    words = [sys.executable, "-m", "vllm_doctor", "--json", str(folder / row.file)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    sources = json.loads(run.stdout)["sources"] if run.stdout else []
    return None if any(source["error"] is None for source in sources) else run.stderr.strip() or "nothing was read"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    rows = examples()
    if options.check is None:
        print(counted(rows), "", *table(rows), sep="\n")
        return 0
    looked_at = [row for row in rows if (options.check / row.file).is_file()]
    failed = [(row, why) for row in looked_at if (why := refused(row, options.check)) is not None]
    for row, why in failed:
        print(f"{row.format}: {row.source}: {why}")
    print(f"{len(looked_at)} of {len(rows)} files looked at, {len(failed)} refused")
    return 1 if failed or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
