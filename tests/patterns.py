"""Every regular expression of the package, and for each the texts that it takes longest on.

Found in the source (calls of `re`), and in the table of log lines. The texts follow from a pattern's own structure:
what leads to one of its repeats, what that repeat takes many times over, and an end at which the whole fails.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import regex

from tests.paths import PACKAGE
from vllm_doctor.rules import log_lines, rule

_METHODS = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
_HANDED_ON = {"sources.log.entry_wrapper": "match", "text.content": "match"}
"""How modules use the patterns that they hand on to a function; elsewhere such a one counts as searched."""


@dataclass(frozen=True)
class Use:
    """A pattern as it is used: `method` "match" or "fullmatch" begin in one place, "search" in every."""

    where: str
    pattern: str
    flags: int
    method: str
    is_bytes: bool = False
    is_regex: bool = False

    @property
    def id(self) -> str:
        return f"{self.where} {self.method}"

    def compiled(self) -> Callable[[str], object]:
        """What looks for it in a text, as the package does."""
        if self.is_regex:
            return getattr(regex.compile(self.pattern, self.flags), self.method)  # type: ignore[no-any-return]
        found: Any = re.compile(self.pattern.encode("latin-1") if self.is_bytes else self.pattern, self.flags)

        def run(text: str) -> object:
            given = text.encode("utf-8", "replace") if self.is_bytes else text
            if self.method == "sub":
                return found.subn(given[:0], given)
            if self.method == "finditer":
                return sum(1 for _ in found.finditer(given))
            return getattr(found, self.method)(given)

        return run


# ---- where they are -------------------------------------------------------------------------------------------------


def uses() -> list[Use]:
    """All of them, each once for each way in which it is used."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__main__.py"
    }
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules.items()}
    called = _called(trees)
    found = [use for name, tree in trees.items() for use in _of_module(name, tree, called)]
    return [*found, *_of_log_lines()]


def _called(trees: Mapping[str, ast.Module]) -> Mapping[tuple[str, str], frozenset[str]]:
    """(module, name) of a pattern -> the methods that are called of it, there or where it is imported."""
    found: dict[tuple[str, str], set[str]] = {}
    for module, tree in trees.items():
        imported = {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS and isinstance(node.value, ast.Name):
                of = imported.get(node.value.id, (module, node.value.id))
                found.setdefault(of, set()).add(node.attr)
    return {name: frozenset(methods) for name, methods in found.items()}


def _of_module(name: str, tree: ast.Module, called: Mapping[tuple[str, str], frozenset[str]]) -> Iterator[Use]:
    handed_on = _HANDED_ON.get(name.removeprefix("vllm_doctor."), "search")
    names: dict[ast.AST, str] = {}
    chained: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = node.value.value if isinstance(node.value, ast.Attribute) else node.value
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    names[value] = target.id
        if isinstance(node, ast.Attribute) and node.attr in _METHODS:
            chained[node.value] = node.attr
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        of, method = node.func.value, node.func.attr
        if not (isinstance(of, ast.Name) and of.id in ("re", "regex") and method in {*_METHODS, "compile"}):
            continue
        named = names.get(node, "")
        where = f"{name.removeprefix('vllm_doctor.')} {named or f'line {node.lineno}'}"
        pattern = _evaluated(name, node.args[0])
        if pattern is None:
            yield Use(where, ast.unparse(node.args[0]), 0, "made")
            continue
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "flags"), None)
        place = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(method, 2)
        given = node.args[place] if given is None and len(node.args) > place else given
        flags = int(_evaluated(name, given) or 0) if given is not None else 0
        own = {chained[node]} if node in chained else {method} - {"compile"}
        methods = own or called.get((name, named)) or {handed_on}
        is_bytes = isinstance(pattern, bytes)
        text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
        for each in sorted({_way(method) for method in methods}):
            yield Use(where, text, flags, each, is_bytes)


def _way(method: str) -> str:
    return {"subn": "sub", "findall": "finditer", "split": "finditer"}.get(method, method)


def _evaluated(module: str, node: ast.expr) -> Any:
    """The value of an expression of the module's own names; None where it needs others."""
    names = vars(importlib.import_module(module))
    try:
        return eval(compile(ast.Expression(node), module, "eval"), dict(names))  # its own source
    except NameError:
        return None


def _of_log_lines() -> Iterator[Use]:
    for line in log_lines.load(rule.shipped()).lines.values():
        where = f"log line {line.id}"
        yield Use(f"{where} match", line.match, 0, "match", is_regex=True)
        for name, pattern in {**line.fields, **line.says}.items():
            yield Use(f"{where} {name}", pattern, 0, "search", is_regex=True)


# ---- what they take longest on --------------------------------------------------------------------------------------

_SAMPLES = "a0 -_.:/\"'\\=,()[]{}<>|@#$%&*+\t\nZé1x;`~^!?\x00"
_ENDS = ("", "\x00", "\n")
_MANY = 12
"""A repeat of at most as many is none."""


def worst(use: Use) -> Iterator[Callable[[int], str]]:
    """What makes texts of about so many characters, for each repeat of the pattern."""
    flags = use.flags & ~re.LOCALE
    try:
        tree = parser.parse(use.pattern.encode("latin-1") if use.is_bytes else use.pattern, flags)
    except re.error:
        return
    letters = _unlike(tree)
    seen: set[tuple[str, str, str]] = set()
    for before, pump in _pumps(list(tree), "", letters):
        for begin, unit in ((before, pump), ("", before + pump)):
            for end in _ENDS:
                if unit and (begin, unit, end) not in seen:
                    seen.add((begin, unit, end))
                    yield lambda size, begin=begin, unit=unit, end=end: (  # type: ignore[misc]
                        begin + unit * max(1, size // len(unit)) + end
                    )


def _pumps(nodes: list[Any], before: str, letters: str) -> Iterator[tuple[str, str]]:
    """(what leads there, what is repeated) for each repeat in these nodes, in order."""
    for kind, value in nodes:
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            least, most, body = value
            if most > _MANY:
                units = {_sample(list(body), letter, letters) for letter in letters}
                yield from ((before, unit) for unit in sorted(units) if unit)
            yield from _pumps(list(body), before, letters)
            before += _sample(list(body), "", letters) * min(least, 40)
        elif kind is kinds.SUBPATTERN:
            yield from _pumps(list(value[-1]), before, letters)
            before += _sample(list(value[-1]), "", letters)
        elif kind is kinds.ATOMIC_GROUP:
            yield from _pumps(list(value), before, letters)
            before += _sample(list(value), "", letters)
        elif kind is kinds.BRANCH:
            for branch in value[1]:
                yield from _pumps(list(branch), before, letters)
            before += _sample(list(value[1][0]), "", letters)
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from _pumps(list(value[1]), before, letters)
        else:
            before += _sample([(kind, value)], "", letters)


def _sample(nodes: list[Any], wanted: str, letters: str) -> str:
    """A short text that these nodes match; of `wanted` where they let it."""
    made = ""
    for kind, value in nodes:
        if kind is kinds.LITERAL:
            made += chr(value)
        elif kind is kinds.NOT_LITERAL:
            made += next(c for c in (wanted or "") + letters if ord(c) != value)
        elif kind is kinds.ANY:
            made += wanted if wanted and wanted != "\n" else "a"
        elif kind is kinds.IN:
            made += next((c for c in (wanted or "") + letters if _is_in(value, c)), "")
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            made += _sample(list(value[2]), wanted, letters) * min(max(value[0], 1 if value[1] and wanted else 0), 40)
        elif kind is kinds.SUBPATTERN:
            made += _sample(list(value[-1]), wanted, letters)
        elif kind is kinds.ATOMIC_GROUP:
            made += _sample(list(value), wanted, letters)
        elif kind is kinds.BRANCH:
            options = [_sample(list(branch), wanted, letters) for branch in value[1]]
            made += next((option for option in options if wanted and wanted in option), options[0])
    return made


def _is_in(items: Any, letter: str) -> bool:
    code = ord(letter)
    negated = any(kind is kinds.NEGATE for kind, _ in items)
    hit = False
    for kind, value in items:
        if kind is kinds.LITERAL:
            hit |= code == value
        elif kind is kinds.RANGE:
            hit |= value[0] <= code <= value[1]
        elif kind is kinds.CATEGORY:
            hit |= _CATEGORIES[value](letter)
    return hit != negated


_CATEGORIES: Mapping[Any, Callable[[str], bool]] = {
    kinds.CATEGORY_DIGIT: str.isdecimal,
    kinds.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    kinds.CATEGORY_SPACE: str.isspace,
    kinds.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    kinds.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    kinds.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def _unlike(tree: Any) -> str:
    """Characters of which each differs from the others to the pattern: in what it names, and in its classes."""
    classes = [items for kind, items in _nodes(tree) if kind is kinds.IN]
    named = {chr(value) for kind, value in _nodes(tree) if kind in (kinds.LITERAL, kinds.NOT_LITERAL)}
    found: dict[object, str] = {}
    for letter in (*sorted(named), *_SAMPLES):
        is_in = tuple(_is_in(items, letter) for items in classes)
        found.setdefault((letter if letter in named or letter == "\n" else "", is_in), letter)
    return "".join(found.values())


def _nodes(nodes: Any) -> Iterator[tuple[Any, Any]]:
    """All nodes of a parsed pattern, from outside in."""
    for node in nodes:
        if isinstance(node, tuple) and len(node) == 2 and isinstance(node[0], type(kinds.LITERAL)):
            yield node
        if isinstance(node, tuple | list | parser.SubPattern):
            yield from _nodes(node)


# ---- how long they take ---------------------------------------------------------------------------------------------

SIZE = 8192
MOST = 50
"""So many times a hundred steps a character: 64 KiB take a third of a second where one step is a millisecond."""
_SOME = 3
_CAP = 6
"""So many times what is too long a try may take: a neighbour that makes each step twice as long hides nothing."""


class _TooLongError(Exception):
    pass


def seconds(run: Callable[[str], object], text: str, most: float = 0.5) -> float:
    """Of processor time, until it is done or `most` have gone."""

    def stop(number: int, frame: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    begun = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        run(text)
    except _TooLongError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - begun


def step() -> float:
    """The processor time that a search takes for a hundred steps at each of SIZE characters: here, today."""
    plain = re.compile("a{0,100}b").search
    return min(seconds(plain, "a" * SIZE) for _ in range(5))


def slow(use: Use, most_cases: int | None = None, longest: int | None = None) -> str | None:
    """The text that the pattern takes too long on, in words; None where it takes time in proportion on all.

    Too long is: more than `MOST` steps on SIZE characters; or more than some, and eight times as much on four times
    as many. Of many cases evenly `most_cases` are tried. `longest`: the most characters that the code lets it meet.
    """
    run, one = use.compiled(), step()
    cases = list(worst(use))
    skip = max(1, -(-len(cases) // most_cases)) if most_cases else 1
    slowest, its = 0.0, None
    for made in cases[::skip]:
        for size in (24, SIZE // 16, SIZE) if longest is None else (24, longest):
            took = seconds(run, made(size), _CAP * MOST * one)
            if took > MOST * one:
                # Who had the core? A step is timed beside each try: both are slow where a neighbour has half of it.
                took = min(took, *(seconds(run, made(size), _CAP * MOST * one) * one / step() for _ in range(3)))
            if took > MOST * one:
                return f"{took / one:.0f} steps on {size} characters of {made(60)!r}"
        slowest, its = max((slowest, its), (took, made), key=lambda pair: pair[0])
    if its is not None and longest is None and slowest > _SOME * one:
        growth = min(seconds(run, its(4 * SIZE), 10 * MOST * one) / seconds(run, its(SIZE)) for _ in range(3))
        if growth > 8:
            return f"{growth:.0f} times as long on four times as much of {its(60)!r}"
    return None
