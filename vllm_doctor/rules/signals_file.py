"""Reading rules/signals/*.yaml, one file a topic: each entry becomes a signal, or a mistake with its file and line."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from vllm_doctor.expr.formula import Formula, FormulaError
from vllm_doctor.expr.promql import PromQLError, aggregated_by
from vllm_doctor.model.reason import Reason
from vllm_doctor.rules import document
from vllm_doctor.rules.document import Table
from vllm_doctor.rules.signal import UNITS, WAYS, Exporter, Signal, expression, info
from vllm_doctor.vllm import flags

FOLDER = "signals"

EXPORTERS = ("cadvisor", "dcgm")
"""Those whose series tell facts."""


def load(folder: Path) -> dict[str, Signal]:
    """The signals of all files of the folder, by name. Raises DocumentError with file and line."""
    tables: dict[str, Table] = {}
    for path in sorted(folder.glob("*.yaml")):
        root = document.read(path)
        root.allow("signals")
        entries = root.table("signals")
        for name in entries:
            table = entries.table(name)
            if name in tables:
                first = tables[name]
                entries.fail(
                    f"signal {name!r} stands twice (first in {first.path}:{first.line}): give this one its own name",
                    name,
                )
            tables[name] = table
    signals = {name: _signal(name, table) for name, table in tables.items()}
    _check_names(signals, tables)
    return signals


def _check_names(signals: Mapping[str, Signal], tables: Mapping[str, Table]) -> None:
    """Every name in a formula is a signal, and none is computed from itself."""
    uses = {name: signal.formula.names for name, signal in signals.items() if signal.formula is not None}
    for name, names in uses.items():
        for used in names:
            if used not in signals:
                tables[name].fail(f"formula of {name!r} uses {used!r}, which is no signal", "formula")
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        tables[circle[0]].fail(f"signals are computed from each other in a circle: {' -> '.join(circle)}", "formula")


def _signal(name: str, table: Table) -> Signal:
    table.allow("says", "unit", *WAYS, "vital", "needed", "target", "none", "count", "reason", "exporter")
    ways = [way for way in WAYS if way in table]
    if len(ways) != 1:
        table.fail(f"signal {name!r} needs exactly one of {', '.join(WAYS)}")
    way = ways[0]
    present: tuple[str, ...] = ()
    formula: Formula | None = None
    definition = ""
    if way == "present":
        present = table.texts(way)
    else:
        definition = table.text(way)
    try:
        if way == "promql":
            expression(definition)
        elif way == "info":
            info(definition)
        elif way == "flag" and not flags.is_flag(definition):
            table.fail(f"{definition} is a flag of no vLLM", way)
        elif way == "formula":
            formula = Formula(definition)
    except (PromQLError, FormulaError) as error:
        table.fail(str(error), way)
    if "exporter" in table and way != "fact":
        table.fail(f"signal {name!r} stands on /metrics: only a fact of the host has an exporter", "exporter")
    none = table.get("none")
    return Signal(
        name=name,
        says=table.text("says"),
        unit=table.one_of("unit", UNITS),
        way=way,
        definition=definition,
        vital=table.one_of("vital", ("sum", "max")) if "vital" in table else None,
        needed=table.get("needed") is True,
        target=table.text("target") if "target" in table else None,
        none=float(none) if type(none) is int else none,
        count=table.get("count") is True,
        reason=Reason(table.one_of("reason", tuple(Reason), Reason.NOT_LOCAL.value)),
        present=present,
        formula=formula,
        exporter=_exporter(table.table("exporter")) if "exporter" in table else None,
    )


def _exporter(table: Table) -> Exporter:
    table.allow("from", "promql")
    text = " ".join(table.text("promql").split())
    try:
        labels = aggregated_by(text.replace("$window", "1s"))
    except PromQLError as error:
        table.fail(str(error), "promql")
    return Exporter(table.one_of("from", EXPORTERS), text, labels)
