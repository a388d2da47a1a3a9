"""YAML files, read strictly (strict_yaml.py), as tables that know their lines: every mistake is told with its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import compiled

Word = TypeVar("Word", bound=str)

_MAX_BYTES = 1_000_000
_NEXT_KEY = re.compile(r"^[^\s#-]", re.MULTILINE)


class Problems:
    """The mistakes of files that are checked as a whole. Without it a reader raises the first that it meets."""

    def __init__(self) -> None:
        self.found: list[DocumentError] = []
        self._broken: set[tuple[object, int | None]] = set()

    def add(self, error: DocumentError, breaks_line: bool = False) -> None:
        """`breaks_line`: what stands in the line could not be read, so whatever else is missed there is no news."""
        if error.is_consequence or (error.path, error.line) in self._broken:
            return
        if breaks_line:
            self._broken.add((error.path, error.line))
        self.found.append(error)

    def are_in(self, path: Path) -> bool:
        return any(error.path == path for error in self.found)

    def lines(self) -> list[str]:
        """One a mistake, by file and line, each once."""
        ordered = sorted(self.found, key=lambda error: (str(error.path), error.line or 0))
        return list(dict.fromkeys(map(str, ordered)))


@contextmanager
def gathered(problems: Problems | None) -> Iterator[None]:
    """The block ends at a mistake after which nothing in it can be read; what follows the block goes on."""
    try:
        yield
    except DocumentError as error:
        if problems is None:
            raise
        problems.add(error)


class Table(dict[str, Any]):
    """A YAML mapping that remembers where it stands: `path`, and the line of each key.

    With `problems`, a mistake is noted there, and what was asked for is answered with what is empty; without, the first
    is raised as a DocumentError.
    """

    path: Path
    line: int
    lines: dict[str, int]
    problems: Problems | None = None
    wrong: frozenset[str] | None = frozenset()
    """The keys under which something of another kind stands; None: the whole table stands for what is none."""

    def error(self, problem: str, key: str | None = None) -> DocumentError:
        error = DocumentError(self.path, self.lines.get(key, self.line) if key else self.line, problem)
        error.is_consequence = self.wrong is None or key in self.wrong
        return error

    def fail(self, problem: str, key: str | None = None) -> NoReturn:
        """Refuse: after this mistake nothing can be read."""
        raise self.error(problem, key)

    def mistake(self, problem: str, key: str | None = None) -> None:
        """Note a mistake after which the reader can go on; raise it where none are gathered."""
        error = self.error(problem, key)
        if self.problems is None:
            raise error
        self.problems.add(error)

    def _is_not(self, wanted: str, key: str) -> None:
        self.mistake(f"{key!r} must be {wanted}", key)
        self.wrong = None if self.wrong is None else self.wrong | {key}

    def allow(self, *keys: str) -> None:
        """Refuse a key that is not among these."""
        for key in self:
            if key not in keys:
                from difflib import get_close_matches  # late: only for a mistake

                near = get_close_matches(key, keys, 1)
                self.mistake(
                    f"unknown key {key!r}" + (f"; meant {near[0]!r}?" if near else f"; known: {', '.join(keys)}"), key
                )
                if near and near[0] not in self and self.wrong is not None:
                    self.wrong |= {near[0]}

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str) or not value.strip():
            self._is_not("a text", key)
            return ""
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._is_not("a list of texts", key)
            return ()
        return tuple(item.strip() for item in value)

    def one_of(self, key: str, choices: Iterable[Word], default: Word | None = None) -> Word:
        """The choice that the key holds: of an enum, its member."""
        value = self.get(key, default)
        known = tuple(choices)
        for choice in known:
            if choice == value:
                return choice
        self._is_not(f"one of {', '.join(known)}; it is {value!r}", key)
        return known[0]

    def table(self, key: str) -> Table:
        value = self.get(key)
        if isinstance(value, Table):
            return value
        empty = Table()
        if value is not None:
            self._is_not("a mapping", key)
            empty.wrong = None
        empty.path, empty.line, empty.lines = self.path, self.lines.get(key, self.line), {}
        empty.problems = self.problems
        return empty

    def tables(self, key: str) -> Iterator[Table]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, Table) for item in value):
            self._is_not("a list of mappings", key)
            return
        yield from value


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
