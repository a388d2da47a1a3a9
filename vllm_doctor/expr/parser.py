"""From text to nodes. Written as a Python expression and parsed with ast; never run by Python.

A condition, as a rule has it, joins comparisons with and, or, not; each compares a signal with a signal or a literal,
so that it can be shown as evidence. A formula is arithmetic over signals and numbers, with the functions of
functions.py, known(a, b, …), is_known(a), where(condition, a), and `a if condition else b`; its conditions may compare
what is computed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from vllm_doctor.expr import nodes
from vllm_doctor.expr.functions import ARITHMETIC, FUNCTIONS
from vllm_doctor.expr.nodes import TruthNode, ValueNode

_MAX_LENGTH = 1000
_MAX_NUMBER = 30
"""Characters of a number."""
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
assert {*_OPERATORS.values()} == {*ARITHMETIC}


Node = TypeVar("Node")


@lru_cache(None)
def _first(node: Node) -> Node:
    """The first node that equals this one."""
    return node


def _shared(parsed: Callable[[ast.expr], Node]) -> Callable[[ast.expr], Node]:
    """Equal nodes as one object: the rules name the same signals again and again."""
    return lambda node: _first(parsed(node))


class ConditionError(ValueError):
    """The text is no condition; says which part."""


class FormulaError(ValueError):
    """The text is no formula; says which part."""


def condition(text: str) -> TruthNode:
    """Raises ConditionError."""
    if len(text) > _MAX_LENGTH:
        raise ConditionError(f"longer than {_MAX_LENGTH} characters")
    try:
        return _condition(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ConditionError(f"{error.msg} at column {error.offset}: {text}") from None
    except ConditionError:
        raise
    except (ValueError, RecursionError, MemoryError):
        raise ConditionError("cannot be parsed: nested too deeply, or with a null byte") from None


def formula(text: str) -> ValueNode:
    """Raises FormulaError."""
    if len(text) > _MAX_LENGTH:
        raise FormulaError(f"longer than {_MAX_LENGTH} characters")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except FormulaError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"not a formula: {text}") from None


def truth(text: str) -> TruthNode:
    """A condition within a formula: it may compare what is computed. Raises FormulaError."""
    if len(text) > _MAX_LENGTH:
        raise FormulaError(f"longer than {_MAX_LENGTH} characters")
    try:
        return _truth(ast.parse(text.strip(), mode="eval").body)
    except FormulaError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"not a condition: {text}") from None


# ---- conditions of rules ---------------------------------------------------------------------------------------------


@_shared
def _condition(node: ast.expr) -> TruthNode:
    match node:
        case ast.BoolOp(op=op, values=values):
            return _joined(op, [_condition(value) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return nodes.Not(_condition(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            sides = [_side(left), _side(right)]
            if None in sides or not any(isinstance(side, nodes.Name) for side in sides):
                raise ConditionError(f"compare a signal with a signal or a literal: {ast.unparse(node)}")
            return _compared(op, *(side for side in sides if side is not None))
        case _:
            raise ConditionError(f"not part of the condition language: {ast.unparse(node)}")


@_shared
def _side(node: ast.expr) -> ValueNode | None:
    return nodes.Name(node.id) if isinstance(node, ast.Name) else _literal(node)


@_shared
def _literal(node: ast.expr) -> ValueNode | None:
    match node:
        case ast.Constant(value=str() | bool() as value):
            return nodes.Literal(value)
        case ast.Constant(value=int() | float() as value) if len(repr(value)) < _MAX_NUMBER and math.isfinite(value):
            return nodes.Number(float(value))
        case _:
            return None


def _joined(op: ast.boolop, parts: Sequence[TruthNode]) -> TruthNode:
    return nodes.Or(tuple(parts)) if isinstance(op, ast.Or) else nodes.And(tuple(parts))


def _compared(op: ast.cmpop, left: ValueNode, right: ValueNode) -> TruthNode:
    sign = _COMPARISONS[type(op)]
    if isinstance(left, nodes.Number | nodes.Literal):  # 3 < x is x > 3
        return nodes.Compare(right, nodes.MIRRORED[sign], left)
    return nodes.Compare(left, sign, right)


# ---- formulas --------------------------------------------------------------------------------------------------------


@_shared
def _value(node: ast.expr) -> ValueNode:
    match node:
        case ast.Name(id=name):
            return nodes.Name(name)
        case ast.Constant(value=value) if not isinstance(value, str | bool) and (number := _literal(node)) is not None:
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return nodes.Arithmetic(_value(left), _OPERATORS[type(op)], _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(node, name, arguments)
        case ast.IfExp(test=test, body=then, orelse=otherwise):
            return nodes.Choose(_truth(test), _value(then), _value(otherwise))
        case _:
            raise _refused(node)


def _call(node: ast.expr, name: str, arguments: list[ast.expr]) -> ValueNode:
    if name in _OWN_NODES:
        made = _OWN_NODES[name](arguments)
        if made is None:
            raise _refused(node)
        return made
    if name not in FUNCTIONS or not FUNCTIONS[name].takes(len(arguments)):
        raise _refused(node)
    return nodes.Call(name, tuple([_value(argument) for argument in arguments]))


def _known(arguments: list[ast.expr]) -> ValueNode | None:
    return nodes.FirstKnown(tuple([_value(argument) for argument in arguments])) if len(arguments) > 1 else None


def _where(arguments: list[ast.expr]) -> ValueNode | None:
    return nodes.Where(_truth(arguments[0]), _value(arguments[1])) if len(arguments) == 2 else None


def _is_known(arguments: list[ast.expr]) -> nodes.IsKnown | None:
    return nodes.IsKnown(_value(arguments[0])) if len(arguments) == 1 else None


_OWN_NODES: dict[str, Callable[[list[ast.expr]], ValueNode | None]] = {
    "known": _known,
    "where": _where,
    "is_known": _is_known,
}


@_shared
def _truth(node: ast.expr) -> TruthNode:
    """A condition within a formula."""
    match node:
        case ast.BoolOp(op=op, values=values):
            return _joined(op, [_truth(value) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return nodes.Not(_truth(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            sides = [_literal(side) or _value(side) for side in (left, right)]
            if all(isinstance(side, nodes.Number | nodes.Literal) for side in sides):
                raise _refused(node)
            return _compared(op, *sides)
        case ast.Call(func=ast.Name(id="is_known"), args=[argument], keywords=[]):
            return nodes.IsKnown(_value(argument))
        case _:
            raise _refused(node)


def _refused(node: ast.expr) -> FormulaError:
    return FormulaError(f"not part of a formula: {ast.unparse(node)}")
