"""Tables that vLLM's benchmarks print, wherever they stand: alone, in a log, in an issue with fences and `> `.

    ============ Serving Benchmark Result ============      vllm bench serve, benchmark_serving.py (0.4 to 0.32)
    Throughput: 12.30 requests/s, 4567.89 total tokens/s    vllm bench throughput, benchmark_throughput.py
    Avg latency: 1.234 seconds                              vllm bench latency, benchmark_latency.py

What stands between two tables (the command, `Namespace(…)`, "Traffic request rate: inf") is of the one that follows;
where a text has one command only, it is of all of its tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_doctor.model import outside
from vllm_doctor.sources.bench.commands import BenchCommand, commanded, commands
from vllm_doctor.sources.bench.run import LATENCY, SERVE, THROUGHPUT, Asked, BenchRun, Spread, ratio, scaled

MOST_RUNS = 64
_MOST_LINES = 80
"""Of one table: a longer one was cut off, and its end is missing."""
_ANSI = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]|\*\*")
"""What is no text: colours of a terminal, and lines in bold of an issue."""
_HEADER = "Serving Benchmark Result"
_RULE = "=" * 20
_FIRST = "successful requests"
_LABELS = frozenset(
    (
        _FIRST, "failed requests", "maximum request concurrency", "request rate configured (rps)",
        "benchmark duration (s)", "total input tokens", "total generated tokens", "request throughput (req/s)",
        "output token throughput (tok/s)", "total token throughput (tok/s)", "peak concurrent requests",
        "acceptance rate (%)", "acceptance length", "traffic request rate", "max request concurrency",
        "max reqeuest concurrency", "concurrency", "mean e2e latency (ms)", "median e2e latency (ms)",
        *(f"{of} {time} (ms)" for of in ("mean", "median", "p99") for time in ("ttft", "tpot", "itl", "e2el")),
    )
)  # fmt: skip
"""In small letters: "Total Token throughput" until 0.11. Some are SGLang's, whose client asks vLLM as well."""
_FAILED = "failed requests"
_NO_FIGURES = frozenset(
    (
        _FIRST, _FAILED, "maximum request concurrency", "request rate configured (rps)", "traffic request rate",
        "max request concurrency", "max reqeuest concurrency",
    )
)  # fmt: skip
"""Rows that tell what was sent and not how it went: a table with no other is the head of one that was cut off."""
_NO_LIMIT = {"inf": math.inf, "not set": math.inf, "none": math.inf}
_FOLDED = re.compile(r" ([-=]{5,}|[A-Z][\w-]{1,12}(?: [\w()/%.-]{1,12}){0,5}:)")
"""Where a line of a table begins, in a text that lost its line ends."""
_MOST_AROUND = 1 << 20
"""Characters in which a command may stand behind the last table."""
_LONG, _MOST_FOLDED = 120, 200_000
_LONGEST_LABEL = max(map(len, _LABELS))
_OFFLINE = re.compile(
    r"\bThroughput: (?P<requests>[\d.]{1,30}) requests/s, (?P<total>[\d.]{1,30}) (?:total )?tokens/s"
    r"(?:, (?P<output>[\d.]{1,30}) output tokens/s)?"
)
_PROMPT_TOKENS = re.compile(r"\bTotal num prompt tokens:\s{1,20}(\d{1,20})")
_OUTPUT_TOKENS = re.compile(r"\bTotal num output tokens:\s{1,20}(\d{1,20})")
_AVERAGE = re.compile(r"\bAvg latency: (?P<value>[\d.e+-]{1,40}) seconds")
_PERCENTILE = re.compile(r"\b(?P<percent>\d{1,2})% percentile latency: (?P<value>[\d.e+-]{1,40}) seconds")
_RATE = re.compile(r"\bTraffic request rate: (?P<value>inf|[\d.]{1,30})")
_LIMIT = re.compile(r"\bMaximum request concurrency: (?P<value>None|\d{1,12})")
_WARMED = re.compile(r"\bWarming up with (?P<value>\d{1,9}) requests")


@dataclass
class _Table:
    """What one table holds, by its labels; from its first line on, and to its last."""

    tool: str
    start: int
    line: int
    end: int = 0
    values: dict[str, float] = field(default_factory=dict)
    percentiles: dict[str, float] = field(default_factory=dict)

    @property
    def has_figure(self) -> bool:
        """Whether it tells something that was measured: a time, a rate, a length, or that requests failed."""
        return bool(self.values.keys() - _NO_FIGURES or self.values.get(_FAILED) or self.percentiles)


def holds_table(text: str) -> bool:
    """Whether such a table stands in the text."""
    return any(True for _ in _tables(text))


def runs(text: str) -> tuple[BenchRun, ...]:
    """The runs whose tables stand in the text, in their order."""
    text = _unfolded(_ANSI.sub("", text.replace("\r\n", "\n")))  # GitHub keeps what people write with \r\n
    tables = list(_tables(text))
    given = list(commands(text[: max(_MOST_AROUND, tables[-1].end)])) if tables else []
    found = []
    after = 0
    for table in tables:
        run = _run(table, text[after : table.start])
        between = [command for command in given if after <= command.start < table.start]
        mine = [command for command in between if command.tool == table.tool] or [
            command for command in given if command.tool == table.tool and len(given) == 1
        ]
        found.append(_with(run, mine) if mine else run)
        after = table.end
    if len(found) > 1:
        found = [replace(run, place=f"line {table.line}") for run, table in zip(found, tables, strict=True)]
    return tuple(found)


def _unfolded(text: str) -> str:
    """With a table's lines apart, where they were joined to one."""
    if not any(_HEADER in line and len(line) > _LONG for line in text.split("\n")):
        return text
    return "\n".join(
        _FOLDED.sub(r"\n\1", line[:_MOST_FOLDED]) if _HEADER in line and len(line) > _LONG else line
        for line in text.split("\n")
    )


def _with(run: BenchRun, mine: Sequence[BenchCommand]) -> BenchRun:
    """With its commands, the last first: a namespace has what its command line left out."""
    for command in reversed(mine):
        run = commanded(run, command)
    return run


def _tables(text: str) -> Iterator[_Table]:
    """The tables in the order in which they stand; not more than MOST_RUNS."""
    found = 0
    table: _Table | None = None
    at = 0
    for number, line in enumerate(text.split("\n"), 1):
        start, at = at, at + len(line) + 1
        if len(line) > 1_000:
            continue
        header = _HEADER in line
        offline, average = (None, None) if header else (_OFFLINE.search(line), _AVERAGE.search(line))
        label, value = _labelled(line)
        is_first = label == _FIRST
        is_new = bool(header or offline or average) or (is_first and (table is None or _FIRST in table.values))
        if table is not None and (is_new or number - table.line > _MOST_LINES):
            if table.has_figure:
                found += 1
                yield table
            table = None
            if found >= MOST_RUNS:
                return
        if is_new:
            tool = THROUGHPUT if offline else LATENCY if average else SERVE
            table = _Table(tool, start, number)
            for match in (offline, average):
                table.values |= {} if match is None else _numbers(match)
            table.end = at
        if table is None:
            continue
        if value is not None and table.tool == SERVE:
            table.values.setdefault(label, value)
            table.end = at
        elif table.tool == SERVE and not header and line.rstrip().endswith(_RULE) and table.values:
            table.end = at
            if table.has_figure:
                found += 1
                yield table
            table = None
            if found >= MOST_RUNS:
                return
        elif table.tool != SERVE and not is_new:
            for name, pattern in (("prompt tokens", _PROMPT_TOKENS), ("output tokens", _OUTPUT_TOKENS)):
                if (told := pattern.search(line)) and (tokens := outside.number(told[1])) is not None:
                    table.values[name], table.end = tokens, at
            if (told := _PERCENTILE.search(line)) and (seconds := outside.number(told["value"])) is not None:
                table.percentiles[told["percent"]], table.end = seconds, at
    if table is not None and table.has_figure:
        yield table


def _labelled(line: str) -> tuple[str, float | None]:
    """The label of a table's row, and its value; "" and None of another line."""
    before, colon, after = line.rpartition(":")
    words = before[-_LONGEST_LABEL - 1 :].lower().split() if colon else []
    for first in range(len(words)):
        label = " ".join(words[first:])
        if label in _LABELS:
            value = after.strip().rstrip("%").replace(",", "")
            return label, _NO_LIMIT.get(value.lower(), outside.number(value))
    return "", None


def _numbers(match: re.Match[str]) -> dict[str, float]:
    return {
        name: value
        for name, told in match.groupdict().items()
        if told is not None and (value := outside.number(told)) is not None
    }


def _run(table: _Table, before: str) -> BenchRun:
    if table.tool == THROUGHPUT:
        return _throughput(table.values)
    if table.tool == LATENCY:
        p = table.percentiles
        return BenchRun(LATENCY, e2e=Spread(table.values.get("value"), p.get("50"), p.get("99")))
    return _serve(table.values, before)


def _throughput(values: Mapping[str, float]) -> BenchRun:
    requests, total, output = (values.get(name) for name in ("requests", "total", "output"))
    prompt_tokens, output_tokens = values.get("prompt tokens"), values.get("output tokens")
    duration = ratio(output_tokens, output)
    completed = scaled(duration, requests) if duration is not None and requests is not None else None
    return BenchRun(
        THROUGHPUT,
        asked=Asked(rate=math.inf),
        completed=None if completed is None else float(round(completed)),
        duration=duration,
        input_tokens=prompt_tokens,
        output_tokens=output_tokens,
        requests_per_second=requests,
        output_rate=output,
        total_rate=total,
    )


def _serve(values: Mapping[str, float], before: str) -> BenchRun:
    asked = _asked(values, before)
    completed, failed = values.get(_FIRST), values.get(_FAILED)
    return BenchRun(
        SERVE,
        asked=asked,
        completed=completed,
        failed=failed,
        duration=values.get("benchmark duration (s)"),
        input_tokens=values.get("total input tokens"),
        output_tokens=values.get("total generated tokens"),
        requests_per_second=values.get("request throughput (req/s)"),
        output_rate=values.get("output token throughput (tok/s)"),
        total_rate=values.get("total token throughput (tok/s)"),
        acceptance=scaled(values.get("acceptance rate (%)"), 0.01),
        acceptance_len=values.get("acceptance length"),
        ttft=_spread(values, "ttft"),
        tpot=_spread(values, "tpot"),
        itl=_spread(values, "itl"),
        e2e=_spread(values, "e2el" if "mean e2el (ms)" in values else "e2e latency"),
        in_flight=values.get("concurrency"),
    )


def _spread(values: Mapping[str, float], name: str) -> Spread:
    mean, median, p99 = (scaled(values.get(f"{of} {name} (ms)"), 1e-3) for of in ("mean", "median", "p99"))
    return Spread(mean, median, p99)


def _asked(values: Mapping[str, float], before: str) -> Asked:
    """The load, from the table and from what the tool prints when it starts. Since 0.10.2 ("Peak concurrent requests")
    a table names each limit that was given."""
    names_limits = "peak concurrent requests" in values
    rate = values.get("request rate configured (rps)", values.get("traffic request rate"))
    limits_told = ("maximum request concurrency", "max request concurrency", "max reqeuest concurrency")
    limit = next((values[name] for name in limits_told if name in values), None)
    rates, limits, warmed = (pattern.findall(before) for pattern in (_RATE, _LIMIT, _WARMED))
    if rate is None and rates:
        rate = math.inf if rates[-1] == "inf" else outside.number(rates[-1])
    if limit is None and limits:
        limit = math.inf if limits[-1] == "None" else outside.number(limits[-1])
    if names_limits:
        rate, limit = math.inf if rate is None else rate, math.inf if limit is None else limit
    return Asked(rate=rate, concurrency=limit, warmups=outside.number(warmed[-1]) if warmed else None)
