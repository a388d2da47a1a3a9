"""The rules that a line of the log decides alone, as alerts of Loki's ruler.

A line that stands there tells something; one that does not tells nothing, as only the last minutes are looked at. So
what counts is a comparison `count > 0`, by itself or as one side of an `or`. What needs a value of a line, two counts,
or a metric as well, is left to the doctor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_doctor.alerting.recording_rules import Recorder
from vllm_doctor.expr import nodes
from vllm_doctor.expr.nodes import TruthNode
from vllm_doctor.model.kinds import GRAVE, Severity
from vllm_doctor.rules.log_lines import LogLine, LogLines
from vllm_doctor.rules.rule import Rule

_DEATHS = "engine_deaths"
"""The fact that runs ended by a death: each of the lines that mark one says so."""


@dataclass(frozen=True, slots=True)
class LogAlert:
    rule: Rule
    severity: Severity
    lines: tuple[LogLine, ...]
    """One of them is enough."""


def of_rules(rules: Sequence[Rule], lines: LogLines, recorder: Recorder) -> tuple[LogAlert, ...]:
    """The alerts that these rules give, the graver severity of each first."""
    return tuple(_of_rules(rules, _Lines(lines, recorder)))


def _of_rules(rules: Sequence[Rule], look: _Lines) -> Iterator[LogAlert]:
    for rule in rules:
        if rule.applies is not None and look.recorder.holds(rule.applies) is not True:
            continue
        for severity in (severity for severity in GRAVE if severity in rule.when):
            found = look.of(rule.when[severity].root)
            if found:
                yield LogAlert(rule, severity, tuple(look.lines.lines[line] for line in found))


@dataclass(frozen=True)
class _Lines:
    """Which lines make a condition true, one alone."""

    lines: LogLines
    recorder: Recorder

    def of(self, node: TruthNode) -> dict[str, None]:
        match node:
            case nodes.Or(parts):
                return {line: None for part in parts for line in self.of(part)}
            case nodes.Compare(nodes.Name(name), ">", nodes.Number(0)):
                return dict.fromkeys(self._counted_by(name))
            case _:
                return {}

    def _counted_by(self, name: str) -> Iterator[str]:
        signal = self.recorder.catalogue.signals[name]
        match signal.way:
            case "fact" if signal.definition == _DEATHS:
                yield from (id for id, line in self.lines.lines.items() if line.marks == "died" and not line.is_last)
            case "log" if not {".", "@"} & set(signal.definition):
                yield from signal.definition.split()
            case "formula" if signal.formula is not None:
                match signal.formula.root:
                    case nodes.FirstKnown((nodes.Name(counted), nodes.Number(0))):
                        yield from self._counted_by(counted)
