"""The sources that a recording holds, each as what it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_doctor.model.observation import Observation
from vllm_doctor.model.report import RecordingSeen
from vllm_doctor.session.attachment import Attachment, Opener, Turn
from vllm_doctor.session.source import Source
from vllm_doctor.session.sources import log

if TYPE_CHECKING:
    from vllm_doctor.recording.bundle import Recorded, Recording


def is_named_by(word: str) -> bool:
    """A folder, or a .tar.gz."""
    if word in ("", log.STDIN) or "://" in word or word.isdigit():
        return False
    from vllm_doctor.recording import archive

    return archive.is_recording(Path(word))


def opened(words: Sequence[str], how: Attachment, opened: ExitStack, beside: Sequence[Source]) -> list[Source]:
    """What each holds; with anything beside it, its patients bear its name. Raises SourceError."""
    from vllm_doctor.recording import bundle

    alone = len(words) == 1 and not beside
    return [source for word in words for source in of_recording(bundle.read(Path(word)), how, alone)]


OPENER = Opener(is_named_by, Turn.RECORDING, opened)


def of_recording(found: Recording, how: Attachment, alone: bool = True) -> Iterator[Source]:
    """The sources of one recording. `alone`: nothing else is examined with it."""
    from vllm_doctor.recording.bundle import Replayed

    seen = found.seen(how.rules())
    for one in found.sources:
        patient = one.patient if alone else f"{found.name} {one.patient or one.target}"
        look = partial(_recorded, one, patient, seen, found.taken.timestamp(), how)
        replay = None if one.logs else partial(Replayed, one, patient, how.wanted)
        yield Source(one.kind, one.target, patient, look, recording=found, replay=replay)


def beside(how: Attachment, sources: Sequence[Source]) -> Iterator[Source]:
    """What a demo's recording holds beside its server, which is asked over HTTP: its host, its GPUs."""
    for one in how.recorded.sources if how.recorded is not None and sources else ():
        if one.metrics is None and not one.logs:
            seen = replace(one.observation(how.wanted), target=f"{one.target}, recorded", patient=sources[0].patient)
            yield Source(one.kind, seen.target, seen.patient, partial(replace, seen))


def _recorded(one: Recorded, patient: str, seen: RecordingSeen, taken: float, how: Attachment) -> Observation:
    """One source of a recording."""
    if not one.logs:
        return replace(one.observation(how.wanted), patient=patient, recording=seen)
    from vllm_doctor.rules import log_lines, rule
    from vllm_doctor.sources.log import source
    from vllm_doctor.sources.log.bytes_stream import Held

    written = taken if one.log_written is None else one.log_written
    held = [Held(name, text, written) for name, text in one.logs]
    table = log_lines.load(rule.shipped(), *how.folders)
    read = source.Log(held, table, *log.periods(how), age=one.log_age).examine(patient)
    lacking = (f"the recording lacks {', '.join(one.lacks)}",) if one.lacks else ()
    return replace(read, target=one.target, notes=(*one.notes, *read.notes, *lacking), recording=seen)
