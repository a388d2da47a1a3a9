"""Files as runs: which tool wrote them, by their keys. A text that is no document is searched for printed tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_doctor.launch import budget, yaml_tree
from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.bench import (
    aiperf,
    guidellm,
    inference_perf,
    llmd_report,
    printed,
    sweep,
    vllm_offline,
    vllm_serve,
)
from vllm_doctor.sources.bench.run import BenchRun, NoRunError

MOST_BYTES = 64 * 2**20
MOST_RUNS = 64

_HEAD = 4096
_STEPS = 1_000_000
"""For a report in YAML: it may hold figures over time."""
_REPORT = re.compile(r"^(?:results|metrics|scenario|version|run):", re.MULTILINE)
_VERSION = re.compile(r"^version: ['\"]?\d", re.MULTILINE)
_Read = Callable[[Any, str], Sequence[BenchRun]]
_TOOLS: tuple[tuple[Callable[[object], bool], _Read], ...] = (
    (vllm_serve.is_result, lambda document, place: [vllm_serve.run(document, place)]),
    (vllm_offline.is_result, lambda document, place: [vllm_offline.run(document, place)]),
    (guidellm.is_result, lambda document, place: guidellm.runs(document)),
    (aiperf.is_result, lambda document, place: [aiperf.run(document, place)]),
    (inference_perf.is_result, lambda document, place: [inference_perf.run(document, place)]),
    (llmd_report.is_result, lambda document, place: [llmd_report.run(document, place)]),
)
"""Whether a document is of this tool, and its runs."""


def runs(raw: bytes) -> tuple[BenchRun, ...]:
    """The runs that a file holds; none where it is nothing of a benchmark. Raises NoRunError: it is, but broken."""
    documents = _documents(raw)
    if documents is None:
        return _numbered(_of_text(raw.decode("utf-8", "replace")))
    found: list[BenchRun] = []
    for document in documents:
        for place, one in _within(document):
            found += _of(one, place)
            if len(found) >= MOST_RUNS:
                return tuple(found[:MOST_RUNS])
    return _numbered(found)


def _of_text(text: str) -> Sequence[BenchRun]:
    """Of a table as CSV, of a report in YAML, or of what was printed."""
    if sweep.is_csv(text):
        return sweep.of_csv(text)
    if aiperf.is_csv(text):
        return [aiperf.of_csv(text)]
    if _REPORT.search(text[:_HEAD]) and _VERSION.search(text):
        try:
            with budget.limited(_STEPS):
                roots = yaml_tree.read(text).roots
            return [run for root in roots[:MOST_RUNS] for run in _of(root.plain, "")]
        except SourceError:
            pass
    return printed.runs(text)


def _of(document: object, place: str) -> Sequence[BenchRun]:
    for is_result, read in _TOOLS:
        if is_result(document):
            try:
                return read(document, place)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise NoRunError(
                    f"a key is not what its tool writes ({type(error).__name__}: {str(error)[:80]})"
                ) from None
    return ()


def _within(document: object) -> Iterator[tuple[str, object]]:
    """The document, or those of a list: `vllm bench sweep` writes a summary.json of all runs of a combination."""
    if isinstance(document, list):
        yield from (("", one) for one in document[: 4 * MOST_RUNS])
    else:
        yield "", document


def _numbered(found: Sequence[BenchRun]) -> tuple[BenchRun, ...]:
    if len(found) < 2:
        return tuple(found)
    return tuple(run if run.place else replace(run, place=f"run {n}") for n, run in enumerate(found, 1))


def _documents(raw: bytes) -> list[Any] | None:
    """The JSON documents of a file, one, or one a line (--append-result); None: it is no JSON."""
    if raw.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return [outside.json(raw)]
    except ValueError:
        pass
    found = []
    for line in raw.splitlines():
        if not line.strip():
            continue
        try:
            found.append(outside.json(line))
        except ValueError:
            return None
        if len(found) > 4 * MOST_RUNS:
            break
    return found
