"""The table of log lines: which texts of vLLM's log the doctor knows, and what each tells.

rules/log-lines/*.yaml, one entry a line:

    find      fixed texts by which the scanner finds the line, each eight characters or more, and none that a JSON
              wrapper would write differently (no quotes, backslashes, <>&): one of them is enough
    match     what the message must look like from its start, as a regular expression; its named groups are values.
              The expressions are those of the `regex` package, and one that takes too long is given up
    fields    more values: name -> a regular expression with a group, or one in each alternative, searched for in the
              message
    says      flags: name -> a regular expression; true where it is found in the message, else false; of a line that was
              cut (see `complete`) only what is true
    once      `start`: printed while the server starts, if at all; `run`: at any time. Where such a line is missing
              from a log that would show it, that tells something: its count is 0, else it is not-in-log
    since, until   the first and last release that prints it, where it is not printed by all
    bare      true for a line that is no record of vLLM's (a traceback, the kernel's words); `own` where nobody else
              prints it (a progress bar): then it makes a text a log of vLLM, as a record does
    facts     value -> what it tells of the server, by the names other sources use: {version: vllm_version}
    samples   metric -> {of: formula over values, as: gauge | rate | increase | total}: the line is a scrape of these
              metrics; a rate is summed up over time, an increase is added, a total is the counter
    complete  a value that each whole line has: without it the line was cut, by a terminal perhaps
    marks     what it means for the server's run: start | arguments | ready | error | died | stopped; raised, of a
              traceback that ends nothing by itself; failed, of a request or a call that the server answers with an
              error; frame, of a traceback's line that names a function: it is not looked for, but tells the stage
    last      true for a line that tells something only as the last one of a log; its `find` may be short
    stage     one of STAGES: where in its start the server is from this line on, or what failed where the line says that
    part      of a frame: what of the server it is of, where an exception from there has another fix (a KV connector)
    ends      of what marks stopped: who stopped it; a value `reason` is put behind it
    example   a real line, whole; and `gives`, the values it must give (the tests hold them)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vllm_doctor.expr.formula import Formula
from vllm_doctor.expr.parser import FormulaError
from vllm_doctor.model import outside
from vllm_doctor.model.reading import Known, Value
from vllm_doctor.model.window import Labels
from vllm_doctor.rules import document, pickled
from vllm_doctor.rules import folders as places
from vllm_doctor.rules.table import Problems, Table, gathered
from vllm_doctor.vllm import flags

if TYPE_CHECKING:
    from regex import Pattern

Made = TypeVar("Made")

FOLDER = places.LOG_LINES
"""Beside the signals, in the folder of the rules."""

KEYS = (
    "find", "match", "fields", "says", "once", "since", "until", "bare", "facts", "samples", "complete", "marks",
    "stage", "part", "ends", "last", "example", "gives",
)  # fmt: skip
ONCE = ("start", "run")
OWN = "own"
MARKS = ("start", "ready", "died", "error", "stopped", "arguments", "raised", "failed", "frame")
STAGES = (
    "configuration", "download", "devices", "weights", "memory profile", "compilation", "KV cache", "graph capture",
    "warm-up", "API server", "serving",
)  # fmt: skip
"""Of a start, in their order."""
KINDS = ("gauge", "rate", "increase", "total")
MIN_FIND = 8
PATTERN_SECONDS = 1.0
"""Of processor time, for one pattern on one message: more than a million times what one needs."""
_ESCAPED = re.compile(r"[\"\\<>&\n]|[^\x00-\x7f]")
_NUMBER = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)%?")
_PREFIX = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d [\d:]{8} \[?[\w./]+\.py:\d+\] ?")
_WHEN = re.compile(r"@(?:serving|here|at)$")
_MAX_TEXT = 300
_HEAD = 160
"""Of a text that is kept at both ends."""
_REASONS = re.compile(r"\bReasons?: [\[{(]")
ID = "[a-z0-9]+(-[a-z0-9]+)*"


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
    is_own: bool
    facts: Mapping[str, str]
    samples: tuple[Measure, ...]
    complete: str | None
    marks: str | None
    stage: str | None
    part: str | None
    ends: str | None
    is_last: bool
    example: str
    gives: Mapping[str, Value]
    table: Table

    def values(self, message: str, seconds: float = PATTERN_SECONDS) -> dict[str, Value] | None:
        """What the line tells; None where the message is not this line.

        Raises TimeoutError where one of its patterns takes longer than these seconds of processor time.
        """
        found = _compiled(self.match).match(message, timeout=seconds)
        if found is None:
            return None
        texts = found.groupdict()
        for name, pattern in self.fields.items():
            field = _compiled(pattern).search(message, timeout=seconds)
            texts[name] = field[field.lastindex or 0] if field else None
        told = {name: value(text) for name, text in texts.items() if text is not None}
        said = {n: _compiled(p).search(message, timeout=seconds) is not None for n, p in self.says.items()}
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
def _compiled(pattern: str) -> Pattern[str]:
    """Compiled when first needed: few logs hold many of the lines, and compiling all takes as long as reading one.

    By `regex`, whose searches have a time limit: a pattern of a user's own cannot hang the doctor.
    """
    import regex  # imported when first needed: most examinations read no log

    return regex.compile(pattern)


def value(text: str) -> Value:
    """A number (a share of "12.5%"), a flag, or the text, cut to 300 characters."""
    if text[:1].isdigit() or text[:1] == "-":
        number = outside.number(text) if text[-1] != "%" else None
        if number is not None:
            return number
        found = _NUMBER.fullmatch(text)
        number = outside.number(found[1].replace(",", "")) if found is not None else None
        if number is not None:
            return number / (100.0 if text[-1] == "%" else 1.0)
    if text in ("True", "False"):
        return text == "True"
    return shortened(text.strip())


def shortened(text: str) -> str:
    """At most 300 characters: the beginning; of one that ends with its reasons, both ends."""
    if len(text) <= _MAX_TEXT:
        return text
    reasons = _REASONS.search(text, _HEAD)
    if reasons is None:
        return text[:_MAX_TEXT]
    return f"{text[:_HEAD].rpartition(' ')[0]}… {text[reasons.start() :]}"[:_MAX_TEXT]


class LogLines:
    """The table. `finds` are all fixed texts; `of_find[i]` are the lines that `finds[i]` may be."""

    def __init__(self, lines: Mapping[str, LogLine]) -> None:
        self.lines = lines
        of_find: dict[bytes, list[LogLine]] = {}
        for line in lines.values():
            for text in line.find if line.marks != "frame" and not line.is_last else ():
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
        self.frames = tuple(line for line in lines.values() if line.marks == "frame")
        """Of a traceback: those that tell a stage."""
        self.last = tuple(line for line in lines.values() if line.is_last)
        """Those that are read only where a log ends."""

    def has(self, name: str) -> bool:
        """Whether `name` is a line ("enforce-eager") or one of its values ("kv-cache-size.tokens")."""
        id, _, field = parts(name)
        return id in self.lines and (not field or field in names_of(self.lines[id]))


def parts(name: str) -> tuple[str, str, str]:
    """What a signal names: a line and, behind a dot, its value; without what it asks of the line's time."""
    return _WHEN.sub("", name).partition(".")


def names_of(line: LogLine) -> frozenset[str]:
    """The values that a line can give."""
    return frozenset(_compiled(line.match).groupindex) | frozenset(line.fields) | frozenset(line.says)


@cache
def load(*folders: Path) -> LogLines:
    """The log lines of these folders of rules; of others than the shipped one, checked. Raises DocumentError."""
    if folders == (places.shipped(),):
        return pickled.load(pickled.LOG_LINES, lambda: read(folders))
    return read(folders)


def shipped() -> LogLines:
    """The doctor's own."""
    return load(places.shipped())


def kept(name: str, make: Callable[[], Made]) -> Made:
    """What `make` makes of the shipped lines, as an earlier start made it: builtin types only."""
    return pickled.load(name, make)


def read(folders: Iterable[Path], problems: Problems | None = None) -> LogLines:
    """As load; with `problems`, mistakes are noted there."""
    lines: dict[str, LogLine] = {}
    ours = places.shipped().resolve()
    for path in (path for folder in folders for path in places.log_lines(folder)):
        with gathered(problems):
            root = document.read(path, problems=problems)
            root.allow("lines")
            table = root.table("lines")
            is_checked = problems is not None or not path.resolve().is_relative_to(ours)
            for id in table:
                with gathered(problems):
                    _add(lines, id, table, is_checked)
    return LogLines(lines)


def _add(lines: dict[str, LogLine], id: str, table: Table, is_checked: bool) -> None:
    line = _line(id, table.table(id))
    if id in lines:
        first = lines[id].table
        table.fail(f"the line {id!r} stands twice (first in {first.path}:{first.line}): give this one its own id", id)
    lines[id] = line
    if is_checked:
        check(line)


def check(line: LogLine) -> None:
    """Whether its patterns are some, what it names are values that they give, and its example is found and read."""
    table = line.table
    if not re.fullmatch(ID, line.id):
        table.mistake(f"a line's id is lower case words joined by '-'; it is {line.id!r}")
    are_patterns = [_is_pattern(where, key, text) for where, key, text in _patterns(line)]
    if not all(are_patterns):
        return
    for name, pattern in line.fields.items():
        if _compiled(pattern).groups < 1:
            table.table("fields").mistake(f"{name!r} needs a group, (…): the value", name)
    known = names_of(line)
    named = [(table.table("facts"), name, name) for name in line.facts]
    named += [(table.table("gives"), name, name) for name in line.gives]
    if line.complete is not None:
        named.append((table, "complete", line.complete))
    for where, key, value_name in named:
        if value_name not in known:
            where.mistake(no_value(value_name, known), key)
    samples = table.table("samples")
    for metric, measure in zip(samples, line.samples, strict=False):
        for name in measure.of.names:
            if name not in known:
                samples.table(metric).mistake(no_value(name, known), "of")
    _check_example(line)


def no_value(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # late: only for a mistake

    near = get_close_matches(name, list(known), 1)
    return f"{name!r} is no value of the line" + (
        f"; meant {near[0]!r}?" if near else f"; it has: {', '.join(sorted(known)) or 'none'}"
    )


def _patterns(line: LogLine) -> Iterator[tuple[Table, str, str]]:
    """Each with where it stands."""
    yield line.table, "match", line.match
    for key, patterns in (("fields", line.fields), ("says", line.says)):
        yield from ((line.table.table(key), name, pattern) for name, pattern in patterns.items())


def _is_pattern(table: Table, key: str, text: str) -> bool:
    import regex

    try:
        _compiled(text)
    except (regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        table.mistake(f"{key!r} is no regular expression: {error}", key)
        return False
    return True


def _check_example(line: LogLine) -> None:
    """The example is a whole line: vLLM's prefix, then the message; the whole line of a bare one."""
    table = line.table
    if not any(text in line.example.encode() for text in line.find):
        table.mistake("the example holds none of the texts under 'find'", "example")
    prefix = None if line.bare else _PREFIX.search(line.example)
    if prefix is None and not line.bare:
        return table.mistake(
            "the example must be a whole line: INFO 11-20 10:00:00 [x.py:1] and the message", "example"
        )
    try:
        values = line.values(line.example[prefix.end() :] if prefix else line.example)
    except TimeoutError:
        return table.mistake(f"a pattern takes longer than {PATTERN_SECONDS:g} s on the example: simplify it", "match")
    if values is None:
        return table.mistake("'match' does not match the example's message", "match")
    gives = table.table("gives")
    for name, wanted in line.gives.items():
        if name in names_of(line) and values.get(name) != wanted:
            gives.mistake(f"the example gives {name} {values.get(name)!r}, not {wanted!r}", name)
    return None


def _line(id: str, table: Table) -> LogLine:
    table.allow(*KEYS)
    finds = table.texts("find") if isinstance(table.get("find"), list) else (table.text("find"),)
    for text in finds:
        if (len(text) < MIN_FIND and table.get("last") is not True) or _ESCAPED.search(text):
            table.mistake(f"{text!r}: eight plain characters or more, none that JSON escapes", "find")
    return LogLine(
        id=id,
        find=tuple(text.encode() for text in finds),
        match=table.text("match"),
        fields={name: str(text) for name, text in table.table("fields").items()},
        says={name: str(text) for name, text in table.table("says").items()},
        at_start=table.one_of("once", ONCE) == "start",
        since=_release(table, "since"),
        until=_release(table, "until"),
        bare=table.get("bare") in (True, OWN),
        is_own=table.get("bare") == OWN,
        facts={name: str(fact) for name, fact in table.table("facts").items()},
        samples=tuple(_samples(table.table("samples"))),
        complete=table.text("complete") if "complete" in table else None,
        marks=table.one_of("marks", MARKS) if "marks" in table else None,
        stage=table.one_of("stage", STAGES) if "stage" in table else None,
        part=table.text("part") if "part" in table else None,
        ends=table.text("ends") if "ends" in table else None,
        is_last=table.get("last") is True,
        example=table.text("example"),
        gives={name: float(v) if type(v) is int else v for name, v in table.table("gives").items()},
        table=table,
    )


def _release(table: Table, key: str) -> flags.Release | None:
    if key not in table:
        return None
    text = table[key]
    release = flags.release(str(text)) if isinstance(text, str | float) else None
    if release is None:
        table.mistake(f"{key!r} must be a release of vLLM, as 0.11.1", key)
    return release


def _samples(table: Table) -> Iterator[Measure]:
    for metric in table:
        sample = table.table(metric)
        sample.allow("of", "as")
        name, _, label = metric.rstrip("}").partition("{")
        labels = tuple((key, text.strip('"')) for key, _, text in [label.partition("=")] if key)
        kind = sample.one_of("as", KINDS, "gauge")
        try:
            yield Measure(name, labels, Formula(sample.text("of")), kind)
        except FormulaError as error:
            sample.mistake(str(error), "of")
