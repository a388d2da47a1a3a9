"""The summary.csv of `vllm bench sweep`: a row for each run, with the keys of `vllm bench serve` as its columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from vllm_doctor.model import outside
from vllm_doctor.sources.bench import vllm_serve
from vllm_doctor.sources.bench.run import BenchRun

_MOST_ROWS = 256
_TEXTS = ("model_id", "request_rate", "backend")
_LISTS = ("latencies", "queue_times")


def is_csv(content: str) -> bool:
    """Whether this text is such a table."""
    head = content[:20_000].split("\n", 1)[0]
    return "," in head and all(key in head.split(",") for key in ("completed", "request_throughput", "model_id"))


def of_csv(content: str) -> Sequence[BenchRun]:
    """Its runs, each with the number of its row."""
    try:
        rows = list(csv.DictReader(content.splitlines()[: _MOST_ROWS + 1]))
    except csv.Error:  # a field of more than 128 KiB
        return []
    return [vllm_serve.run(_document(row), f"row {number}") for number, row in enumerate(rows, 1)]


def _document(row: dict[str, str | None]) -> dict[str, object]:
    """The row as JSON would have it; an empty cell is null."""
    found: dict[str, object] = {}
    for key, value in row.items():
        if key in _LISTS or not isinstance(value, str):
            continue
        number = outside.number(value)
        found[key] = None if value == "" else value if key in _TEXTS and number is None else number
    return found
