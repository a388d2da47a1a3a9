"""Benchmark results: files, folders of them, and tables within a text or a log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.patients import without_load
from vllm_doctor.session.source import Source
from vllm_doctor.sources.bench import signs
from vllm_doctor.text import files

if TYPE_CHECKING:
    from vllm_doctor.sources.bench.commands import BenchCommand
    from vllm_doctor.sources.bench.source import Result

_STDIN = "-"
_MOST_BYTES = 1_000_000


def is_named_by(word: str) -> bool:
    """A file that holds a result and no log, or a folder with results that is no recording."""
    if word in ("", _STDIN) or "://" in word or word.isdigit():
        return False
    if not os.path.exists(word):  # never raises: a name may be too long
        return False
    path = Path(word)
    if path.is_dir():
        from vllm_doctor.sources.bench import source

        return not (path / "recording.json").exists() and bool(source.of_folder(path))
    return path.is_file() and _holds_result(path) and not signs.holds_log(path)


def _holds_result(path: Path) -> bool:
    """As source.holds_result; where the file has no sign of one, the readers of results are not imported."""
    if not signs.may_hold_result(path):
        return False
    from vllm_doctor.sources.bench import source

    return source.holds_result(path)


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """Each run: of the one server beside it, else a patient of its own."""
    from vllm_doctor.sources.bench import source

    paths = [path for word in words for path in _paths(Path(word))]
    results = source.results(paths, how.benchmark)
    patients = {one.patient for one in beside}
    if len(patients) == 1:
        return list(of_patient(results, patients.pop()))
    return [Source(SourceKind.BENCH, one.target, one.target, partial(one.examine, one.target)) for one in results]


OPENER = Opener(is_named_by, Turn.BENCH, opened)


def made_by(given: str, deadline: float) -> BenchCommand | None:
    """The one benchmark's command in what --command holds, a text or a file, if no server is started there."""
    if "bench" not in given and not os.path.isfile(given):
        return None
    from vllm_doctor.launch import source as launch
    from vllm_doctor.sources.bench import commands

    try:
        launch.open_command(given, deadline)
        return None
    except SourceError as error:
        if error.kind != "not-vllm":
            return None
    text = files.read(given, _MOST_BYTES).decode("utf-8", "replace") if os.path.isfile(given) else given
    found = list(commands.commands(text))
    return found[0] if len(found) == 1 else None


def _paths(path: Path) -> list[Path]:
    from vllm_doctor.sources.bench import source

    return source.of_folder(path) if path.is_dir() else [path]


def as_said(how: Attachment, beside: Sequence[Source]) -> list[Source]:
    """The speed that --measured names, of the one server that is examined. Raises UsageError."""
    if how.measured is None:
        return []
    patients = list(dict.fromkeys(source.patient for source in beside))
    if len(patients) != 1:
        raise UsageError(f"--measured is of one server, and {len(patients)} are examined: give one of them")
    if any(source.kind is SourceKind.BENCH for source in beside):
        raise UsageError("--measured and a benchmark's result both say how fast it is: give one of them")
    said = how.measured
    return [Source(SourceKind.BENCH, said.target, patients[0], partial(said.examine, patients[0]))]


def of_patient(results: Sequence[Result], patient: str) -> Iterator[Source]:
    """The results as one server's: of several the fastest."""
    if not results:
        return
    best, notes = fastest(results)
    yield Source(SourceKind.BENCH, best.target, patient, partial(best.examine, patient, notes))


def fastest(results: Sequence[Result]) -> tuple[Result, tuple[str, ...]]:
    """The one with the most tokens a second, which is judged beside a server; with a note where there are others."""
    from vllm_doctor.sources.bench import facts

    best = max(results, key=lambda result: facts.output_rate(result.run) or 0.0)
    note = f"of {len(results)} benchmark results the fastest is judged; for another, give it as a file of its own"
    return best, (note,) if len(results) > 1 else ()


def with_results(seen: Observation, raw: bytes) -> Observation:
    """What was seen of a text, with the benchmark results that stand in it: beside a log, or in its place."""
    from vllm_doctor.sources.bench import source

    results = source.of_text(raw, seen.target)
    if not results:
        return seen
    best, notes = fastest(results)
    told = best.examine(seen.patient, notes)
    if seen.error is not None:
        return replace(told, patient=seen.patient or seen.target)
    facts = without_load(told.facts)
    runs = tuple(replace(run, facts={**facts, **run.facts}) for run in seen.runs)
    return replace(
        seen,
        facts={**facts, **seen.facts},
        models=seen.models or told.models,
        runs=runs,
        bench=told.bench,
        notes=(*seen.notes, *told.notes),
    )


def in_log(paths: Sequence[Path], patient: str) -> Iterator[Source]:
    """What benchmarks printed into the logs of a server."""
    holding = [path for path in paths if _holds_result(path)]
    if not holding:
        return
    from vllm_doctor.sources.bench import source

    results: list[Result] = []
    for path in holding:
        try:
            results += source.results([path])
        except SourceError:
            continue  # it is read as a log, whatever else it looks like
    yield from of_patient(results, patient)
