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
    """A file that is a trace by its content."""
    if word == log.STDIN or not log.is_named_by(word):
        return False
    path = Path(word)
    if not path.is_file():
        return False
    from vllm_doctor.sources.trace import signs

    return signs.is_trace(path)


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """All of them as one source: of the one server beside it, else a patient of its own."""
    from vllm_doctor.sources.trace import source

    paths = [Path(word) for word in words]
    patients = {one.patient for one in beside}
    patient = patients.pop() if len(patients) == 1 else words[0]
    return [Source(SourceKind.TRACE, words[0], patient, partial(source.examine, paths, patient))]


OPENER = Opener(is_named_by, Turn.TRACE, opened)
