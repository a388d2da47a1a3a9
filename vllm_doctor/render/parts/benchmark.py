"""What a benchmark measured, in a line: what was sent, how much at a time, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.facts import SAID
from vllm_doctor.model.report import BenchSeen, Report
from vllm_doctor.render.page import Words, code
from vllm_doctor.text import words

_MOST = 12


def lines(report: Report) -> Iterator[Words]:
    """A line for each result."""
    several = len(report.benchmarks) > 1
    for seen in report.benchmarks[:_MOST]:
        what = f"Measured, {SAID}" if seen.tool == SAID else "Benchmark"
        yield (f"{what} ", code(seen.target), f": {in_words(seen)}") if several else f"{what}: {in_words(seen)}"
    more = len(report.benchmarks) - _MOST
    if more > 0:
        yield f"and {more} more results"


def in_words(seen: BenchSeen) -> str:
    """ "512 requests, 16 concurrent, 1,024 prompt / 128 generation tokens: 1,234 generation tokens/s, TPOT 12.3 ms"."""
    asked = [
        f"{words.number(seen.requests)} requests" if seen.requests is not None else "",
        f"{words.number(seen.concurrency)} concurrent" if seen.concurrency is not None else "",
        f"{words.number(seen.rate)} requests/s" if seen.rate is not None else "",
        _lengths(seen),
        f"in {words.number(seen.seconds, 's')}" if seen.seconds is not None else "",
    ]
    derived = " (derived)" if seen.is_tpot_derived else ""
    got = [
        f"{words.number(seen.output_tokens_per_second)} generation tokens/s"
        if seen.output_tokens_per_second is not None
        else "",
        f"TPOT {words.number(seen.tpot, 's')}{derived}" if seen.tpot is not None else "",
        f"TTFT {words.number(seen.ttft, 's')}" if seen.ttft is not None else "",
    ]
    return f"{_joined(asked) or seen.tool}: {_joined(got) or 'no figures'}"


def _lengths(seen: BenchSeen) -> str:
    if seen.input_len is None and seen.output_len is None:
        return ""
    lengths = (words.number(round(value)) if value is not None else "?" for value in (seen.input_len, seen.output_len))
    return "{} prompt / {} generation tokens".format(*lengths)


def _joined(parts: list[str]) -> str:
    return ", ".join(part for part in parts if part)
