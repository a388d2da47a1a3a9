"""Traces of a profiler: all that are named are the ranks of one server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log


def is_named_by(word: str) -> bool:
    """A file that is a trace by its content, or a folder that vLLM's profiler wrote."""
    if word == log.STDIN or not log.is_named_by(word):
        return False
    path = Path(word)
    if not path.exists():
        return False
    from vllm_doctor.sources.trace import signs

    return signs.is_trace(path) if path.is_file() else bool(signs.of_folder(path))


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """All of them as one source: of the one server beside it, else a patient of its own."""
    from vllm_doctor.sources.trace import source

    paths = [path for word in words for path in _paths(Path(word))]
    patients = {one.patient for one in beside}
    patient = patients.pop() if len(patients) == 1 else words[0]
    return [Source(SourceKind.TRACE, words[0], patient, partial(source.examine, paths, patient))]


def _paths(path: Path) -> list[Path]:
    from vllm_doctor.sources.trace import signs

    return signs.of_folder(path) if path.is_dir() else [path]


OPENER = Opener(is_named_by, Turn.TRACE, opened)
