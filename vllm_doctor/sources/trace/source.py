"""Traces as a source: one file, or one of each rank, as an Observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import Problem
from vllm_doctor.model.trace import RankSeen, TraceSeen
from vllm_doctor.rules import kernel_table
from vllm_doctor.sources.trace import facts, gathered, ranks, seen, signs
from vllm_doctor.sources.trace.events import Events

_TORCH, _NSYS = "torch's profiler", "Nsight Systems"


@dataclass
class _File:
    rank: RankSeen
    collectives: ranks.Collectives
    notes: list[str]
    tool: str


def examine(paths: Sequence[Path | None], patient: str) -> Observation:
    """What the files show together (None: standard input). One that cannot be read is an error only where none can."""
    found: list[_File] = []
    notes: list[str] = []
    problem: Problem | None = None
    for path in paths:
        try:
            found += _read(path)
        except SourceError as error:
            problem = problem or Problem(error.kind, str(error))
            notes.append(str(error))
    target = ("-" if paths[0] is None else str(paths[0])) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    if not found:
        return Observation(SourceKind.TRACE, target, error=problem, patient=patient)
    found.sort(key=lambda file: (file.rank.rank is None, file.rank.rank or 0, file.rank.target))
    each, slowest, why = ranks.compared([file.rank for file in found], [file.collectives for file in found])
    for file in found:
        notes += file.notes if len(paths) == 1 else [f"{file.rank.target}: {note}" for note in file.notes]
    if why:
        notes.append(why)
    notes = list(dict.fromkeys(notes))  # each device of a file has its own
    told = TraceSeen(found[0].tool, tuple(each), slowest, tuple(notes))
    return Observation(
        SourceKind.TRACE, target, facts=facts.facts(told), notes=tuple(notes), patient=patient, trace=told
    )


def _read(path: Path | None) -> list[_File]:
    table = kernel_table.load()
    name = "standard input" if path is None else path.name
    if not signs.is_sqlite(path):
        trace, events = gathered.read(path, table)
        return [_seen(events, trace.header, name, trace.notes, trace.is_whole, _TORCH)]
    from vllm_doctor.sources.trace import nsys  # late: few are

    each = list(nsys.read(path, table))
    if not each:
        raise SourceError(
            "empty", f"{name} is a SQLite database without kernels: nsys profile --trace=cuda, and export it"
        )
    return [_seen(events, header, name, (), True, _NSYS) for header, events in each]


def _seen(
    events: Events, header: Mapping[str, Any], name: str, notes: Sequence[str], is_whole: bool, tool: str
) -> _File:
    rank = seen.seen(events, header, name, is_whole)
    if rank is None and not is_whole:
        raise SourceError("unreadable", f"{name} is damaged, and no event of it can be read: copy it again")
    if rank is None:
        raise SourceError("empty", f"{name} is a trace in which nothing ran: profile while requests are served")
    return _File(rank, ranks.collectives(events), [*notes, *seen.notes(events, rank)], tool)
