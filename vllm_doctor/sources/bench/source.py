"""Files of benchmark results, as a source: each run an Observation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import BenchSeen
from vllm_doctor.sources.bench import documents, facts, signs
from vllm_doctor.sources.bench.commands import BenchCommand, commanded
from vllm_doctor.sources.bench.run import BenchRun, NoRunError
from vllm_doctor.text import files
from vllm_doctor.vllm import gpu_names

_MOST_FILES, _MOST_LOOKED_AT, _DEPTH = 256, 2000, 3
_ENDINGS = (".json", ".jsonl", ".csv", ".yaml", ".yml", ".txt", ".log")


def holds_result(path: Path) -> bool:
    """Whether the file is a result, or holds a printed one. Of most others only the signs are looked for."""
    if not signs.may_hold_result(path):
        return False
    try:
        return bool(_read(path))
    except SourceError as error:
        return error.kind == "not-bench"  # it is one, and broken


@dataclass(frozen=True)
class Result:
    """One run, and what was measured before it against the same server."""

    target: str
    run: BenchRun
    before: tuple[BenchRun, ...] = ()
    gpu: str | None = None
    """The GPU that the text around it names."""

    def examine(self, patient: str, notes: Sequence[str] = ()) -> Observation:
        """What this run tells."""
        run = self.run
        return Observation(
            SourceKind.BENCH,
            self.target,
            facts=facts.facts(run, self.before) | self._machine(),
            models=(run.model,) if run.model else (),
            notes=tuple(notes),
            patient=patient,
            bench=seen(run, self.target),
        )

    def _machine(self) -> dict[str, Reading]:
        return {} if self.gpu is None else {"gpu_written": Known(self.gpu, origin=facts.ORIGIN)}


def results(paths: Sequence[Path], made_by: BenchCommand | None = None) -> list[Result]:
    """The runs of these files, in their order; `made_by`: their command, where it is not in them. Raises SourceError:
    unreadable, too-large, not-bench."""
    found: list[Result] = []
    for path in paths:
        runs = _read(path)
        if not runs:
            raise SourceError("not-bench", f"{path}: holds no result of a benchmark that is known")
        if made_by is not None:
            runs = tuple(run if run.has_command else commanded(run, made_by) for run in runs)
        found += _results(runs, str(path), found, _gpu(path))
    return found


def of_text(raw: bytes, target: str) -> list[Result]:
    """The runs in what was read already; none where it is nothing of a benchmark."""
    try:
        runs = documents.runs(raw) if signs.SIGNS.search(raw) else ()
    except NoRunError:
        return []
    return _results(runs, target, [], gpu_names.in_text(raw.decode("utf-8", "replace")))


def _gpu(path: Path) -> str | None:
    """The GPU that the file's beginning or end names."""
    return gpu_names.in_text(signs.ends(path).decode("utf-8", "replace"))


def _results(runs: Sequence[BenchRun], target: str, before: Sequence[Result], gpu: str | None = None) -> list[Result]:
    found: list[Result] = []
    for run in runs:
        earlier = tuple(one.run for one in (*before, *found))
        found.append(Result(f"{target}: {run.place}" if run.place else target, run, earlier, gpu))
    return found


def _read(path: Path) -> tuple[BenchRun, ...]:
    try:
        raw = files.read(path, documents.MOST_BYTES)
    except OSError as error:
        raise SourceError("unreadable", f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) > documents.MOST_BYTES:
        raise SourceError("too-large", f"{path}: larger than 64 MiB: save it without its single requests")
    try:
        return documents.runs(raw)
    except NoRunError as error:
        raise SourceError("not-bench", f"{path}: {error}") from None


def of_folder(folder: Path) -> list[Path]:
    """The results in a folder and those below it, as `vllm bench sweep` writes them: each run once, and no summary of
    them. Of a folder that holds very much only some is looked at."""
    found = []
    for path in sorted(islice(_files(folder, _DEPTH), _MOST_LOOKED_AT)):
        if path.name == "warmup.json" or (path.name == "summary.json" and any(path.parent.glob("run=*.json"))):
            continue
        if path.name.endswith(_ENDINGS) and holds_result(path):
            found.append(path)
            if len(found) == _MOST_FILES:
                break
    return found


def _files(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_LOOKED_AT):
                if entry.is_file():
                    yield Path(entry.path)
                elif depth and entry.is_dir(follow_symlinks=False):
                    yield from _files(Path(entry.path), depth - 1)
    except OSError:
        return


def seen(run: BenchRun, target: str) -> BenchSeen:
    """What a person wants to know of it first."""
    return BenchSeen(
        target=target,
        tool=run.tool,
        model=run.model,
        requests=run.completed,
        failed=run.failed,
        concurrency=run.asked.concurrency if run.is_capped else None,
        rate=run.asked.rate if run.asked.rate is not None and run.asked.rate != float("inf") else None,
        seconds=run.duration,
        input_len=run.input_len,
        output_len=run.output_len,
        output_tokens_per_second=facts.output_rate(run),
        ttft=run.ttft.usual,
        tpot=run.tpot.usual or facts.tpot(run),
        is_tpot_derived=run.tpot.usual is None,
    )
