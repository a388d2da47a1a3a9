"""The signals of one server, seen in one look: what names it, a command as it is written, the names of its GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reading import Reading
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.attach import attach
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.observe import observe
from vllm_doctor.session.patients import believed, patients
from vllm_doctor.sources.server.access import Access

_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Look:
    """How to read a signal; the model's name, None where it is not told; what is known; what --gpu is taken for."""

    read: Callable[[str], Reading]
    model: str | None
    facts: Mapping[str, Reading]
    notes: tuple[str, ...] = ()


def look(
    command: str | None, gpu: str | None, vllm: str | None, catalogue: Catalogue, words: Sequence[str] = ()
) -> Look:
    """`words`: sources, as the examination takes them; `vllm`: the version of a command that tells none. Raises
    UsageError and SourceError, with one line to act on."""
    until = time.monotonic() + _SECONDS
    how = Attachment(catalogue.metrics, Access(), 0.0, until, command=command, gpu=gpu, vllm=vllm)
    with ExitStack() as opened:
        observed = observe(attach(words, how, opened), _SECONDS)
    examined = patients(observed)
    if gpu and (refused := next((o.error for o in observed if o.kind is SourceKind.GPU_NAME and o.error), None)):
        raise UsageError(refused.message)
    if len(examined) != 1:
        raise UsageError(f"{len(examined)} servers are named, and the question is of one" if examined else _NOTHING)
    if words and not examined[0].can_be_judged:
        raise next((SourceError(o.error.kind, o.error.message) for o in observed if o.error), UsageError(_NOTHING))
    found = examined[0].snapshot(catalogue, {}, False)
    subject = found.subjects[0] if found.subjects else ()
    model = next((name for o in believed(examined[0].observations) for name in o.models), None)
    notes = tuple(note for o in observed if o.kind is SourceKind.GPU_NAME for note in o.notes)
    return Look(lambda name: found.read(name, subject)[1], model, examined[0].facts(), notes)


_NOTHING = "nothing there describes a server: give its log, its URL, or --command"
