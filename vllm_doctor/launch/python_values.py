"""What an expression of Python stands for, as far as its text tells: constants, lists and dictionaries of them, and
what is open. A text with open pieces holds them between marks (`unexpanded`). Nothing here calls what was read.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vllm_doctor.launch import budget
from vllm_doctor.launch.unexpanded import is_marked, mark

Scalar: TypeAlias = str | int | float | bool | None
Path: TypeAlias = tuple[int, ...]
"""The branches in which something happens, outermost first."""

MAX_TEXT = 128 * 1024
_MAX_NUMBER = 1e18
_DEEPEST = 12
_NAMED = 60


@dataclass(frozen=True, slots=True)
class Open:
    """What the text does not tell, as it is written there."""

    written: str


@dataclass(frozen=True, slots=True)
class Default:
    """What holds where nothing else is given. `of`: what may be given: `$MODEL`, `--tp of the script`, `tp=`."""

    value: Scalar
    of: str


@dataclass(frozen=True, slots=True)
class Maybe:
    """An item of a list that is there in some cases only."""

    item: Value
    when: str


@dataclass(frozen=True, slots=True)
class Name:
    """Something imported, with its path: `vllm.LLM`."""

    path: str


@dataclass(eq=False)
class Listed:
    """A list or a tuple. `path`: where it was made. `is_part`: another was made of it."""

    items: list[Value]
    line: int = 0
    path: Path = ()
    is_part: bool = False
    place: str = ""
    twins: list[Listed] = field(default_factory=list)
    """Those that may stand in its place."""
    environment: Mapped | None = None
    """Of the process that it starts, where that has one of its own."""


@dataclass(eq=False)
class Mapped:
    """A dictionary with texts as keys. `is_open`: it may have more. `lines`: where its values stand."""

    fields: dict[str, Value] = field(default_factory=dict)
    is_open: bool = False
    path: Path = ()
    nodes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(eq=False)
class Function:
    """`scope`: of the names around it. `owner`: of a method, its instance."""

    node: ast.FunctionDef | ast.AsyncFunctionDef
    scope: object
    place: str = ""
    owner: Instance | None = None


@dataclass(eq=False)
class Class:
    node: ast.ClassDef
    methods: dict[str, Function]
    fields: dict[str, Value]


@dataclass(eq=False)
class Instance:
    """An object with attributes: of a class of the text, or what a parser of arguments gives (`is_open`)."""

    kind: Class | None
    fields: Mapped


@dataclass(eq=False)
class Parser:
    """argparse's."""

    arguments: Instance


class Joined(str):
    """The items of a list as one command line."""

    parts: Listed


Value: TypeAlias = (
    Scalar | Open | Default | Maybe | Name | Listed | Mapped | Function | Class | Instance | Parser | object
)


def known(value: Value) -> tuple[bool, Scalar]:
    """Whether the value is a constant, also one that is only a default; and which."""
    if isinstance(value, Default):
        value = value.value
    if isinstance(value, str):
        return not is_marked(value), value
    if value is None or isinstance(value, (bool, int, float)):
        return True, value
    return False, None


def _is_scalar(value: Value) -> bool:
    return value is None or isinstance(value, (str, bool, int, float))


def defaults_in(value: Value, depth: int = 0) -> Iterator[str]:
    """What may be given in the place of the defaults in it."""
    budget.spend()
    if isinstance(value, Default):
        yield value.of
    elif depth < _DEEPEST and isinstance(value, Listed):
        for item in value.items:
            yield from defaults_in(item, depth + 1)
    elif depth < _DEEPEST and isinstance(value, Mapped):
        for item in value.fields.values():
            yield from defaults_in(item, depth + 1)


def of(values: Sequence[Value], result: Scalar) -> Value:
    """A result of these values: a default where one of them is."""
    source = next((value.of for value in values if isinstance(value, Default)), None)
    return result if source is None else Default(result, source)


def text(value: Value) -> str:
    """The value in a text, with marks around what is open."""
    if isinstance(value, Default):
        value = value.value
    if isinstance(value, str):
        return str(value)
    if _is_scalar(value):
        return repr(value)
    if isinstance(value, (Listed, Mapped)) and (told := as_json(value)) is not None:
        return told
    return mark(written(value))


def written(value: Value) -> str:
    return value.written if isinstance(value, Open) else "…"


def as_json(value: Value) -> str | None:
    """A dictionary or a list as JSON, with marks around what is open in it; None where it is no JSON."""
    plain = _plain(value, 0)
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Value, depth: int) -> object:
    budget.spend()
    if isinstance(value, Default):
        value = value.value
    if _is_scalar(value):
        return value
    if depth > _DEEPEST:
        return mark("…")
    if isinstance(value, Listed):
        return [_plain(item, depth + 1) for item in value.items]
    if isinstance(value, Mapped):
        told: dict[str, object] = {key: _plain(item, depth + 1) for key, item in value.fields.items()}
        return told | ({mark("…"): mark("…")} if value.is_open else {})
    return mark(written(value.item if isinstance(value, Maybe) else value))


def is_true(value: Value) -> bool | None:
    """None: the text does not tell."""
    if isinstance(value, Listed):
        return bool(value.items) if not any(isinstance(item, (Maybe, Open)) for item in value.items) else None
    if isinstance(value, Mapped):
        return None if value.is_open else bool(value.fields)
    if isinstance(value, (Function, Class, Instance)):
        return True
    if isinstance(value, str) and is_marked(value):
        return None
    is_known, scalar = known(value)
    return bool(scalar) if is_known else None


_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_COUNTED: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


def compared(sign: ast.cmpop, left: Value, right: Value) -> Value:
    if isinstance(sign, (ast.In, ast.NotIn)):
        is_in = _is_in(left, right)
        return Open("in") if is_in is None else of([left, right], is_in is isinstance(sign, ast.In))
    (is_known, a), (is_other_known, b) = known(left), known(right)
    compare = _COMPARED.get(type(sign))
    if not (is_known and is_other_known) or compare is None:
        return Open("…")
    if isinstance(sign, (ast.Is, ast.IsNot)) and None not in (a, b):
        return Open("is")
    try:
        return of([left, right], bool(compare(a, b)))
    except TypeError:
        return Open("…")


def _is_in(item: Value, among: Value) -> bool | None:
    is_known, scalar = known(item)
    if isinstance(among, Listed) and is_known:
        told = [known(one) for one in among.items]
        return scalar in [one for _, one in told] if all(is_told for is_told, _ in told) else None
    if isinstance(among, Mapped) and isinstance(scalar, str):
        return True if scalar in among.fields else None if among.is_open else False
    is_text, whole = known(among)
    return scalar in whole if is_text and is_known and isinstance(whole, str) and isinstance(scalar, str) else None


def combined(sign: ast.operator, left: Value, right: Value) -> Value | None:
    """What an operator makes of two constants; None where it makes none that we follow."""
    if isinstance(sign, ast.Add) and _is_text(left) and _is_text(right):
        joined = text(left) + text(right)
        budget.spend_on(joined)
        return of([left, right], joined) if len(joined) <= MAX_TEXT else Open("…")
    if isinstance(sign, ast.Div) and (_is_text(left) or _is_text(right)):  # pathlib's
        return of([left, right], f"{text(left).rstrip('/')}/{text(right)}")
    (_, a), (_, b) = known(left), known(right)
    count = _COUNTED.get(type(sign))
    if count is None or not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return None
    if max(abs(a), abs(b)) > _MAX_NUMBER:
        return None
    try:
        return of([left, right], count(a, b))
    except (ArithmeticError, ValueError):
        return None


def _is_text(value: Value) -> bool:
    return isinstance(value.value if isinstance(value, Default) else value, str)


def same(one: Value, another: Value) -> bool:
    (is_known, a), (is_other_known, b) = known(one), known(another)
    return one is another or (is_known and is_other_known and type(a) is type(b) and a == b)


def dotted(node: ast.AST, depth: int = 0) -> str:
    """How an expression is called in a sentence: `args.model`, `config["tp"]`, `device_count()`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return repr(node.value)[:_NAMED] if isinstance(node.value, (str, int)) else "…"
    if depth > _DEEPEST:
        return "…"
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, depth + 1)}.{node.attr}"[-_NAMED:]
    if isinstance(node, ast.Subscript):
        return f"{dotted(node.value, depth + 1)}[{dotted(node.slice, depth + 1)}]"[-_NAMED:]
    if isinstance(node, ast.Call):
        return f"{dotted(node.func, depth + 1)}()"[-_NAMED:]
    if isinstance(node, ast.Await):
        return dotted(node.value, depth + 1)
    return "…"
