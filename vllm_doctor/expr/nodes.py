"""What the language is made of: values (numbers, texts, arithmetic) and truths (comparisons, joined), as plain data.

parser.py makes these nodes from a text; scalar.py, columns.py and promql.py each give them a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Name:
    """A signal."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, true or false: only compared with, never computed with."""

    value: str | bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`sign` is one of + - * /."""

    left: ValueNode
    sign: str
    right: ValueNode


@dataclass(frozen=True, slots=True)
class Call:
    """A function of functions.py."""

    function: str
    arguments: tuple[ValueNode, ...]


@dataclass(frozen=True, slots=True)
class FirstKnown:
    """The first of these that is known; where none is, unknown for the reason of the first."""

    ways: tuple[ValueNode, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """The value where the condition holds; elsewhere unknown."""

    condition: TruthNode
    value: ValueNode


@dataclass(frozen=True, slots=True)
class Choose:
    """One value where the condition holds, another where it does not; unknown where the condition is."""

    condition: TruthNode
    then: ValueNode
    otherwise: ValueNode


@dataclass(frozen=True, slots=True)
class IsKnown:
    """Whether a value is known, and never unknown itself: a truth, and as a value 1 or 0."""

    value: ValueNode


@dataclass(frozen=True, slots=True)
class Compare:
    """`sign` is one of > >= < <= == !=. A literal stands on the right: the parser turns `3 < x` around."""

    left: ValueNode
    sign: str
    right: ValueNode


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[TruthNode, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[TruthNode, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: TruthNode


ValueNode = Name | Number | Literal | Arithmetic | Call | FirstKnown | Where | Choose | IsKnown
"""What gives a reading."""

TruthNode = Compare | And | Or | Not | IsKnown
"""What holds, does not hold, or is unknown."""

Node = ValueNode | TruthNode

OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}
"""not (a > b) is a <= b."""

MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "==": "==", "!=": "!="}
"""a > b is b < a."""


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below, in the order in which they are written."""
    match node:
        case Name() | Number() | Literal():
            return ()
        case Arithmetic(left, _, right) | Compare(left, _, right):
            return left, right
        case Call(_, parts) | FirstKnown(parts) | And(parts) | Or(parts):
            return parts
        case Where(condition, value):
            return condition, value
        case Choose(condition, then, otherwise):
            return then, condition, otherwise
        case IsKnown(part) | Not(part):
            return (part,)


def names(node: Node) -> tuple[str, ...]:
    """The signals that it names, each once, in order."""
    found: dict[str, None] = {}
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Name):
            found[node.name] = None
        else:
            waiting += reversed(children(node))
    return tuple(found)


# How tightly each binds; what binds less than its place asks for is written in parentheses.
_CHOICE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(8)
_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}


def text(node: Node, least: int = _CHOICE) -> str:
    """The node as the parser reads it."""
    binds, written = _written(node)
    return written if binds >= least else f"({written})"


def _written(node: Node) -> tuple[int, str]:
    match node:
        case Name(name):
            return _ATOM, name
        case Number(value):
            return _ATOM, str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
        case Literal(value):
            return _ATOM, repr(value)
        case Arithmetic(left, sign, right):
            binds = _ARITHMETIC[sign]
            return binds, f"{text(left, binds)} {sign} {text(right, binds + 1)}"
        case Call(function, arguments):
            return _ATOM, _called(function, *arguments)
        case FirstKnown(ways):
            return _ATOM, _called("known", *ways)
        case Where(condition, value):
            return _ATOM, _called("where", condition, value)
        case IsKnown(value):
            return _ATOM, _called("is_known", value)
        case Choose(condition, then, otherwise):
            return _CHOICE, f"{text(then, _OR)} if {text(condition, _OR)} else {text(otherwise)}"
        case Compare(left, sign, right):
            return _COMPARE, f"{text(left, _SUM)} {sign} {text(right, _SUM)}"
        case And(parts):
            return _AND, " and ".join(text(part, _NOT) for part in parts)
        case Or(parts):
            return _OR, " or ".join(text(part, _AND) for part in parts)
        case Not(part):
            return _NOT, f"not {text(part, _NOT)}"


def _called(function: str, *arguments: Node) -> str:
    return f"{function}({', '.join(map(text, arguments))})"
