"""Reading rules/signals/*.yaml, one file a topic: each entry becomes a signal, or a mistake with its file and line.

An entry has `says` (what it is to a person: 40 characters fit in a line; "steadily" is the median of the scrapes),
`unit`, and one of

    promql, info, present, fact, flag, env, log   read in this way (signal.py)
    formula     computed from other signals
    is_known    1 where this signal is known, else 0
    from        ways in order, of which the first that is known wins; where none is, the reason is that of the first.
                A way is {log: line.value, ...} with an own `where`, or a formula as a text

and may have

    where                the condition outside of which it is unknown
    when, otherwise      the condition under which it is that, and the formula of what it is else
    vital, needed        it is shown as a vital sign, and how it adds up; without it there is no verdict
    target               for a target that the user may give: the signal that must stay below it

A way that is read may have `none` (its value where it is not set), `count`, `reason` (why it is unknown where nobody
looked: a fact is found on the server's host) and `exporter`. A renamed metric is PromQL's own `or`, the new name first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypedDict

from vllm_doctor.expr import nodes, parser
from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.nodes import TruthNode, ValueNode
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.expr.promql_eval import PromQLError, aggregated_by
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import document
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.document import Problems, Table
from vllm_doctor.rules.signal import BETWEEN, UNITS, WAYS, Exporter, Signal, expression, info
from vllm_doctor.vllm import flags

EXPORTERS = ("cadvisor", "dcgm")
"""Those whose series tell facts."""


VITALS = ("sum", "max")
NAME = "[a-z][a-z0-9_]*"
"""The form of a signal's name."""
_SHARED = ("says", "unit", "vital", "needed", "target")
_OF_WAY = ("none", "count", "reason", "exporter")
_CONDITIONS = ("where", "when", "otherwise")
_READ = tuple(way for way in WAYS if way != "formula")
_KINDS = (*WAYS, "from", "is_known")
KEYS = (*_SHARED, *_KINDS, *_OF_WAY, *_CONDITIONS)
WAY_KEYS = (*WAYS, *_OF_WAY, "where")
"""Of an entry, and of a way under its `from`."""


def load(*folders: Path, problems: Problems | None = None) -> dict[str, Signal]:
    """The signals of these folders, by name; the ways of one stand above it. Raises DocumentError with file and line.

    With `problems`, mistakes are noted there, and a signal that cannot be read is one that is never known.
    """
    tables: dict[str, Table] = {}
    for path in (path for folder in folders for path in places.signals(folder)):
        with document.gathered(problems):
            root = document.read(path, problems=problems)
            root.allow("signals", "known_metrics")
            root.texts("known_metrics")
            _gather(root.table("signals"), tables)
    signals: dict[str, Signal] = {}
    for name, table in tables.items():
        unread = Signal(name=name, says=name, unit="", way="fact", definition="")
        with document.gathered(problems):
            ways = {signal.name: signal for signal in _entry(name, table)}
            unread = ways.pop(name)
            signals |= ways
        signals[name] = unread
    _check_names(signals, tables)
    return signals


def _gather(entries: Table, tables: dict[str, Table]) -> None:
    for name in entries:
        table = entries.table(name)
        if name not in tables:
            tables[name] = table
            continue
        first = tables[name]
        entries.mistake(
            f"signal {name!r} stands twice (first in {first.path}:{first.line}): give this one its own name", name
        )


def _check_names(signals: dict[str, Signal], tables: Mapping[str, Table]) -> None:
    """Every name in a formula is a signal, and none is computed from itself."""
    uses = {name: signal.formula.names for name, signal in signals.items() if signal.formula is not None}
    for name, names in uses.items():
        table = tables[signals[name].way_of or name]
        for used in names:
            if used not in signals:
                table.mistake(f"formula of {name!r} uses {used!r}, which is no signal", _kind(name, table))
                signals[name] = _never_known(signals[name])
    while True:
        try:
            uses = {name: signal.formula.names for name, signal in signals.items() if signal.formula is not None}
            return TopologicalSorter(uses).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            table = tables[signals[circle[0]].way_of or circle[0]]
            table.mistake(
                f"signals are computed from each other in a circle: {' -> '.join(circle)}", _kind(circle[0], table)
            )
            signals[circle[0]] = _never_known(signals[circle[0]])


def _never_known(signal: Signal) -> Signal:
    return replace(signal, way="fact", definition="", formula=None)


def _kind(name: str, table: Table) -> str:
    kinds = [kind for kind in _KINDS if kind in table]
    if len(kinds) != 1:
        table.fail(f"signal {name!r} needs exactly one of {', '.join(_KINDS)}")
    return kinds[0]


def _entry(name: str, table: Table) -> Iterator[Signal]:
    """The signal, below those that are its ways."""
    if BETWEEN in name:
        table.mistake(f"{BETWEEN!r} stands between a signal and its way: name {name!r} without it")
    elif not re.fullmatch(NAME, name):
        table.mistake(f"a signal's name is lower case words joined by '_'; it is {name!r}")
    table.allow(*KEYS)
    shared = _shared(table)
    kind = _kind(name, table)
    if kind in _READ and not any(key in table for key in _CONDITIONS):
        yield _read(name, table, table, kind)
        return
    for key in _OF_WAY:
        if key in table and kind not in _READ:
            table.fail(f"{key!r} is said of a way that is read: write it there", key)
    ways = list(_ways(name, table, kind))
    yield from (way.signal for way in ways if way.signal is not None)
    root = nodes.FirstKnown(tuple(way.node for way in ways)) if len(ways) > 1 else ways[0].node
    root = _chosen(_where(root, table), table)
    written = [ways[0].written, *(f"else {way.written}" for way in ways[1:])]
    written += [f"{key}: {table[key]}" for key in _CONDITIONS if key in table]
    formula = Formula(root)
    yield Signal(name=name, way="formula", definition=formula.text, formula=formula, written=tuple(written), **shared)


@dataclass(frozen=True, slots=True)
class _Way:
    """One way: its value, the text of the file, and the signal that it is of its own, unless it is a formula."""

    node: ValueNode
    written: str
    signal: Signal | None = None


def _ways(name: str, table: Table, kind: str) -> Iterator[_Way]:
    match kind:
        case "formula":
            yield _Way(_formula(table, kind), f"formula: {table[kind]}")
        case "is_known":
            yield _Way(nodes.IsKnown(_formula(table, kind)), f"is_known: {table[kind]}")
        case "from":
            yield from _listed(name, table)
        case _:
            signal = _way(f"{name}{BETWEEN}{kind}", table, table, kind)
            yield _Way(nodes.Name(signal.name), signal.written[0], signal)


def _listed(name: str, table: Table) -> Iterator[_Way]:
    ways = table.get("from")
    if not isinstance(ways, list) or len(ways) < 2:
        table.fail("'from' must be a list of ways, two at least: the first that is known wins", "from")
    taken: set[str] = set()
    for way in ways:
        if isinstance(way, Table):
            kind = _kind(name, way)
            way.allow(*WAY_KEYS)
            where = f", where {way['where']}" if "where" in way else ""
            if kind == "formula":
                yield _Way(_where(_formula(way, kind), way), f"formula: {way[kind]}{where}")
                continue
            own = f"{name}{BETWEEN}{kind}"
            while own in taken:
                own += "_too"
            taken.add(own)
            signal = _way(own, way, table, kind)
            yield _Way(_where(nodes.Name(own), way), signal.written[0] + where, signal)
        elif isinstance(way, str) or (isinstance(way, int | float) and not isinstance(way, bool)):
            yield _Way(_parsed(table, "from", str(way)), f"formula: {way}")
        else:
            table.fail("a way is a mapping (log: line.value), or a formula as a text", "from")


def _way(name: str, way: Table, entry: Table, kind: str) -> Signal:
    """One of several ways as a signal of its own: no vital sign, as its entry may be."""
    of = name.partition(BETWEEN)[0]
    return replace(_read(name, way, entry, kind), way_of=of, vital=None, needed=False, target=None)


def _where(node: ValueNode, table: Table) -> ValueNode:
    return nodes.Where(_condition(table, "where"), node) if "where" in table else node


def _chosen(node: ValueNode, table: Table) -> ValueNode:
    if ("when" in table) != ("otherwise" in table):
        table.fail("'when' and 'otherwise' need each other", "when" if "when" in table else "otherwise")
    if "when" not in table:
        return node
    return nodes.Choose(_condition(table, "when"), node, _formula(table, "otherwise"))


def _condition(table: Table, key: str) -> TruthNode:
    try:
        return parser.truth(table.text(key))
    except FormulaError as error:
        table.fail(str(error), key)


def _formula(table: Table, key: str) -> ValueNode:
    """A formula; a number need not be written as a text."""
    value = table.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _parsed(table, key, str(value) if is_number else table.text(key))


def _parsed(table: Table, key: str, text: str) -> ValueNode:
    try:
        return parser.formula(text)
    except FormulaError as error:
        table.fail(str(error), key)


def _read(name: str, table: Table, entry: Table, way: str) -> Signal:
    """The signal that is read in one way, which the table has. `entry`: what it is a way of, or the same table."""
    present = table.texts(way) if way == "present" else ()
    definition = "" if way == "present" else table.text(way)
    try:
        if way == "promql":
            expression(definition)
        elif way == "info":
            info(definition)
        elif way == "flag" and not flags.is_flag(definition):
            table.mistake(f"{definition} is a flag of no vLLM", way)
    except PromQLError as error:
        table.mistake(str(error), way)
    if "exporter" in table and way != "fact":
        table.mistake(f"signal {name!r} stands on /metrics: only a fact of the host has an exporter", "exporter")
    none = table.get("none")
    return Signal(
        name=name,
        way=way,
        definition=definition,
        none=float(none) if type(none) is int else none,
        count=table.get("count") is True,
        reason=Reason(table.one_of("reason", tuple(Reason), Reason.NOT_LOCAL.value)),
        present=present,
        exporter=_exporter(table.table("exporter")) if "exporter" in table else None,
        written=(f"{way}: {', '.join(present) or ' '.join(definition.split())}",),
        **_shared(entry),
    )


class _Shared(TypedDict):
    says: str
    unit: str
    vital: str | None
    needed: bool
    target: str | None


def _shared(table: Table) -> _Shared:
    """What is said of a signal, however it is known."""
    return {
        "says": table.text("says"),
        "unit": table.one_of("unit", UNITS),
        "vital": table.one_of("vital", VITALS) if "vital" in table else None,
        "needed": table.get("needed") is True,
        "target": table.text("target") if "target" in table else None,
    }


def _exporter(table: Table) -> Exporter:
    table.allow("from", "promql")
    text = " ".join(table.text("promql").split())
    try:
        labels = aggregated_by(text.replace("$window", "1s"))
    except PromQLError as error:
        table.fail(str(error), "promql")
    return Exporter(table.one_of("from", EXPORTERS), text, labels)
