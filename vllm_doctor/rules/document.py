"""YAML files, read strictly (strict_yaml.py), as tables that know their lines: every mistake is told with its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import compiled
from vllm_doctor.rules.table import Problems, Table

_MAX_BYTES = 1_000_000
_NEXT_KEY = re.compile(r"^[^\s#-]", re.MULTILINE)


def read(path: Path, until: str | None = None, problems: Problems | None = None) -> Table:
    """The mapping in a YAML file. Raises DocumentError with the line; with `problems`, only where it cannot go on.

    `until`: a key that is left out, with all below it, where it is the file's last: what is not needed costs no time.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError(path, None, f"cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise DocumentError(path, None, f"larger than {_MAX_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(path, None, "is not UTF-8 text") from None
    if until is not None:
        head, _, rest = text.partition(f"\n{until}:\n")
        text = text if _NEXT_KEY.search(rest) else f"{head}\n"
    if (tree := compiled.find(path, until, text)) is not None:
        table: Table = _of_tree(tree, path, problems)
        return table
    from vllm_doctor.rules import strict_yaml  # late: it takes a while to import, and most starts parse nothing

    table = strict_yaml.parsed(text, path, problems)
    if problems is None:  # a mistake would have been raised
        compiled.add(path, until, text, _tree(table))
    return table


def _tree(value: Any) -> compiled.Tree:
    """A table as JSON: [its line, those of its keys, what is below them]. A list is {"list": …}."""
    if isinstance(value, Table):
        return [value.line, list(value.lines.values()), {key: _tree(item) for key, item in value.items()}]
    return {"list": [_tree(item) for item in value]} if isinstance(value, list) else value


def _of_tree(tree: compiled.Tree, path: Path, problems: Problems | None) -> Any:
    if isinstance(tree, dict):
        return [_of_tree(item, path, problems) for item in tree["list"]]
    if not isinstance(tree, list):
        return tree
    line, lines, items = tree
    table = Table(items)
    table.path, table.line, table.lines = path, line, dict(zip(items, lines, strict=True))
    if problems is not None:
        table.problems = problems
    for key, item in items.items():
        if isinstance(item, list | dict):
            table[key] = _of_tree(item, path, problems)
    return table
