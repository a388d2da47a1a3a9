"""The table of log lines: which texts of vLLM's log the doctor knows, and what each tells.

rules/log-lines/*.yaml, one entry a line:

    find      fixed texts by which the scanner finds the line, each eight characters or more, and none that a JSON
              wrapper would write differently (no quotes, backslashes, <>&): one of them is enough
    match     what the message must look like from its start, as a regular expression; its named groups are values
    fields    more values: name -> a regular expression with one group, searched for in the message
    says      flags: name -> a regular expression; true where it is found in the message, else false; of a line that was
              cut (see `complete`) only what is true
    once      `start`: printed while the server starts, if at all; `run`: at any time. Where such a line is missing
              from a log that would show it, that tells something: its count is 0, else it is not-in-log
    since, until   the first and last release that prints it, where it is not printed by all
    bare      true for a line that is no record of vLLM's (a traceback, the kernel's words)
    facts     value -> what it tells of the server, by the names other sources use: {version: vllm_version}
    samples   metric -> {of: formula over values, as: gauge | rate | increase | total}: the line is a scrape of these
              metrics; a rate is summed up over time, an increase is added, a total is the counter
    complete  a value that each whole line has: without it the line was cut, by a terminal perhaps
    marks     what it means for the server's life: start | arguments | ready | error | died | stopped
    example   a real line, whole; and `gives`, the values it must give (the tests hold them)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.window import Labels
from vllm_doctor.rules import document
from vllm_doctor.vllm import flags

FOLDER = "log-lines"
"""Beside the signals, in the folder of the rules."""

MARKS = ("start", "ready", "died", "error", "stopped", "arguments")
KINDS = ("gauge", "rate", "increase", "total")
_MIN_FIND = 8
_ESCAPED = re.compile(r"[\"\\<>&\n]|[^\x00-\x7f]")
_NUMBER = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)%?")
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric that a line carries: its value is `of`, over the line's values; `kind` is one of KINDS."""

    metric: str
    labels: Labels
    of: Formula
    kind: str

    def value(self, values: Mapping[str, Value]) -> float | None:
        """None where the line lacks what it is made of."""
        plain = values.get(self.of.text)
        if type(plain) is float:
            return plain
        if not all(name in values for name in self.of.names):
            return None
        reading = self.of.evaluate(lambda name: Known(values[name]))
        return float(reading.value) if isinstance(reading, Known) and not isinstance(reading.value, str) else None


@dataclass(frozen=True, slots=True, eq=False)
class LogLine:
    """One entry of the table. `since` and `until` are releases, None where open."""

    id: str
    find: tuple[bytes, ...]
    match: str
    fields: Mapping[str, str]
    says: Mapping[str, str]
    at_start: bool
    since: flags.Release | None
    until: flags.Release | None
    bare: bool
    facts: Mapping[str, str]
    samples: tuple[Measure, ...]
    complete: str | None
    marks: str | None
    example: str
    gives: Mapping[str, Value]

    def values(self, message: str) -> dict[str, Value] | None:
        """What the line tells; None where the message is not this line."""
        found = _compiled(self.match).match(message)
        if found is None:
            return None
        texts = found.groupdict()
        for name, pattern in self.fields.items():
            field = _compiled(pattern).search(message)
            texts[name] = field[1] if field else None
        told = {name: value(text) for name, text in texts.items() if text is not None}
        said = {name: _compiled(pattern).search(message) is not None for name, pattern in self.says.items()}
        return told | {name: so for name, so in said.items() if so or not self.is_cut(told)}

    def is_cut(self, values: Mapping[str, Value]) -> bool:
        """Whether the line that gave these values ended too early."""
        return self.complete is not None and self.complete not in values

    def printed_by(self, version: str | None) -> bool | None:
        """Whether that vLLM prints this line; None where the version is not known and it matters."""
        if self.since is None and self.until is None:
            return True
        release = flags.release(version) if version else None
        if release is None:
            return None
        return (self.since or (0,)) <= release <= (self.until or (10**6,))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: few logs hold many of the lines, and compiling all takes as long as reading one."""
    return re.compile(pattern)


def value(text: str) -> Value:
    """A number (a share of "12.5%"), a flag, or the text, cut to 300 characters."""
    if text[:1].isdigit() or text[:1] == "-":
        try:
            number = float(text)
            return number if math.isfinite(number) else text[:_MAX_TEXT]
        except ValueError:
            found = _NUMBER.fullmatch(text)
        if found is not None:
            return float(found[1].replace(",", "")) / (100.0 if text[-1] == "%" else 1.0)
    if text in ("True", "False"):
        return text == "True"
    return text.strip()[:_MAX_TEXT]


class LogLines:
    """The table. `finds` are all fixed texts; `of_find[i]` are the lines that `finds[i]` may be."""

    def __init__(self, lines: Mapping[str, LogLine]) -> None:
        self.lines = lines
        of_find: dict[bytes, list[LogLine]] = {}
        for line in lines.values():
            for text in line.find:
                of_find.setdefault(text, []).append(line)
        self.finds = tuple(of_find)
        self.of_find = tuple(tuple(found) for found in of_find.values())
        place = {text: number for number, text in enumerate(self.finds)}
        self.uncounted = {
            place[text]: place[found[0].find[0]]
            for text, found in of_find.items()
            if all(line.samples for line in found)
        }
        """Of the lines that are scrapes, which nobody counts: the number of each text -> of the line's first one."""

    def has(self, name: str) -> bool:
        """Whether `name` is a line ("enforce-eager") or one of its values ("kv-cache-size.tokens")."""
        id, _, field = name.removesuffix("@serving").partition(".")
        return id in self.lines and (not field or field in names_of(self.lines[id]))


def names_of(line: LogLine) -> frozenset[str]:
    """The values that a line can give."""
    return frozenset(_compiled(line.match).groupindex) | frozenset(line.fields) | frozenset(line.says)


@cache
def load(folder: Path) -> LogLines:
    """Read rules/log-lines. Raises DocumentError with the line."""
    lines: dict[str, LogLine] = {}
    for path in sorted(folder.glob("*.yaml")):
        root = document.read(path)
        root.allow("lines")
        table = root.table("lines")
        for id in table:
            if id in lines:
                table.fail(f"the line {id!r} stands in two files", id)
            lines[id] = _line(id, table.table(id))
    return LogLines(lines)


def _line(id: str, table: document.Table) -> LogLine:
    table.allow(
        "find", "match", "fields", "says", "once", "since", "until", "bare", "facts", "samples", "complete", "marks",
        "example", "gives",
    )  # fmt: skip
    finds = table.texts("find") if isinstance(table.get("find"), list) else (table.text("find"),)
    for text in finds:
        if len(text) < _MIN_FIND or _ESCAPED.search(text):
            table.fail(f"{text!r}: eight plain characters or more, none that JSON escapes", "find")
    samples = []
    for metric in table.table("samples"):
        sample = table.table("samples").table(metric)
        sample.allow("of", "as")
        name, _, label = metric.rstrip("}").partition("{")
        labels = tuple((key, text.strip('"')) for key, _, text in [label.partition("=")] if key)
        kind = sample.one_of("as", KINDS, "gauge")
        try:
            samples.append(Measure(name, labels, Formula(sample.text("of")), kind))
        except FormulaError as error:
            sample.fail(str(error), "of")
    return LogLine(
        id=id,
        find=tuple(text.encode() for text in finds),
        match=table.text("match"),
        fields={name: str(text) for name, text in table.table("fields").items()},
        says={name: str(text) for name, text in table.table("says").items()},
        at_start=table.one_of("once", ("start", "run")) == "start",
        since=flags.release(table.text("since")) if "since" in table else None,
        until=flags.release(table.text("until")) if "until" in table else None,
        bare=table.get("bare") is True,
        facts={name: str(fact) for name, fact in table.table("facts").items()},
        samples=tuple(samples),
        complete=table.text("complete") if "complete" in table else None,
        marks=table.one_of("marks", MARKS) if "marks" in table else None,
        example=table.text("example"),
        gives={name: float(v) if type(v) is int else v for name, v in table.table("gives").items()},
    )
