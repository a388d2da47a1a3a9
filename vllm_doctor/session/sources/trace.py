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

    paths = [path for word in words for path in origins(word)]
    patients = {one.patient for one in beside}
    patient = patients.pop() if len(patients) == 1 else words[0]
    return [Source(SourceKind.TRACE, words[0], patient, partial(source.examine, paths, patient))]


def begins(raw: bytes) -> bool:
    """Whether what begins like this, on standard input, is a trace."""
    if raw[:1] not in (b"{", b"[", b"\x1f", b"\x28", b"\xfd", b"B", b"S"):
        return False
    from vllm_doctor.sources.trace import signs  # late: few are

    return signs.begins_trace(raw)


def is_on_stdin() -> bool:
    """Whether a trace comes by standard input, of which the first bytes are waited for."""
    from vllm_doctor.sources.trace import signs

    return signs.is_on_stdin()


def origins(word: str) -> list[Path | None]:
    """The files that a word names; None: standard input."""
    from vllm_doctor.sources.trace import signs

    if word == log.STDIN:
        return [None]
    path = Path(word)
    return [*signs.of_folder(path)] if path.is_dir() else [path]


OPENER = Opener(is_named_by, Turn.TRACE, opened)
