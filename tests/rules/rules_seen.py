"""What rules say of what people showed in public: the cases in seen/RULE.yaml, and their table, docs/rules-seen.md.

A case is an excerpt of a few lines (`log`, `scrape`, `manifest`, `command`), as its source has it, or the numbers that
a thread tells in words (`signals`). `python -m tests.rules.rules_seen` writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

FOLDER = Path(__file__).parent / "seen"
PAGE = ROOT / "docs" / "rules-seen.md"
PARTS = ("log", "scrape", "manifest", "command", "gpu", "signals")
_HEAD = """\
# Rules, and what people showed

For each of these rules: a log, a scrape, a manifest or a command that somebody showed in public and on which it must
speak, and one on which it must be silent. `tests/rules/seen/` holds the lines, or the numbers where a thread tells them
in words; `tests/rules/test_rules_seen.py` runs them. "None found": looked for, and nobody showed one.

| rule | speaks on | silent on |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Case:
    """`gives`: the severity; None where the rule must be silent."""

    rule: str
    what: str
    source: str
    gives: str | None
    parts: dict[str, Any]


def cases() -> list[Case]:
    return [
        Case(rule, one["what"], one["source"], one.get("gives"), {part: one[part] for part in PARTS if part in one})
        for rule, seen in _seen()
        for one in (*seen["speaks"], *seen["silent"])
        if "source" in one
    ]


def page() -> str:
    rows = [f"| {rule} | {_cell(seen['speaks'])} | {_cell(seen['silent'])} |" for rule, seen in _seen()]
    return _HEAD + "\n".join(rows) + "\n"


def _seen() -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, yaml.safe_load(path.read_text("utf-8"))) for path in sorted(FOLDER.glob("*.yaml"))]


def _cell(told: list[dict[str, Any]]) -> str:
    return "; ".join(f"{one['what']} ({_link(one['source'])})" if "source" in one else one["what"] for one in told)


def _link(source: str) -> str:
    """`owner/repo issue 1`, `owner/repo pull 1` or `owner/repo : path`."""
    repo, _, rest = source.partition(" ")
    kind, _, number = rest.partition(" ")
    if kind == ":":
        return f"[{repo}: {number}](https://github.com/{repo}/blob/HEAD/{number})"
    return f"[{repo} {number}](https://github.com/{repo}/{'issues' if kind == 'issue' else kind}/{number})"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
