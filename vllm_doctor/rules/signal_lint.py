"""What a signal's definition names that nobody has: metrics that no vLLM shows, lines that no log has.

The reader takes such a signal, and it is unknown for ever. Only the check of a folder asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import promql_parser as ast

from vllm_doctor.expr.promql_eval import PromQLError
from vllm_doctor.rules import log_lines
from vllm_doctor.rules.log_lines import LogLine, LogLines
from vllm_doctor.rules.signal import DEFAULT_IDENTITY, expression, info
from vllm_doctor.rules.table import Table
from vllm_doctor.vllm import metrics

_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"?|' + r"'(?:[^'\\]++|\\.)*+'?")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_BY = re.compile(r"\b(?:by|without)\s*\(([^()]*)\)")
_PROCESS = ("python_", "process_", "http_")
"""What the Python client and the web server of a vLLM show beside its own metrics."""


class Known:
    """What a definition may name: the metrics of every vLLM and those that a folder declares; lines and values."""

    def __init__(self, known_metrics: Iterable[str], lines: LogLines) -> None:
        self._metrics, self._lines = frozenset(known_metrics), lines

    def check_entry(self, entry: Table) -> None:
        """A signal's entry, or one of its ways: a table with a key that says how it is known."""
        ways = entry.get("from")
        for table in (entry, *(way for way in (ways if isinstance(ways, list) else ()) if isinstance(way, Table))):
            for key, check in (("promql", self._promql), ("info", self._info), ("log", self._log)):
                text = table.get(key)
                if isinstance(text, str):
                    check(table, key, text)
            listed = table.get("present")
            for name in listed if isinstance(listed, list) else ():
                self.check_metric(table, "present", str(name))

    def check_metric(self, table: Table, key: str, name: str) -> None:
        if name in self._metrics or name.startswith(_PROCESS) or metrics.is_shown(name):
            return
        near = get_close_matches(name, [*self._metrics, *metrics.shown()], 1, 0.8)
        meant = f"; did you mean {near[0]}?" if near else ""
        table.mistake(f"no vLLM has a metric {name}{meant} (if your server has it, list it under known_metrics)", key)

    def _promql(self, table: Table, key: str, text: str) -> None:
        try:
            names = expression(text).names
        except PromQLError:
            return  # the reader has said so
        for name in dict.fromkeys(names):
            self.check_metric(table, key, name)
        bare = _QUOTED.sub('""', text)
        for given in _RANGE.findall(bare):
            if given.strip() not in ("$window", "$recent"):
                table.mistake(f"a fixed range, [{given}]: write [$window]", key)
        for given in _BY.findall(bare):
            if not {"$engine", "$model"} & {label.strip() for label in given.split(",")}:
                table.mistake(f"aggregated by ({given.strip()}): write by ($engine), or by ($model)", key)
        for name in dict.fromkeys(_unaggregated(ast.parse(_filled(text)))):
            table.mistake(f"{name} is not aggregated: write sum by ($engine) (…), or max, min, avg", key)

    def _info(self, table: Table, key: str, text: str) -> None:
        try:
            self.check_metric(table, key, info(text)[0])
        except PromQLError:
            return  # the reader has said so

    def _log(self, table: Table, key: str, text: str) -> None:
        for name in text.split():
            if self._lines.has(name):
                continue
            id, _, value = log_lines.parts(name)
            line = self._lines.lines.get(id)
            table.mistake(_no_value(line, value) if line is not None else _no_line(id, self._lines), key)


def _no_value(line: LogLine, value: str) -> str:
    return f"log line {line.id}: {log_lines.no_value(value, log_lines.names_of(line))}"


def _no_line(id: str, lines: LogLines) -> str:
    near = get_close_matches(id, list(lines.lines), 1)
    return f"no log line {id!r}" + (f"; did you mean {near[0]!r}?" if near else "; they are in log-lines/*.yaml")


def _filled(text: str) -> str:
    """As PromQL; the labels do not matter here."""
    named = text.replace("$engine", ", ".join(DEFAULT_IDENTITY)).replace("$model", "model_name")
    return named.replace("$window", "1s").replace("$recent", "1s")


def _unaggregated(node: object) -> Iterator[str]:
    """The metrics outside of every aggregation: as many series as the server happens to show."""
    match node:
        case ast.VectorSelector():
            yield str(node.name)
        case ast.MatrixSelector():
            yield str(node.vector_selector.name)
        case ast.ParenExpr() | ast.UnaryExpr():
            yield from _unaggregated(node.expr)
        case ast.Call():
            for argument in node.args:
                yield from _unaggregated(argument)
        case ast.BinaryExpr():
            yield from _unaggregated(node.lhs)
            yield from _unaggregated(node.rhs)
